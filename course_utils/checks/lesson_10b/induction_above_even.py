"""10b.2: how much more a head looks at what followed its token than even weights would."""

import torch
import torch.nn.functional as F

from course_utils.attention import causal_mask, induction_score
from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_07._heads import causal_weights


def induction_above_even(weights, tokens):
    L = len(tokens)
    same = tokens[:, None] == tokens[:-1]  # (L, L - 1)
    wanted = F.pad(same, (1, 0)).tril(-1)  # (L, L), after an earlier one, and not the query itself
    asks = wanted.any(dim=-1)  # (L,)
    found = (weights * wanted).sum(dim=-1)  # (H, L)
    even = wanted.sum(dim=-1) / torch.arange(1, L + 1)  # (L,), each of i + 1 keys alike
    return (found - even)[:, asks].mean(dim=-1)  # (H,)


def by_loops(weights, tokens):
    kept = []
    for i, token in enumerate(tokens.tolist()):
        after = [j + 1 for j in range(i - 1) if tokens[j] == token]
        if after:
            kept.append(weights[:, i, after].sum(dim=-1) - len(after) / (i + 1))
    return torch.stack(kept).mean(dim=0)


def by_a_uniform_head(weights, tokens):
    L = len(tokens)
    even = causal_mask(L) / torch.arange(1.0, L + 1)[:, None]
    wanted = torch.zeros(L, L)
    wanted[:, 1:] = (tokens[:, None] == tokens[None, :-1]).float()
    wanted = wanted.tril().fill_diagonal_(0)
    rows = wanted.sum(dim=-1) > 0
    return torch.einsum("hij,ij->hi", weights - even, wanted)[:, rows].mean(dim=1)


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
     "that is the weight found alone; on a real text the same word stands in many places, so take "
     "off what even weights would find", ("(found - even)", "found")),
    ("last follower only",
     "one follower alone counts, the last one; asked is the weight on all of them",
     ("asks = wanted", "wanted &= wanted.cumsum(dim=-1) == wanted.sum(dim=-1, keepdim=True)\n"
      "    asks = wanted")),
    ("first follower only",
     "one follower alone counts, the first one; asked is the weight on all of them",
     ("asks = wanted", "wanted &= wanted.cumsum(dim=-1) == 1\n    asks = wanted")),
    ("lesson 07's score",
     "that is induction_score: nothing is taken off, and a query may be a follower of its own",
     lambda weights, tokens: induction_score(weights[None], tokens[None])),
    ("text closed to a ring",
     "the first key counts as following the text's last token: roll goes round, so leave key 0 out",
     (WANTED, "(tokens[:, None] == tokens.roll(1)).tril(-1)")),
    ("followers that come later",
     "even weights count followers that come after the query, too: those it cannot see",
     ("even = wanted", "even = F.pad(same, (1, 0)).fill_diagonal_(False)")),
    ("followers that come later, everywhere",
     "followers that come after the query count, too: it cannot see them",
     (WANTED, "F.pad(same, (1, 0)).fill_diagonal_(False)")),
    ("queries with themselves dropped",
     "a query that is its own follower is left out whole; leave that one key out, others count",
     ("asks = wanted.any(dim=-1)",
      "asks = wanted.any(dim=-1) & ~F.pad(same, (1, 0)).diagonal()")),
    ("found at the last, even at all",
     "the weight on the last follower alone is found, less even weights on all; both are of all",
     ("found = (weights * wanted)", "found = (weights * wanted * (wanted.cumsum(dim=-1) == "
      "wanted.sum(dim=-1, keepdim=True)))")),
    ("found by the follower",
     "what is found is divided by the number of followers; asked is the weight on all together",
     ("(weights * wanted).sum(dim=-1)",
      "(weights * wanted).sum(dim=-1) / wanted.sum(dim=-1).clamp(min=1)")),
    ("a follower on average",
     "found and even are divided by the number of followers; asked is the weight on all together",
     ("(found - even)", "((found - even) / wanted.sum(dim=-1).clamp(min=1))")),
    ("queries with itself alone",
     "a query whose one follower is itself counts as 0; it has no follower left, leave it out",
     ("asks = wanted.any", "asks = F.pad(same, (1, 0)).tril().any")),
    ("followers of the same token dropped",
     "followers that are the query's own token again are left out; only the query itself is",
     (".tril(-1)", ".tril(-1) & (tokens[:, None] != tokens)")),
    ("query itself counted",
     "the query itself counts where a token stands twice in a row: there it is its own follower; "
     "leave it out", (".tril(-1)", ".tril()")),
    ("query itself, even alone", "even weights still count the query itself as a follower",
     ("even = wanted", "even = F.pad(same, (1, 0)).tril()")),
    ("even over all keys",
     "even weights are spread over all L keys; query i sees i + 1 of them",
     ("torch.arange(1, L + 1)", "L")),
    ("even over earlier keys",
     "even weights are spread over i keys; query i sees i + 1, with itself",
     ("torch.arange(1, L + 1)", "torch.arange(L).clamp(min=1)")),
    ("one follower only",
     "even weights are counted as if each query had one follower; a word may have several",
     ("even = wanted.sum(dim=-1)", "even = wanted.any(dim=-1)")),
    ("all queries",
     "the mean is over all queries; those whose token is new have nowhere to look, leave them out",
     ("[:, asks].mean", ".mean")),
    ("ratio", "found is divided by even; asked is the difference",
     ("(found - even)[:, asks]", "(found / even)[:, asks]")),
    ("means first",
     "a ratio of two means; asked is the difference for each query, then their mean",
     ("(found - even)[:, asks].mean(dim=-1)",
      "found[:, asks].mean(dim=-1) / even[asks].mean()")),
    ("on the occurrence",
     "that is the earlier occurrence itself; its follower stands one place further",
     (WANTED, "F.pad(same, (0, 1)).tril(-1)")),
    ("summed", "the queries are added up; asked is their mean",
     (".mean(dim=-1)  #", ".sum(dim=-1)  #")),
    ("heads together", "one number for all heads; asked is one a head",
     (".mean(dim=-1)  #", ".mean()  #")),
    ("turned round", "even − found: a head that looks there should get a positive number",
     ("found - even", "even - found")),
]  # fmt: skip

exercise = Exercise(
    "10b.2", induction_above_even, inputs, MISTAKES, names="H",
    also_right=[by_loops, by_a_uniform_head],
)  # fmt: skip
