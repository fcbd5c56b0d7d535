"""7.4: the mean weight of each head on what came after earlier occurrences of the token."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_07._heads import causal_weights


def induction_score(weights, tokens):
    same = tokens[:, :, None] == tokens[:, None, :-1]  # (B, L, L - 1)
    wanted = F.pad(same, (1, 0)).tril()  # (B, L, L), one key further on
    found = (weights * wanted[:, None]).sum(dim=-1)  # (B, H, L)
    queries = wanted.any(dim=-1)  # (B, L), which have such a key
    return found.sum(dim=(0, 2)) / queries.sum()  # (H,)


def by_loops(weights, tokens):
    B, H, L, _ = weights.shape
    scores = []
    for h in range(H):
        found = []
        for b in range(B):
            for i in range(L):
                keys = [j + 1 for j in range(i) if tokens[b, j] == tokens[b, i]]
                if keys:
                    found.append(sum(weights[b, h, i, j] for j in keys))
        scores.append(torch.stack(found).mean())
    return torch.stack(scores)


def by_matmul(weights, tokens):
    same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1).float()
    wanted = same @ torch.diag(torch.ones(tokens.shape[1] - 1), 1)  # one key further on
    found = torch.einsum("bhij,bij->h", weights, wanted)
    return found / (wanted.sum(-1) > 0).sum()


def inputs():
    rng = torch.Generator().manual_seed(75)

    def heads_and_texts(B, H, L, symbols):
        tokens = torch.randint(symbols, (B, L), generator=rng)
        # two equal neighbours, a row where little repeats, and rows that repeat much
        tokens[0, :4] = torch.tensor([1, 1, 0, 1])
        tokens[-1, : L // 2] = torch.arange(L // 2) + symbols
        return causal_weights(rng, B, H, L), tokens

    weights, tokens = heads_and_texts(3, 2, 8, 4)
    one_key = F.one_hot(weights.argmax(dim=-1), 8).float()  # many weights of 0
    shapes = [(2, 3, 11, 3), (4, 1, 9, 5), (3, 2, 8, 4), (1, 2, 26, 9), (1, 1, 8, 3)]
    rest = [heads_and_texts(*shape) for shape in shapes]
    turned = weights.mT.contiguous().mT, tokens.T.contiguous().T  # not contiguous
    return [(weights, tokens), *rest, (one_key, tokens + 900), turned]


FOUND = "found = (weights * wanted[:, None])"
LAST = "wanted & (wanted.flip(-1).cumsum(-1).flip(-1) == 1)"
LAST_OR_0 = f"keys = {LAST}; keys[..., 0] = ~keys.any(dim=-1); found = (weights * keys[:, None])"
KEY_0 = (
    "a query whose token is new counts with its weight on key 0, for −1 + 1 = 0: leave it out; and "
    "of several such keys the weights add up"
)
PLACE_0 = "an occurrence at place 0 is lost: 0 is a place, and none is −1"
MISTAKES = [
    ("on the occurrence",
     "that is the weight on the earlier occurrence itself; an induction head looks one place "
     "further, at what came after it", ("(1, 0)).tril()", "(0, 1)).tril(-1)")),
    ("before the occurrence",
     "one place in the wrong direction: that is the token before the occurrence",
     ("F.pad(same, (1, 0)).tril()", "F.pad(same.tril(-1)[..., 1:], (0, 2))")),
    ("before every match",
     "one place in the wrong direction: that is the token before the occurrence, and so every "
     "query finds the key before its own",
     (":-1]", ":]"), ("F.pad(same, (1, 0)).tril()", "F.pad(same[..., 1:], (0, 1)).tril(-1)")),
    ("last occurrence only",
     "only the last earlier occurrence counts there; what came after any of them is as good",
     (".tril()", f".tril(); wanted = {LAST}")),
    ("key 0 for new tokens", KEY_0, (FOUND, LAST_OR_0), ("queries.sum()", "queries.numel()")),
    ("key 0 for new tokens, not counted", KEY_0, (FOUND, LAST_OR_0)),
    ("place 0 lost", PLACE_0, (".tril()", ".tril(); wanted[..., 1] = False")),
    ("queries of place 0 lost", PLACE_0,
     (FOUND, "wanted = wanted & wanted[..., 2:].any(dim=-1, keepdim=True); " + FOUND)),
    ("next token sought",
     "the keys there hold the token that comes *next*, which a head does not know yet; asked are "
     "those after an earlier occurrence of the present one",
     ("tokens[:, :, None]", "F.pad(tokens[:, 1:], (0, 1), value=-1)[:, :, None]"), (":-1]", ":]"),
     ("F.pad(same, (1, 0)).tril()", "same.tril()")),
    ("last query left out", "the last query is left out; it looks at keys as the others do",
     (".tril()", ".tril(); wanted[:, -1] = False")),
    ("first occurrence only",
     "only the first occurrence counts there; what came after any of them is as good",
     (".tril()", ".tril(); wanted = wanted & (wanted.cumsum(-1) == 1)")),
    ("largest of the keys",
     "of several such keys only the one with the largest weight counts there; their weights add up",
     (".sum(dim=-1)", ".amax(dim=-1)")),
    ("mean over all keys",
     "averaged over all keys of a query; their weights add up, and the mean is over queries",
     (".sum(dim=-1)", ".mean(dim=-1)")),
    ("mean over a query's keys",
     "a query's weights on such keys are averaged; they add up, and the mean is over queries",
     (".sum(dim=-1)", ".sum(dim=-1) / wanted.sum(dim=-1).clamp(min=1)[:, None]")),
    ("new tokens counted",
     "averaged over all queries; those whose token is new have nowhere to look and must not count",
     ("queries.sum()", "queries.numel()")),
    ("queries without weight left out",
     "queries that put no weight on such keys are left out; whether they have such a key counts, "
     "not whether the head looks there", ("queries.sum()", "(found > 0).sum(dim=(0, 2))")),
    ("mean over cells",
     "averaged over single cells; add up the weights of a query's cells, then average over "
     "queries", ("queries.sum()", "wanted.sum()")),
    ("each sequence first",
     "averaged within each sequence first; the mean is over the queries of all together",
     ("found.sum(dim=(0, 2)) / queries.sum()",
      "(found.sum(dim=2) / queries.sum(dim=-1, keepdim=True)).mean(dim=0)")),
    ("itself left out",
     "in 5 5 the key after the first 5 is the second one itself, and it counts: .tril(), not "
     ".tril(-1)", (".tril()", ".tril(-1)")),
    ("later occurrences counted",
     "queries whose token returns only *later* are counted too; an occurrence must be an earlier "
     "one", (".tril()", "")),
    ("rolled round",
     "`roll` brings the last key round to the front; nothing came before key 0, so it is never one",
     (":-1]", ":]"), ("F.pad(same, (1, 0))", "same.roll(1, dims=-1)")),
    ("queries and keys exchanged", "the weights are read transposed: rows are queries, columns are "
     "keys", ("weights *", "weights.mT *")),
    ("one stripe",
     "that is one stripe beside the diagonal, for a text that repeats after L / 2; here tokens "
     "return anywhere: compare them",
     "weights.diagonal(1 - tokens.shape[-1] // 2, dim1=-2, dim2=-1).mean(dim=(0, -1))"),
    ("how often strongest",
     "that is how often such a key is the strongest of a query's; asked are the weights they get, "
     "on average",
     ("found =", "weights = F.one_hot(weights.argmax(dim=-1), weights.shape[-1]); found =")),
    ("sequences kept apart",
     "one number for each sequence and head, (B, H): the mean is over the queries of all together",
     ("found.sum(dim=(0, 2)) / queries.sum()",
      "found.sum(dim=2) / queries.sum(dim=-1, keepdim=True)")),
    ("heads not kept", "one number for all heads together: keep the dimension H",
     ("found.sum(dim=(0, 2)) / queries.sum()", "(found.sum(dim=(0, 2)) / queries.sum()).mean()")),
]  # fmt: skip

exercise = Exercise(
    "7.4", induction_score, inputs, MISTAKES, names="H", also_right=[by_loops, by_matmul]
)
