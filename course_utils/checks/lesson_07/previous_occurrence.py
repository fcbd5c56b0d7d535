"""7.3: where each token occurred last before."""

import torch

from course_utils.checks.exercise import Exercise


def previous_occurrence(tokens):
    L = tokens.shape[-1]
    same = tokens[..., :, None] == tokens[..., None, :]  # (..., L, L)
    earlier = same.tril(-1)  # (..., L, L)
    places = torch.where(earlier, torch.arange(L), -1)  # (..., L, L)
    return places.amax(dim=-1)  # (..., L)


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
        (torch.tensor([1, 2, 3, 4]),),  # nothing returns
        (torch.tensor([[7, 7, 7, 7, 7], [0, 3, 0, 3, 0], [4, 0, 1, 1, 4]]),),
        (torch.tensor([[2, 0, 1, 2, 0, 1, 2, 0, 1]]),),
        (900 + 32 * torch.randint(20, (2, 50), generator=rng),),
        (torch.randint(3, (2, 3, 6), generator=rng),),
        (torch.randint(3, (7, 2), generator=rng).T,),  # not contiguous
        (torch.tensor([4]),),
    ]


def never_forgotten(tokens):
    """Go through all sequences with one dict of what was seen."""
    found, last = tokens.clone(), {}
    for sequence in found.view(-1, tokens.shape[-1]):
        for i, token in enumerate(sequence.tolist()):
            sequence[i] = last.get(token, -1)
            last[token] = i
    return found


def in_one_row(tokens):
    return previous_occurrence(tokens.flatten()).view(tokens.shape)


LAST = "places.amax(dim=-1)"
MISTAKES = [
    ("first occurrence", "that is the first occurrence; asked is the last one before the token",
     (LAST, "torch.where(earlier.any(dim=-1), earlier.int().argmax(dim=-1), -1)")),
    ("first by argmax",
     "argmax finds the first of several, and 0 where there is none; asked are the last one before "
     "the token and -1", (LAST, "earlier.int().argmax(dim=-1)")),
    ("never forgotten", "an occurrence in another sequence is found: what was seen must be "
     "forgotten where the next sequence begins", never_forgotten),
    ("one long sequence", "the sequences are taken for one long one: each has a past and positions "
     "of its own, counted from 0", in_one_row),
    ("position 0 lost", "an occurrence at position 0 is lost: 0 is a position, and none is -1",
     (LAST, f"torch.where({LAST} > 0, {LAST}, -1)")),
    ("nothing found", "no earlier occurrence is found, as where tensors are the keys of a dict or "
     "set: each is a key of its own; take .tolist() or .item()",
     (LAST, f"torch.full_like({LAST}, -1)")),
    ("finds itself", "every token finds itself: the occurrence must lie strictly before it",
     (".tril(-1)", ".tril()")),
    ("next occurrence", "it finds the next occurrence; the future must not be looked at",
     (".tril(-1)", ".triu(1)"),
     (LAST, "torch.where(earlier.any(dim=-1), earlier.int().argmax(dim=-1), -1)")),
    ("last of all",
     "that is the last occurrence anywhere, later ones too: only those before count",
     (".tril(-1)", "")),
    ("last other", "the last *other* occurrence, later ones too: only those before count",
     ("same.tril(-1)", "same & ~torch.eye(L, dtype=torch.bool)")),
    ("distance back", "that is how far back it lies; asked is its position, counted from 0",
     (LAST, f"torch.where({LAST} < 0, -1, torch.arange(L) - {LAST})")),
    ("zero if none",
     "a token without an earlier occurrence must get -1; 0 is the first position",
     ("arange(L), -1)", "arange(L), 0)")),
    ("one after",
     "each position is one too large: counted from 1, or the place after the occurrence, where an "
     "induction head looks; asked is the occurrence itself, counted from 0",
     (LAST, f"torch.where({LAST} < 0, -1, {LAST} + 1)")),
    ("counted from 1",
     "each is one too large: positions are counted from 0, and a token without an earlier "
     "occurrence gets -1", (LAST, LAST + " + 1")),
    ("how often", "that is how often the token has occurred before; asked is where, the last time",
     (LAST, "torch.where(earlier.any(dim=-1), earlier.sum(dim=-1), -1)")),
    ("how often, 0 if never",
     "that is how often the token has occurred before; asked is where, the last time, or −1",
     (LAST, "earlier.sum(dim=-1)")),
    ("neighbours not compared",
     "the token right before is not looked at: in 5 5 the second 5 has occurred before; .tril(-1)",
     (".tril(-1)", ".tril(-2)")),
    ("whether not where", "that is whether the token has occurred, not where",
     (LAST, "earlier.any(dim=-1)")),
]  # fmt: skip

exercise = Exercise(
    "7.3", previous_occurrence, inputs, MISTAKES, names="L", also_right=[by_dictionary]
)
