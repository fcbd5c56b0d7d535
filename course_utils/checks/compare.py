"""Compare an answer with what was expected, and say in words where they first differ."""

import math
import numbers

import numpy as np
import torch

# How far right answers may lie apart, as a part of the largest expected entry. Adding n terms costs
# n roundings of their size at most, in whatever order a machine adds; a rounding is half a unit in
# the last place. No exercise adds more than 64 terms, takes more than 4 such sums one after the
# other, or adds terms more than 4 times as large as the largest entry that comes out: 1024. In
# half precision rows have 3 logits, and exp and log count for 2 roundings each: 16. An answer in
# float64 may have calculated in float32. (A test rounds all sums as badly as may be: right answers
# need up to half of this. The nearest wrong one lies 1 % off.)
TOLERANCE = {
    torch.float64: 1024 * 2**-24,
    torch.float32: 1024 * 2**-24,
    torch.float16: 16 * 2**-11,
    torch.bfloat16: 16 * 2**-8,
}
# Where all entries nearly vanish: what is left of terms around 1 that cancel in float64, or what a
# wider format than the expected one holds in place of 0.
SMALLEST_SCALE = 1e-6


def is_same(got, expected):
    """Tell whether ``got`` is as good as ``expected``."""
    return difference(got, expected, told=False) is None


def difference(got, expected, names="", told=True):
    """Return None if ``got`` is as good as ``expected``, else the first difference in words.

    Parameters
    ----------
    got : object
        What a learner's function returned; a NumPy array counts as the tensor it holds, and a
        tensor (n,) as the n numbers, where a tuple of numbers is expected.
    expected : torch.Tensor, number, or tuple of them
        A float may be off as tensors may; an int or a bool is exact.
    names : str
        Names of the last dimensions, e.g. "L S"; for a tuple of several, separated by "|".
    told : bool
        If not, "different" is said of entries or shapes: the words take longer than to compare.
    """
    if isinstance(expected, tuple):
        if all(isinstance(each, int | float) for each in expected):
            near = read(got)  # numbers may come in one tensor
            got = got if near is None or near.ndim != 1 else list(near)
        if not isinstance(got, tuple | list) or len(got) != len(expected):
            kind = "numbers" if isinstance(expected[0], int | float) else "tensors"
            return f"expected a tuple of {len(expected)} {kind}, got {_kind(got)}"
        each = names.split("|") if names else [""] * len(expected)
        for place, (one, other, name) in enumerate(zip(got, expected, each, strict=True)):
            if found := difference(one, other, name, told):
                right = [str(n) for n in range(place) if told]
                others = f" ({', '.join(right)} right)" if right else ""
                return f"item {place} of the tuple{others}: {found}"
        return None
    number = isinstance(expected, int | float)
    if number:  # it may come as a tensor of any kind
        expected = torch.tensor(expected, dtype=torch.float64 if type(expected) is float else None)
    if expected.ndim == 0 and isinstance(got, numbers.Real):  # NumPy's too
        number, got = True, _number(got)
    got = _of_numpy(got)
    if not isinstance(got, torch.Tensor):
        return f"expected {'a number' if number else 'a torch.Tensor'}, got {_kind(got)}"
    near = read(got)
    if near is None:
        return "its result is unreadable: no plain tensor, but a sparse one or on no real device"
    if near.shape == expected.shape and not number and _family(got) != _family(expected):
        return f"expected {_family(expected)} entries, got {got.dtype}"
    coarsest = max(TOLERANCE.get(t.dtype, 0) for t in (got, expected))
    tolerance = coarsest if expected.is_floating_point() else 0
    return _first_difference(near, expected.detach().double(), tolerance, names.split(), told)


def read(tensor):
    """Return a learner's tensor in double precision; None if it holds no plain numbers, or is none.

    Sparse, quantized and nested tensors hold none, nor do those on PyTorch's device "meta".
    """
    try:
        near = _of_numpy(tensor).detach().cpu().double()
        return near if near.layout is torch.strided and near.shape.numel() >= 0 else None
    except Exception:  # each has errors of its own
        return None


def _of_numpy(value):
    """Return the tensor for a NumPy array of numbers, anything else as it is."""
    try:
        return torch.as_tensor(value.copy()) if isinstance(value, np.ndarray) else value
    except TypeError:  # an array of objects
        return value


def _first_difference(near, exact, tolerance, names, told):
    same_shape = near.shape == exact.shape
    close = _close(near, exact, tolerance) if same_shape else torch.tensor(False)
    if close.all():
        return None
    if not told:
        return "different"
    if not same_shape:
        free = ["..."] if exact.ndim > len(names) > 0 else []
        named = f"({', '.join(free + names)}) = " if names else ""
        found = f"expected shape {named}{tuple(exact.shape)}, got {tuple(near.shape)}"
        return found + _in_another_shape(near, exact, tolerance)
    first = tuple((~close).nonzero()[0].tolist())
    where = f" at {list(first)}" if first else ""
    if near[first].isnan():
        return f"NaN{where}, where {_short(exact[first])} was expected"
    wanted, came = _apart(exact[first].item(), near[first].item())
    wrong = f"; {int((~close).sum())} of {near.numel()} entries differ" if first else ""
    found = f"expected {wanted}{where}, got {came}{wrong}"
    return found + _pattern(near, exact, tolerance)


def _close(near, exact, tolerance):
    """Return which entries are as good as expected."""
    scale = exact[exact.isfinite()].abs().max().item() if exact.isfinite().any() else 1.0
    allowed = tolerance * max(scale, SMALLEST_SCALE)
    return torch.isclose(near, exact, rtol=0, atol=allowed, equal_nan=True)


def _in_another_shape(near, exact, tolerance):
    """Say if the right numbers stand in another shape."""
    if near.numel() != exact.numel() or near.numel() < 2:
        return ""
    turned = near.mT if near.ndim > 1 else near
    if turned.shape == exact.shape and _close(turned, exact, tolerance).all():
        return ": the right numbers, with the last two dimensions exchanged"
    if _close(near.reshape(exact.shape), exact, tolerance).all():
        return ": the right numbers, in another shape"
    return ""


def _pattern(near, exact, tolerance):
    """Say what all wrong entries have in common, if that is a factor, a term, or little at all."""
    if near.numel() < 3 or not (near.isfinite() & exact.isfinite()).all():
        return ""
    scale = exact.abs().max()
    clear = 2**-7 * scale  # what can be told from rounding
    ratio, offset = (near * exact).sum() / exact.square().sum(), (near - exact).mean()
    if abs(ratio - 1) > 2**-7 and ratio and _close(near, ratio * exact, 4 * tolerance).all():
        return f": each is {_short(ratio)} times what it should be"
    if offset.abs() > clear and _close(near, exact + offset, 4 * tolerance).all():
        return f": each is {_short(offset.abs())} too {'large' if offset > 0 else 'small'}"
    if (near - exact).abs().max() < clear:
        return (
            ": none by as much as 1% of the largest, as from a small number added (an eps) or from "
            "calculating in float16 or bfloat16"
        )
    return ""


def _apart(one, other):
    """Return two numbers with as many digits as it takes to tell them apart, at least four."""
    for digits in range(4, 18):
        told = _short(one, digits), _short(other, digits)
        if told[0] != told[1]:
            break
    return told


def _number(value):
    """Return a number as a tensor; as it is if it is larger than any float."""
    try:
        return torch.tensor(float(value), dtype=torch.float64)
    except OverflowError:
        return value


def _family(tensor):
    if tensor.dtype == torch.bool:
        return "true/false"
    if tensor.is_complex():
        return "complex"
    return "floating point" if tensor.is_floating_point() else "integer"


def _kind(value):
    """Name the type of a value as a learner would: 'None', 'a list', 'a tuple of 2'."""
    if value is None:
        return "None (is a `return` missing?)"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, torch.Tensor):
        return "one tensor"
    kind = f"{type(value).__module__}.{type(value).__name__}"
    return "a " + kind.removeprefix("builtins.")


def _short(number, digits=4):
    value = float(number)
    whole = math.isfinite(value) and value == round(value) and abs(value) < 1e15
    return f"{value:.0f}" if whole else f"{value:.{digits}g}"
