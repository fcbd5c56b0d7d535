"""10.8: several texts of different lengths continued at once, with a cache."""

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


def left_padded_by_rows(model, texts, steps):
    """Pad on the left, and give each row its own positions, as lesson 09 does."""
    lengths = torch.tensor([len(text) for text in texts])
    longest = int(lengths.max())
    new = torch.stack([F.pad(text, (longest - len(text), 0)) for text in texts])  # (B, L)
    real = torch.arange(longest) >= longest - lengths[:, None]  # (B, L)

    def attend(q, k, v, mask):
        return attention(q, k, v, mask & real[:, None, None])

    def rotate(x, positions):
        rows = (real.cumsum(dim=-1) - 1).clamp(min=0)  # (B, S)
        return ROTARY(x, rows[:, None, -len(positions) :])  # (B, 1, L)

    cache, written = {}, []
    for _ in range(steps):
        new = model(new, cache, attend=attend, rotate=rotate)[:, -1:].argmax(dim=-1)
        real = F.pad(real, (0, 1), value=True)
        written.append(new)
    return torch.cat(written, dim=1)


def right_padded(model, texts, steps):
    """Pad on the right; each new token gets the position that follows its own text."""
    lengths = torch.tensor([len(text) for text in texts])
    longest, B = int(lengths.max()), len(texts)
    tokens = pad_sequence(texts, batch_first=True)

    def attend(q, k, v, mask):
        at = torch.arange(k.shape[2])
        own = (at < lengths[:, None, None, None]) | (at >= longest)
        return attention(q, k, v, mask & own)

    def rotate(x, positions):  # new tokens follow the last token of their own text
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
    """A small model with random weights that records how many tokens of a text each call reads.

    Whatever number an answer uses as padding in the first call, the model reads 0 there. So a
    mistake gives the same result with any padding.
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
    "Your tokens are right, but the model was called {} times for {} steps. One call per step is "
    "enough. Put all texts into one call, and stop after the last token."
)
AGAIN = (
    "Your tokens are right, but after the first call the model reads up to {} tokens of a text at "
    "once. Pass the cache, and only the new token of each text."
)


def run(answer, seed, lengths, steps):
    """Let an answer continue random texts, and count the calls and tokens of the model."""
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
    "Your later tokens see padding. The padding is hidden in the first call only, but its "
    "keys stay in the cache. Hide it in every call."
)
STEP = "new = model(new, cache, attend=attend)[:, -1:].argmax(dim=-1)"
MISTAKES = [
    ("padding seen", "Your tokens fit texts whose padding is visible. A query may only see keys of "
     "its own text. Mask the padding.", (SEEN, "mask")),
    ("padded at the end", "Your tokens fit padding at the end of the shorter texts. Then their "
     "last token is not in the last column, and new tokens come after padding. Put the padding "
     "first.", ("(n, 0)", "(0, n)"), (SEEN, "mask")),
    ("hidden at the wrong end", "Your mask hides the wrong end of the shorter texts. The padding "
     "is at the other end. Hide the keys that are padding.", ("(n, 0)", "(0, n)")),
    ("first call only", FIRST, (SEEN, "(mask & there) if q.shape[-2] > 1 else mask")),
    ("first call only, where each query sees itself", FIRST,
     (SEEN, "(mask & there | torch.eye(len(mask)).bool()) if q.shape[-2] > 1 else mask")),
    ("token 0 as padding", "Your mask hides every token with the number 0, as if it were padding. "
     "A text may contain it, and the model may generate it. Hide positions, not numbers.",
     ("torch.arange(k.shape[-2]) >= missing[:, None, None, None]",
      "(torch.cat([first, *written], dim=1) != 0)[:, None, None]"),
     ("cache, written = {}, []", "cache, written, first = {}, [], new")),
    ("read after the padding", "Your first tokens come from the last column, which is padding in "
     "the shorter texts. Read the logits at the last token of each text.",
     ("(n, 0)", "(0, n)"),
     ("there = torch.arange(k.shape[-2]) >= missing[:, None, None, None]",
      "at, longest = torch.arange(k.shape[-2]), max(map(len, texts))\n"
      "        there = (at < longest - missing[:, None, None, None]) | (at >= longest)")),
    ("one too many seen", "Your tokens fit texts in which one token of padding is visible. Hide "
     "all of it.", ("k.shape[-2]) >=", "k.shape[-2]) + 1 >=")),
    ("first own token hidden", "Your mask also hides the first token of each text. Hide only the "
     "padding.", (">= missing", "> missing")),
    ("no causal mask", "Your padding is hidden, but tokens see later ones. `attend` also gets a "
     "causal mask. Combine both with &.", (SEEN, "there")),
    ("mask inverted", "Your mask shows the padding and hides the text. True means that a query may "
     "attend. Invert it.", (">= missing", "< missing")),
    ("one padding for all", "All your texts are masked by the padding of the first one. Use the "
     "length of each text.", ("missing[:, None, None, None]", "missing[0]")),
    ("no cache", "Your new tokens do not see the tokens before them. Pass the same cache to every "
     "call.", ("model(new, cache,", "model(new, {},")),
    ("cut to the shortest", "Your longer texts are cut to the length of the shortest. Pad the "
     "shorter ones instead.",
     ("max(map(len, texts)) - len(text)", "min(map(len, texts)) - len(text)"), (SEEN, "mask")),
    ("texts returned too", "Your tokens are right, but your result also contains the texts. Return "
     "only the new tokens, (B, steps).",
     ("cache, written = {}, []", "cache, written = {}, [new]")),
    ("least probable", "Your result takes the least probable token. Take the most probable one.",
     ("argmax", "argmin")),
]  # fmt: skip

exercise = Exercise(
    "10.8", generate_together, inputs, MISTAKES, names="B steps", run=run,
    also_right=[left_padded_by_rows, right_padded],
)  # fmt: skip
