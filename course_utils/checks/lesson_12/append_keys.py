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


def append_keys(rounded, exact, k, recent, group, round_group):
    exact = torch.cat([exact, k], dim=-2)  # (B, H, n, d_k), all that is not rounded yet
    while exact.shape[-2] >= recent + group:
        oldest, exact = exact[..., :group, :], exact[..., group:, :]
        rounded = torch.cat([rounded, round_group(oldest)], dim=-2)
    return rounded, exact


def by_counting(rounded, exact, k, recent, group, round_group):
    keys = torch.cat([exact, k], dim=2)
    n = max(keys.shape[2] - recent, 0) // group
    parts = [keys[:, :, i * group : (i + 1) * group] for i in range(n)]
    parts = [round_group(part) for part in parts]
    return torch.cat([rounded, *parts], dim=2), keys[:, :, n * group :]


def by_groups(rounded, exact, k, recent, group, round_group):
    B, H, _, d_k = k.shape
    keys = torch.cat([exact, k], dim=2)
    leaving = (max(keys.shape[2], recent) - recent) // group * group
    if leaving:
        groups = keys[:, :, :leaving].reshape(B, H, -1, group, d_k)
        done = round_group(groups).reshape(B, H, leaving, d_k)
        rounded = torch.cat((rounded, done), dim=2)
    return rounded, keys[:, :, leaving:]


def from_the_end(rounded, exact, k, recent, group, round_group):
    """Take a negative number of tokens that leave for a position counted from the end."""
    keys = torch.cat([exact, k], dim=2)
    leaving = (keys.shape[2] - recent) // group * group
    groups = [round_group(keys[:, :, i : i + group]) for i in range(0, leaving, group)]
    return torch.cat([rounded, *groups], dim=2), keys[:, :, leaving:]


def inputs():
    """Return (rounded, exact, k, recent, group, round_group)."""
    normal = normals(123)

    def probe(done, waiting, new, recent, group, bits, B=2, H=3, d_k=4, dtype=torch.float64):
        old = [rounded_keys(bits, normal(B, H, group, d_k, dtype=dtype)) for _ in range(done)]
        none = normal(B, H, 0, d_k, dtype=dtype)
        exact = normal(B, H, waiting, d_k, dtype=dtype)
        k = normal(B, H, new, d_k, dtype=dtype)
        return torch.cat([none, *old], dim=2), exact, k, recent, group, partial(rounded_keys, bits)

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


JOINED = "exact = torch.cat([exact, k], dim=-2)"
WHILE = "while exact.shape[-2] >= recent + group:"
OLDEST = "oldest, exact = exact[..., :group, :], exact[..., group:, :]"
ROUND = "rounded = torch.cat([rounded, round_group(oldest)], dim=-2)"
RETURN = "return rounded, exact"
NOT_RECENT = (
    "You round some of the `recent` newest tokens. These must stay in `exact`. Round a group only "
    "while `exact` has at least recent + group tokens."
)
ONE_SCALE = (
    "Your result is right unless one call of your function has to round several groups. You pass "
    "them to `round_group` together, so they share their scales. Pass each group of `group` tokens "
    "on its own."
)
MISTAKES = [
    ("new keys rounded at once",
     "You round the new keys as soon as they arrive. Append k to `exact` first. Then, while "
     "`exact` has at least recent + group tokens, round the oldest group.",
     (WHILE, "while False:"),
     (RETURN, "return torch.cat([rounded, round_group(k)], dim=-2), before"),
     (JOINED, "before = exact\n    " + JOINED)),
    ("own tokens alone",
     "You count only the tokens of this call. If tokens come one at a time, none of them is ever "
     "rounded. Append k to `exact` first, then count all tokens in `exact`.",
     (JOINED, "waiting, exact = exact, k"),
     (RETURN, "return rounded, torch.cat([waiting, exact], dim=-2)")),
    ("nothing rounded",
     "You round nothing. Append k to `exact` first. Then, while `exact` has at least recent + "
     "group tokens, round the oldest group.",
     (WHILE, "while False:")),
    ("one group at most",
     "You round at most one group in a call. After a long prompt, several groups must be rounded. "
     "Repeat until `exact` has fewer than recent + group tokens.",
     (WHILE, WHILE.replace("while", "if"))),
    ("one group late",
     "You round each group one token too late. Round a group as soon as `exact` has recent + group "
     "tokens. Check whether you wrote > where >= is needed.",
     (WHILE, WHILE.replace(">=", ">"))),
    ("twice the group",
     "You round a group as soon as `exact` has 2 · group tokens. Round it as soon as there are "
     "recent + group tokens.",
     (WHILE, "while exact.shape[-2] >= 2 * group:")),
    ("twice the recent",
     "You round a group as soon as `exact` has 2 · recent tokens. Round it as soon as there are "
     "recent + group tokens.",
     (WHILE, "while exact.shape[-2] >= max(2 * recent, group):")),
    ("recent window ignored", NOT_RECENT, (WHILE, "while exact.shape[-2] >= group:")),
    ("as soon as one has left",
     NOT_RECENT,
     (WHILE, "while exact.shape[-2] > recent:")),
    ("as soon as recent are exact",
     NOT_RECENT,
     (WHILE, "while exact.shape[-2] >= max(recent, 1):")),
    ("one token of the recent window",
     NOT_RECENT,
     (WHILE, "while exact.shape[-2] >= max(recent + group - 1, group):")),
    ("group and recent exchanged",
     "Your groups have `recent` tokens. Each group must have `group` tokens. Take the oldest "
     "`group` tokens.",
     (OLDEST, "n = recent or group\n        " + OLDEST.replace("group", "n"))),
    ("one token at a time",
     "You move tokens into `rounded` one at a time. A single token has only one number in each "
     "channel, so it stays as it was. Pass `group` tokens together to `round_group`.",
     (WHILE, "while exact.shape[-2] > recent:"), (OLDEST, OLDEST.replace("group", "1"))),
    ("oldest token alone left",
     "You round groups of group − 1 tokens. Each group has `group` tokens. Take exact[..., :group, "
     ":].",
     (OLDEST, "oldest, exact = exact[..., : group - 1, :], exact[..., group - 1 :, :]")),
    ("scale of all exact tokens",
     "You compute the scale of a group from all tokens in `exact`. A group has a scale of its own. "
     "Pass only the oldest group to `round_group`.",
     (ROUND, "both = round_group(torch.cat([oldest, exact], dim=-2))\n        "
      "rounded = torch.cat([rounded, both[..., :group, :]], dim=-2)")),
    ("not in groups",
     "You round every token that is older than the newest `recent` ones. Tokens are rounded only "
     "in complete groups. Leave the tokens of an incomplete group in `exact`.",
     (WHILE, "while exact.shape[-2] > recent:"),
     (OLDEST, "n = min(group, exact.shape[-2] - recent)\n        " + OLDEST.replace("group", "n"))),
    ("all that have left",
     "You round every token that is older than the newest `recent` ones, with one scale for all of "
     "these tokens. Round groups of exactly `group` tokens, and leave the tokens of an incomplete "
     "group in `exact`.",
     (WHILE, "if exact.shape[-2] > recent:"),
     (OLDEST, "n = exact.shape[-2] - recent\n        " + OLDEST.replace("group", "n"))),
    ("one scale for all groups",
     ONE_SCALE,
     (WHILE, "if exact.shape[-2] >= recent + group:"),
     (OLDEST, "n = (exact.shape[-2] - recent) // group * group\n        "
      + OLDEST.replace("group", "n"))),
    ("newest rounded",
     "You round the newest tokens. These must stay in `exact`. Round the oldest group, which comes "
     "first in `exact`.",
     (OLDEST, "oldest, exact = exact[..., -group:, :], exact[..., :-group, :]")),
    ("oldest before the recent",
     "You round the group right before the newest `recent` tokens, and older tokens stay in "
     "`exact`. Round the oldest group first.",
     (OLDEST, "before, oldest, after = exact.tensor_split([n := exact.shape[-2] - recent - group, "
      "n + group], dim=-2)\n        exact = torch.cat([before, after], dim=-2)")),
    ("all groups rounded anew",
     "You round all groups in `rounded` anew, but a key may be rounded only once. Leave `rounded` "
     "as it is, and append the new groups.",
     (JOINED, "exact = torch.cat([rounded, exact, k], dim=-2)\n    rounded = rounded[..., :0, :]")),
    ("each group rounded twice",
     "You round each group twice, but a key may be rounded only once. Call `round_group` once for "
     "each group.",
     (ROUND, ROUND.replace("round_group(oldest)", "round_group(round_group(oldest))"))),
    ("rounded again",
     "You round the keys in `rounded` a second time, together with the new group. But a key may be "
     "rounded only once. Leave `rounded` as it is, and append the new group.",
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
     "You put the new keys before the keys that were already in `exact`. Keys must stay in the "
     "order of the text. Append k at the end of `exact`.",
     (JOINED, "exact = torch.cat([k, exact], dim=-2)")),
    ("new tokens lost if nothing is rounded",
     "You lose the new keys if no group is rounded. Append k to `exact` before you decide whether "
     "to round.",
     (JOINED, "if exact.shape[-2] + k.shape[-2] < recent + group:\n        "
      "return rounded, exact\n    " + JOINED)),
    ("a token lost for each group",
     "You lose one token with each rounded group, the one right after it. The group is exact[..., "
     ":group, :], so the rest is exact[..., group:, :].",
     (OLDEST, OLDEST.replace("group:,", "group + 1 :,"))),
    ("oldest tokens lost at the start",
     "Your result is right once there are at least `recent` tokens. As long as there are fewer, "
     "you lose the oldest ones. If you compute how many tokens to round, this number can be "
     "negative here, and then a slice counts from the end. Use max(…, 0).",
     from_the_end),
    ("new tokens lost",
     "Your result does not contain the new keys. Append k to `exact` first.",
     (JOINED, "exact = exact.clone()")),
    ("waiting tokens lost",
     "You lose the keys that were already in `exact`. Append k to `exact`.",
     (JOINED, "exact = k")),
    ("kept twice",
     "Your rounded tokens are still in `exact` as well. Each token must be in only one of the "
     "two. Remove the group from `exact`.",
     (RETURN, "return rounded, torch.cat([before, k], dim=-2)"),
     (JOINED, "before = exact\n    " + JOINED)),
    ("only the newest exact",
     "Your `exact` keeps only the newest `recent` tokens, so the tokens of an incomplete group "
     "are lost. Keep all tokens that are not rounded yet.",
     (RETURN, "return rounded, exact[..., max(exact.shape[-2] - recent, 0) :, :]")),
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
    ("exact first",
     "Your results are in the wrong order. Return the rounded keys first.",
     (RETURN, "return exact, rounded")),
    ("one tensor",
     "Your result is one tensor. Return two tensors, first the rounded keys and then `exact`.",
     (RETURN, "return torch.cat([rounded, exact], dim=-2)")),
    ("exact returned rounded",
     "The tokens that you return as `exact` are rounded too. Return them unchanged.",
     (RETURN, "return rounded, round_group(exact) if exact.numel() else exact")),
    ("without a recent window",
     "Your result is right, except if recent = 0. If you slice with `-recent`, note that "
     "`x[-0:]` is all of x. Slice by the number of tokens that are rounded.",
     (RETURN, "return rounded, exact if recent else torch.cat([before, k], dim=-2)"),
     (JOINED, "before = exact\n    " + JOINED)),
]  # fmt: skip

exercise = Exercise(
    "12.3", append_keys, inputs, MISTAKES, names="B H S d_k | B H S d_k",
    also_right=[by_counting, by_groups],
)  # fmt: skip
