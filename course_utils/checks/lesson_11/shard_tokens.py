"""11.8: the tokens of several documents, sharded so that all ranks compute equally many pairs."""

import torch

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.parallel import shard_positions

MOST_ABOVE = 0.02  # how far above the mean a rank may be, as a fraction of it


def shard_tokens(lengths, ranks):
    seen = torch.cat([torch.arange(1, length + 1) for length in lengths])  # (N,), keys of each
    order = seen.argsort(descending=True, stable=True).unflatten(0, (-1, ranks))  # (n, W)
    order[1::2] = order[1::2].flip(1)  # back and forth
    return order.T  # (W, n)


def to_the_least_loaded(lengths, ranks, sign=-1):
    """Give each token to the rank with the least work; sign 0 keeps the order of the text."""
    n = sum(lengths) // ranks
    seen = [position + 1 for length in lengths for position in range(length)]
    held, work = [[] for _ in range(ranks)], [0] * ranks
    for token in sorted(range(len(seen)), key=lambda t: sign * seen[t]):
        rank = min((r for r in range(ranks) if len(held[r]) < n), key=work.__getitem__)
        held[rank].append(token)
        work[rank] += seen[token]
    return torch.tensor(held)


def inputs():
    return [
        ((301, 17, 5, 77), 8),
        ((96, 32, 64, 192), 4),
        ((128,), 4),
        ((1, 1, 1, 240, 13), 2),
        ((50, 50, 50, 50, 50, 50), 6),
        ((700, 68), 3),
        ((401, 94), 5),  # an odd number each
        ((200, 3, 3, 2, 2, 2, 2, 2), 4),
        ((1, 3) * 20, 2),
        ((3, 13) * 12, 8),
        ((200,) + (1,) * 200, 8),
    ]


def cheap_with_expensive(lengths, ranks):
    """Deal out pairs of the cheapest and the most expensive token left, always from rank 0 on."""
    n = sum(lengths) // ranks
    seen = torch.cat([torch.arange(1, length + 1) for length in lengths])  # (N,)
    left, held = seen.argsort(stable=True).tolist(), [[] for _ in range(ranks)]
    while left:
        for tokens in held:
            tokens.extend([left.pop(), left.pop(0)] if len(tokens) < n - 1 else [left.pop()])
    return torch.tensor(held)


def sorted_and_cut(lengths, ranks):
    """Sort the tokens by cost, and cut them into W chunks."""
    seen = torch.cat([torch.arange(1, length + 1) for length in lengths])  # (N,)
    return seen.argsort(stable=True).reshape(ranks, -1)


def ends_in_turn(lengths, ranks):
    """Line up the cheapest token, the most expensive one, the next cheapest …; deal them out."""
    order = torch.cat([torch.arange(1, length + 1) for length in lengths]).argsort(stable=True)
    half = len(order) // 2
    line = torch.stack([order[:half], order.flip(0)[:half]], dim=1).flatten()
    return torch.cat([line, order[half : len(order) - half]]).reshape(-1, ranks).T


def zigzag_of_sorted(lengths, ranks):
    """Sort the tokens by cost, and then share out chunks of them as in the lesson's zigzag."""
    N = sum(lengths)
    if N % (2 * ranks):
        return shard_tokens(lengths, ranks)
    seen = torch.cat([torch.arange(1, length + 1) for length in lengths])  # (N,)
    return seen.argsort(stable=True)[torch.stack(shard_positions(N, ranks, zigzag=True))]


def by_what_remains(lengths, ranks):
    """Deal out the tokens back and forth, by how many tokens of their documents remain."""
    remain = torch.cat([torch.arange(length, 0, -1) for length in lengths])  # (N,)
    order = remain.argsort(descending=True, stable=True).unflatten(0, (-1, ranks))  # (n, W)
    order[1::2] = order[1::2].flip(1)
    return order.T


def run(answer, lengths, ranks):
    """Return 1 if all ranks have nearly the same number of pairs, else name the mistake."""
    held, N = in_rows(call_with_clones(answer, lengths, ranks)[0]), sum(lengths)
    if held.shape != (ranks, N // ranks):
        raise NamedMistake("wrong shape", SHAPE)
    if held.is_floating_point() or held.is_complex() or held.dtype == torch.bool:
        raise NamedMistake("no whole numbers", WHOLE)
    if not torch.equal(held.flatten().sort().values, torch.arange(N)):
        raise NamedMistake("not each token once", ONCE)
    seen = torch.cat([torch.arange(1, length + 1) for length in lengths])  # (N,)
    work = seen[held.long()].sum(dim=1).double()  # (W,)
    if work.max() <= (1 + MOST_ABOVE) * work.mean():
        return [torch.ones(())]
    raise NamedMistake("unbalanced", what_is_wrong(held, lengths, ranks, seen))


def in_rows(held):
    """Return a tensor of rows that may also come as a list or an array."""
    if isinstance(held, torch.Tensor):
        return held
    try:
        rows = [torch.as_tensor(row) for row in held]
        if len({len(row) for row in rows}) > 1:
            raise NamedMistake("uneven", UNEVEN)
        return torch.stack(rows)
    except (TypeError, ValueError, RuntimeError):
        raise NamedMistake("wrong shape", SHAPE) from None


SHAPE = (
    "Your result does not have shape (W, N / W). Return a tensor whose row r has the positions "
    "that rank r holds."
)
WHOLE = "Your positions are not integers. Return a tensor of an integer dtype."
UNEVEN = (
    "Your ranks hold different numbers of tokens. Give each rank the same number of tokens, N / W."
)
ONCE = (
    "Your result repeats or misses some tokens. Each position from 0 to N − 1 must be on exactly "
    "one rank."
)
IN_ORDER = (
    "Your ranks hold consecutive tokens of the text. The later tokens of a document see more keys, "
    "so some ranks compute far more pairs than others. Sort the tokens by the number of keys they "
    "see, and deal them out to the ranks one by one, back and forth."
)
WHOLE_TEXT = (
    "Your result is zigzag over the whole text, which balances a single document. Here a token "
    "only sees its own document, so go by its position in that document."
)
ROUND = (
    "You deal out the tokens to the ranks in the same order every time, so the ranks at one end "
    "always get a little more work. Reverse the order of the ranks from one round to the next."
)
ROUND_UNSORTED = (
    "Each of your ranks holds every W-th token of the text, so the ranks at one end always get a "
    "little more work. Sort the tokens by cost first, and deal them out back and forth."
)
TOO_LATE = (
    "You give each token to the rank with the least work so far, {}. The expensive tokens that "
    "come late can no longer be balanced. Take the most expensive tokens first."
)
IN_TEXT_ORDER = TOO_LATE.format("in the order of the text")
CHEAPEST_FIRST = TOO_LATE.format("from the cheapest token on")
SORTED_ZIGZAG = (
    "Each of your ranks gets one cheap and one expensive chunk of the sorted tokens. These pairs "
    "of chunks do not all cost the same. Deal out the sorted tokens one by one, back and forth."
)
IN_TURN = (
    "You deal out the cheapest token, the most expensive one, the next cheapest one, and so on. "
    "With an even W, some ranks then get only cheap tokens. Sort all tokens by cost, and deal them "
    "out back and forth instead."
)
REMAINING = (
    "You balance how many tokens of its document remain after each token. A token sees itself and "
    "the tokens before it, so balance the positions in the document instead."
)
POSITIONS = (
    "You deal out the tokens back and forth, but in the order of the text. A token's cost depends "
    "on its position in its document, so sort the tokens by cost first."
)
CHUNKS = (
    "You sort the tokens by cost and cut them into W chunks, so one rank gets the most expensive "
    "ones. Deal them out back and forth instead."
)
BY_LENGTH = (
    "Each of your ranks has its share of the long and of the short documents. But a token's cost "
    "is its position in the document, not the length of the document. Balance these positions."
)
IN_PAIRS = (
    "Each of your ranks gets the cheapest token left together with the most expensive one, and in "
    "every round rank 0 comes first. These pairs do not all cost the same, and the differences add "
    "up. Sort all tokens by cost, and deal them out one by one, back and forth."
)
ELSE = (
    "Your ranks do not compute the same number of pairs. Count how many keys each token sees, and "
    "balance the sums of these counts."
)


def what_is_wrong(held, lengths, ranks, seen):
    N, sorted_rows = sum(lengths), held.long().sort(dim=1).values
    if torch.equal(sorted_rows, torch.arange(N).reshape(ranks, -1)):
        return IN_ORDER
    dealt = torch.arange(N).reshape(-1, ranks).T
    by_cost = seen.argsort(descending=True, stable=True).reshape(-1, ranks).T
    for each, hint in ((by_cost, ROUND), (dealt, ROUND_UNSORTED)):
        for rows in (each, each.flip(0)):
            if torch.equal(sorted_rows, rows.sort(dim=1).values):
                return hint
    back_and_forth = dealt.clone()
    back_and_forth[:, 1::2] = dealt[:, 1::2].flip(0)
    for each in (back_and_forth, back_and_forth.flip(0)):
        if torch.equal(sorted_rows, each.sort(dim=1).values):
            return POSITIONS
    costs = seen[held.long()].sort(dim=1).values  # the same, whichever of equals comes first
    for known, hint in ((cheap_with_expensive, IN_PAIRS), (ends_in_turn, IN_TURN)):
        if torch.equal(costs, seen[known(lengths, ranks)].sort(dim=1).values):
            return hint
    work = costs.sum(dim=1).sort().values
    for known, hint in ((sorted_and_cut, CHUNKS), (zigzag_of_sorted, SORTED_ZIGZAG)):
        if torch.equal(work, seen[known(lengths, ranks)].sum(dim=1).sort().values):
            return hint
    if N % (2 * ranks) == 0:
        if torch.equal(sorted_rows, torch.stack(shard_positions(N, ranks, zigzag=True))):
            return WHOLE_TEXT
    remain = torch.cat([torch.arange(length, 0, -1) for length in lengths])  # (N,)
    left, known = remain[held.long()], remain[by_what_remains(lengths, ranks)]  # (W, n) each
    if torch.equal(left.sum(dim=1).sort().values, known.sum(dim=1).sort().values):
        return REMAINING
    of_length = torch.tensor(lengths).repeat_interleave(torch.tensor(lengths)).double()  # (N,)
    share = of_length[held.long()].sum(dim=1)  # (W,)
    if len(lengths) > 1 and share.max() <= 1.005 * share.mean():
        return BY_LENGTH
    return ELSE


ROWS = "seen.argsort(descending=True, stable=True).unflatten(0, (-1, ranks))"
BACK_AND_FORTH = "    order[1::2] = order[1::2].flip(1)  # back and forth\n"
MISTAKES = [
    ("in order", IN_ORDER, "torch.arange(sum(lengths)).reshape(ranks, -1)"),
    ("always from the first", ROUND, (BACK_AND_FORTH, "")),
    ("zigzag over the text", WHOLE_TEXT,
     "torch.stack(shard_positions(sum(lengths), ranks, zigzag=True))"),
    ("by length of the document", BY_LENGTH,
     ("torch.arange(1, length + 1)", "torch.full((length,), length)")),
    ("over the positions", POSITIONS,
     (ROWS, "torch.arange(sum(lengths)).unflatten(0, (-1, ranks))")),
    ("sorted and cut", CHUNKS, sorted_and_cut),
    ("zigzag of the sorted tokens", SORTED_ZIGZAG, zigzag_of_sorted),
    ("cheapest and most expensive in turn", IN_TURN, ends_in_turn),
    ("by what remains", REMAINING, by_what_remains),
    ("in turn, in the order of the text", ROUND_UNSORTED,
     "torch.arange(sum(lengths)).reshape(-1, ranks).T"),
    ("least loaded, in the order of the text", IN_TEXT_ORDER,
     lambda lengths, ranks: to_the_least_loaded(lengths, ranks, sign=0)),
    ("least loaded, cheapest first", CHEAPEST_FIRST,
     lambda lengths, ranks: to_the_least_loaded(lengths, ranks, sign=1)),
    ("cheap with expensive", IN_PAIRS, cheap_with_expensive),
    ("uneven", UNEVEN, ("return order.T", "return [order.T[0, 1:], *order.T[1:]]")),
    ("columns", SHAPE, ("return order.T", "return order")),
    ("in floats", WHOLE, ("order.T", "order.T.float()")),
    ("one token twice", ONCE, ("return order.T", "return order.T.clamp(min=1)")),
]  # fmt: skip

exercise = Exercise(
    "11.8", shard_tokens, inputs, MISTAKES, run=run, also_right=[to_the_least_loaded]
)
