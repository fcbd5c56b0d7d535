"""Compare an answer with what was expected, and say in words where they first differ."""

import numbers

import torch

# How far two right answers may lie apart, as a part of the largest expected entry: float64 leaves
# room for an answer that calculates in float32 inside.
TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def difference(got, expected, names=""):
    """Return None if ``got`` is as good as ``expected``, else the first difference in words.

    Parameters
    ----------
    got : object
        What a learner's function returned.
    expected : torch.Tensor, number, or tuple of them
    names : str
        Names of the last dimensions, e.g. "L S"; for a tuple of several, separated by "|".
    """
    if isinstance(expected, tuple):
        if not isinstance(got, tuple | list) or len(got) != len(expected):
            kind = "numbers" if isinstance(expected[0], int | float) else "tensors"
            return f"expected a tuple of {len(expected)} {kind}, got {_kind(got)}"
        each = names.split("|") if names else [""] * len(expected)
        for place, (one, other, name) in enumerate(zip(got, expected, each, strict=True)):
            if found := difference(one, other, name):
                return f"item {place} of the tuple: {found}"
        return None
    kind = "a number" if isinstance(expected, int | float) else "a torch.Tensor"
    if isinstance(expected, int | float):  # a plain number may come as a tensor of any kind
        expected = torch.tensor(expected, dtype=torch.float64)
        got = got.double() if isinstance(got, torch.Tensor) else got
    if expected.ndim == 0 and isinstance(got, numbers.Real):  # NumPy's too
        got = torch.tensor(got, dtype=expected.dtype)
    if not isinstance(got, torch.Tensor):
        return f"expected {kind}, got {_kind(got)}"
    return _tensor_difference(got.detach(), expected.detach(), names.split())


def _tensor_difference(got, expected, names):
    if got.shape != expected.shape:
        free = ["..."] if expected.ndim > len(names) > 0 else []
        named = f"({', '.join(free + names)}) = " if names else ""
        return f"expected shape {named}{tuple(expected.shape)}, got {tuple(got.shape)}"
    if _family(got) != _family(expected):
        return f"expected {_family(expected)} entries, got {got.dtype}"
    if got.numel() == 0:
        return None
    exact, near = expected.double(), got.double()
    scale = exact[exact.isfinite()].abs().amax().item() if exact.isfinite().any() else 1.0
    coarsest = max(TOLERANCE.get(t.dtype, 0) for t in (got, expected))
    close = torch.isclose(near, exact, rtol=0, atol=coarsest * max(scale, 1e-6), equal_nan=True)
    if close.all():
        return None
    first = tuple((~close).nonzero()[0].tolist())
    where = f" at {list(first)}" if first else ""
    if near[first].isnan():
        return f"NaN{where}, where {_short(exact[first])} was expected"
    wrong = f"; {int((~close).sum())} of {got.numel()} entries differ" if first else ""
    return f"expected {_short(exact[first])}{where}, got {_short(near[first])}{wrong}"


def _family(tensor):
    if tensor.dtype == torch.bool:
        return "true/false"
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


def _short(number):
    value = number.item()
    return f"{value:.0f}" if value == round(value, 0) and abs(value) < 1e15 else f"{value:.4g}"
