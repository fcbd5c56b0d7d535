"""11.8: tokens of several documents dealt out so that all ranks have as much to compute."""

import torch

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.parallel import shard_positions

MOST = 0.02  # of the mean, that a rank may have more than it


def shard_tokens(lengths, ranks):
    seen = torch.cat([torch.arange(1, length + 1) for length in lengths])  # (N,), keys of each
    order = seen.argsort(descending=True, stable=True).unflatten(0, (-1, ranks))  # (n, W)
    order[1::2] = order[1::2].flip(1)  # there and back
    return order.T  # (W, n)


def to_the_least_loaded(lengths, ranks):
    n = sum(lengths) // ranks
    seen = [place + 1 for length in lengths for place in range(length)]
    held, work = [[] for _ in range(ranks)], [0] * ranks
    for token in sorted(range(len(seen)), key=lambda t: -seen[t]):
        rank = min((r for r in range(ranks) if len(held[r]) < n), key=work.__getitem__)
        held[rank].append(token)
        work[rank] += seen[token]
    return torch.tensor(held)


def inputs():
    return [
        ((128,), 4),
        ((96, 32, 64, 192), 4),
        ((301, 17, 5, 77), 8),
        ((1, 1, 1, 240, 13), 2),
        ((50, 50, 50, 50, 50, 50), 6),
        ((700, 68), 3),
        ((401, 94), 5),  # an odd number each
        ((200, 3, 3, 2, 2, 2, 2, 2), 4),
        ((1, 3) * 20, 2),
        ((3, 13) * 12, 8),
    ]


def run(answer, lengths, ranks):
    """Return 1 if all ranks have nearly the same number of pairs, else complain."""
    held, N = in_rows(call_with_clones(answer, lengths, ranks)[0]), sum(lengths)
    if held.shape != (ranks, N // ranks):
        raise NamedMistake("wrong shape", SHAPE)
    if held.is_floating_point() or held.is_complex() or held.dtype == torch.bool:
        raise NamedMistake("no whole numbers", WHOLE)
    if not torch.equal(held.flatten().sort().values, torch.arange(N)):
        raise NamedMistake("not each token once", ONCE)
    seen = torch.cat([torch.arange(1, length + 1) for length in lengths])  # (N,)
    work = seen[held.long()].sum(dim=1).double()  # (W,)
    if work.max() <= (1 + MOST) * work.mean():
        return [torch.ones(())]
    raise NamedMistake("unbalanced", what_is_wrong(held, lengths, ranks, seen))


def in_rows(held):
    """Return a tensor of what may be a list, or an array, of rows."""
    if isinstance(held, torch.Tensor):
        return held
    try:
        rows = [torch.as_tensor(row) for row in held]
        if len({len(row) for row in rows}) > 1:
            raise NamedMistake("uneven", UNEVEN)
        return torch.stack(rows)
    except (TypeError, ValueError, RuntimeError):
        raise NamedMistake("wrong shape", SHAPE) from None


SHAPE = "return a tensor (W, N / W): in row r the places that rank r holds"
WHOLE = "places are whole numbers: return a tensor of them"
UNEVEN = "not all ranks have the same number of tokens: N / W each"
ONCE = "not every token stands with one rank, once: each place from 0 to N − 1 must"
IN_ORDER = (
    "Your ranks hold consecutive tokens of a document. Its later tokens see more keys, so one rank "
    "computes most. Deal the tokens by what each costs."
)
WHOLE_TEXT = (
    "zigzag over the whole text: that balances one document; here a token sees only its own "
    "document, so what it costs depends on where it stands in that"
)
ROUND = (
    "the tokens are dealt round, always from rank 0 on: the later ranks get a little more each "
    "time; deal there and back"
)
PLACES = (
    "there and back over the places: what a token costs depends on where it stands in its "
    "document; put the tokens in order of that first"
)
CHUNKS = (
    "tokens in order of what they cost are cut in W pieces: one rank gets all the dearest; "
    "deal them there and back"
)
BY_LENGTH = (
    "each rank has its share of the long documents, and of the short ones; but what a token costs "
    "is its place in the document, not the document's length: it sees the keys up to itself"
)
ELSE = (
    "the ranks have not the same number of pairs to compute: how many keys does each token see, "
    "and how many pairs are that for a rank?"
)


def what_is_wrong(held, lengths, ranks, seen):
    N, sorted_rows = sum(lengths), held.long().sort(dim=1).values
    if torch.equal(sorted_rows, torch.arange(N).reshape(ranks, -1)):
        return IN_ORDER
    dealt = torch.arange(N).reshape(-1, ranks).T
    by_cost = seen.argsort(descending=True, stable=True).reshape(-1, ranks).T
    for each in (dealt, by_cost, by_cost.flip(0)):
        if torch.equal(sorted_rows, each.sort(dim=1).values):
            return ROUND
    turned = dealt.clone()
    turned[:, 1::2] = dealt[:, 1::2].flip(0)
    for each in (turned, turned.flip(0)):
        if torch.equal(sorted_rows, each.sort(dim=1).values):
            return PLACES
    work = seen[held.long()].sum(dim=1).sort().values  # the same, whichever of equals comes first
    if torch.equal(work, seen.sort().values.reshape(ranks, -1).sum(dim=1)):
        return CHUNKS
    if N % (2 * ranks) == 0:
        if torch.equal(sorted_rows, torch.stack(shard_positions(N, ranks, zigzag=True))):
            return WHOLE_TEXT
    of_length = torch.tensor(lengths).repeat_interleave(torch.tensor(lengths)).double()  # (N,)
    share = of_length[held.long()].sum(dim=1)  # (W,)
    if len(lengths) > 1 and share.max() <= (1 + MOST) * share.mean():
        return BY_LENGTH
    return ELSE


ROWS = "seen.argsort(descending=True, stable=True).unflatten(0, (-1, ranks))"
TURN = "    order[1::2] = order[1::2].flip(1)  # there and back\n"
MISTAKES = [
    ("in order", IN_ORDER, "torch.arange(sum(lengths)).reshape(ranks, -1)"),
    ("always from the first", ROUND, (TURN, "")),
    ("zigzag over the text", WHOLE_TEXT,
     "torch.stack(shard_positions(sum(lengths), ranks, zigzag=True))"),
    ("by length of the document", BY_LENGTH,
     ("torch.arange(1, length + 1)", "torch.full((length,), length)")),
    ("over the places", PLACES, (ROWS, "torch.arange(sum(lengths)).unflatten(0, (-1, ranks))")),
    ("sorted and cut", CHUNKS, ("return order.T", "return seen.argsort().reshape(ranks, -1)")),
    ("uneven", UNEVEN, ("return order.T", "return [order.T[0, 1:], *order.T[1:]]")),
    ("columns", SHAPE, ("return order.T", "return order")),
    ("in floats", WHOLE, ("order.T", "order.T.float()")),
    ("one token twice", ONCE, ("return order.T", "return order.T.clamp(min=1)")),
]  # fmt: skip

exercise = Exercise(
    "11.8", shard_tokens, inputs, MISTAKES, run=run, also_right=[to_the_least_loaded]
)
