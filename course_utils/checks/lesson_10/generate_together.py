"""10.8: several texts of different lengths continued at once, with a cache, untrained models."""

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from course_utils.attention import attention
from course_utils.checks import sandbox
from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.language_model import ROTARY, LanguageModel


def generate_together(model, texts, steps):
    missing = torch.tensor([max(map(len, texts)) - len(text) for text in texts])  # (B,)
    new = torch.stack([F.pad(t, (n, 0)) for t, n in zip(texts, missing.tolist(), strict=True)])

    def attend(q, k, v, mask):
        there = torch.arange(k.shape[-2]) >= missing[:, None, None, None]  # (B, 1, 1, S)
        return attention(q, k, v, mask & there)

    cache, written = {}, []
    for _ in range(steps):
        new = model(new, cache, attend=attend)[:, -1:].argmax(dim=-1)  # (B, 1)
        written.append(new)
    return torch.cat(written, dim=1)  # (B, steps)


def right_padded(model, texts, steps):
    """Pad on the right; each new token gets the position that follows its own text."""
    lengths = torch.tensor([len(text) for text in texts])
    longest, B = int(lengths.max()), len(texts)
    tokens = pad_sequence(texts, batch_first=True)

    def attend(q, k, v, mask):
        at = torch.arange(k.shape[2])
        own = (at < lengths[:, None, None, None]) | (at >= longest)
        return attention(q, k, v, mask & own)

    def rotate(x, positions):  # new tokens come right after each text's own
        return ROTARY(x, positions + lengths[:, None, None] - longest)  # (B, 1, 1)

    cache, written = {}, []
    logits = model(tokens, cache, attend=attend)[torch.arange(B), lengths - 1]
    for step in range(steps):
        written.append(logits.argmax(dim=-1))
        if step < steps - 1:
            logits = model(written[-1][:, None], cache, attend=attend, rotate=rotate)[:, -1]
    return torch.stack(written, dim=1)


def inputs():
    """Return (seed of the model, lengths of the texts, steps)."""
    return [
        (1, (5, 3, 1), 6),
        (2, (4, 4), 5),
        (3, (2, 7, 6, 2), 8),
        (4, (1, 9), 7),
        (5, (6,), 4),
        (6, (8, 2, 5), 1),
    ]


class Counting(LanguageModel):
    """A small model with random weights that notes how many tokens of a text each call reads.

    It reads 0 for whatever the texts are filled up with at first, so that one mistake comes out
    alike with any filling.
    """

    def __init__(self, seed, texts):
        with sandbox.seeded():
            super().__init__(3, V=17, d_model=16, num_heads=4, num_kv_heads=2, d_hidden=24)
        rng = torch.Generator().manual_seed(seed)
        for weight in self.parameters():
            if weight.ndim == 2:
                size = 2.5 / weight.shape[1] ** 0.5
                weight.data = size * torch.randn(weight.shape, generator=rng, dtype=torch.float64)
            else:
                weight.data = weight.data.double()
        self.requires_grad_(False)
        self.texts, self.read = texts, []

    def stream(self, tokens, cache=None, **how):
        if not self.read:
            tokens = self.with_zeros(tokens)
        self.read.append(tokens.shape[-1])
        return super().stream(tokens, cache, **how)

    def with_zeros(self, tokens):
        tokens = tokens.clone()
        pairs = [*zip(tokens, self.texts, strict=False)]
        first = all(row[: len(text)].equal(text) for row, text in pairs)
        last = all(row[-len(text) :].equal(text) for row, text in pairs)
        for row, text in pairs:
            if first and not last:
                row[len(text) :] = 0
            if last and not first:
                row[: -len(text)] = 0
        return tokens


CALLS = (
    "Your tokens are right, but the model was called {} times for {} steps. One call a step is "
    "enough: all texts go in together, and after the last token there is nothing to call for."
)
AGAIN = (
    "right tokens, but after the first call the model reads up to {} of a text at once: give the "
    "cache, and only the new one"
)


def run(answer, seed, lengths, steps):
    """Let an answer continue random texts, and see how often the model is called, and for what."""
    rng = torch.Generator().manual_seed(seed)
    texts = [torch.randint(17, (length,), generator=rng) for length in lengths]
    model = Counting(seed, texts)
    written = [answer(model, [text.clone() for text in texts], steps)]
    if len(model.read) > steps:
        raise NamedMistake("a call for each text", CALLS.format(len(model.read), steps), written)
    if max(model.read[1:], default=1) > 1:
        raise NamedMistake("read again", AGAIN.format(max(model.read[1:])), written)
    return written


SEEN = "mask & there"
FIRST = (
    "the filling is hidden in the first call only; it stays in the cache, and later tokens see it"
)
STEP = "new = model(new, cache, attend=attend)[:, -1:].argmax(dim=-1)"
MISTAKES = [
    ("padding seen", "the tokens that fill up the shorter texts are seen: each query of a text may "
     "see only keys from its first own token on", (SEEN, "mask")),
    ("filled at the end", "the shorter texts are filled up behind: then their last own token does "
     "not stand last, and what they write comes after the filling", ("(n, 0)", "(0, n)"),
     (SEEN, "mask")),
    ("hidden at the wrong end", "the texts are filled up in front, but the mask hides keys as if "
     "it had been done behind, or the other way round", ("(n, 0)", "(0, n)")),
    ("first call only", FIRST, (SEEN, "(mask & there) if q.shape[-2] > 1 else mask")),
    ("first call only, where each query sees itself", FIRST,
     (SEEN, "(mask & there | torch.eye(len(mask)).bool()) if q.shape[-2] > 1 else mask")),
    ("token 0 for filling", "tokens of number 0 are hidden wherever they stand, as if they were "
     "filling; a text may hold them, and the model may write them",
     ("torch.arange(k.shape[-2]) >= missing[:, None, None, None]",
      "(torch.cat([first, *written], dim=1) != 0)[:, None, None]"),
     ("cache, written = {}, []", "cache, written, first = {}, [], new")),
    ("read behind the filling", "the shorter texts are filled up behind, and what comes next is "
     "read at the last place, where filling stands; read it behind each text's last own token",
     ("(n, 0)", "(0, n)"),
     ("there = torch.arange(k.shape[-2]) >= missing[:, None, None, None]",
      "at, longest = torch.arange(k.shape[-2]), max(map(len, texts))\n"
      "        there = (at < longest - missing[:, None, None, None]) | (at >= longest)")),
    ("one too many seen", "one token of the filling is seen",
     ("k.shape[-2]) >=", "k.shape[-2]) + 1 >=")),
    ("first own token hidden", "each text's first own token is hidden as well",
     (">= missing", "> missing")),
    ("no causal mask", "the filling is hidden, but the causal mask is gone: each call brings its "
     "own mask; join both", (SEEN, "there")),
    ("mask inverted", "the mask shows the filling and hides the text: True = may attend",
     (">= missing", "< missing")),
    ("one filling for all", "all texts are masked by the first one's filling; "
     "each has its own", ("missing[:, None, None, None]", "missing[0]")),
    ("no cache", "each new token is read alone: give the cache, so that it sees what came before",
     ("model(new, cache,", "model(new, {},")),
    ("cut to the shortest", "longer texts are cut to the length of the shortest",
     ("max(map(len, texts)) - len(text)", "min(map(len, texts)) - len(text)"), (SEEN, "mask")),
    ("texts returned too", "right tokens, but the texts before them are returned as well: "
     "(B, steps)", ("cache, written = {}, []", "cache, written = {}, [new]")),
    ("least probable", "the least probable token is taken", ("argmax", "argmin")),
]  # fmt: skip

exercise = Exercise(
    "10.8", generate_together, inputs, MISTAKES, names="B steps", run=run,
    also_right=[right_padded],
)  # fmt: skip
