"""Whether gradients get through an answer, and whether they are the right ones."""

import inspect

import torch

from course_utils.checks.compare import difference
from course_utils.checks.exercise import one_layout, tag_learner_errors

NONE = (
    "Your numbers are right, but no gradient gets through, so nothing before this step can learn. "
    "`.detach()`, `.data`, `.item()`, NumPy, `torch.no_grad()` and `torch.tensor(result)` stop it."
)
IN_PLACE = (
    "Your numbers are right, but the backward pass fails, because it needs the old values of a "
    "tensor that your code overwrites. Make new tensors, and join them with `torch.stack` or "
    "`torch.cat`."
)


def gradients(run, answer, args, layout=0):
    """Return the gradients of a weighted sum of the results with respect to all float inputs.

    Every entry of the results has its own weight, so that gradients do not cancel, as they would
    for the plain sum over a softmax.

    Parameters
    ----------
    run, answer, args
        As in `Exercise`.
    layout : int
        Which of the results of ``run`` to take, if there is one per parameter layout.

    Returns
    -------
    list of torch.Tensor or None
        One gradient for each input, None for an input that the results do not depend on.
    """
    traced = [_traced(arg) for arg in args]
    inputs = [tensor for tensor in _tensors(traced) if tensor.requires_grad]
    if not inputs:
        return []
    with one_layout(layout), torch.enable_grad():
        total = weighted_sum(run(answer, *traced)[layout])
    if total is None:
        return [None] * len(inputs)
    return list(tag_learner_errors(torch.autograd.grad)(total, inputs, allow_unused=True))


def _traced(arg):
    if isinstance(arg, tuple):
        return tuple(map(_traced, arg))
    if isinstance(arg, torch.Tensor) and arg.is_floating_point():
        return arg.detach().requires_grad_()
    return arg


def _tensors(args):
    for arg in args:
        if isinstance(arg, tuple):
            yield from _tensors(arg)
        elif isinstance(arg, torch.Tensor):
            yield arg


def weighted_sum(result):
    """Return the sum of all finite entries, each times a random weight; None if none is traced."""
    rng = torch.Generator().manual_seed(0)
    parts = []
    for item in result if isinstance(result, tuple | list) else [result]:
        if isinstance(item, torch.Tensor) and item.requires_grad:
            weights = torch.randn(item.shape, generator=rng, dtype=torch.float64).to(item.dtype)
            parts.append((item * weights).masked_fill(~item.isfinite(), 0).sum())
    return sum(parts) if parts else None


def fault(got, expected, names):
    """Return None if gradients are right, else what is wrong with them, in words.

    Parameters
    ----------
    got, expected : list of torch.Tensor or None
    names : list of str
        What the inputs are called.
    """
    needed = [i for i, gradient in enumerate(expected) if gradient is not None]
    if needed and all(got[i] is None for i in needed):
        return NONE
    missing = [names[i] for i in needed if got[i] is None and expected[i].any()]
    if missing:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(missing))
        return f"Your numbers are right, but no gradient reaches {names}. Something stops it."
    for i in needed:
        gradient, right, name = got[i], expected[i], f"`{names[i]}`"
        if gradient is None:
            continue
        if gradient.isnan().any() and not right.isnan().any():
            return (
                f"Your numbers are right, but the gradient of {name} is NaN. A NaN or an infinity "
                "in an intermediate result spoils the gradient, even if you replace it later. Make "
                "sure that none arises."
            )
        if found := difference(gradient, right):
            hint = f"Your numbers are right, but the gradient of {name} is wrong ({found})."
            if "an added eps" in found:  # too close for a missing part
                return hint
            if torch.finfo(right.dtype).bits == 16:
                return f"{hint} Is a part detached, replaced, or rounded too early?"
            return f"{hint} Is a part detached, replaced, or computed in `no_grad()`?"
    return None


def names_of_inputs(reference, args):
    """Return the names of the floating-point inputs, such as "x", or "parts[0][1]" in a tuple."""
    if isinstance(reference, type):  # of a layer, the last arguments are those of its forward
        parameters = list(inspect.signature(reference.forward).parameters)[1:]
        args = args[-1] if isinstance(args[-1], tuple) else args[-len(parameters) :]
    else:
        parameters = inspect.signature(reference).parameters
    pairs = zip(parameters, args, strict=False)
    return [name for pair in pairs for name, x in _named(*pair) if x.is_floating_point()]


def _named(name, arg):
    """Yield (name, tensor) for a tensor, or for each one in a tuple."""
    if isinstance(arg, tuple):
        for i, each in enumerate(arg):
            yield from _named(f"{name}[{i}]", each)
    elif isinstance(arg, torch.Tensor):
        yield name, arg
