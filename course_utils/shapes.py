"""A decorator that raises clear errors for arguments of the wrong shape."""

import functools
import inspect
from numbers import Integral

import torch


def expects(sizes=None, **shapes):
    """Check the shapes of a function's tensor arguments before it runs.

    Parameters
    ----------
    sizes : callable, optional
        For a method: returns the sizes that ``self`` fixes, e.g. ``{"d_model": 64}``.
    **shapes : str
        The dimensions of each argument, e.g. ``q="... L d", k="... S d"``. If a name occurs twice,
        its size must be the same both times. A leading ``...`` allows any leading dimensions. A
        leading ``*name`` also does, but they must be the same wherever the name occurs. If the
        default of an argument is None, it may be None. A first word can require more:

        - ``"floating ..."``: floating point entries; ``"even ..."``: also an even last dimension
        - ``"whole ..."``: a tensor or sequence of whole numbers
        - ``"bool ... L S"``: a boolean mask that broadcasts to that shape
        - ``"int from 0"``, ``"multiple of 2"``, ``"divisor of d_model"``, ``"dim of x"``: an int
        - ``"one of left right"``: one of these words
        - ``"corner"``: the alignment of a causal mask, which may be None only if L = S
        - ``"corner if is_causal"``: the same, but it may also be None if is_causal is false

    Raises
    ------
    TypeError
        If an argument is not a tensor, or has the wrong type.
    ValueError
        If an argument has the wrong shape or value.
    """

    def decorate(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args, **kwargs):
            values = signature.bind(*args, **kwargs).arguments
            known = dict(sizes(args[0])) if sizes else {}
            for name, shape in shapes.items():
                kind, *words = shape.split()
                optional = signature.parameters[name].default is None
                if name not in values or values[name] is None and optional:
                    if kind == "corner" and all(values.get(word) for word in words[1:]):
                        _check_square(name, known)
                    continue
                if shape.startswith("dim of "):
                    _check_dim(name, values[name], words[1], values[words[1]])
                elif kind in OTHERS:
                    OTHERS[kind](name, values[name], words, known)
                else:
                    _check(name, values[name], [kind, *words], known)
            return function(*args, **kwargs)

        return checked

    return decorate


def _check(name, tensor, dims, known):
    """Check the shape of one tensor, and add its sizes to ``known``."""
    written = f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"
    if not isinstance(tensor, torch.Tensor):
        kind = type(tensor).__name__
        raise TypeError(f"{name} must be a torch.Tensor of shape {written}, got {kind}")
    free = dims[0] == "..." or dims[0].startswith("*")
    leading, dims = (dims[0], dims[1:]) if free else ("...", dims)
    cut = tensor.ndim - len(dims)
    sizes = list(zip(dims, tensor.shape[max(cut, 0) :], strict=False))
    if leading != "...":
        sizes.append((leading, tuple(tensor.shape[: max(cut, 0)])))
    fixed = {dim: known[dim] for dim in [*dims, leading] if dim in known}
    fits = cut >= 0 if free else cut == 0
    if not fits or any(known.setdefault(dim, n) != n for dim, n in sizes):
        which = " with " + ", ".join(f"{dim} = {n}" for dim, n in fixed.items()) if fixed else ""
        got = tuple(tensor.shape)
        choose = "" if free or cut <= 0 else f"; choose one, e.g. {name}[{', '.join('0' * cut)}]"
        raise ValueError(f"{name} must have shape {written}{which}, got {got}{choose}")


def _check_dim(name, dim, owner, tensor):
    """Check that ``dim`` is one of a tensor's dimensions, counted from either end."""
    if not isinstance(dim, int):
        raise TypeError(f"{name} must be an int, got {type(dim).__name__}")
    n = max(tensor.ndim, 1)
    if not -n <= dim < n:
        shape = tuple(tensor.shape)
        limits = f"from {-n} to {n - 1}, because {owner} has shape {shape}"
        raise ValueError(f"{name} must be {limits}, got {dim}")


def _check_mask(name, tensor, dims, known):
    """Check that a mask is boolean, and broadcasts to sizes that other arguments fix."""
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.bool:
        kind = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise TypeError(f"{name} must be a boolean torch.Tensor (True = may attend), got {kind}")
    sizes = tuple(known[dim] for dim in dims if dim in known)
    trailing = tuple(tensor.shape[max(tensor.ndim - len(sizes), 0) :])
    # from the last dimension on; missing leading dimensions broadcast too
    if any(n not in (1, size) for n, size in zip(trailing[::-1], sizes[::-1], strict=False)):
        fixed = ", ".join(f"{dim} = {known[dim]}" for dim in dims if dim in known)
        written = f"({', '.join(dims)}) with {fixed}"
        raise ValueError(f"{name} must broadcast to {written}, got {tuple(tensor.shape)}")


def _check_floating(name, tensor, dims, known):
    """Check the shape of a tensor, and that its entries are floating point."""
    _check(name, tensor, dims, known)
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must have floating point entries, got {tensor.dtype}")


def _check_even(name, tensor, dims, known):
    """Check a floating point tensor whose last dimension must be even."""
    _check_floating(name, tensor, dims, known)
    if tensor.shape[-1] % 2:
        raise ValueError(f"{name} must have an even last dimension, got {tuple(tensor.shape)}")


def _check_whole(name, values, dims, known):
    """Check a tensor or sequence of whole numbers."""
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        tensor = torch.tensor(0.5)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        kind = values.dtype if isinstance(values, torch.Tensor) else repr(values)[:60]
        raise TypeError(f"{name} must be a tensor or sequence of whole numbers, got {kind}")
    _check(name, tensor, dims, known)


def _check_int(name, value, words, known):
    """Check that a value is an int, and at least the last of ``words``."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < int(words[-1]):
        raise ValueError(f"{name} must be {words[-1]} or more, got {value}")
    known[name] = value


def _check_divisor(name, value, words, known):
    """Check that an int divides a size."""
    _check_int(name, value, ["1"], known)
    if known[words[-1]] % value:
        raise ValueError(f"{name} must divide {words[-1]} = {known[words[-1]]}, got {value}")


def _check_multiple(name, value, words, known):
    """Check that a value is a positive multiple of the last of ``words``."""
    _check_int(name, value, ["1"], known)
    if value % int(words[-1]):
        raise ValueError(f"{name} must be a multiple of {words[-1]}, got {value}")


def _check_word(name, value, words, known):
    """Check that a value is one of the words after "of"."""
    if value not in words[1:]:
        raise ValueError(f"{name} must be one of {', '.join(words[1:])}, got {value!r}")


def _check_corner(name, value, words, known):
    """Check that a value is an alignment of a causal mask."""
    _check_word(name, value, ["of", "lower_right", "upper_left"], known)


def _check_square(name, known):
    """Check that L = S, because then no alignment is needed. S is L if it is not given."""
    L, S = known["L"], known.get("S", known["L"])
    if L != S:
        raise ValueError(
            f'{name} must be given, since L = {L} and S = {S} differ: "lower_right" aligns the '
            'last query with the last key, as in decoding with a cache; "upper_left" aligns the '
            "first query with the first key, as PyTorch's is_causal does"
        )


OTHERS = {
    "bool": _check_mask,
    "floating": _check_floating,
    "even": _check_even,
    "whole": _check_whole,
    "int": _check_int,
    "divisor": _check_divisor,
    "multiple": _check_multiple,
    "one": _check_word,
    "corner": _check_corner,
}
