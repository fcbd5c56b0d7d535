"""12.7: what a windowed layer must keep of texts of different lengths."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def keep_window(k, lengths, window, sinks):
    lengths = torch.as_tensor(lengths)[:, None]  # (B, 1)
    first = torch.arange(sinks)  # (sinks,)
    newest = lengths - (window - 1) + torch.arange(window - 1)  # (B, window - 1)
    first_real = first < lengths  # (B, sinks)
    newest_real = newest >= sinks  # (B, window - 1), no token is kept twice
    positions = torch.cat([first.expand(len(k), -1), newest], dim=1)  # (B, n)
    real = torch.cat([first_real, newest_real], dim=1)  # (B, n)
    index = positions.where(real, 0)[:, None, :, None]  # (B, 1, n, 1)
    kept = k.gather(2, index.expand(-1, k.shape[1], -1, k.shape[3]))  # (B, H, n, d_k)
    return kept.masked_fill(~real[:, None, :, None], 0), real


def by_loops(k, lengths, window, sinks):
    B, H, _, d_k = k.shape
    n = sinks + window - 1
    kept, real = k.new_zeros(B, H, n, d_k), torch.zeros(B, n, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        for slot in range(n):
            at = slot if slot < sinks else length - n + slot
            if at < length and (slot < sinks or at >= sinks):
                kept[b, :, slot], real[b, slot] = k[b, :, at], True
    return kept, real


def by_padding(k, lengths, window, sinks):
    kept, real = [], []
    for keys, length in zip(k, lengths.tolist(), strict=True):
        head = keys[:, : min(sinks, length)]
        tail = keys[:, max(sinks, length - window + 1) : max(sinks, length)]
        gap = sinks - head.shape[1] + window - 1 - tail.shape[1]
        kept.append(torch.cat([head, F.pad(tail, (0, 0, gap, 0))], dim=1))
        there = [head.new_ones(head.shape[1]), head.new_zeros(gap), head.new_ones(tail.shape[1])]
        real.append(torch.cat(there).bool())
    return torch.stack(kept), torch.stack(real)


def inputs():
    """Return (k, lengths, window, sinks)."""
    normal = normals(127)

    def probe(lengths, S, H, d_k, window, sinks, dtype=torch.float64):
        k = normal(len(lengths), H, S, d_k, dtype=dtype)
        return k, torch.tensor(lengths), window, sinks

    zeros = probe([7, 9], 9, 2, 3, window=4, sinks=1)
    zeros[0][0, :, 5] = 0  # a real key
    return [
        zeros,
        probe([8, 9, 7], 9, 2, 3, window=4, sinks=2),
        probe([11, 6], 11, 3, 5, window=3, sinks=1, dtype=torch.float32),
        probe([10, 8], 12, 2, 4, window=6, sinks=0),  # no text is as long as S
        probe([9, 5, 4], 9, 1, 2, window=5, sinks=2),  # window and sinks meet
        probe([3, 7, 1], 8, 2, 3, window=5, sinks=3),  # shorter than the window
        probe([6, 2], 6, 2, 5, window=1, sinks=3),  # a query sees only itself and the sinks
        probe([4, 2], 5, 3, 2, window=9, sinks=2),
    ]


NEWEST = "lengths - (window - 1) + torch.arange(window - 1)"
FIRST_REAL, NEWEST_REAL = "first < lengths", "newest >= sinks"
REAL = "torch.cat([first_real, newest_real], dim=1)"
JOINED = "torch.cat([first.expand(len(k), -1), newest], dim=1)"
RETURN = "return kept.masked_fill(~real[:, None, :, None], 0), real"
END_OF_S = (
    "Your newest tokens are the last ones of all S positions, whatever the length of the text "
    "is. The positions from length on are padding. Count back from each text's own length."
)
MISTAKES = [
    ("padding kept", END_OF_S,
     (NEWEST, "(k.shape[2] - (window - 1) + torch.arange(window - 1)).expand(len(k), -1)"),
     (NEWEST_REAL, "(newest >= sinks) & (newest < lengths)")),
    ("padding kept as real", END_OF_S,
     (NEWEST, "(k.shape[2] - (window - 1) + torch.arange(window - 1)).expand(len(k), -1)")),
    ("longest text for all",
     "For every text, you count back from the end of the longest one. Count back from each text's "
     "own length.",
     (NEWEST, "lengths.max() - (window - 1) + torch.arange(window - 1).expand(len(k), -1)")),
    ("shortest text for all",
     "For every text, you count back from the end of the shortest one. Count back from each text's "
     "own length.",
     (NEWEST, "lengths.min() - (window - 1) + torch.arange(window - 1).expand(len(k), -1)")),
    ("first text for all",
     "For every text, you count back from the end of the first one. Count back from each text's "
     "own length.",
     (NEWEST, "lengths[0] - (window - 1) + torch.arange(window - 1).expand(len(k), -1)")),
    ("window tokens",
     "You keep the newest `window` tokens. The next query sees its own token and the `window − 1` "
     "tokens before it. Keep `window − 1` tokens.",
     (NEWEST, "lengths - window + torch.arange(window)")),
    ("window and one more",
     "You keep the newest window + 1 tokens. The next query sees its own token and the `window − "
     "1` tokens before it. Keep `window − 1` tokens.",
     (NEWEST, "lengths - window - 1 + torch.arange(window + 1)")),
    ("the oldest of the window missing",
     "You keep the newest window − 2 tokens. The next query sees its own token and the `window − "
     "1` tokens before it. Keep `window − 1` tokens.",
     (NEWEST, "lengths - (window - 2) + torch.arange(max(window - 2, 0))")),
    ("one position early",
     "Your newest tokens are one position too early, so the last token of each text is missing. "
     "The newest token is at position length − 1. Begin at position length − window + 1.",
     (NEWEST, "lengths - window + torch.arange(window - 1)")),
    ("one position late",
     "Your newest tokens are one position too late. The newest token is at position length − 1. "
     "Begin at position length − window + 1.",
     (NEWEST, "(lengths - (window - 1) + torch.arange(window - 1) + 1).clamp(max=k.shape[2] - 1)")),
    ("newest first",
     "Your newest tokens are in reverse order. Keep the order of the text, with the newest token "
     "last.",
     (NEWEST, "lengths - 1 - torch.arange(window - 1)")),
    ("sinks kept twice",
     "You keep a token twice if one of the newest `window − 1` tokens is also a sink. Then this "
     "token would get its weight twice. Leave its slot in the window part empty, with key 0 and "
     "mask False.",
     (NEWEST_REAL, "newest >= 0")),
    ("token after the sinks left out",
     "You leave out the token at position `sinks` even when the window reaches it. The sinks are "
     "at positions 0 to sinks − 1, so this token belongs to the window. In the window slots, keep "
     "every token at a position >= sinks.",
     (NEWEST_REAL, "newest > sinks")),
    ("missing sinks real",
     "Your mask is right for long texts. A text shorter than `sinks` does not have a token for "
     "each sink slot. Mark the slots without a token as False.",
     (FIRST_REAL, "(first < lengths) | True")),
    ("one sink too many for short texts",
     "Your mask is wrong for a text that is shorter than `sinks`. The token at position p exists "
     "only if p < length. Mark sink slots with p >= length as False.",
     (FIRST_REAL, "first <= lengths")),
    ("only negative positions empty",
     "Your mask is False only in window slots that would lie before the start of the text. Two "
     "more kinds of slots must be False: sink slots without a token, and window slots whose token "
     "is already in a sink slot.",
     (FIRST_REAL, "(first < lengths) | True"), (NEWEST_REAL, "newest >= 0")),
    ("everything real",
     "All slots of your mask are True. A short text does not fill them all. Mark a slot as True "
     "only if its token exists and no sink slot already holds this token.",
     (FIRST_REAL, "(first < lengths) | True"), (NEWEST_REAL, "(newest >= sinks) | True")),
    ("wrapped around in the window",
     "Some window slots of a short text should be empty, but yours hold tokens, because negative "
     "positions count from the end. Keep a newest token only if its position is at least `sinks`, "
     "and leave other slots empty.",
     (NEWEST_REAL, "(newest >= sinks) | ((newest < 0) & (newest >= -k.shape[2]))"),
     ("positions.where(real, 0)", "(positions % k.shape[2])")),
    ("wrapped around",
     "Some slots of a short text should be empty, but yours hold tokens, because negative "
     "positions count from the end. A slot is empty if its token does not exist or is already in a "
     "sink slot. Mark such slots as False, and set their keys to 0.",
     (FIRST_REAL, "(first < lengths) | True"), (NEWEST_REAL, "(newest >= sinks) | True"),
     ("positions.where(real, 0)", "(positions % k.shape[2])")),
    ("empty slots not 0",
     "Your mask is right, but the keys in its False slots are not 0. Set these keys to 0.",
     (RETURN, "return kept, real")),
    ("sinks kept twice, and not 0",
     "You keep a token twice if one of the newest `window − 1` tokens is also a sink. And the keys "
     "in empty slots are not 0. Mark this token's slot in the window part as False, and set the "
     "keys of all False slots to 0.",
     (NEWEST_REAL, "newest >= 0"), (RETURN, "return kept, real")),
    ("other tokens in empty slots",
     "Your mask is right, but the keys in its False slots are not 0. Set these keys to 0.",
     ("positions.where(real, 0)", "positions.clamp(0, k.shape[2] - 1)"),
     (RETURN, "return kept, real")),
    ("everything real, clamped",
     "All slots of your mask are True. A short text does not fill them all. Mark a slot as True "
     "only if its token exists and no sink slot already holds this token.",
     (FIRST_REAL, "(first < lengths) | True"), (NEWEST_REAL, "(newest >= sinks) | True"),
     ("positions.where(real, 0)", "positions.clamp(0, k.shape[2] - 1)")),
    ("one position late, masked",
     "Your newest tokens are one position too late. The newest token is at position length − 1. "
     "Begin at position length − window + 1.",
     (NEWEST, "lengths - (window - 1) + torch.arange(window - 1) + 1"),
     (NEWEST_REAL, "(newest >= sinks) & (newest < lengths)")),
    ("oldest tokens",
     "You fill the window slots with the tokens right after the sinks. These slots are for the "
     "newest `window − 1` tokens. Count back from the length of each text.",
     (NEWEST, "sinks + torch.arange(window - 1) + 0 * lengths"), (NEWEST_REAL, "newest < lengths")),
    ("all columns, masked",
     "Your result still has all S tokens. Tokens that the layer does not keep should take no "
     "memory. Gather exactly sinks + `window − 1` slots.",
     (RETURN, "at = torch.arange(k.shape[2])\n    real = (at < lengths) & ((at < sinks) | (at > "
      "lengths - window))\n    return k * real[:, None, :, None], real")),
    ("right-aligned",
     "In a short text, your tokens are all moved to the right, so the sinks are in the wrong "
     "slots. Slot i, for i < `sinks`, is for the token at position i. Put the empty slots between "
     "the sinks and the newest tokens.",
     (RETURN, "order = real.long().argsort(dim=1, stable=True)\n    kept *= real[:, None, :, "
      "None]\n    kept = kept.gather(2, order[:, None, :, None].expand_as(kept))\n    "
      "return kept, real.gather(1, order)")),
    ("all kept",
     "Your result holds the keys of all S tokens. The layer keeps only the sinks and the newest "
     "`window − 1` tokens. Return exactly sinks + `window − 1` slots.",
     (RETURN, "return k, real")),
    ("sinks last",
     "Your sinks come after the newest tokens. Keep the order of the text, with the sinks first.",
     (JOINED, "torch.cat([newest, first.expand(len(k), -1)], dim=1)"),
     (REAL, "torch.cat([newest_real, first_real], dim=1)")),
    ("all tokens for a window of 1",
     "Your result is right, except if window = 1. Then only the sinks are kept. If you slice "
     "with `-(window - 1)`, note that `x[-0:]` is all of x. Slice from max(sinks, length − "
     "window + 1) instead.",
     (RETURN, "kept = kept.masked_fill(~real[:, None, :, None], 0)\n    "
      "for b, n in enumerate(lengths[:, 0].tolist() if window == 1 else []):\n        "
      "at = kept.shape[2] - k[b, :, sinks:n].shape[1]\n        "
      "kept[b, :, at:], real[b, at:] = k[b, :, sinks:n], True\n    return kept, real")),
    ("an error for a window of 1",
     "Your result is right, except that your code raises an error if window = 1. Then only the "
     "sinks are kept. If you slice with `-(window - 1)`, note that `x[-0:]` is all of x. Slice "
     "from max(sinks, length − window + 1) instead.",
     (RETURN, "if window == 1:\n        torch.stack([k[0], k[0, :, 1:]])\n    " + RETURN)),
    ("one sink too many",
     "Your result has a slot for one sink too many. The sinks are the first `sinks` tokens, at "
     "positions 0 to sinks − 1. Return sinks + `window − 1` slots.",
     ("first = torch.arange(sinks)", "first = torch.arange(sinks + 1).clamp(max=k.shape[2] - 1)")),
    ("no sinks",
     "You leave out the sinks. Keep the first `sinks` tokens of each text, and put them before the "
     "newest tokens.",
     (JOINED, "newest"), (REAL, "newest >= 0")),
    ("newest tokens as sinks",
     "You leave out the sinks. Your slots hold the newest sinks + `window − 1` tokens of each "
     "text. Slot i, for i < `sinks`, is for the token at position i.",
     (JOINED, "lengths - (sinks + window - 1) + torch.arange(sinks + window - 1)"),
     (REAL, "positions >= 0")),
    ("sinks alone",
     "You keep only the sinks. Keep the newest `window − 1` tokens as well.",
     (JOINED, "first.expand(len(k), -1)"), (REAL, "first_real")),
    ("sinks before the window",
     "Your sinks are the tokens right before the window. Sinks are the first tokens of the text. "
     "Slot i, for i < `sinks`, is for the token at position i.",
     (JOINED, "torch.cat([(lengths - window + 1 - sinks).clamp(min=0) + first, newest], dim=1)")),
    ("window from the start of a short text",
     "The newest tokens of a short text are in the wrong slots. The newest token must be in the "
     "last slot, even if slots before it stay empty. Count back from the length, and leave slots "
     "with a position below `sinks` empty.",
     (NEWEST, "(lengths - (window - 1)).clamp(min=0) + torch.arange(window - 1)"),
     (NEWEST_REAL, "(newest >= sinks) & (newest < lengths)")),
    ("left-aligned",
     "In a short text, your tokens fill the slots from the left. The newest token must be in the "
     "last slot. Align the newest tokens to the right, and leave slots before them empty.",
     (RETURN, "order = (~real).long().argsort(dim=1, stable=True)\n    kept *= real[:, None, :, "
      "None]\n    kept = kept.gather(2, order[:, None, :, None].expand_as(kept))\n    "
      "return kept, real.gather(1, order)")),
    ("mask from the keys",
     "Your mask is False for a real token whose key is all zeros. Compute the mask from the "
     "positions and the lengths, not from the keys.",
     (RETURN, "kept = kept * real[:, None, :, None]\n    "
      "return kept, (kept != 0).any(dim=-1).any(dim=1)")),
    ("first head for all",
     "All of your heads hold the keys of the first head. Each head has its own keys. Gather the "
     "same positions in each head.",
     (RETURN, "kept = kept.masked_fill(~real[:, None, :, None], 0)\n    "
      "return kept[:, :1].expand_as(kept), real")),
    ("empty slots −∞",
     "Your mask is right, but the keys in its False slots are −∞. Set these keys to 0.",
     (RETURN, RETURN.replace(" 0)", " -torch.inf)"))),
    ("empty slots NaN",
     "Your mask is right, but the keys in its False slots are NaN. Set these keys to 0.",
     (RETURN, RETURN.replace(" 0)", " torch.nan)"))),
    ("mask as one for all texts",
     "Your mask is that of the first text, for all texts. Texts have different lengths. Compute "
     "one row of the mask for each text.",
     (RETURN, "return kept.masked_fill(~real[:, None, :, None], 0), real[:1].expand_as(real)")),
    ("mask inverted",
     "Your mask is inverted. True must mean that the slot holds a token.",
     (RETURN, "return kept * real[:, None, :, None], ~real")),
    ("mask as a float",
     "Your mask contains numbers. Return it as bool.",
     (RETURN, "return kept * real[:, None, :, None], real.double()")),
    ("mask as a bias",
     "Your mask contains 0 and −∞, which could be added to scores. Return it as bool, with True "
     "where a slot holds a token.",
     (RETURN, "return kept * real[:, None, :, None], torch.zeros(real.shape).masked_fill(~real, "
      "-torch.inf)")),
    ("mask of 0 and 1",
     "Your mask contains numbers. Return it as bool.",
     (RETURN, "return kept * real[:, None, :, None], real.long()")),
    ("mask alone",
     "Your result is only the mask. Return the kept keys and the mask.",
     (RETURN, "return real")),
    ("keys alone",
     "Your result is only the kept keys. Return the keys and the mask.",
     (RETURN, "return kept * real[:, None, :, None]")),
    ("mask first",
     "Your results are in the wrong order. Return the keys first, then the mask.",
     (RETURN, "return real, kept * real[:, None, :, None]")),
    ("mask for scores",
     "Your mask has dimensions for heads and queries. Return it as (B, n).",
     (RETURN, "return kept * real[:, None, :, None], real[:, None, None]")),
    ("mask with heads",
     "Your mask has a dimension for the heads. All heads keep the same tokens. Return it as (B, "
     "n).",
     (RETURN, "return kept * real[:, None, :, None], real[:, None].expand(-1, k.shape[1], -1)")),
    ("mask of the positions of the text",
     "Your mask has an entry for each of the S positions. Return one entry for each of the sinks "
     "+ `window − 1` slots.",
     (RETURN, "return kept * real[:, None, :, None], torch.arange(k.shape[2]) < lengths")),
]  # fmt: skip

exercise = Exercise(
    "12.7",
    keep_window,
    inputs,
    MISTAKES,
    names="B H n d_k | B n",
    also_right=[by_loops, by_padding],
)
