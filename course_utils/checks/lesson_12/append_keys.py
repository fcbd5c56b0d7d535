"""12.3: keys are quantized in groups, as soon as they are old enough."""

from functools import partial

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def rounded_keys(bits, k):
    """Return keys (..., S, d_k), each replaced by the middle of one of 2^bits parts of its channel.

    The range shrinks, so keys that are rounded again change again.
    """
    low, high = k.amin(dim=-2, keepdim=True), k.amax(dim=-2, keepdim=True)
    scale = (high - low) / 2**bits  # 0 for a single token, which stays as it is
    parts = ((k - low) / scale).nan_to_num(0).floor().clamp(max=2**bits - 1)
    return low + (parts + 0.5) * scale


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


def from_the_end(rounded, whole, k, recent, group, round_group):
    """Take a negative number of tokens that leave for a position counted from the end."""
    keys = torch.cat([whole, k], dim=2)
    leaving = (keys.shape[2] - recent) // group * group
    groups = [round_group(keys[:, :, i : i + group]) for i in range(0, leaving, group)]
    return torch.cat([rounded, *groups], dim=2), keys[:, :, leaving:]


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
        probe(0, 0, 5, 6, 3, 2),  # fewer tokens than recent
    ]


JOINED = "whole = torch.cat([whole, k], dim=-2)"
WHILE = "while whole.shape[-2] >= recent + group:"
OLDEST = "oldest, whole = whole[..., :group, :], whole[..., group:, :]"
ROUND = "rounded = torch.cat([rounded, round_group(oldest)], dim=-2)"
RETURN = "return rounded, whole"
NOT_RECENT = (
    "You round some of the `recent` newest tokens. These must stay in `whole`. Round a group only "
    "while `whole` has at least recent + group tokens."
)
ONE_SCALE = (
    "Your result is right unless one call of your function has to round several groups. You pass "
    "them to `round_group` together, so they share their scales. Pass each group of `group` tokens "
    "on its own."
)
MISTAKES = [
    ("new keys rounded at once",
     "You round the new keys at once. New keys are appended to `whole`, and only its oldest group "
     "is rounded. Append k to `whole` first.",
     (WHILE, "while False:"),
     (RETURN, "return torch.cat([rounded, round_group(k)], dim=-2), before"),
     (JOINED, "before = whole\n    " + JOINED)),
    ("own tokens alone",
     "You count only the tokens of this call. If tokens come one at a time, none of them is ever "
     "rounded. Append k to `whole` first, then count all tokens in `whole`.",
     (JOINED, "waiting, whole = whole, k"),
     (RETURN, "return rounded, torch.cat([waiting, whole], dim=-2)")),
    ("nothing rounded",
     "You round nothing. Append k to `whole` first. Then, while `whole` has at least recent + "
     "group tokens, round the oldest group.",
     (WHILE, "while False:")),
    ("one group at most",
     "You round at most one group in a call. After a long prompt, several groups must be rounded. "
     "Repeat until `whole` has fewer than recent + group tokens.",
     (WHILE, WHILE.replace("while", "if"))),
    ("one group late",
     "You wait for one token too many. A group is rounded if `whole` has recent + group tokens or "
     "more. Use >= in place of >.",
     (WHILE, WHILE.replace(">=", ">"))),
    ("twice the group",
     "You round a group as soon as `whole` has 2 · group tokens. A group is rounded when `whole` "
     "has recent + group tokens or more. Compare with recent + group.",
     (WHILE, "while whole.shape[-2] >= 2 * group:")),
    ("twice the recent",
     "You round a group as soon as `whole` has 2 · recent tokens. A group is rounded when `whole` "
     "has recent + group tokens or more. Compare with recent + group.",
     (WHILE, "while whole.shape[-2] >= max(2 * recent, group):")),
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
     "You get this result if you take `recent` tokens out of `whole` at a time. Each group has "
     "`group` tokens. Take the oldest `group` tokens.",
     (OLDEST, "n = recent or group\n        " + OLDEST.replace("group", "n"))),
    ("one token at a time",
     "You move tokens into `rounded` one at a time. A single token has only one number in each "
     "channel, so it stays as it was. Pass `group` tokens together to `round_group`.",
     (WHILE, "while whole.shape[-2] > recent:"), (OLDEST, OLDEST.replace("group", "1"))),
    ("oldest token alone left",
     "You round groups of group − 1 tokens. Each group has `group` tokens. Take whole[..., :group, "
     ":].",
     (OLDEST, "oldest, whole = whole[..., : group - 1, :], whole[..., group - 1 :, :]")),
    ("scale of all whole tokens",
     "You compute the scale of a group from all tokens in `whole`. Pass only the oldest group to "
     "`round_group`.",
     (ROUND, "both = round_group(torch.cat([oldest, whole], dim=-2))\n        "
      "rounded = torch.cat([rounded, both[..., :group, :]], dim=-2)")),
    ("not in groups",
     "You round every token that is older than the newest `recent` ones. Tokens are rounded only "
     "in complete groups. Leave the tokens of an incomplete group in `whole`.",
     (WHILE, "while whole.shape[-2] > recent:"),
     (OLDEST, "n = min(group, whole.shape[-2] - recent)\n        " + OLDEST.replace("group", "n"))),
    ("all that have left",
     "You round every token that is older than the newest `recent` ones, with one scale for all of "
     "these tokens. Round groups of exactly `group` tokens, and leave the tokens of an incomplete "
     "group in `whole`.",
     (WHILE, "if whole.shape[-2] > recent:"),
     (OLDEST, "n = whole.shape[-2] - recent\n        " + OLDEST.replace("group", "n"))),
    ("one scale for all groups",
     ONE_SCALE,
     (WHILE, "if whole.shape[-2] >= recent + group:"),
     (OLDEST, "n = (whole.shape[-2] - recent) // group * group\n        "
      + OLDEST.replace("group", "n"))),
    ("newest rounded",
     "You round the newest tokens. These must stay in `whole`. Round the oldest group, which comes "
     "first in `whole`.",
     (OLDEST, "oldest, whole = whole[..., -group:, :], whole[..., :-group, :]")),
    ("oldest before the recent",
     "You round the group right before the newest `recent` tokens, and older tokens stay in "
     "`whole`. Round the oldest group first.",
     (OLDEST, "before, oldest, after = whole.tensor_split([n := whole.shape[-2] - recent - group, "
      "n + group], dim=-2)\n        whole = torch.cat([before, after], dim=-2)")),
    ("all groups rounded anew",
     "You round all groups in `rounded` anew. No key is rounded twice. Leave `rounded` as it is, "
     "and append the new groups.",
     (JOINED, "whole = torch.cat([rounded, whole, k], dim=-2)\n    rounded = rounded[..., :0, :]")),
    ("each group rounded twice",
     "You round each group twice. No key is rounded twice. Call `round_group` once for each group.",
     (ROUND, ROUND.replace("round_group(oldest)", "round_group(round_group(oldest))"))),
    ("rounded again",
     "You round the keys in `rounded` a second time, together with the new group. No key is "
     "rounded twice. Leave `rounded` as it is, and append the new group.",
     (ROUND, "rounded = round_group(torch.cat([rounded, oldest], dim=-2))")),
    ("rounded first",
     "You put the new group before the keys that were rounded earlier. Keys must stay in the order "
     "of the text. Append the new group at the end of `rounded`.",
     (ROUND, "rounded = torch.cat([round_group(oldest), rounded], dim=-2)")),
    ("along the heads",
     "You concatenate the tokens along the dimension of the heads. Tokens are dimension −2, so use "
     "dim=-2.",
     (ROUND, ROUND.replace("dim=-2", "dim=1"))),
    ("rounded replaced",
     "You lose the keys that were rounded in earlier calls. Append the new group to `rounded`.",
     (ROUND, "rounded = torch.cat([rounded[..., :0, :], round_group(oldest)], dim=-2)")),
    ("not rounded at all",
     "You move each group into `rounded` unchanged. Pass all tokens of the group to `round_group` "
     "together, and append its result.",
     (ROUND, "rounded = torch.cat([rounded, oldest], dim=-2)")),
    ("new tokens first",
     "You put the new keys before the keys that were already in `whole`. Keys must stay in the "
     "order of the text. Append k at the end of `whole`.",
     (JOINED, "whole = torch.cat([k, whole], dim=-2)")),
    ("new tokens lost if nothing is rounded",
     "You lose the new keys if no group is rounded. Append k to `whole` before you decide whether "
     "to round.",
     (JOINED, "if whole.shape[-2] + k.shape[-2] < recent + group:\n        "
      "return rounded, whole\n    " + JOINED)),
    ("a token lost for each group",
     "You lose one token for each rounded group. After the first `group` tokens are taken out, "
     "`whole` begins with token number `group`. Continue with whole[..., group:, :].",
     (OLDEST, OLDEST.replace("group:,", "group + 1 :,"))),
    ("oldest tokens lost at the start",
     "Your result is right once there are at least `recent` tokens. As long as there are "
     "fewer, you lose the oldest ones. Perhaps your number of tokens to round is negative here, so "
     "that a slice counts from the end. Replace it with 0 if it is negative, for example by max.",
     from_the_end),
    ("new tokens lost",
     "Your result does not contain the new keys. Append k to `whole` first.",
     (JOINED, "whole = whole.clone()")),
    ("waiting tokens lost",
     "You lose the keys that were already in `whole`. Append k to `whole`.",
     (JOINED, "whole = k")),
    ("kept twice",
     "Your rounded tokens are still in `whole` as well. Each token must be in only one of the "
     "two. Remove the group from `whole`.",
     (RETURN, "return rounded, torch.cat([before, k], dim=-2)"),
     (JOINED, "before = whole\n    " + JOINED)),
    ("only the newest whole",
     "Your `whole` keeps only the newest `recent` tokens, so the tokens of an incomplete group "
     "are lost. Keep all tokens that are not rounded yet.",
     (RETURN, "return rounded, whole[..., max(whole.shape[-2] - recent, 0) :, :]")),
    ("heads share a scale",
     "In your result, all heads share one scale for each channel. Each head needs its own. Pass "
     "the keys to `round_group` as they are, (B, H, group, d_k).",
     (ROUND, ROUND.replace("round_group(oldest)", "round_group(oldest.flatten(1, "
      "2)).view_as(oldest)"))),
    ("per token",
     "Your result is rounded with one scale for each token. Keys need one scale for each "
     "channel. Pass the keys to `round_group` as they are, (B, H, group, d_k), without "
     "transposing them.",
     (ROUND, ROUND.replace("round_group(oldest)", "round_group(oldest.mT).mT"))),
    ("whole first",
     "Your results are in the wrong order. Return the rounded keys first.",
     (RETURN, "return whole, rounded")),
    ("one tensor",
     "Your result is one tensor. Return two tensors, first the rounded keys and then `whole`.",
     (RETURN, "return torch.cat([rounded, whole], dim=-2)")),
    ("whole returned rounded",
     "The tokens that you return as `whole` are rounded too. Return them unchanged.",
     (RETURN, "return rounded, round_group(whole) if whole.numel() else whole")),
    ("without a recent window",
     "Your result is right, except if recent = 0. If you slice with `-recent`, note that "
     "`x[-0:]` is all of x. Slice by the number of tokens that are rounded.",
     (RETURN, "return rounded, whole if recent else torch.cat([before, k], dim=-2)"),
     (JOINED, "before = whole\n    " + JOINED)),
]  # fmt: skip

exercise = Exercise(
    "12.3", append_keys, inputs, MISTAKES, names="B H S d_k | B H S d_k",
    also_right=[by_counting, by_groups],
)  # fmt: skip
