"""10.8: several texts of different lengths continued at once, with a cache."""

import re

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from course_utils.attention import attention
from course_utils.checks.calls import seeded
from course_utils.checks.exercise import Exercise, NamedMistake, refuse_changes
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
    """Return (seed of the model, lengths of the texts, steps), and whether texts contain 0."""
    return [
        (1, (5, 3, 1), 6),
        (2, (4, 4), 5),
        (3, (2, 7, 6, 2), 8),
        (4, (1, 9), 7),
        (5, (6,), 4),
        (6, (8, 2, 5), 1),
        (7, (9, 3, 6), 6, True),
        (8, (2, 5), 7, True),
    ]


PASSED_AGAIN = (
    "After the first call, you pass {} tokens of each text to the model, but the cache already "
    "holds all except the new one. Pass only the new token of each text."
)
EMPTY = (
    "Your new tokens do not see the tokens before them, because the cache is empty in every call. "
    "Pass the same dict to every call."
)
NOT_GROWN = (
    "In call {}, your `attend` raises an error. There, k has {} keys, because the cache grows with "
    "each call. Make a mask with one column for each of these keys. If you keep the mask of the "
    "first call, append a column of True for each new token."
)
NO_PAIR = (
    "Your `attend` does not return two results, as `attention` does. The model uses the first and "
    "ignores the second. Return a pair, for example (output, None)."
)


class Counting(LanguageModel):
    """A small model with random weights that records how many tokens of a text each call reads.

    Whatever number an answer uses as padding in the first call, the model reads 0 there. So a
    mistake gives the same result with any padding.
    """

    def __init__(self, seed, texts):
        with seeded():
            super().__init__(3, V=17, d_model=16, num_heads=4, num_kv_heads=2, d_hidden=24)
        rng = torch.Generator().manual_seed(seed)
        for weight in self.parameters():
            if weight.ndim == 2:
                size = 2.5 / weight.shape[1] ** 0.5
                weight.data = size * torch.randn(weight.shape, generator=rng, dtype=torch.float64)
            else:
                weight.data = weight.data.double()
        self.requires_grad_(False)
        self.texts, self.read, self.rows = texts, [], set()

    def stream(self, tokens, cache=None, attend=attention, **how):
        if not self.read:
            tokens = self.with_zeros(tokens)
        elif cache and tokens.shape[-1] > 1:
            raise NamedMistake("cached tokens passed", PASSED_AGAIN.format(tokens.shape[-1]))
        elif not cache and tokens.shape == (len(self.texts), 1):
            raise NamedMistake("no cache", EMPTY)
        self.read.append(tokens.shape[-1])
        self.rows.add(len(tokens))
        return super().stream(tokens, cache, attend=self.explained(attend), **how)

    def explained(self, attend):
        """Return ``attend`` such that its likeliest errors are named."""

        def attend_or_explain(q, k, v, mask):
            try:
                results = attend(q, k, v, mask)
            except (RuntimeError, ValueError) as error:
                about_shapes = re.search("size of tensor|broadcast|shape", str(error))
                if len(self.read) == 1 or not about_shapes:
                    raise
                if k.shape[-2] == q.shape[-2]:
                    raise NamedMistake("no cache", EMPTY) from error
                hint = NOT_GROWN.format(len(self.read), k.shape[-2])
                raise NamedMistake("mask of another size", hint) from error
            if not isinstance(results, tuple | list) or len(results) != 2:
                raise NamedMistake("no pair from attend", NO_PAIR)
            return results

        return attend_or_explain

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


CALLS = "Your tokens are right, but you call the model {} times for {} steps. "
ALONE = CALLS + "One call per step is enough. Put all texts into one call."
PIECES = CALLS + "Read all tokens of the texts in the first call."
EXTRA = CALLS + "The last new token needs no call after it. Stop there."
AGAIN = (
    "Your tokens are right, but after the first call the model reads up to {} tokens of a text at "
    "once. Pass the cache, and only the new token of each text."
)


def run(answer, seed, lengths, steps, zeros=False):
    """Let an answer continue random texts, and count the calls and tokens of the model."""
    rng = torch.Generator().manual_seed(seed)
    texts = [torch.randint(17, (length,), generator=rng) for length in lengths]
    if zeros:  # 0 is a token like any other
        for text in texts:
            text[[0, len(text) // 2]] = 0
    model = Counting(seed, texts)
    given = [text.clone() for text in texts]
    written = [answer(model, given, steps)]
    refuse_changes([model, given, steps], [model, texts, steps])
    if (calls := len(model.read)) > steps:
        mistake, hint = ("a call for each text", ALONE)
        if model.rows == {len(texts)}:
            whole = model.read[0] >= max(lengths)
            mistake, hint = ("one call too many", EXTRA) if whole else ("read in pieces", PIECES)
        raise NamedMistake(mistake, hint.format(calls, steps), written)
    if max(model.read[1:], default=1) > 1:
        raise NamedMistake("read again", AGAIN.format(max(model.read[1:])), written)
    return written


SEEN = "mask & there"
TOP_LEFT = (
    "In later calls, your causal mask lets the new token see only the first key, because the mask "
    "starts in the top left corner. This happens with is_causal=True. Use the mask that `attend` "
    "gets, and mask the padding too."
)
ADDED = (
    "You add the mask to the scores as 0 and 1, so every key keeps a weight. If you give SDPA a "
    "mask, keep it boolean. Otherwise set the scores that the mask forbids to −∞. Mask the padding "
    "too."
)
FIRST = (
    "Your later tokens attend to padding. You mask the padding in the first call only, but its "
    "keys stay in the cache. Mask the padding in every call."
)
POSITIONS = (
    "In later calls, your positions start from 0 again. The position of a new token must follow "
    "those of the tokens in the cache. Count on from there."
)
THERE = "there = torch.arange(k.shape[-2]) >= missing[:, None, None, None]"
AT = "at, longest = torch.arange(k.shape[-2]), max(map(len, texts))\n        "
SHORT = "missing[:, None, None, None]"
RIGHT_END = AT + f"there = (at < longest - {SHORT}) | (at >= longest)"
RETURN = "return attention(q, k, v, mask & there)"
STEP = "new = model(new, cache, attend=attend)[:, -1:].argmax(dim=-1)"
MISTAKES = [
    ("padding seen", "In your result, tokens attend to padding. A query may only attend to keys of "
     "its own text. Mask the padding.", (SEEN, "mask")),
    ("padded at the end", "You pad the shorter texts on the right and do not mask the padding. "
     "Then their last token is not in the last column, and new tokens come after padding. Pad on "
     "the left, and mask the padding.", ("(n, 0)", "(0, n)"), (SEEN, "mask")),
    ("hidden at the wrong end", "You pad the shorter texts on the right, but your mask hides keys "
     "on the left. Pad on the left, so that your mask hides the padding.", ("(n, 0)", "(0, n)")),
    ("hidden at the other wrong end", "You pad the shorter texts on the left, but your mask hides "
     "keys on the right. Mask the keys on the left, which are padding.", (THERE, RIGHT_END)),
    ("first call only", FIRST, (SEEN, "(mask & there) if q.shape[-2] > 1 else mask")),
    ("first call only, where each query sees itself", FIRST,
     (SEEN, "(mask & there | torch.eye(len(mask)).bool()) if q.shape[-2] > 1 else mask")),
    ("mask grown on the left", "In later calls, your mask hides the wrong keys. The new keys are "
     "the last ones in the cache. Append the new columns of your mask on the right.",
     (THERE, AT + f"there = (at < len(at) - longest) | (at >= len(at) - longest + {SHORT})")),
    ("new tokens hidden", "In later calls, your mask hides the new tokens, so they do not see each "
     "other. New tokens are not padding. For each of them, append a column of True to your mask.",
     (THERE, AT + f"there = (at >= {SHORT}) & (at < longest)")),
    ("token 0 as padding", "Your mask hides every token with the id 0, as if it were padding. A "
     "text may contain 0, and the model may generate it. Find the padding by the lengths of the "
     "texts, not by ids.",
     (THERE.removeprefix("there = "),
      "(torch.cat([first, *written], dim=1) != 0)[:, None, None]"),
     ("cache, written = {}, []", "cache, written, first = {}, [], new")),
    ("token 0 of a text as padding", "Your mask hides every 0 in the texts, as if it were padding. "
     "A text may contain the token 0. Find the padding by the lengths of the texts, not by ids.",
     (THERE, "there = F.pad(first != 0, (0, k.shape[-2] - first.shape[1]), value=True)\n"
             "        there = there[:, None, None]"),
     ("cache, written = {}, []", "cache, written, first = {}, [], new")),
    ("read after the padding", "You pad on the right, and take the first new tokens from the last "
     "column, which is padding in the shorter texts. Pad on the left, and mask the padding there. "
     "Then the last column holds the last token of every text.",
     ("(n, 0)", "(0, n)"), (THERE, RIGHT_END)),
    ("padded at the end, positions counted on", "In the shorter texts, the positions of your "
     "new tokens count the padding, but those of the text do not. If you pad on the left, no "
     "`rotate` is needed. If you pad on the right, pass a `rotate` that gives the new tokens the "
     "positions after their own text.",
     ("(n, 0)", "(0, n)"), (THERE, RIGHT_END),
     (STEP, "at = max(map(len, texts)) - missing - 1 if not written else 0 * missing\n"
            "        new = model(new, cache, attend=attend)[torch.arange(len(at)), at]\n"
            "        new = new.argmax(dim=-1)[:, None]")),
    ("one too many seen", "In the shorter texts, your mask leaves one token of padding visible. "
     "Mask all of the padding.", ("k.shape[-2]) >=", "k.shape[-2]) + 1 >=")),
    ("first own token hidden", "Your mask also hides the first token of each text. Hide only the "
     "padding.", (">= missing", "> missing")),
    ("no causal mask", "You mask the padding, but in your result tokens attend to later tokens. "
     "The mask that `attend` gets is causal. Combine the two masks with &.", (SEEN, "there")),
    ("mask inverted", "Your mask shows the padding and hides the texts. True means that a query "
     "may attend. Invert your mask.", (">= missing", "< missing")),
    ("one padding for all", "You mask all texts as if they had the padding of the first one. Use "
     "the length of each text.", ("missing[:, None, None, None]", "missing[0]")),
    ("NaN from padding", "Your shorter texts get NaN. At a padding position, a query has no "
     "allowed key. All its scores are −∞, and their softmax is NaN. In the next layer, this "
     "NaN reaches the other tokens, because 0 · NaN is NaN. Set the weights of such a query to 0, "
     "as `attention` does.",
     (RETURN, "scores = q @ k.mT / q.shape[-1] ** 0.5\n"
              "        scores = scores.masked_fill(~(mask & there), -torch.inf)\n"
              "        return scores.softmax(dim=-1) @ v, None")),
    ("padding removed after softmax", "You remove the padding after softmax, from the weights or "
     "from the values. So padding still takes some of each query's weight. Mask the scores "
     "before softmax.",
     (RETURN, "weights = attention(q, k, v, mask)[1] * there\n        return weights @ v, None")),
    ("scores of padding set to 0", "You set the scores of padding to 0. A score of 0 still gets a "
     "weight, because e^0 is 1. Set these scores to −∞ before softmax.",
     (RETURN, "scores = q @ k.mT / q.shape[-1] ** 0.5 * there\n"
              "        return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ v, None")),
    ("not scaled", "Your scores are not scaled. Divide them by √d_k, as `attention` does.",
     (SEEN, "mask & there, scale=1.0")),
    ("no cache", EMPTY, ("model(new, cache,", "model(new, {},")),
    ("positions from 0", POSITIONS,
     ("attend=attend)", "attend=attend, rotate=lambda x, at: ROTARY(x, torch.arange(len(at))))")),
    ("positions of each row from 0", POSITIONS,
     ("attend=attend)",
      "attend=attend, rotate=lambda x, at: ROTARY(x, (torch.arange(len(at)) - missing[:, None, "
      "None] * (len(at) > 1)).clamp(min=0)))")),
    ("another rotary", "Your `rotate` uses the default base and layout of `rotary`. This model "
     "needs base=100_000 and interleaved=True. Pass both to `rotary`.",
     ("attend=attend)", "attend=attend, rotate=ROTARY.func)")),
    ("first new token dropped", "Your result begins with the second new token of each text. The "
     "first call already gives the first new token. Keep it.",
     ("range(steps)", "range(steps + 1)"), ("torch.cat(written,", "torch.cat(written[1:],")),
    ("cut to the shortest", "You cut the longer texts to the length of the shortest one. The model "
     "must read every token. Pad the shorter texts instead, and mask the padding.",
     ("max(map(len, texts)) - len(text)", "min(map(len, texts)) - len(text)"), (SEEN, "mask")),
    ("texts returned too", "Your tokens are right, but your result also contains the texts. Return "
     "only the new tokens, (B, steps).",
     ("cache, written = {}, []", "cache, written = {}, [new]")),
    ("least probable", "You take the least probable token. Take the most probable one.",
     ("argmax", "argmin")),
    ("window of keys", "Your mask shows only as many keys as a text has tokens, counted from the "
     "end. The cache grows, so in later calls this hides the first tokens of a text. Hide only the "
     "padding, which stays at the left end.",
     (THERE, f"there = torch.arange(k.shape[-2]) >= k.shape[-2] - max(map(len, texts)) + {SHORT}")),
    ("hidden from the right", "Your mask hides the last keys of each text, one for each token of "
     "padding. You pad on the left, so hide the first keys.",
     (THERE, AT + f"there = at < len(at) - {SHORT}")),
    ("causal from the top left", TOP_LEFT,
     (RETURN, "return F.scaled_dot_product_attention(q, k, v, is_causal=True), None")),
    ("causal from the top left, padding masked", TOP_LEFT,
     (SEEN, "torch.ones(q.shape[-2], k.shape[-2]).bool().tril() & there")),
    ("later calls only", "Your mask hides the padding in later calls only. In the first call, "
     "tokens attend to padding. Mask the padding in every call.",
     (SEEN, "(mask & there) if q.shape[-2] < k.shape[-2] else mask")),
    ("cut to the first tokens", "You cut the longer texts to the length of the shortest one. The "
     "model must read every token. Pad the shorter texts instead, and mask the padding.",
     ("F.pad(t, (n, 0)) for t, n in zip(texts, missing.tolist(), strict=True)",
      "t[: min(map(len, texts))] for t in texts"), (SEEN, "mask")),
    ("forbidden scores set to 0", "You multiply the scores by the mask, so forbidden scores become "
     "0. A score of 0 still gets a weight, because e^0 is 1. Set these scores to −∞ before "
     "softmax.",
     (RETURN, "scores = q @ k.mT / q.shape[-1] ** 0.5 * (mask & there)\n"
              "        return scores.softmax(dim=-1) @ v, None")),
    ("forbidden scores set to 0, padding seen", "You multiply the scores by the mask, so forbidden "
     "scores become 0. A score of 0 still gets a weight, because e^0 is 1. Set these scores to −∞ "
     "before softmax, and mask the padding too.",
     (RETURN, "scores = q @ k.mT / q.shape[-1] ** 0.5 * mask\n"
              "        return scores.softmax(dim=-1) @ v, None")),
    ("0 and 1 added", ADDED,
     (RETURN, "scores = q @ k.mT / q.shape[-1] ** 0.5 + (mask & there)\n"
              "        return scores.softmax(dim=-1) @ v, None")),
    ("0 and 1 added, padding as well", ADDED,
     (RETURN, "scores = q @ k.mT / q.shape[-1] ** 0.5 + mask.double()\n"
              "        return scores.softmax(dim=-1) @ v, None")),
    ("-10 for -inf", "You subtract 10 from forbidden scores. They still get a weight, because "
     "e^(score − 10) is not 0. Set these scores to −∞.",
     (RETURN, "scores = q @ k.mT / q.shape[-1] ** 0.5 - 10 * ~(mask & there)\n"
              "        return scores.softmax(dim=-1) @ v, None")),
    ("-10 for -inf, padding seen", "You subtract 10 from forbidden scores, and do not mask the "
     "padding. Set the scores of later tokens and of padding to −∞.",
     (RETURN, "scores = q @ k.mT / q.shape[-1] ** 0.5 - 10 * ~mask\n"
              "        return scores.softmax(dim=-1) @ v, None")),
    ("texts in place of heads", "Your padding mask has the shape (B, 1, S), so its B aligns with "
     "the heads of the scores (B, H, L, S). Give it the shape (B, 1, 1, S).",
     (THERE, "there = torch.arange(k.shape[-2]) >= missing[:, None, None]")),
    ("the default base", "Your `rotate` uses the default base of `rotary`, 10,000. This model "
     "needs base=100_000. Pass it to `rotary`.",
     ("attend=attend)",
      "attend=attend, rotate=lambda x, at: ROTARY.func(x, at, interleaved=True))")),
    ("the default layout", "Your `rotate` uses the halves layout, the default of `rotary`. This "
     "model needs interleaved=True. Pass it to `rotary`.",
     ("attend=attend)",
      "attend=attend, rotate=lambda x, at: ROTARY.func(x, at, base=100_000))")),
    ("first row read", "Your first new tokens come from the first row of the logits. The last row "
     "predicts the next token. Take row −1.", ("[:, -1:]", "[:, :1]")),
    ("either mask", "You combine the two masks with |, so a query may attend to a key if one of "
     "them allows it. Both must allow it. Combine the masks with &.", (SEEN, "mask | there")),
    ("queries masked", "Your mask hides the rows of padding, which are queries. Hide the columns "
     "instead, because no query may attend to a padding key. Give the mask the shape (B, 1, 1, S).",
     (SEEN, "mask & there.mT[:, :, -q.shape[-2] :]")),
    ("keys of padding set to 0", "Padding still takes some of each query's weight. If you set "
     "keys and values of padding to 0, its scores are 0, and e^0 is 1. Mask the scores before "
     "softmax.",
     (RETURN, "return attention(q, k * there.mT, v * there.mT, mask)")),
    ("one step less", "Your result has one token too few for each text. Generate `steps` "
     "tokens.", ("return torch.cat(written, dim=1)",
                 "return torch.cat(written[: max(steps - 1, 1)], dim=1)")),
    ("one step less, always", "Your result has one token too few for each text. Generate "
     "`steps` tokens.", ("return torch.cat(written, dim=1)",
                         "return torch.cat(written, dim=1)[:, : steps - 1]")),
    ("one step more", "Your result has one token too many for each text. Generate `steps` "
     "tokens.", ("range(steps)", "range(steps + 1)")),
    ("stops at 0", "After a token 0, your result has only zeros, as if the text had ended. Here, 0 "
     "is a token like any other. Go on for `steps` tokens.",
     ("return torch.cat(written, dim=1)",
      "done = ((new := torch.cat(written, dim=1)) == 0).cumsum(dim=1) > 0\n"
      "    return new.masked_fill(done, 0)")),
    ("sorted by length", "Your rows are in the order of the lengths of the texts. Return them in "
     "the order of `texts`.",
     ("    missing =", "    texts = sorted(texts, key=len)\n    missing =")),
    ("sorted by length, longest first", "Your rows are in the order of the lengths of the texts. "
     "Return them in the order of `texts`.",
     ("    missing =", "    texts = sorted(texts, key=len, reverse=True)\n    missing =")),
    ("transposed", "Your result is transposed. Return it with one row for each text, (B, steps).",
     ("return torch.cat(written, dim=1)", "return torch.cat(written, dim=1).T")),
]  # fmt: skip

exercise = Exercise(
    "10.8", generate_together, inputs, MISTAKES, names="B steps", run=run,
    also_right=[left_padded_by_rows, right_padded],
)  # fmt: skip
