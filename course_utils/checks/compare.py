"""Compare an answer with what was expected, and say in words where they first differ."""

import math
import numbers

import numpy as np
import torch

# How far apart right answers may be, as a fraction of the largest expected entry. A sum of n terms
# has at most n rounding errors of half a unit in the last place, in whatever order a machine adds.
# No exercise adds more than 64 terms, chains more than 4 such sums, or adds terms more than 4 times
# as large as the largest entry of the result: 64 · 4 · 4 = 1024 roundings. In half precision rows
# have 3 logits, and exp and log count as 2 roundings each: 16. Where float64 is expected, an answer
# may have computed in float32. (With worst-case rounding of all sums, right answers use up to half
# of this. The nearest wrong answer is off by 1%.)
TOLERANCE = {
    torch.float64: 1024 * 2**-24,
    torch.float32: 1024 * 2**-24,
    torch.float16: 16 * 2**-11,
    torch.bfloat16: 16 * 2**-8,
}
# The largest entry counts as at least this: for results that are 0 but for terms around 1 that
# cancel in float64, or that underflow in the expected dtype and not in a wider one.
SMALLEST_SCALE = 1e-6
CAUSES_OF_SMALL_ERRORS = "as from an added eps or from computing in a dtype with too few digits"


def is_same(got, expected):
    """Tell whether ``got`` is as good as ``expected``."""
    return difference(got, expected, describe=False) is None


def difference(got, expected, names="", describe=True):
    """Return None if ``got`` is as good as ``expected``, else the first difference in words.

    The dtype of ``expected`` decides how far a float may be off. A result in a coarser dtype, such
    as bfloat16 in place of float32, is a difference of its own.

    Parameters
    ----------
    got : object
        What a learner's function returned. A NumPy array counts as the tensor it holds. A tensor
        (n,) may take the place of a tuple of n numbers.
    expected : torch.Tensor, number, or tuple of them
        A float may be off as a tensor may be; an int or a bool is exact.
    names : str
        Names of the last dimensions, e.g. "L S"; for a tuple of several, separated by "|".
    describe : bool
        If False, return "different" for entries or shapes that differ: a description takes longer
        than the comparison.
    """
    if isinstance(expected, tuple):
        return _difference_of_tuples(got, expected, names, describe)
    is_number = isinstance(expected, int | float)
    if is_number:  # the answer may be a tensor of any dtype
        dtype = torch.float64 if type(expected) is float else None
        expected = torch.tensor(expected, dtype=dtype)
    if expected.ndim == 0 and isinstance(got, numbers.Real):  # NumPy's numbers as well
        is_number, got = True, as_float(got)
    got = of_numpy(got)
    if not isinstance(got, torch.Tensor):
        return f"expected {'a number' if is_number else 'a torch.Tensor'}, got {_kind(got)}"
    if type(got).__name__ == "CausalBias":  # to import the class takes a second
        return "expected a plain tensor, got a CausalBias, which only PyTorch's SDPA can read"
    if got.is_complex():
        return f"expected {family(expected)} entries, got {got.dtype}"
    values = read(got)
    if values is None:
        return "expected a plain tensor, got one that is sparse or on no real device"
    if values.shape == expected.shape and not is_number and family(got) != family(expected):
        return f"expected {family(expected)} entries, got {got.dtype}"
    target = expected.detach().double()
    tolerance = TOLERANCE.get(expected.dtype, 0)
    found = _first_difference(values, target, tolerance, names.split(), describe)
    coarse = TOLERANCE.get(got.dtype, 0)
    if found and describe and coarse > tolerance > 0 and values.shape == target.shape:
        if is_close(values, target, coarse).all():
            dtype = str(got.dtype).removeprefix("torch.")
            keep = "Keep the dtype of the inputs, or use float32 if these are integers"
            return f"right to within {coarse:.0%}, but in {dtype}. {keep}"
    return found


def _difference_of_tuples(got, expected, names, describe):
    if all(isinstance(item, int | float) for item in expected):
        values = read(got)  # the numbers may come in one tensor
        got = got if values is None or values.ndim != 1 else list(values)
    if not isinstance(got, tuple | list) or len(got) != len(expected):
        kind = "numbers" if isinstance(expected[0], int | float) else "tensors"
        return f"expected a tuple of {len(expected)} {kind}, got {_kind(got)}"
    names = names.split("|") if names else [""] * len(expected)
    for i, (item, target, name) in enumerate(zip(got, expected, names, strict=True)):
        if found := difference(item, target, name, describe):
            before = " and ".join(map(str, range(i)))
            right = f" (item{'s' * (i > 1)} {before} {'are' if i > 1 else 'is'} right)" if i else ""
            found = found.removesuffix(" (is a `return` missing?)")  # there is one
            return f"item {i} of the tuple{right}: {found}"
    return None


def read(tensor):
    """Return a learner's tensor in double precision; None if it holds no plain numbers, or is none.

    Complex, sparse, nested and fake tensors hold none, nor do those on PyTorch's device "meta".
    """
    try:
        tensor = of_numpy(tensor)
        if tensor.is_complex():
            return None
        return torch.from_numpy(tensor.detach().cpu().double().numpy())
    except Exception:  # each kind raises its own errors
        return None


def of_numpy(value):
    """Return the tensor for a NumPy array of numbers, anything else as it is."""
    try:
        return torch.as_tensor(value.copy()) if isinstance(value, np.ndarray) else value
    except TypeError:  # an array of objects
        return value


def _first_difference(values, target, tolerance, names, describe):
    same_shape = values.shape == target.shape
    close = is_close(values, target, tolerance) if same_shape else torch.tensor(False)
    if close.all():
        return None
    if not describe:
        return "different"
    if not same_shape:
        leading = ["..."] if target.ndim > len(names) > 0 else []
        named = f"({', '.join(leading + names)}) = " if names else ""
        shapes = f"expected shape {named}{tuple(target.shape)}, got {tuple(values.shape)}"
        return shapes + _in_another_shape(values, target, tolerance)
    first = tuple((~close).nonzero()[0].tolist())
    where = f" at {list(first)}" if first else ""
    if values[first].isnan():
        return f"NaN{where}, where {short(target[first])} was expected"
    expected, got = _distinct(target[first].item(), values[first].item())
    count = f"; {int((~close).sum())} of {values.numel()} entries differ" if first else ""
    return f"expected {expected}{where}, got {got}{count}" + _pattern(values, target, tolerance)


def is_close(values, target, tolerance):
    """Return which entries are as good as expected."""
    finite = target.isfinite()
    scale = target[finite].abs().max().item() if finite.any() else 1.0
    allowed = tolerance * max(scale, SMALLEST_SCALE)
    return torch.isclose(values, target, rtol=0, atol=allowed, equal_nan=True)


def _in_another_shape(values, target, tolerance):
    """Say if the right numbers came in another shape."""
    if values.numel() != target.numel() or values.numel() < 2:
        return ""
    transposed = values.mT if values.ndim > 1 else values
    if transposed.shape == target.shape and is_close(transposed, target, tolerance).all():
        return ": the numbers are right, but the last two dimensions are swapped"
    if is_close(values.reshape(target.shape), target, tolerance).all():
        return ": the numbers are right, but in another shape"
    return ""


def _pattern(values, target, tolerance):
    """Say what all wrong entries have in common: a factor, a term, or a small difference."""
    if values.numel() < 3 or not (values.isfinite() & target.isfinite()).all():
        return ""
    clear = 2**-7 * target.abs().max()  # too large for a rounding
    ratio = (values * target).sum() / target.square().sum()
    offset = (values - target).mean()
    if abs(ratio - 1) > 2**-7 and ratio and is_close(values, ratio * target, 4 * tolerance).all():
        return f": each is {short(ratio)} times what it should be"
    if offset.abs() > clear and is_close(values, target + offset, 4 * tolerance).all():
        return f": each is {short(offset.abs())} too {'large' if offset > 0 else 'small'}"
    many = (~is_close(values, target, tolerance)).double().mean() > 0.5  # rounding spares few
    if many and (values - target).abs().max() < clear:
        return f", all by less than 1% of the largest, {CAUSES_OF_SMALL_ERRORS}"
    return ""


def _distinct(one, other):
    """Return two numbers with enough digits to tell them apart, at least four."""
    for digits in range(4, 18):
        texts = short(one, digits), short(other, digits)
        if texts[0] != texts[1]:
            break
    return texts


def as_float(value):
    """Return a number as a tensor; as it is if it is larger than any float."""
    try:
        return torch.tensor(float(value), dtype=torch.float64)
    except OverflowError:
        return value


def family(tensor):
    if tensor.dtype == torch.bool:
        return "true/false"
    if tensor.is_complex():
        return "complex"
    return "floating point" if tensor.is_floating_point() else "integer"


def _kind(value):
    """Name the type of a value as a learner would: "None", "a list", "a tuple of 2"."""
    if value is None:
        return "None (is a `return` missing?)"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, torch.Tensor):
        return "one tensor"
    kind = f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def short(number, digits=4):
    value = float(number)
    whole = math.isfinite(value) and value == round(value) and abs(value) < 1e15
    return f"{value:.0f}" if whole else f"{value:.{digits}g}"
