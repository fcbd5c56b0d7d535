"""10b.2: how much more a head attends to followers than uniform weights would."""

import torch
import torch.nn.functional as F

from course_utils.attention import causal_mask, induction_score
from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_07._heads import causal_weights


def induction_above_even(weights, tokens):
    L = len(tokens)
    same = tokens[:, None] == tokens[:-1]  # (L, L - 1)
    followers = F.pad(same, (1, 0)).tril(-1)  # (L, L), without the query itself
    counted = followers.any(dim=-1)  # (L,)
    on_followers = (weights * followers).sum(dim=-1)  # (H, L)
    uniform = followers.sum(dim=-1) / torch.arange(1, L + 1)  # (L,)
    return (on_followers - uniform)[:, counted].mean(dim=-1)  # (H,)


def by_loops(weights, tokens):
    kept = []
    for i, token in enumerate(tokens.tolist()):
        after = [j + 1 for j in range(i - 1) if tokens[j] == token]
        if after:
            kept.append(weights[:, i, after].sum(dim=-1) - len(after) / (i + 1))
    return torch.stack(kept).mean(dim=0)


def by_a_uniform_head(weights, tokens):
    L = len(tokens)
    uniform = causal_mask(L) / torch.arange(1.0, L + 1)[:, None]
    followers = torch.zeros(L, L)
    followers[:, 1:] = (tokens[:, None] == tokens[None, :-1]).float()
    followers = followers.tril().fill_diagonal_(0)
    rows = followers.sum(dim=-1) > 0
    return torch.einsum("hij,ij->hi", weights - uniform, followers)[:, rows].mean(dim=1)


def inputs():
    rng = torch.Generator().manual_seed(102)

    def text(H, L, symbols):
        tokens = torch.randint(symbols, (L,), generator=rng)
        tokens[1:3] = tokens[0]  # neighbours that are equal
        return causal_weights(rng, 1, H, L)[0], tokens

    weights, tokens = text(3, 12, 4)
    one_key = F.one_hot(weights.argmax(dim=-1), 12).float()
    rest = [text(*size) for size in [(2, 9, 3), (1, 17, 6), (4, 30, 9), (5, 8, 2)]]
    return [(weights, tokens), *rest, (one_key, tokens), (weights.mT.contiguous().mT, tokens)]


WANTED = "F.pad(same, (1, 0)).tril(-1)"
MISTAKES = [
    ("even weights not taken off",
     "Your result is the weight on the followers alone. In a real text, the same word occurs "
     "often, so subtract the weight that the followers would get from uniform weights.",
     ("(on_followers - uniform)", "on_followers")),
    ("last follower only",
     "Your result counts only the last follower of a query. Count the weight on all its followers.",
     ("counted = followers",
      "followers &= followers.cumsum(dim=-1) == followers.sum(dim=-1, keepdim=True)\n"
      "    counted = followers")),
    ("first follower only",
     "Your result counts only the first follower of a query. Count the weight on all its "
     "followers.",
     ("counted = followers",
      "followers &= followers.cumsum(dim=-1) == 1\n    counted = followers")),
    ("lesson 07's score",
     "Your result is induction_score. It subtracts nothing, and it counts a query as its own "
     "follower. Do both as the text says.",
     lambda weights, tokens: induction_score(weights[None], tokens[None])),
    ("text closed to a ring",
     "Your result takes key 0 for the follower of the last token. If you use roll, leave out key "
     "0, because roll moves the last token to the front.",
     (WANTED, "(tokens[:, None] == tokens.roll(1)).tril(-1)")),
    ("followers that come later",
     "In your result, the uniform weights also count followers that come after the query. A query "
     "cannot see these, so leave them out.",
     ("uniform = followers", "uniform = F.pad(same, (1, 0)).fill_diagonal_(False)")),
    ("followers that come later, everywhere",
     "Your result also counts followers that come after the query. A query cannot see these, so "
     "leave them out.",
     (WANTED, "F.pad(same, (1, 0)).fill_diagonal_(False)")),
    ("queries with themselves dropped",
     "Your result leaves out every query that is its own follower. Leave out only this one key, "
     "because the query may have other followers.",
     ("counted = followers.any(dim=-1)",
      "counted = followers.any(dim=-1) & ~F.pad(same, (1, 0)).diagonal()")),
    ("found at the last, even at all",
     "Your result takes the weight on the last follower, but the uniform weights on all of them. "
     "Use all followers for both.",
     ("on_followers = (weights * followers)",
      "on_followers = (weights * followers * (followers.cumsum(dim=-1) == "
      "followers.sum(dim=-1, keepdim=True)))")),
    ("found by the follower",
     "In your result, the weight found is divided by the number of followers. Use the weight on "
     "all followers together.",
     ("(weights * followers).sum(dim=-1)",
      "(weights * followers).sum(dim=-1) / followers.sum(dim=-1).clamp(min=1)")),
    ("a follower on average",
     "Your result is an average over the followers of a query. Use their sums, both for the "
     "weight found and for the uniform weights.",
     ("(on_followers - uniform)",
      "((on_followers - uniform) / followers.sum(dim=-1).clamp(min=1))")),
    ("queries with itself alone",
     "Your result counts a query as 0 if its only follower is itself. Such a query has no "
     "follower left, so leave it out of the mean.",
     ("counted = followers.any", "counted = F.pad(same, (1, 0)).tril().any")),
    ("followers of the same token dropped",
     "Your result leaves out all followers that equal the query's token. Leave out only the query "
     "itself.",
     (".tril(-1)", ".tril(-1) & (tokens[:, None] != tokens)")),
    ("query itself counted",
     "In your result, a token that occurs twice in a row counts as its own follower. Leave out "
     "this key.",
     (".tril(-1)", ".tril()")),
    ("query itself, even alone",
     "In your result, only the uniform weights still count a query as its own follower. Leave out "
     "this key there, too.",
     ("uniform = followers", "uniform = F.pad(same, (1, 0)).tril()")),
    ("even over all keys",
     "Your uniform weights are 1 / L. Query i sees only i + 1 keys, so give each of them 1 / (i + "
     "1).",
     ("torch.arange(1, L + 1)", "L")),
    ("even over earlier keys",
     "Your uniform weights are 1 / i. Query i also sees itself, so give each key 1 / (i + 1).",
     ("torch.arange(1, L + 1)", "torch.arange(L).clamp(min=1)")),
    ("one follower only",
     "Your uniform weights assume one follower for each query. Multiply 1 / (i + 1) by the number "
     "of followers.",
     ("uniform = followers.sum(dim=-1)", "uniform = followers.any(dim=-1)")),
    ("all queries",
     "Your mean is over all queries. A query without a follower has nowhere to look, so leave it "
     "out.",
     ("[:, counted].mean", ".mean")),
    ("ratio",
     "Your result is the ratio of the weight found to the uniform weight. Return the mean of the "
     "differences.",
     ("(on_followers - uniform)[:, counted]", "(on_followers / uniform)[:, counted]")),
    ("means first",
     "Your result is the ratio of two means. Take the difference for each query, then the mean.",
     ("(on_followers - uniform)[:, counted].mean(dim=-1)",
      "on_followers[:, counted].mean(dim=-1) / uniform[counted].mean()")),
    ("on the occurrence",
     "Your result is the weight on the earlier occurrence itself. Its follower is one position "
     "later.",
     (WANTED, "F.pad(same, (0, 1)).tril(-1)")),
    ("summed",
     "Your result is a sum over the queries. Return their mean.",
     (".mean(dim=-1)  #", ".sum(dim=-1)  #")),
    ("heads together",
     "Your result is one number for all heads together. Return one number for each head.",
     (".mean(dim=-1)  #", ".mean()  #")),
    ("turned round",
     "Your result has the wrong sign. A head that attends to followers must get a positive number.",
     ("on_followers - uniform", "uniform - on_followers")),
]  # fmt: skip

exercise = Exercise(
    "10b.2", induction_above_even, inputs, MISTAKES, names="H",
    also_right=[by_loops, by_a_uniform_head],
)  # fmt: skip
