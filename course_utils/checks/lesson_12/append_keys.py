"""12.3: keys are quantized in groups, as soon as they have left the recent window."""

from functools import partial

import torch

from course_utils.cache import dequantize, quantize
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def rounded_keys(bits, k):
    """Return keys (..., S, d_k) rounded with one scale per channel."""
    return dequantize(quantize(k, bits, dim=-2))


def append_keys(rounded, whole, k, recent, group, round_group):
    whole = torch.cat([whole, k], dim=-2)  # (B, H, n, d_k), all that is not rounded yet
    while whole.shape[-2] >= recent + group:
        oldest, whole = whole[..., :group, :], whole[..., group:, :]
        rounded = torch.cat([rounded, round_group(oldest)], dim=-2)
    return rounded, whole


def by_counting(rounded, whole, k, recent, group, round_group):
    keys = torch.cat([whole, k], dim=2)
    n = max(keys.shape[2] - recent, 0) // group
    parts = [keys[:, :, i * group : (i + 1) * group] for i in range(n)]
    parts = [round_group(part) for part in parts]
    return torch.cat([rounded, *parts], dim=2), keys[:, :, n * group :]


def by_groups(rounded, whole, k, recent, group, round_group):
    B, H, _, d_k = k.shape
    keys = torch.cat([whole, k], dim=2)
    leaving = (max(keys.shape[2], recent) - recent) // group * group
    if leaving:
        groups = keys[:, :, :leaving].reshape(B, H, -1, group, d_k)
        done = round_group(groups).reshape(B, H, leaving, d_k)
        rounded = torch.cat((rounded, done), dim=2)
    return rounded, keys[:, :, leaving:]


def inputs():
    """Return (rounded, whole, k, recent, group, round_group)."""
    normal = normals(123)

    def probe(done, waiting, new, recent, group, bits, B=2, H=3, d_k=4, dtype=torch.float64):
        old = [rounded_keys(bits, normal(B, H, group, d_k, dtype=dtype)) for _ in range(done)]
        none = normal(B, H, 0, d_k, dtype=dtype)
        whole = normal(B, H, waiting, d_k, dtype=dtype)
        k = normal(B, H, new, d_k, dtype=dtype)
        return torch.cat([none, *old], dim=2), whole, k, recent, group, partial(rounded_keys, bits)

    return [
        probe(1, 6, 1, 3, 4, 2),  # one more token, and a group has left
        probe(0, 0, 17, 3, 4, 2),  # a prompt
        probe(2, 4, 1, 3, 4, 3),  # nothing leaves yet
        probe(1, 5, 1, 3, 4, 2, B=1, dtype=torch.float32),
        probe(2, 5, 8, 4, 3, 2, H=1, d_k=5),  # several groups at once
        probe(3, 5, 2, 2, 5, 1, B=1),
        probe(0, 0, 2, 6, 3, 2),
        probe(1, 4, 6, 1, 5, 4, B=3, d_k=2),
        probe(2, 2, 1, 0, 3, 2),  # no recent window
    ]


JOINED = "whole = torch.cat([whole, k], dim=-2)"
WHILE = "while whole.shape[-2] >= recent + group:"
OLDEST = "oldest, whole = whole[..., :group, :], whole[..., group:, :]"
ROUND = "rounded = torch.cat([rounded, round_group(oldest)], dim=-2)"
RETURN = "return rounded, whole"
NOT_RECENT = (
    "Your result rounds tokens that are among the newest `recent` ones. These must stay whole. "
    "Round a group only while at least recent + group tokens are whole."
)
ONE_SCALE = (
    "Your result is right unless several groups leave at once. Then these groups share one scale. "
    "Round each group of `group` tokens on its own."
)
MISTAKES = [
    ("own tokens alone",
     "Your result counts only the tokens of this call. If tokens come one at a time, none of them "
     "is ever rounded. Append k to `whole` first, then count all tokens in it.",
     (JOINED, "waiting, whole = whole, k"),
     (RETURN, "return rounded, torch.cat([waiting, whole], dim=-2)")),
    ("nothing rounded",
     "Your result rounds no tokens. While at least recent + group tokens are whole, round the "
     "oldest group.",
     (WHILE, "while False:")),
    ("one group at most",
     "Your result rounds at most one group in a call. After a prompt, several groups have left the "
     "recent window. Repeat until fewer than recent + group tokens are whole.",
     (WHILE, WHILE.replace("while", "if"))),
    ("one group late",
     "Your result waits for one token too many. A group is rounded as soon as recent + group "
     "tokens are whole. Use >= in place of >.",
     (WHILE, WHILE.replace(">=", ">"))),
    ("recent window ignored", NOT_RECENT, (WHILE, "while whole.shape[-2] >= group:")),
    ("as soon as one has left",
     NOT_RECENT,
     (WHILE, "while whole.shape[-2] > recent:")),
    ("as soon as recent are whole",
     NOT_RECENT,
     (WHILE, "while whole.shape[-2] >= max(recent, 1):")),
    ("one token of the recent window",
     NOT_RECENT,
     (WHILE, "while whole.shape[-2] >= max(recent + group - 1, group):")),
    ("group and recent exchanged",
     "You get this result if you exchange `recent` and `group`. Round groups of `group` tokens, "
     "and keep the newest `recent` whole.",
     (OLDEST, "n = recent or group\n        " + OLDEST.replace("group", "n"))),
    ("one token at a time",
     "Your result takes the tokens out one at a time. A token alone has no range, so nothing is "
     "rounded. Take out `group` tokens together.",
     (WHILE, "while whole.shape[-2] > recent:"), (OLDEST, OLDEST.replace("group", "1"))),
    ("scale of all whole tokens",
     "Your result takes the scale of a group from all whole tokens. Round the oldest group on its "
     "own.",
     (ROUND, "both = round_group(torch.cat([oldest, whole], dim=-2))\n        "
      "rounded = torch.cat([rounded, both[..., :group, :]], dim=-2)")),
    ("not in groups",
     "Your result rounds every token that has left the recent window. Keys are rounded in whole "
     "groups. Leave the tokens of an incomplete group whole.",
     (WHILE, "while whole.shape[-2] > recent:"),
     (OLDEST, "n = min(group, whole.shape[-2] - recent)\n        " + OLDEST.replace("group", "n"))),
    ("all that have left",
     "Your result rounds every token that has left the recent window, with one scale for all of "
     "them. Keys are rounded in whole groups of `group` tokens. Leave an incomplete group whole.",
     (WHILE, "if whole.shape[-2] > recent:"),
     (OLDEST, "n = whole.shape[-2] - recent\n        " + OLDEST.replace("group", "n"))),
    ("one scale for all groups",
     ONE_SCALE,
     (WHILE, "if whole.shape[-2] >= recent + group:"),
     (OLDEST, "n = (whole.shape[-2] - recent) // group * group\n        "
      + OLDEST.replace("group", "n"))),
    ("newest rounded",
     "Your result rounds the newest tokens. These must stay whole. Round the oldest group, which "
     "comes first in `whole`.",
     (OLDEST, "oldest, whole = whole[..., -group:, :], whole[..., :-group, :]")),
    ("oldest before the recent",
     "Your result rounds the group right before the recent window, and older tokens stay whole. "
     "Round the oldest group first.",
     (OLDEST, "before, oldest, after = whole.tensor_split([n := whole.shape[-2] - recent - group, "
      "n + group], dim=-2)\n        whole = torch.cat([before, after], dim=-2)")),
    ("rounded again",
     "Your result rounds tokens a second time that were rounded before, with a scale that they now "
     "share. Leave `rounded` as it is, and append to it.",
     (ROUND, "rounded = round_group(torch.cat([rounded, oldest], dim=-2))")),
    ("rounded first",
     "Your result puts the new group before the tokens that were rounded earlier. Keep the order "
     "of the text: append the group at the end.",
     (ROUND, "rounded = torch.cat([round_group(oldest), rounded], dim=-2)")),
    ("along the heads",
     "Your result joins the tokens along the dimension of the heads. Tokens are dimension −2. Use "
     "dim=-2.",
     (ROUND, ROUND.replace("dim=-2", "dim=1"))),
    ("rounded replaced",
     "Your result loses the tokens that were rounded in earlier calls. Append the new group to "
     "`rounded`.",
     (ROUND, "rounded = torch.cat([rounded[..., :0, :], round_group(oldest)], dim=-2)")),
    ("not rounded at all",
     "Your result moves the group into `rounded` without rounding it. Use `round_group`.",
     (ROUND, "rounded = torch.cat([rounded, oldest], dim=-2)")),
    ("new tokens first",
     "Your result puts the new keys before those that were already whole. Keep the order of the "
     "text: append k at the end.",
     (JOINED, "whole = torch.cat([k, whole], dim=-2)")),
    ("new tokens lost",
     "Your result does not contain the new keys. Append k to `whole` first.",
     (JOINED, "whole = whole.clone()")),
    ("waiting tokens lost",
     "Your result loses the tokens that were whole before. Append k to `whole`.",
     (JOINED, "whole = k")),
    ("kept twice",
     "Your rounded tokens are also still in `whole`. A token must be in one of the two only. "
     "Remove the group from `whole`.",
     (RETURN, "return rounded, torch.cat([before, k], dim=-2)"),
     (JOINED, "before = whole\n    " + JOINED)),
    ("only the newest whole",
     "Your `whole` keeps only the newest `recent` tokens, so the tokens of an incomplete group are "
     "lost. Keep all tokens that are not rounded yet.",
     (RETURN, "return rounded, whole[..., max(whole.shape[-2] - recent, 0) :, :]")),
    ("per token",
     "Your result has one scale for each token. Keys need one for each channel. Use "
     "`round_group`.",
     (ROUND, ROUND.replace("round_group(oldest)", "round_group(oldest.mT).mT"))),
    ("whole first",
     "Your results are in the wrong order. Return the rounded keys first.",
     (RETURN, "return whole, rounded")),
    ("one tensor",
     "Your result is one tensor. Return two: the rounded keys and the whole ones.",
     (RETURN, "return torch.cat([rounded, whole], dim=-2)")),
    ("whole returned rounded",
     "Your whole tokens are rounded as well. They must stay as they are.",
     (RETURN, "return rounded, round_group(whole) if whole.numel() else whole")),
    ("without a recent window",
     "Right, except when recent = 0. If you slice with `-recent`, note that `x[-0:]` is all of x. "
     "Slice by the number of tokens that leave.",
     (RETURN, "return rounded, whole if recent else torch.cat([before, k], dim=-2)"),
     (JOINED, "before = whole\n    " + JOINED)),
]  # fmt: skip

exercise = Exercise(
    "12.3", append_keys, inputs, MISTAKES, names="B H S d_k | B H S d_k",
    also_right=[by_counting, by_groups],
)  # fmt: skip
