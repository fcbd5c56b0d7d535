"""Say for which inputs, and in which entries, a wrong answer's results are right.

A probe is a `result_hints.Probe`.
"""

import itertools
import math

import torch


def differing_region(bad):
    """Say where all wrong entries lie, as "in the first row", if that is no chance; else ""."""
    found, of_pairs = {}, all(map(_is_of_pairs, bad))
    for words, region in REGIONS.items():
        if words.endswith("diagonal") and not of_pairs:
            continue
        chance, size = 0.0, 0
        for probe in bad:
            where = region(probe.target)
            if where is None or (probe.wrong & ~where).any():
                break
            chance += int(probe.wrong.sum()) * math.log(where.double().mean().item())
            size += int(where.sum())
        else:
            if chance < math.log(1e-3):
                found[words] = size
    smallest = [words for words, size in found.items() if size == min(found.values())]
    by_value = [words for words in smallest if words.startswith("that")]  # that is no chance
    return (by_value or smallest)[0] if by_value or len(smallest) == 1 else ""


def _is_of_pairs(probe):
    """Tell whether the last two dimensions are queries and keys, or others that have a diagonal."""
    last, shape = next(iter(probe.sizes), ""), probe.target.shape
    return last == "S" or (last in ("L", "tiles") and len(shape) > 1 and shape[-2] == shape[-1])


def _at(dim, position):
    """Return a function that tells which entries of a tensor are at a position along ``dim``."""

    def region(target):
        if target.ndim < -dim or not target.numel():
            return None
        where = torch.zeros_like(target, dtype=torch.bool)
        where.select(dim, position).fill_(True)
        return where

    return region


def _not_at(dim, position):
    def region(target):
        where = _at(dim, position)(target)
        return None if where is None else ~where

    return region


def _triangle(choose):
    def region(target):
        return choose(torch.ones_like(target, dtype=torch.bool)) if target.ndim > 1 else None

    return region


def _valued(condition, dtype):
    return lambda target: condition(target) if target.dtype == dtype else None


REGIONS = {
    "that should be true": _valued(lambda x: x == 1, torch.bool),
    "that should be false": _valued(lambda x: x == 0, torch.bool),
    "that should be 0": _valued(lambda x: x == 0, torch.float64),
    "that should be negative": _valued(lambda x: x < 0, torch.float64),
    "in the first row": _at(-2, 0),
    "in the last row": _at(-2, -1),
    "in the first column": _at(-1, 0),
    "in the last column": _at(-1, -1),
    "after the first row": _not_at(-2, 0),
    "after the first column": _not_at(-1, 0),
    "after the first item along dimension -3": _not_at(-3, 0),
    "on the diagonal": _triangle(lambda ones: ones.triu().tril()),
    "above the diagonal": _triangle(lambda ones: ones.triu(1)),
    "below the diagonal": _triangle(lambda ones: ones.tril(-1)),
    "on or above the diagonal": _triangle(torch.triu),
    "on or below the diagonal": _triangle(torch.tril),
}


def where_right(probes):
    """Say which property all inputs have for which a result is right, and no other; else ""."""
    right = [probe.right for probe in probes]
    if len(set(right)) == 1:
        return ""
    if by_dimension := _by_dimension(probes, right):
        return by_dimension
    if not 1 < sum(right) < len(right) - 1:  # one input alone has many properties
        return ""
    fitting = [words for flags, *words in _properties(probes) if flags == right]
    return (
        "right on the inputs {}, and wrong on {}".format(*fitting[0]) if len(fitting) == 1 else ""
    )


def _by_dimension(probes, right):
    dimensions = [max((t.ndim for t in _tensors(probe)), default=0) for probe in probes]
    fine = [n for n, is_right in zip(dimensions, right, strict=True) if is_right]
    rest = [n for n, is_right in zip(dimensions, right, strict=True) if not is_right]
    if max(fine) < min(rest) and len(fine) > 1:  # one input alone has many properties
        plural = "s" * (max(fine) > 1)
        more = "more (a batch)" if max(fine) < 3 else "more"
        return f"right for inputs of {_up_to(fine)} dimension{plural} and wrong for {more}"
    if min(fine) > max(rest) and len(rest) > 1:
        return "right for inputs with a batch and wrong without one"
    return ""


def _up_to(numbers):
    return f"up to {max(numbers)}" if min(numbers) < max(numbers) else f"{max(numbers)}"


def _tensors(probe):
    """Return the tensors among the arguments, also those in tuples and lists."""
    pairs = [[v] if not isinstance(v, tuple | list) else v for v in probe.args.values()]
    return [each for each in itertools.chain(*pairs) if isinstance(each, torch.Tensor)]


def _numbers(probe):
    return [t.detach().double() for t in _tensors(probe) if t.is_floating_point()]


def _masks(probe):
    return [t for t in _tensors(probe) if t.dtype == torch.bool and t.ndim > 1]


def _properties(probes):
    """Yield (whether each input has a simple property, words for those that have it, the rest)."""
    for test, *words in PROPERTIES:
        yield [test(probe) for probe in probes], *words
    dtypes = [str(_dtype(probe)).removeprefix("torch.") for probe in probes]
    if len(set(dtypes)) == 2:
        for one, other in (sorted(set(dtypes)), sorted(set(dtypes), reverse=True)):
            yield [dtype == one for dtype in dtypes], f"in {one}", f"those in {other}"
    names = set.intersection(*(set(probe.args) for probe in probes))
    for name in sorted(names):
        values = [probe.args[name] for probe in probes]
        if all(isinstance(value, str | int | float | None) for value in values):
            for value in sorted({each for each in values if _is_simple(each)}, key=str):
                where = f"where {name} is"
                yield [each == value for each in values], f"{where} {value!r}", "the others"
    for name, size in (("block_q", "L"), ("block_k", "S"), ("block", "S"), ("size", "S")):
        if name in names:
            flags = [(_size(size)(probe) or 0) % probe.args[name] == 0 for probe in probes]
            yield flags, f"where {name} divides {size}", "the others"
    largest = [
        max(
            (t[t.isfinite()].abs().max().item() for t in _numbers(p) if t.isfinite().any()),
            default=0,
        )
        for p in probes
    ]
    limit = max(size for size, p in zip(largest, probes, strict=True) if p.right)
    least = min(size for size, p in zip(largest, probes, strict=True) if not p.right)
    longest = max(p.target.numel() for p in probes if p.right)
    shortest = min(p.target.numel() for p in probes if not p.right)
    if 4 * limit < least and longest >= shortest:  # else the length may be the reason as well
        yield (
            [size <= limit for size in largest],
            f"with entries up to {limit:.2g}",
            "those with larger ones",
        )


def _is_simple(value):
    return value is None or isinstance(value, str | bool) or value in (0, 1)


def _dtype(probe):
    return next((t.dtype for t in _tensors(probe) if t.is_floating_point()), None)


def _size(name):
    def size(probe):
        if name in probe.sizes:
            return probe.sizes[name]
        arg = probe.args.get({"L": "q", "S": "k"}[name])
        return arg.shape[-2] if isinstance(arg, torch.Tensor) and arg.ndim > 1 else None

    return size


def _kv_heads(p):
    """Return how many heads the keys have, if queries (Hq, D) come without a batch; else None."""
    q, k = p.args.get("q"), p.args.get("k")
    both = isinstance(q, torch.Tensor) and isinstance(k, torch.Tensor)
    return len(k) if both and q.ndim == 2 and k.ndim == 3 else None


def _is_square(probe):
    """Tell whether all matrices of a scalar's input are square; others have names for sizes."""
    shapes = [t.shape[-2:] for t in _tensors(probe) if t.ndim > 1]
    return probe.target.ndim == 0 and bool(shapes) and all(len(set(each)) == 1 for each in shapes)


def _has_no_ties(probe):
    lists = [t for t in _numbers(probe) if t.ndim == 1]
    return bool(lists) and all(len(t.unique()) == len(t) for t in lists)


_L, _S = _size("L"), _size("S")
PROPERTIES = [
    (
        lambda p: not any(t.dtype == torch.bool for t in _tensors(p)),
        "without a mask",
        "those with one",
    ),
    (
        lambda p: all(m.any(-1).all() for m in _masks(p)),
        "where each query may attend to a key",
        "those where some query may attend to none",
    ),
    (
        lambda p: 1 in (p.args.get("num_heads"), p.sizes.get("H")),
        "with one head",
        "those with several",
    ),
    (lambda p: _L(p) is not None and _L(p) == _S(p), "where L = S", "those where L ≠ S"),
    (_is_square, "with as many rows as columns", "the others"),
    (_has_no_ties, "without equal entries", "those with some"),
    (
        lambda p: p.target.ndim == 0 and not p.target,
        "where the right result is 0",
        "the others",
    ),
    (
        lambda p: p.target.ndim == 0 and bool(p.target),
        "where the right result is not 0",
        "those where it is 0",
    ),
    (lambda p: _L(p) == 1, "with one query", "those with several"),
    (lambda p: _S(p) == 1, "with one key", "those with several"),
    (
        lambda p: any(t.ndim > 2 and len(t) == 1 for t in _tensors(p)) and not _kv_heads(p),
        "with a batch of one",
        "the others",
    ),
    (lambda p: _kv_heads(p) == 1, "with one KV head", "those with several"),
    (
        lambda p: all(t.isfinite().all() for t in _numbers(p)),
        "without infinite or NaN entries",
        "those with some",
    ),
    (
        lambda p: all(t.any(-1).all() for t in _numbers(p) if t.ndim),
        "without a row of zeros",
        "those with one",
    ),
    (
        lambda p: all(t.is_contiguous() for t in _tensors(p)),
        "whose entries are in order in memory",
        "the others, such as transposed ones",
    ),
]
