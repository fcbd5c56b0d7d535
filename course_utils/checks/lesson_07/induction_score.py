"""7.4: the mean weight of each head on keys right after an earlier occurrence of the token."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_07._heads import causal_weights


def induction_score(weights, tokens):
    same = tokens[:, :, None] == tokens[:, None, :-1]  # (B, L, L - 1)
    targets = F.pad(same, (1, 0)).tril()  # (B, L, L), one key further on
    on_targets = (weights * targets[:, None]).sum(dim=-1)  # (B, H, L)
    queries = targets.any(dim=-1)  # (B, L), queries that have such a key
    return on_targets.sum(dim=(0, 2)) / queries.sum()  # (H,)


def by_loops(weights, tokens):
    B, H, L, _ = weights.shape
    scores = []
    for h in range(H):
        on_targets = []
        for b in range(B):
            for i in range(L):
                keys = [j + 1 for j in range(i) if tokens[b, j] == tokens[b, i]]
                if keys:
                    on_targets.append(sum(weights[b, h, i, j] for j in keys))
        scores.append(torch.stack(on_targets).mean())
    return torch.stack(scores)


def by_matmul(weights, tokens):
    same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1).float()
    targets = same @ torch.diag(torch.ones(tokens.shape[1] - 1), 1)  # one key further on
    on_targets = torch.einsum("bhij,bij->h", weights, targets)
    return on_targets / (targets.sum(-1) > 0).sum()


def inputs():
    rng = torch.Generator().manual_seed(75)

    def heads_and_texts(B, H, L, symbols):
        tokens = torch.randint(symbols, (B, L), generator=rng)
        # two equal neighbors, a row where little repeats, and rows where much does
        tokens[0, :4] = torch.tensor([1, 1, 0, 1])
        tokens[-1, : L // 2] = torch.arange(L // 2) + symbols
        return causal_weights(rng, B, H, L), tokens

    weights, tokens = heads_and_texts(3, 2, 8, 4)
    one_key = F.one_hot(weights.argmax(dim=-1), 8).float()  # many weights of 0
    shapes = [(2, 3, 11, 3), (4, 1, 9, 5), (3, 2, 8, 4), (1, 2, 26, 9), (1, 1, 8, 3)]
    rest = [heads_and_texts(*shape) for shape in shapes]
    turned = weights.mT.contiguous().mT, tokens.T.contiguous().T  # not contiguous
    return [(weights, tokens), *rest, (one_key, tokens + 900), turned]


FOUND = "on_targets = (weights * targets[:, None])"
LAST = "targets & (targets.flip(-1).cumsum(-1).flip(-1) == 1)"
LAST_OR_0 = (
    f"keys = {LAST}; keys[..., 0] = ~keys.any(dim=-1); on_targets = (weights * keys[:, None])"
)
KEY_0 = (
    "For a query whose token has not occurred before, you use the weight on key 0. If −1 stands "
    "for no earlier occurrence, the next key is −1 + 1 = 0. Leave these queries out. If a query "
    "has several keys to count, add up their weights."
)
SHIFTED = "F.pad(same, (1, 0)).tril()"
QUERY = (
    "You shift the query instead of the key: query i uses keys with token i − 1. Use keys that "
    "come right after an earlier occurrence of token i."
)
VALID = " Position 0 is valid. If you use `previous_occurrence`, only −1 means none."
MISTAKES = [
    ("on the occurrence",
     "You use the weight on the earlier occurrence itself. Use the key one position later, which "
     "comes after the occurrence.", ("(1, 0)).tril()", "(0, 1)).tril(-1)")),
    ("on every occurrence",
     "You use the weight on every occurrence of the token, even on the query's own key. Use the "
     "key right after each *earlier* occurrence.",
     (":-1]", ":]"), (SHIFTED, "same.tril()")),
    ("on the occurrence as well",
     "You use the weights on the earlier occurrences as well as on the keys after them. Use only "
     "the key right after each earlier occurrence.",
     (SHIFTED, f"{SHIFTED} | F.pad(same, (0, 1)).tril(-1)")),
    ("query shifted", QUERY,
     (":-1]", ":]"), (SHIFTED, "F.pad(same.tril(-1)[:, :-1], (0, 0, 1, 0))")),
    ("query shifted, with the key before", QUERY,
     (":-1]", ":]"), (SHIFTED, "F.pad(same[:, :-1], (0, 0, 1, 0)).tril(-1)")),
    ("two after the occurrence",
     "You use the key two positions after the earlier occurrence. Use the one right after it.",
     ("F.pad(same, (1, 0))", "F.pad(same[..., :-1], (2, 0))")),
    ("before the occurrence",
     "You use the token *before* the earlier occurrence. Use the one after it.",
     ("F.pad(same, (1, 0)).tril()", "F.pad(same.tril(-1)[..., 1:], (0, 2))")),
    ("before every match",
     "You use the token *before* each match, so every query counts the key before itself. Use the "
     "token after each earlier occurrence.",
     (":-1]", ":]"), ("F.pad(same, (1, 0)).tril()", "F.pad(same[..., 1:], (0, 1)).tril(-1)")),
    ("last occurrence only",
     "You count only the key after the last earlier occurrence. Count the key after every earlier "
     "occurrence.",
     (".tril()", f".tril(); targets = {LAST}")),
    ("key 0 for new tokens", KEY_0, (FOUND, LAST_OR_0), ("queries.sum()", "queries.numel()")),
    ("key 0 for new tokens, not counted", KEY_0, (FOUND, LAST_OR_0)),
    ("place 0 lost",
     "You leave out the key after an earlier occurrence at position 0." + VALID,
     (".tril()", ".tril(); targets[..., 1] = False")),
    ("queries of place 0 lost",
     "You leave out queries whose only earlier occurrence is at position 0." + VALID,
     (FOUND, "targets = targets & targets[..., 2:].any(dim=-1, keepdim=True); " + FOUND)),
    ("next token sought",
     "You use keys whose token is the same as the *next* token. Use keys that come right after an "
     "earlier occurrence of the current token.",
     ("tokens[:, :, None]", "F.pad(tokens[:, 1:], (0, 1), value=-1)[:, :, None]"), (":-1]", ":]"),
     ("F.pad(same, (1, 0)).tril()", "same.tril()")),
    ("last query left out",
     "You leave out the last query. Count it like all other queries.",
     (".tril()", ".tril(); targets[:, -1] = False")),
    ("first occurrence only",
     "You count only the key after the first occurrence. Count the key after every earlier "
     "occurrence.",
     (".tril()", ".tril(); targets = targets & (targets.cumsum(-1) == 1)")),
    ("largest of the keys",
     "Where several keys of a query come right after an earlier occurrence, you count only the "
     "largest of their weights. Add up all of these weights.",
     (".sum(dim=-1)", ".amax(dim=-1)")),
    ("mean over all keys",
     "You average over all keys of a query. Add up the weights on the keys right after earlier "
     "occurrences, and take the mean over queries only.",
     (".sum(dim=-1)", ".mean(dim=-1)")),
    ("mean over a query's keys",
     "You average a query's weights on the keys right after earlier occurrences. Add up these "
     "weights, and take the mean over queries only.",
     (".sum(dim=-1)", ".sum(dim=-1) / targets.sum(dim=-1).clamp(min=1)[:, None]")),
    ("new tokens counted",
     "Your mean is over all queries. Leave out queries whose token has not occurred before, "
     "because they have no key to count.",
     ("queries.sum()", "queries.numel()")),
    ("queries without weight left out",
     "Your mean leaves out queries whose weights on the keys after earlier occurrences are all "
     "0. Count every query whose token has occurred before.",
     ("queries.sum()", "(on_targets > 0).sum(dim=(0, 2))")),
    ("summed over queries",
     "Your result is a sum over the queries. Divide it by the number of queries whose token has "
     "occurred before.",
     (" / queries.sum()", "")),
    ("divided by the sequences",
     "Your sum is divided by the number of sequences. Divide it by the number of queries whose "
     "token has occurred before.",
     ("queries.sum()", "len(weights)")),
    ("all queries but the first",
     "Your sum is divided by the number of all queries but the first of each sequence. Divide it "
     "by the number of queries whose token has occurred before.",
     ("queries.sum()", "queries[:, 1:].numel()")),
    ("mean over cells",
     "Your mean is over individual weights. Add up the weights of each query first, and then take "
     "the mean over queries.", ("queries.sum()", "targets.sum()")),
    ("each sequence first",
     "You take one mean per sequence, and then the mean of these means. Take one mean over the "
     "queries of all sequences.",
     ("on_targets.sum(dim=(0, 2)) / queries.sum()",
      "(on_targets.sum(dim=2) / queries.sum(dim=-1, keepdim=True)).mean(dim=0)")),
    ("itself left out",
     "You never count the query's own key. In 5 5, the second 5 comes after the first 5, so it "
     "counts. Use `.tril()`, not `.tril(-1)`.", (".tril()", ".tril(-1)")),
    ("key before left out as well",
     "You never count the query's own key or the key right before it. Each may come right after an "
     "earlier occurrence. Use `.tril()`, not `.tril(-2)`.",
     (".tril()", ".tril(-2)")),
    ("later occurrences counted",
     "You count every query but the last, even one whose token has not occurred before. This "
     "happens if each token matches itself, for example because `.tril()` is missing or comes "
     "before the shift to the next key. Count only matches with earlier tokens.",
     (".tril()", "")),
    ("rolled round",
     "You treat key 0 as if it came after the last token, as `roll` does when it wraps around. "
     "Nothing comes before key 0, so never count it.",
     (":-1]", ":]"), ("F.pad(same, (1, 0))", "same.roll(1, dims=-1)")),
    ("queries and keys exchanged",
     "You read the weights transposed. Rows are queries, and columns are keys.",
     ("weights *", "weights.mT *")),
    ("one stripe",
     "Your score is the mean of one diagonal, as if each text repeated after L / 2 tokens. "
     "Compare the tokens to find the keys right after earlier occurrences.",
     "weights.diagonal(1 - tokens.shape[-1] // 2, dim1=-2, dim2=-1).mean(dim=(0, -1))"),
    ("how often strongest",
     "Your result says how often a key right after an earlier occurrence gets the largest "
     "weight. Return the mean of the weights.",
     ("on_targets =",
      "weights = F.one_hot(weights.argmax(dim=-1), weights.shape[-1]); on_targets =")),
    ("sequences kept apart",
     "You return one number for each sequence and head. Take one mean over the queries of all "
     "sequences.",
     ("on_targets.sum(dim=(0, 2)) / queries.sum()",
      "on_targets.sum(dim=2) / queries.sum(dim=-1, keepdim=True)")),
    ("heads not kept",
     "You return one number for all heads. Return one number per head.",
     ("on_targets.sum(dim=(0, 2)) / queries.sum()",
      "(on_targets.sum(dim=(0, 2)) / queries.sum()).mean()")),
    ("token 0 before key 0",
     "You treat key 0 as if it came after a token 0. This happens if you pad the shifted tokens "
     "with 0, which is also a token. Nothing comes before key 0, so never count it.",
     ("F.pad(same, (1, 0)).tril()",
      "(tokens[:, :, None] == F.pad(tokens[:, :-1], (1, 0))[:, None, :]).tril()")),
]  # fmt: skip

exercise = Exercise(
    "7.4", induction_score, inputs, MISTAKES, names="H", also_right=[by_loops, by_matmul]
)
