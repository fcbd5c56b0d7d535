"""Find how wrong results follow from the right ones: a factor, a sign, another order, and so on.

A probe is a `result_hints.Probe`. What could fit by chance is not said: see `_enough`.
"""

import itertools
import math

import torch

from course_utils.checks.compare import short

FACTOR = "Check what it is multiplied or divided by."
TERM = "Check what is added or subtracted."
STEP = "Look for an extra or missing step."
ORDER = "Check the order of the dimensions."
COUNT = "Check where you start counting."
ROW = "Check what each row is multiplied or divided by."
COLUMN = "Check what each column is multiplied or divided by."

CONSTANTS = {
    "ln 2": math.log(2),
    "1 / ln 2": 1 / math.log(2),
    "ln 10": math.log(10),
    "1 / ln 10": 1 / math.log(10),
    "√2": 2**0.5,
    "1 / √2": 0.5**0.5,
    "π": math.pi,
    "2π": 2 * math.pi,
}
SIZES = {  # what dimensions, counted from the end, are called where queries meet keys
    **dict.fromkeys([("q", -1), ("k", -1)], "d_k"),
    ("q", -2): "L (the number of queries)",
    **dict.fromkeys([("k", -2), ("v", -2)], "S (the number of keys)"),
    ("v", -1): "d_v",
}
FORMS = {  # of a size n
    "{}": lambda n: n,
    "√{}": lambda n: n**0.5,
    "the square of {}": lambda n: n * n,
    "ln {}": lambda n: math.log(n) if n > 0 else math.nan,
    "({} − 1)": lambda n: n - 1,
    "({0} − 1) / {0}": lambda n: (n - 1) / n,
}
FUNCTIONS = {
    "the square of the right one": torch.square,
    "the square root of the right one": torch.sqrt,
    "the exponential of the right one": torch.exp,
    "the logarithm of the right one": torch.log,
    "1 divided by the right one": torch.reciprocal,
    "1 minus the right one": lambda x: 1 - x,
    "the absolute value of the right one": torch.abs,
    "the right one with 0 in place of all negative numbers": torch.relu,
    "the right one, rounded to whole numbers": torch.round,
    "the right one, truncated to whole numbers": torch.trunc,
}


def relation(probes):
    """Return how all results follow from the right ones, with what to look for; or None."""
    bad = [probe for probe in probes if not probe.right]
    if not _enough(bad) or any(_equal(p.got, p.target.double(), p.eps) for p in bad):
        return None  # too little, or hardly more than a rounding
    if probes[0].target.dtype == torch.bool:
        if all((p.got != p.target.double()).all() for p in probes):
            return "the opposite of the right one: True and False are swapped. Invert it."
        return _moved(probes)
    relations = _input, _factor, _offset, _function, _moved, _by_row
    return next(filter(None, (find(probes) for find in relations)), None)


def _enough(bad):
    """Tell whether there is enough to compare for a relation that fits not to fit by chance."""
    entries = sum(int(probe.wrong.sum()) for probe in bad)
    values = torch.cat([probe.target.double()[probe.wrong] for probe in bad])
    distinct = {f"{value:.4g}" for value in values.tolist() if math.isfinite(value)}
    is_bool = bad[0].target.dtype == torch.bool
    return entries >= 3 and (len(bad) > 1 or entries >= 8) and (is_bool or len(distinct) > 2)


def _equal(got, target, eps):
    """Tell whether all entries are equal but for rounding; small ones must be as well."""
    finite = target.isfinite()
    if not torch.equal(finite, got.isfinite()):
        return False
    a, b = got[finite], target[finite]
    rest = torch.equal(got[~finite].nan_to_num(7.0), target[~finite].nan_to_num(7.0))
    size = b.abs()
    typical = size[size > 0].median() if size.any() else 0.0
    return rest and bool(((a - b).abs() <= 4 * eps * (size + typical)).all())


def _all_equal(probes, function):
    """Tell whether each result is a function of the right one."""
    return all(_equal(p.got, function(p.target.double()), p.eps) for p in probes)


# What is returned


def _input(probes):
    for name, value in probes[0].args.items():
        if isinstance(value, torch.Tensor) and all(_is_input(p, name) for p in probes):
            return f"{name}, as it came in. Check what you return."
    everywhere = {entry for p in probes for entry in p.got.unique().tolist()}
    if all(map(math.isnan, everywhere)):
        return "NaN everywhere. Look for 0 / 0, ∞ − ∞, ∞ / ∞ and 0 · ∞."
    return f"{short(everywhere.pop() + 0.0)} everywhere." if len(everywhere) == 1 else None


def _is_input(probe, name):
    value = probe.args.get(name)
    same_shape = isinstance(value, torch.Tensor) and value.shape == probe.got.shape
    return same_shape and _equal(probe.got, value.double(), probe.eps)


# A factor or a term


def _factor(probes):
    found = _numbers(probes, lambda got, right: (got @ right) / (right @ right), torch.mul)
    if not found:
        return None
    factors, sure, strong = found
    first = factors[0][1]
    if _all_near(factors, [first] * len(factors)):
        if not sure or abs(first - 1) < 0.01:
            return None
        if abs(first + 1) < 1e-3:
            return "the right one with the wrong sign. Check the signs."
        words = {"2": "twice", "0.5": "half"}.get(short(first), f"{short(first)} times")
        names = [name for name, c in CONSTANTS.items() if abs(first / c - 1) < 5e-4]
        named = f" ({short(first)} is {names[0]})" if names else ""
        return f"{words} the right one{named}. {FACTOR}"
    if names := _sizes_that_give(factors):
        return f"the right one {names}. {FACTOR}"
    if strong < 2 or any(abs(factor - 1) < 0.01 for _, factor in factors):
        return None  # a single number is a multiple of any other
    return f"the right one times a number that differs from input to input{_two(factors)}. {FACTOR}"


def _offset(probes):
    found = _numbers(probes, lambda got, right: (got - right).mean(), torch.add)
    if not found:
        return None
    terms, sure, _ = found
    first = terms[0][1]
    if _all_near(terms, [first] * len(terms)):
        if not sure or not first:
            return None
        return f"{short(abs(first))} too {'large' if first > 0 else 'small'} everywhere. {TERM}"
    for sign, words in ((1, "plus"), (-1, "minus")):
        signed = [(probe, sign * term) for probe, term in terms]
        if name := _size_that_gives(signed, ["{}", "ln {}"]):
            return f"the right one {words} {name}. {TERM}"
    return None


def _numbers(probes, number, apply):
    """Return (probe, number) pairs, whether they are sure, and how many are of several entries.

    ``number(got, right)`` is the only one for which ``apply(right, number)`` can be the result.
    Return None if that is not the result.
    """
    pairs, strong = [], 0
    for p in probes:
        right = p.target.double()
        finite = right.isfinite()
        got, known = p.got[finite], right[finite]
        if not torch.equal(finite, p.got.isfinite()) or (apply is torch.mul and not known.any()):
            if p.right:
                continue
            return None
        if not known.numel():
            continue
        value = number(got, known).item()
        if not _equal(p.got, apply(right, value), p.eps):
            return None
        pairs.append((p, value))
        sizes = known.abs()
        strong += known.numel() > 2 and bool(sizes.max() > 1.05 * sizes.min())
    distinct = {f"{p.target.double().flatten()[0].item():.4g}" for p, _ in pairs}
    sure = len(pairs) > 1 and (strong > 0 or len(distinct) > 2)
    return (pairs, sure, strong) if strong > 1 or sure else None


def _all_near(pairs, wanted):
    """Tell whether the number of each (probe, number) pair is what is wanted for it."""
    return all(
        abs(number - value) <= 4 * probe.eps * max(abs(value), abs(number), 1e-9)
        for (probe, number), value in zip(pairs, wanted, strict=True)
    )


def _sizes_that_give(factors):
    """Return "times √d_k" or "divided by √d_k" if one size alone explains all factors."""
    inverse = [(probe, 1 / factor if factor else math.inf) for probe, factor in factors]
    times, divided = _size_that_gives(factors, FORMS), _size_that_gives(inverse, FORMS)
    if bool(times) == bool(divided):
        return ""
    return f"times {times}" if times else f"divided by {divided}"


def _size_that_gives(pairs, forms):
    """Return the only size, in one of these forms, that is the number of each pair; else ""."""
    sizes = [_sizes(probe) for probe, _ in pairs]
    names = set.intersection(*map(set, sizes))
    fitting = {}
    for name, form in itertools.product(sizes[0], forms):
        if name in names and min(each[name] for each in sizes) > 0:
            values = [FORMS[form](each[name]) for each in sizes]
            if _all_near(pairs, values):  # equal sizes, such as d_k of q and k, count as one
                fitting.setdefault((form, *values), form.format(name))
    several = len({round(number, 6) for _, number in pairs}) > 2
    return next(iter(fitting.values())) if len(fitting) == 1 and several else ""


def _sizes(probe):
    """Return the sizes and numbers of an input by their names, the best name of each first."""
    sizes, others = {}, {}
    attends = {"q", "k"} <= {*probe.args}
    for name, value in probe.args.items():
        if isinstance(value, torch.Tensor):
            for dim in range(-min(value.ndim, 3), 0):
                called = SIZES.get((name, dim)) if attends else None
                target = sizes if called else others
                target.setdefault(called or f"{name}.shape[{dim}]", value.shape[dim])
        elif isinstance(value, int | float) and not isinstance(value, bool):
            sizes[name] = value
    if "num_heads" in sizes and "d_model" in sizes:
        sizes["d_k"] = sizes["d_model"] / sizes["num_heads"]
    return sizes | {name: size for name, size in probe.sizes.items() if name not in sizes} | others


def _two(factors):
    """Name the first two factors that differ, with the shapes of their inputs."""
    first = factors[0]
    other = next(pair for pair in factors if abs(pair[1] / first[1] - 1) > 0.01)
    shapes = [", ".join(map(str, _shapes(probe))) for probe, _ in (first, other)]
    if shapes[0] == shapes[1] or not all(shapes):
        return ""
    of_shape = "for inputs of shape"
    return f": {short(first[1])} {of_shape} {shapes[0]}, {short(other[1])} for {shapes[1]}"


def _shapes(probe):
    return [tuple(v.shape) for v in probe.args.values() if isinstance(v, torch.Tensor)]


# A step too many, or numbers in other positions


def _function(probes):
    for words, function in FUNCTIONS.items():
        if _all_equal(probes, function):
            return f"{words}. {STEP}"
    for dim in _dimensions(probes):
        if _all_equal(probes, lambda right, dim=dim: right.cumsum(dim)):
            return f"the cumulative sum of the right one along {_along(probes, dim)}. {STEP}"
        if _all_equal(probes, lambda right, dim=dim: right.softmax(dim)):
            return f"the softmax of the right one along {_along(probes, dim)}. {STEP}"
    return None


def _along(probes, dim):
    """Name a dimension, counted from the end."""
    if any(probe.target.ndim < 2 for probe in probes):
        return "the last dimension"
    return {-1: "each row", -2: "each column", -3: "dimension -3"}[dim]


def _dimensions(probes):
    """Return the dimensions, counted from the end, that all results have."""
    return range(-1, -1 - min(3, *(probe.target.ndim for probe in probes), 3), -1)


def _moved(probes):
    """Say how the right numbers came into other positions, if one way alone fits."""
    found = []
    for one, other in ((-2, -1), (-3, -2), (-3, -1)):
        if any(probe.target.ndim >= -one for probe in probes) and all(
            _is_swapped(probe, one, other) for probe in probes
        ):
            found.append(f"the right one with dimensions {one} and {other} swapped. {ORDER}")
    for dim in _dimensions(probes):
        if _all_equal(probes, lambda right, dim=dim: right.flip(dim)):
            found.append(
                f"the right one, reversed along {_along(probes, dim)}. Check the direction."
            )
        for by, end in ((1, "end"), (-1, "start")):
            if all(_is_shifted(probe, by, dim) for probe in probes):
                where = _along(probes, dim)
                found.append(
                    f"the right one, moved by one position toward the {end} of {where}. {COUNT}"
                )
    if len(found) == 1:
        return found[0]
    if probes[0].target.dtype != torch.bool:
        for dim in _dimensions(probes):
            if all(_sorted(p.got, dim).equal(_sorted(p.target, dim)) for p in probes):
                where = _along(probes, dim)
                return f"the right one, with its numbers in another order along {where}."
    return None


def _sorted(values, dim):
    return values.double().sort(dim).values


def _is_swapped(probe, one, other):
    right = probe.target.double()
    if right.ndim < -one:
        return probe.right
    swapped = right.transpose(one, other)
    return swapped.shape == right.shape and _equal(probe.got, swapped, probe.eps)


def _is_shifted(probe, by, dim):
    """Tell whether a result is the right one, moved by a position; its end may hold anything."""
    right, size = probe.target.double(), probe.target.shape[dim]
    if size < 3:
        return probe.right or _equal(probe.got, right.roll(by, dim), probe.eps)
    start = max(by, 0)
    got = probe.got.narrow(dim, start, size - 1)
    return _equal(got, right.narrow(dim, 1 - start, size - 1), probe.eps)


def _by_row(probes):
    """Say that each row, or column, has a factor or a term of its own."""
    if any(probe.target.ndim < 2 for probe in probes):
        return None
    for dim, name, check in ((-1, "row", ROW), (-2, "column", COLUMN)):
        if any(probe.target.shape[dim] > 2 and not probe.right for probe in probes):
            factors = [_own_numbers(probe, dim, torch.mul) for probe in probes]
            if _differ(factors):
                rounded = torch.cat(factors).round(decimals=6)
                if torch.isin(rounded, torch.tensor([0.0, 1.0]).double()).all():
                    filled = f"Check which {name}s you fill, and which you set to 0."
                    return f"the right one with 0 in some {name}s. {filled}"
                return f"the right one with each {name} times a number of its own. {check}"
            if _differ([_own_numbers(probe, dim, torch.add) for probe in probes]):
                return f"the right one with a number of its own added to each {name}. {TERM}"
    return None


def _own_numbers(probe, dim, apply):
    """Return what each row, or column, is multiplied by, or what is added to it; None if nothing.

    A row of zeros tells nothing.
    """
    got, right = probe.got, probe.target.double()
    if not (got.isfinite() & right.isfinite()).all():
        return None
    if apply is torch.mul:
        own = (got * right).sum(dim, keepdim=True) / right.square().sum(dim, keepdim=True)
    else:
        own = (got - right).mean(dim, keepdim=True)
    fits = _equal(got, apply(right, own.nan_to_num(1.0)), probe.eps)
    return own[own.isfinite()] if fits else None


def _differ(numbers_of_probes):
    """Tell whether there are numbers for all probes, and different ones within some."""
    if any(own is None for own in numbers_of_probes):
        return False
    return any(
        own.numel() > 1 and own.max() - own.min() > 0.01 * own.abs().max()
        for own in numbers_of_probes
    )
