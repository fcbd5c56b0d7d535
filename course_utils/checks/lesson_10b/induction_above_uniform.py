"""10b.2: how much more a head attends to followers than uniform weights would."""

import torch
import torch.nn.functional as F

from course_utils.attention import causal_mask, induction_score
from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_07._heads import causal_weights


def induction_above_uniform(weights, tokens):
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
        tokens[1:3] = tokens[0]  # equal neighbors
        return causal_weights(rng, 1, H, L)[0], tokens

    weights, tokens = text(3, 12, 4)
    one_key = F.one_hot(weights.argmax(dim=-1), 12).float()
    rest = [text(*size) for size in [(2, 9, 3), (1, 17, 6), (4, 30, 9), (5, 8, 2)]]
    return [(weights, tokens), *rest, (one_key, tokens), (weights.mT.contiguous().mT, tokens)]


WANTED = "F.pad(same, (1, 0)).tril(-1)"
MISTAKES = [
    ("before the occurrence, by roll",
     "Your result uses the keys right *before* earlier occurrences of the query's token. Use the"
     " keys right after them.",
     (WANTED, "(tokens[:, None] == tokens.roll(-1)).tril(-1)")),
    ("query itself and all queries",
     "Your result counts a query as its own follower, and its mean is over all queries. Leave out "
     "the query's own key, and keep only queries that still have a follower.",
     (".tril(-1)", ".tril()"), ("[:, counted].mean", ".mean")),
    ("uniform over all keys, all queries",
     "Your uniform weights are 1 / L, and your mean is over all queries. Give each of the i + 1 "
     "keys that query i sees 1 / (i + 1), and keep only queries that have a follower.",
     ("torch.arange(1, L + 1)", "L"), ("[:, counted].mean", ".mean")),
    ("uniform weight of all queries",
     "Your mean of the uniform weights is over all queries. Take both means over the queries that "
     "have a follower.",
     ("(on_followers - uniform)[:, counted].mean(dim=-1)",
      "on_followers[:, counted].mean(dim=-1) - uniform.mean()")),
    ("keys for queries",
     "Your result reads the weights with queries and keys swapped. In `weights`, row i holds the "
     "weights of query i. Keep this order.",
     ("(weights * followers)", "(weights.mT * followers)")),
    ("mean over pairs",
     "Your result is divided by the number of pairs of a query and a follower. Divide by the number"
     " of queries that have a follower.",
     ("[:, counted].mean(dim=-1)", ".sum(dim=-1) / followers.sum()")),
    ("uniform over one key more",
     "Your uniform weights are 1 / (i + 2). The query at position i sees i + 1 keys, so give each "
     "of them 1 / (i + 1).",
     ("torch.arange(1, L + 1)", "torch.arange(2, L + 2)")),
    ("median",
     "Your result is the median over the queries. Return the mean over them instead.",
     ("[:, counted].mean(dim=-1)", "[:, counted].median(dim=-1).values")),
    ("first occurrence left out",
     "Your result leaves out key 1. This key is a follower if the query has the token of position "
     "0, so keep it.",
     ("    counted =", "    followers[:, 1] = False\n    counted =")),
    ("last query of each token",
     "Your mean counts only the last query of each token. Count all queries that have a follower.",
     ("counted = followers.any(dim=-1)",
      "counted = followers.any(dim=-1) & ~(tokens[:, None] == tokens).triu(1).any(dim=-1)")),
    ("equal followers once",
     "If several followers of a query are the same token, your result counts only the first of "
     "them. Count every follower.",
     ("    counted =", "    earlier = (tokens[:, None] == tokens).triu(1).float()\n"
      "    followers &= followers.float() @ earlier == 0\n    counted =")),
    ("uniform weights not subtracted",
     "Your result is the weight on the followers alone. A head with uniform weights would also "
     "put some weight on them, so subtract that weight.",
     ("(on_followers - uniform)", "on_followers")),
    ("last follower only",
     "Your result counts only the last follower of each query. Use all followers, for both "
     "numbers.",
     ("counted = followers",
      "followers &= followers.cumsum(dim=-1) == followers.sum(dim=-1, keepdim=True)\n"
      "    counted = followers")),
    ("first follower only",
     "Your result counts only the first follower of each query. Use all followers, for both "
     "numbers.",
     ("counted = followers",
      "followers &= followers.cumsum(dim=-1) == 1\n    counted = followers")),
    ("lesson 07's score",
     "Your result is induction_score from lesson 07. It subtracts nothing, and it counts a query "
     "as its own follower. Leave that key out, keep only queries that still have a follower, and "
     "subtract what uniform weights would give.",
     lambda weights, tokens: induction_score(weights[None], tokens[None])),
    ("text closed to a ring",
     "Your result counts key 0 as a follower of the last token. No token comes before key 0, so "
     "leave key 0 out. (`roll` moves the last token to the front.)",
     (WANTED, "(tokens[:, None] == tokens.roll(1)).tril(-1)")),
    ("followers that come later",
     "Your weight on the followers is right. But your uniform weight also counts followers after "
     "the query. The query cannot see them, so leave them out.",
     ("uniform = followers", "uniform = F.pad(same, (1, 0)).fill_diagonal_(False)")),
    ("followers that come later, everywhere",
     "Your result also counts followers that come after the query. The query cannot see them, so "
     "leave them out of both numbers. Then average only over queries that still have a follower.",
     (WANTED, "F.pad(same, (1, 0)).fill_diagonal_(False)")),
    ("queries with themselves dropped",
     "Your result leaves out every query that is its own follower. Leave out only that key, "
     "because the query may have other followers.",
     ("counted = followers.any(dim=-1)",
      "counted = followers.any(dim=-1) & ~F.pad(same, (1, 0)).diagonal()")),
    ("weight on the last, uniform weight of all",
     "Your result takes the weight on the last follower only, but the uniform weight of all "
     "followers. Use all followers for both numbers.",
     ("on_followers = (weights * followers)",
      "on_followers = (weights * followers * (followers.cumsum(dim=-1) == "
      "followers.sum(dim=-1, keepdim=True)))")),
    ("weight divided by the followers",
     "In your result, the weight on the followers is divided by their number. Use the total "
     "weight, without dividing.",
     ("(weights * followers).sum(dim=-1)",
      "(weights * followers).sum(dim=-1) / followers.sum(dim=-1).clamp(min=1)")),
    ("a follower on average",
     "Your result averages over the followers of each query. Add them up instead, for both "
     "numbers.",
     ("(on_followers - uniform)",
      "((on_followers - uniform) / followers.sum(dim=-1).clamp(min=1))")),
    ("queries with itself alone",
     "Your result counts a query as 0 if its only follower is itself. Such a query has no "
     "follower left, so leave the query out of the mean.",
     ("counted = followers.any", "counted = F.pad(same, (1, 0)).tril().any")),
    ("followers of the same token dropped",
     "Your result leaves out every follower that has the same token as the query. Leave out only "
     "the query's own key, because an earlier follower counts even if it has that same token.",
     (".tril(-1)", ".tril(-1) & (tokens[:, None] != tokens)")),
    ("query itself counted",
     "Your result counts a query as its own follower if its token occurs twice in a row. Leave "
     "out the query itself, and keep only queries that still have a follower.",
     (".tril(-1)", ".tril()")),
    ("query itself, in the uniform weight",
     "Your uniform weight still counts the query itself as one of its followers. Leave that key "
     "out there, too.",
     ("uniform = followers", "uniform = F.pad(same, (1, 0)).tril()")),
    ("uniform over all keys",
     "Your uniform weights are 1 / L. The query at position i sees only i + 1 keys, so give each "
     "of these keys 1 / (i + 1).",
     ("torch.arange(1, L + 1)", "L")),
    ("uniform over earlier keys",
     "Your uniform weights are 1 / i for the query at position i. This query sees i + 1 keys, "
     "including its own, so give each of them 1 / (i + 1).",
     ("torch.arange(1, L + 1)", "torch.arange(L).clamp(min=1)")),
    ("one follower only",
     "Your uniform weight assumes that each query has one follower. Multiply the uniform weight "
     "of a single key by the number of followers.",
     ("uniform = followers.sum(dim=-1)", "uniform = followers.any(dim=-1)")),
    ("largest follower only",
     "Your result takes only the largest weight on a follower. Use the total weight on all "
     "followers.",
     ("(weights * followers).sum(dim=-1)", "(weights * followers).amax(dim=-1)")),
    ("future and itself in both numbers",
     "Your result also counts followers after the query, and the query as its own follower. "
     "Leave out both.",
     ("    on_followers =", "    followers = F.pad(same, (1, 0))\n    on_followers =")),
    ("before the occurrence",
     "Your result uses the keys right *before* earlier occurrences of the query's token. Use the"
     " keys right after them.",
     (WANTED, "F.pad(tokens[:, None] == tokens[1:], (0, 1)).tril(-2)")),
    ("all queries",
     "Your mean is over all queries. A query without a follower only adds a 0, so leave it out.",
     ("[:, counted].mean", ".mean")),
    ("ratio",
     "Your result is the weight on the followers divided by their uniform weight. Subtract the "
     "uniform weight instead.",
     ("(on_followers - uniform)[:, counted]", "(on_followers / uniform)[:, counted]")),
    ("means first",
     "Your result is the ratio of two means. Subtract the uniform weight from the weight on the "
     "followers instead.",
     ("(on_followers - uniform)[:, counted].mean(dim=-1)",
      "on_followers[:, counted].mean(dim=-1) / uniform[counted].mean()")),
    ("on the occurrence",
     "Your result uses the earlier occurrences themselves. Use the keys right after them, which "
     "are the followers.",
     (WANTED, "F.pad(same, (0, 1)).tril(-1)")),
    ("summed",
     "Your result is the sum over the queries. Return the mean over them instead.",
     (".mean(dim=-1)  #", ".sum(dim=-1)  #")),
    ("heads together",
     "Your result is one number for all heads together. Return one number for each head.",
     (".mean(dim=-1)  #", ".mean()  #")),
    ("wrong sign",
     "Your result has the wrong sign. A head that attends to followers more than uniform weights "
     "would must get a positive number.",
     ("on_followers - uniform", "uniform - on_followers")),
]  # fmt: skip

exercise = Exercise(
    "10b.2", induction_above_uniform, inputs, MISTAKES, names="H",
    also_right=[by_loops, by_a_uniform_head],
)  # fmt: skip
