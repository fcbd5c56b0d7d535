"""Whether gradients get through an answer, and whether they are the right ones."""

import inspect

import torch

from course_utils.checks.compare import difference
from course_utils.checks.exercise import one_layout, tag_learner_errors

NONE = (
    "right numbers, but no gradient gets through, so nothing before it can learn: .detach(), "
    ".data, .item(), NumPy, torch.no_grad() and torch.tensor() of a result cut it off"
)
IN_PLACE = (
    "right numbers, but gradients fail: it writes into a tensor whose old values they still need; "
    "make new tensors, and collect rows in a list for torch.stack or torch.cat"
)


def gradients(run, answer, args, reading=0):
    """Return the gradients of a sum of the results with respect to all floating-point inputs.

    The sum weighs every entry of the results by a number of its own, so that gradients do not
    cancel, as they would for the sum over a softmax.

    Parameters
    ----------
    run, answer, args
        As in `Exercise`.
    reading : int
        The place of the reading to take, if there are several.

    Returns
    -------
    list of torch.Tensor or None
        One gradient for each input, None where none comes.
    """
    traced = [_traced(arg) for arg in args]
    inputs = [each for each in _tensors(traced) if each.requires_grad]
    if not inputs:
        return []
    with one_layout(reading), torch.enable_grad():
        return _of_sum(run(answer, *traced)[reading], inputs)


def _traced(arg):
    if isinstance(arg, tuple):
        return tuple(_traced(each) for each in arg)
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
    """Return the sum of all entries, each times a number of its own; None if none has a gradient.

    Infinite entries have no say.
    """
    rng = torch.Generator().manual_seed(0)
    parts = []
    for each in result if isinstance(result, tuple | list) else [result]:
        if isinstance(each, torch.Tensor) and each.requires_grad:
            weights = torch.randn(each.shape, generator=rng, dtype=torch.float64).to(each.dtype)
            parts.append((each * weights).masked_fill(~each.isfinite(), 0).sum())
    return sum(parts) if parts else None


def _of_sum(result, inputs):
    total = weighted_sum(result)
    if total is None:
        return [None] * len(inputs)
    return list(tag_learner_errors(torch.autograd.grad)(total, inputs, allow_unused=True))


def fault(got, expected, names):
    """Return None if gradients are right, else what is wrong with them, in words.

    Parameters
    ----------
    got, expected : list of torch.Tensor or None
    names : list of str
        What the inputs are called.
    """
    wanted = [place for place, gradient in enumerate(expected) if gradient is not None]
    if wanted and all(got[place] is None for place in wanted):
        return NONE
    deaf = [names[place] for place in wanted if got[place] is None and expected[place].any()]
    if deaf:
        return f"right numbers, but no gradient reaches {', '.join(deaf)}: something cuts it off"
    for place in wanted:
        mine, right, name = got[place], expected[place], names[place]
        if mine is None:
            continue
        if mine.isnan().any() and not right.isnan().any():
            return (
                f"right numbers, but the gradient of {name} is NaN: a NaN or an infinity made on "
                "the way spoils it, also if it is replaced afterwards; see that none arises"
            )
        if found := difference(mine, right):
            told = f"right numbers, but the gradient of {name} is another ({found})"
            if "(an eps)" in found:  # too near for a part that is missing
                return told
            if torch.finfo(right.dtype).bits == 16:
                return f"{told}: is a part detached, replaced, or rounded too early?"
            return f"{told}: is a part detached, in no_grad(), or replaced?"
    return None


def names_of_inputs(reference, args):
    """Return what the floating-point inputs among the arguments are called."""
    if not isinstance(reference, type):
        called = list(inspect.signature(reference).parameters)
        pairs = zip(called, args, strict=False)
        return [name for name, arg in pairs for each in _tensors([arg]) if each.is_floating_point()]
    # of a layer, the last arguments are what its forward takes
    called = list(inspect.signature(reference.forward).parameters)[1:]
    given = args[-1] if isinstance(args[-1], tuple) else args[-len(called) :]
    pairs = zip(called, given, strict=False)
    return [name for name, arg in pairs for each in _tensors([arg]) if each.is_floating_point()]
