"""7.3: the last position before each token where the same token occurred."""

import torch

from course_utils.checks.exercise import Exercise


def previous_occurrence(tokens):
    L = tokens.shape[-1]
    same = tokens[..., :, None] == tokens[..., None, :]  # (..., L, L)
    earlier = same.tril(-1)  # (..., L, L)
    positions = torch.where(earlier, torch.arange(L), -1)  # (..., L, L)
    return positions.amax(dim=-1)  # (..., L)


def by_dictionary(tokens):
    rows = []
    for row in tokens.reshape(-1, tokens.shape[-1]).tolist():
        last, found = {}, []
        for i, token in enumerate(row):
            found.append(last.get(token, -1))
            last[token] = i
        rows.append(found)
    return torch.tensor(rows).reshape(tokens.shape)


def inputs():
    rng = torch.Generator().manual_seed(74)
    return [
        (torch.tensor([5, 9, 5, 5, 2, 9, 5]),),
        (torch.tensor([1, 2, 3, 4]),),  # no token occurs twice
        (torch.tensor([[7, 7, 7, 7, 7], [0, 3, 0, 3, 0], [4, 0, 1, 1, 4]]),),
        (torch.tensor([[2, 0, 1, 2, 0, 1, 2, 0, 1]]),),
        (900 + 32 * torch.randint(20, (2, 140), generator=rng),),
        (torch.randint(3, (2, 3, 6), generator=rng),),
        (torch.randint(3, (7, 2), generator=rng).T,),  # not contiguous
        (torch.tensor([4]),),
    ]


def never_forgotten(tokens):
    """Go through all sequences with one dict that is never cleared."""
    found, last = tokens.clone(), {}
    for sequence in found.view(-1, tokens.shape[-1]):
        for i, token in enumerate(sequence.tolist()):
            sequence[i] = last.get(token, -1)
            last[token] = i
    return found


def in_one_row(tokens):
    return previous_occurrence(tokens.flatten()).view(tokens.shape)


LAST = "positions.amax(dim=-1)"
MISTAKES = [
    ("first occurrence",
     "Your result is the first occurrence. Return the last one before the token.",
     (LAST, "torch.where(earlier.any(dim=-1), earlier.int().argmax(dim=-1), -1)")),
    ("first by argmax",
     "Your result is the first occurrence, or 0 if there is none. `argmax` returns the "
     "first maximum, and 0 if all entries are equal. Return the last occurrence before the "
     "token, or −1.",
     (LAST, "earlier.int().argmax(dim=-1)")),
    ("never forgotten",
     "You include occurrences in earlier sequences. Search each sequence separately.",
     never_forgotten),
    ("one long sequence",
     "You treat all sequences as one long sequence. Each one has its own past, and its positions "
     "start at 0.", in_one_row),
    ("position 0 lost",
     "You miss occurrences at position 0. Position 0 is valid. Only −1 means none.",
     (LAST, f"torch.where({LAST} > 0, {LAST}, -1)")),
    ("nothing found",
     "You find no earlier occurrence at all. If you store tensors in a dict or set, each tensor "
     "counts as a different key. Use `.tolist()` or `.item()`.",
     (LAST, f"torch.full_like({LAST}, -1)")),
    ("finds itself",
     "Every token finds itself. Search only before the token.",
     (".tril(-1)", ".tril()")),
    ("next occurrence",
     "Your result is the *next* occurrence. Search before the token, not after it.",
     (".tril(-1)", ".triu(1)"),
     (LAST, "torch.where(earlier.any(dim=-1), earlier.int().argmax(dim=-1), -1)")),
    ("last of all",
     "Your result is the last occurrence anywhere, even a later one. Search only before the token.",
     (".tril(-1)", "")),
    ("last other",
     "Your result is the last *other* occurrence, even a later one. Search only before the token.",
     ("same.tril(-1)", "same & ~torch.eye(L, dtype=torch.bool)")),
    ("distance back",
     "Your result is the distance to the occurrence. Return its position, counted from 0.",
     (LAST, f"torch.where({LAST} < 0, -1, torch.arange(L) - {LAST})")),
    ("zero if none",
     "Where there is no earlier occurrence, your result is 0. Position 0 is valid, so return −1 "
     "there.",
     ("arange(L), -1)", "arange(L), 0)")),
    ("one after",
     "Each of your positions is one too large. Return the position of the occurrence itself, "
     "counted from 0.",
     (LAST, f"torch.where({LAST} < 0, -1, {LAST} + 1)")),
    ("counted from 1",
     "All your numbers are one too large. Count positions from 0, and return −1 if there is no "
     "earlier occurrence.", (LAST, LAST + " + 1")),
    ("how often",
     "Your result says how often the token has occurred before. Return the position where it last "
     "occurred.",
     (LAST, "torch.where(earlier.any(dim=-1), earlier.sum(dim=-1), -1)")),
    ("how often, 0 if never",
     "Your result says how often the token has occurred before. Return the position where it last "
     "occurred, or −1.",
     (LAST, "earlier.sum(dim=-1)")),
    ("neighbors not compared",
     "You miss an occurrence directly before the token. In 5 5, the second 5 has occurred at "
     "position 0. Include the first diagonal below the main one, for example with `.tril(-1)`.",
     (".tril(-1)", ".tril(-2)")),
    ("token in place of the position",
     "Your result is the token itself where it has occurred before. Return the position where it "
     "last occurred.",
     ("torch.arange(L), -1", "tokens[..., None, :], -1")),
    ("how often, less 1",
     "Your result says how often the token has occurred before, minus 1. Return the position where "
     "it last occurred, or −1.",
     (LAST, "earlier.sum(dim=-1) - 1")),
    ("neighbor only",
     "You find only an occurrence directly before the token. Search all earlier positions.",
     (".tril(-1)", ".tril(-1).triu(-1)")),
    ("largest over the queries",
     "Your result is the position itself if its token occurs again *later*, and −1 if not. If you "
     "take a maximum, take it over the keys, dim=-1.",
     (LAST, "positions.amax(dim=-2)")),
    ("whether not where",
     "Your result says only whether the token has occurred before. Return the position where it "
     "last occurred.",
     (LAST, "earlier.any(dim=-1)")),
    ("last later occurrence",
     "Your result is the last *later* occurrence. Search before the token, not after it.",
     (".tril(-1)", ".triu(1)")),
    ("token 0 never found",
     "You find no earlier occurrence of token 0, which is a token like any other. If you multiply "
     "by the tokens, compare them with `==` instead.",
     ("same.tril(-1)", "same.tril(-1) & (tokens[..., None] != 0)")),
]  # fmt: skip

exercise = Exercise(
    "7.3", previous_occurrence, inputs, MISTAKES, names="L", also_right=[by_dictionary]
)
