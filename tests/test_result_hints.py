"""What a wrong result shows where no known mistake fits: what is said is true of all inputs."""

import math

import pytest
import torch

from course_utils.checks.result_hints import hint, probe

SIZES = [(5, 7, 4), (2, 4, 3), (4, 3, 8)]  # L, S, d_k: all differ


def inputs(sizes=SIZES):
    """Return (arguments, right result) for queries and keys of these sizes."""
    rng = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    pairs = [{"q": normal(L, d), "k": normal(S, d)} for L, S, d in sizes]
    return [(args, args["q"] @ args["k"].mT) for args in pairs]


def said(change, given=None, names="L S"):
    """Return the hint for results that are ``change(right result, **arguments)``."""
    given = inputs() if given is None else given
    probes = [probe(names, args, change(right, **args), right) for args, right in given]
    return hint(probes, "Your result")


def columns(right):
    return torch.arange(1.0, right.shape[-1] + 1)


RELATIONS = {  # by the words that name them
    "twice the right one.": lambda right, **_: 2 * right,
    "half the right one.": lambda right, **_: right / 2,
    "1.7 times the right one.": lambda right, **_: 1.7 * right,
    "0.6931 times the right one (0.6931 is ln 2)": lambda right, **_: math.log(2) * right,
    "with the wrong sign": lambda right, **_: -right,
    "divided by √d_k.": lambda right, q, k: right / q.shape[-1] ** 0.5,
    "times d_k.": lambda right, q, k: right * q.shape[-1],
    "divided by S (the number of keys).": lambda right, q, k: right / len(k),
    "plus ln L (the number of queries)": lambda right, q, k: right + math.log(len(q)),
    "differs from input to input: 3.4 for inputs of shape (5, 4), (7, 4), 2.944 for (2, 3), (4,": (
        lambda right, q, k: 1.7 * right * q.shape[-1] ** 0.5
    ),
    "0.25 too large everywhere": lambda right, **_: right + 0.25,
    "the square of": lambda right, **_: right**2,
    "1 minus the right one": lambda right, **_: 1 - right,
    "the absolute value of": lambda right, **_: right.abs(),
    "rounded to whole numbers": lambda right, **_: right.round(),
    "truncated to whole numbers": lambda right, **_: right.sign() * right.abs().floor(),
    "the cumulative sum of the right one along each row": lambda right, **_: right.cumsum(-1),
    "reversed along each column": lambda right, **_: right.flip(-2),
    "moved by one position toward the end of each row": lambda right, **_: right.roll(1, -1),
    "in another order along each row": lambda right, **_: right.sort(-1).values,
    "with 0 in some columns": lambda right, **_: torch.cat([right[:, :-1], 0 * right[:, -1:]], -1),
    "with each row times a number of its own": lambda right, q, k: right / q.norm(dim=-1)[:, None],
    "with each column times a number of its own": lambda right, **_: right * columns(right),
    "a number of its own added to each row": lambda right, **_: (
        right - right.mean(-1, keepdim=True)
    ),
    "is 0 everywhere": lambda right, **_: 0 * right,
    "is -inf everywhere": lambda right, **_: torch.full_like(right, -math.inf),
    "is NaN everywhere": lambda right, **_: right * math.nan,
    "entries in the last column differ": lambda right, **_: torch.cat(
        [right[:, :-1], right[:, -1:] ** 3], dim=-1
    ),
}


@pytest.mark.parametrize("words, change", RELATIONS.items(), ids=RELATIONS)
def test_what_all_results_have_in_common_is_said(words, change):
    told = said(change)
    assert words in told
    assert not ("row" in told and "column" in told)  # it speaks of one of them


REGIONS = {  # by the words that name them: which entries [i, j] of an (L, S) result lie there
    "in the first row": lambda i, j, L, S: i == 0,
    "in the last row": lambda i, j, L, S: i == L - 1,
    "in the first column": lambda i, j, L, S: j == 0,
    "in the last column": lambda i, j, L, S: j == S - 1,
    "after the first row": lambda i, j, L, S: i > 0,
    "after the first column": lambda i, j, L, S: j > 0,
    "on the diagonal": lambda i, j, L, S: i == j,
    "above the diagonal": lambda i, j, L, S: i < j,
    "below the diagonal": lambda i, j, L, S: i > j,
    "on or above the diagonal": lambda i, j, L, S: i <= j,
    "on or below the diagonal": lambda i, j, L, S: i >= j,
}
VALUES = {  # and which of its values do
    "that should be true": lambda right: right > 0,
    "that should be false": lambda right: right < 1,
    "that should be 0": lambda right: right == 0,
    "that should be negative": lambda right: right < 0,
}


@pytest.mark.parametrize("words, region", REGIONS.items(), ids=REGIONS)
def test_where_all_wrong_entries_lie_is_said(words, region):
    def change(right, **_):
        i, j = torch.meshgrid(*map(torch.arange, right.shape), indexing="ij")
        return torch.where(region(i, j, *right.shape), right**3 + 0.5, right)

    assert f"only entries {words} differ." in said(change).lower()
    assert "diagonal" not in said(change, names="L d_v")


@pytest.mark.parametrize("words, region", VALUES.items(), ids=VALUES)
def test_of_which_right_values_all_wrong_entries_are_is_said(words, region):
    is_bool = words.split()[-1] in ("true", "false")
    given = [
        (args, right > 0 if is_bool else right.relu() - (right < -1).double())
        for args, right in inputs()
    ]

    def change(right, **_):
        other = ~right if is_bool else torch.arange(1.0, right.numel() + 1).view_as(right).square()
        return torch.where(region(right), other, right)

    assert f"only entries {words} differ." in said(change, given).lower()


def test_where_the_wrong_entries_of_a_batch_lie_is_said():
    rng = torch.Generator().manual_seed(0)
    given = [({"x": x}, x) for x in torch.randn(3, 2, 3, 4, generator=rng, dtype=torch.float64)]

    def change(right, **_):
        return torch.cat([right[:1], right[1:] ** 3 + 0.5])

    assert "Only entries after the first item along dimension -3 differ" in said(change, given)


SQUARE = [(5, 5, 4), (3, 3, 2), (4, 4, 6)]


def test_an_exchange_of_dimensions_and_an_input_are_recognized_where_shapes_agree():
    assert "dimensions -2 and -1 swapped" in said(lambda right, **_: right.mT, inputs(SQUARE))
    given = [({"x": right}, right**3) for _, right in inputs()]
    assert "is x, as it came in" in said(lambda right, x: x, given)


NOTHING = {
    "nothing in common": (lambda right, **_: right**3 + right.flip(0), SIZES),
    "one input": (lambda right, **_: 2 * right, [(1, 2, 3)]),
    "a rounding": (lambda right, **_: right * (1 + 1e-5), SIZES),
    "a factor in few entries": (lambda right, **_: 2 * right, [(2, 3, 4)]),
    "one entry in each of few": (
        lambda right, **_: right + (torch.arange(6).view(3, 2) == 3),
        3 * [(3, 2, 4)],
    ),
    "another factor in each entry": (lambda right, **_: right * torch.rand_like(right), SIZES),
}


@pytest.mark.parametrize("change, sizes", NOTHING.values(), ids=NOTHING)
def test_nothing_is_said_of_what_may_be_chance(change, sizes):
    assert said(change, inputs(sizes)) == ""


def test_of_two_sizes_that_are_the_same_neither_is_named():
    root = inputs([(5, 2, 4), (2, 3, 9), (6, 4, 16)])  # S = √d_k
    words = said(lambda right, q, k: right / len(k), root)
    assert "differs from input to input" in words and "S" not in words and "d_k" not in words
    same_width = inputs([(5, 7, 4), (2, 3, 4), (3, 5, 4)])
    words = said(lambda right, q, k: right / q.shape[-1] ** 0.5, same_width)
    assert "half the right one" in words and "d_k" not in words


def masked(change):
    """Return the hint for six inputs, three with a mask, for which the results are changed."""
    plain = inputs([*SIZES, (3, 5, 2), (6, 4, 5), (7, 2, 9)])
    given = []
    for number, (args, right) in enumerate(plain):
        mask = torch.ones(right.shape, dtype=torch.bool) if number % 2 else None
        given.append((args | {"mask": mask}, right))
    return said(lambda right, q, k, mask: right if mask is None else change(right), given)


def test_the_inputs_that_are_right_are_named_by_their_property():
    words = masked(lambda right: right**3 + right.flip(-1))
    assert (
        words == "Your result is right on the inputs without a mask, and wrong on those with one."
    )
    assert "Where it is wrong, it is twice the right one" in masked(lambda right: 2 * right)


def of(*shape, dtype=torch.float64):
    rng = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)


def mask(*rows):
    """Return a mask in which each query may attend to the first keys, so many of 4."""
    return torch.arange(4) < torch.tensor(rows)[:, None]


def each(name, *values):
    return [{name: value} for value in values]


def q_and_k(*sizes):
    return [{"q": of(L, 3), "k": of(S, 3)} for L, S in sizes]


SIGNS = of(2, 3).sign(), of(3, 2).sign()
PROPERTIES = [  # words for some inputs, and for the others; some inputs, and the others
    ("without a mask", "those with one",
     each("a", of(2, 3), of(3, 2)),
     [{"a": of(L, 3), "mask": mask(*range(1, L + 1))} for L in (2, 3)]),
    ("where each query may attend to a key", "those where some query may attend to none",
     each("a", mask(1, 2), mask(4, 4, 1)), each("a", mask(0, 2), mask(4, 0, 3))),
    ("where L = S", "those where L ≠ S", q_and_k((2, 2), (3, 3)), q_and_k((2, 3), (3, 2))),
    ("with one query", "those with several", q_and_k((1, 2), (1, 3)), q_and_k((2, 3), (3, 2))),
    ("with one key", "those with several", q_and_k((2, 1), (3, 1)), q_and_k((2, 3), (3, 2))),
    ("with one KV head", "those with several",
     [{"q": of(4, 3), "k": of(1, S, 3)} for S in (2, 5)],
     [{"q": of(4, 3), "k": of(2, S, 3)} for S in (2, 5)]),
    ("with a batch of one", "the others",
     each("a", of(1, 2, 3), of(1, 3, 2)), each("a", of(2, 2, 3), of(3, 3, 2))),
    ("without infinite or NaN entries", "those with some",
     each("a", of(2, 3), of(3, 2)), each("a", of(2, 3) / 0, of(3, 2) * math.nan)),
    ("without a row of zeros", "those with one",
     each("a", of(2, 3), of(3, 2)), each("a", of(2, 3).tril(-1), of(3, 2).tril(-1))),
    ("whose entries are in order in memory", "the others, such as transposed ones",
     each("a", of(2, 3), of(3, 2)), each("a", of(2, 3).mT, of(3, 2).mT)),
    ("in float32", "those in float64",
     each("a", of(2, 3, dtype=torch.float32), of(3, 2, dtype=torch.float32)),
     each("a", of(2, 3), of(3, 2))),
    ("where a is 'sum'", "the others", each("a", "sum", "sum"), each("a", "mean", "last")),
    ("where size divides S", "the others",
     [{"k": of(S, 3), "size": 2} for S in (4, 6)], [{"k": of(S, 3), "size": 2} for S in (3, 5)]),
    ("with entries up to 1", "those with larger ones",
     each("a", *SIGNS), each("a", 5 * SIGNS[0], 5 * SIGNS[1])),
]  # fmt: skip


def said_of(fine, bad):
    """Return the hint for results that are right on some inputs, and wrong on others."""
    right = of(5, 6)
    probes = [probe("x y", args, right, right) for args in fine]
    probes += [probe("x y", args, right**3 + right.flip(0), right) for args in bad]
    return hint(probes, "Your result")


@pytest.mark.parametrize("words, others, fine, bad", PROPERTIES, ids=[row[0] for row in PROPERTIES])
def test_what_the_inputs_have_in_common_that_are_right_is_said(words, others, fine, bad):
    assert (
        said_of(fine, bad) == f"Your result is right on the inputs {words}, and wrong on {others}."
    )
    for one_input in [(fine[:1], bad), (fine, bad[:1])]:  # this may be chance
        assert words not in said_of(*one_input)


def test_the_inputs_with_one_head_are_known_by_the_size_of_the_result():
    rights = [of(*sizes) for sizes in [(1, 4), (1, 5), (2, 4), (3, 5)]]
    probes = [probe("H L", {}, right ** (2 * len(right) - 1), right) for right in rights]
    assert "right on the inputs with one head" in hint(probes, "Your result")


def test_of_several_properties_that_the_right_inputs_have_none_is_said():
    fine = [args | {"a": "sum"} for args in q_and_k((2, 2), (3, 3))]
    bad = [args | {"a": "mean"} for args in q_and_k((2, 3), (3, 2))]
    assert "inputs" not in said_of(fine, bad).replace("of 4 inputs", "")


def test_entries_that_are_hardly_larger_are_no_reason():
    assert "entries" not in said_of(*(each("a", n * of(2, 3), n * of(3, 2)) for n in (1, 2)))


@pytest.mark.parametrize(
    "fine, bad, words",
    [
        (
            [(2, 3), (3, 2)],
            [(2, 2, 3), (2, 3, 2)],
            "right for inputs of 2 dimensions and wrong for",
        ),
        (
            [(2,), (3, 2)],
            [(2, 2, 3), (2, 3, 2)],
            "right for inputs of up to 2 dimensions and wrong",
        ),
        (
            [(2, 2, 3), (2, 3, 2)],
            [(2, 3), (3, 2)],
            "right for inputs with a batch and wrong without",
        ),
        ([(2, 3)], [(2, 2, 3), (2, 3, 2)], None),
        ([(2, 2, 3)], [(2, 2, 3), (2, 3)], None),
        ([(2, 2, 3), (2, 3, 2)], [(2, 3)], None),
    ],
)
def test_the_number_of_dimensions_is_named_unless_one_input_alone_has_it(fine, bad, words):
    told = said_of(*([{"a": of(*shape)} for shape in shapes] for shapes in (fine, bad)))
    assert words in told if words else "dimension" not in told and "batch" not in told


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda right, **_: ~right, "True and False are swapped"),
        (lambda right, **_: torch.ones_like(right), "Only entries that should be false differ"),
        (lambda right, **_: right.tril(-1), "Only entries on the diagonal differ"),
        (
            lambda right, **_: right.roll(1, 0),
            "moved by one position toward the end of each column",
        ),
    ],
)
def test_of_a_mask_it_is_said_where_it_is_wrong(change, words):
    given = [({"L": L}, torch.ones(L, L, dtype=torch.bool).tril()) for L in (4, 6, 9)]
    assert words in said(change, given, "L L")


def test_small_errors_of_single_numbers_get_their_likely_cause():
    given = [(args, right.sum()) for args, right in inputs()]
    off = [0.002, -0.001, 0.003]
    sums = {right.item(): right * (1 + part) for (_, right), part in zip(given, off, strict=True)}
    told = said(lambda right, **_: sums[right.item()], given, names="")
    assert told.startswith("All errors are below 1%, as from an added eps or from computing in")
    sums = {each: each + 5 * (sums[each] - each) for each in sums}
    assert "1%" not in said(lambda right, **_: sums[right.item()], given, names="")


@pytest.mark.parametrize(
    "off, words",  # of each input's first entries: how far off they are
    [
        (3 * [2e-3], "All errors are below 1%"),
        (4 * [2e-3] + [9], "Except for one input, all errors are below 1%"),
        (4 * [2e-3] + 4 * [0], None),  # half of the inputs are right
        (2 * [2e-3], None),
        (4 * [2e-3] + 2 * [9], None),
    ],
)
def test_errors_are_small_if_they_are_so_on_most_inputs(off, words):
    rights = [of(4, 6) for _ in off]
    for entries in (2, 18):  # of most entries, `compare.difference` says how far they are off
        flags = torch.arange(24).view(4, 6) < entries
        scales = [1 + size * torch.where(flags, of(4, 6).sigmoid(), 0) for size in off]
        pairs = zip(rights, scales, strict=True)
        probes = [probe("L S", {}, right * scale, right) for right, scale in pairs]
        told = hint(probes, "Your result")
        assert told.startswith(words) if words and entries == 2 else "1%" not in told


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda a: len(a.unique()) < len(a), "without equal entries, and wrong on those with some"),
        (lambda a: a.sum() == 0, "where the right result is not 0, and wrong on those where it is"),
        (lambda a: a.sum() != 0, "where the right result is 0, and wrong on the others"),
    ],
)
def test_for_single_numbers_it_is_said_on_which_inputs_they_are_right(wrong, words):
    lists = [[1, 2, 3], [1, -1, 0], [1, 1, 2], [2, -1, -1], [3, 5, 1], [-4, 2, 2]]
    given = [({"a": a}, a.sum()) for a in torch.tensor(lists).double()]
    assert words in said(lambda right, a: right + a[0] ** 2 + 1 if wrong(a) else right, given, "")
