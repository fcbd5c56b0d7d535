"""Give a learner's layer our weights, however its parameters are laid out."""

import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import nn

from course_utils.checks.exercise import (
    ASKED,
    NO_FIT,
    Complaint,
    call_with_clones,
    tag_learner_errors,
)
from course_utils.checks.gradients import weighted_sum
from course_utils.checks.inputs import parameters_made

QKV = ("W_q", "W_k", "W_v")


def layer_outputs(module, heads, *inputs):
    """Return what a learner's module gives for some inputs with our weights, for every reading.

    In the place of one that does not fit stands NO_FIT, so that places mean the same everywhere.

    Raises
    ------
    Complaint
        If it is no module, or its parameters fit under no reading.
    """
    if not isinstance(module, nn.Module):
        raise Complaint("not a module", "it must be a class derived from nn.Module")
    call = tag_learner_errors(module.__call__)
    learning = any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs)
    # So that NumPy takes what the layer makes. Not in the generator, which any thread may close
    # after an error.
    with torch.set_grad_enabled(learning):
        tag_learner_errors(module.eval)()
        if any(nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
            call_with_clones(call, *inputs)  # such parameters are made by the first call
        found, asked = [], ASKED.get()
        for place, fits in enumerate(readings(module, heads)):
            fits &= asked in (None, place)
            found.append(_undisturbed(call, *inputs) if fits else NO_FIT)
            if fits and learning:
                _see_that_it_learns(module, found[-1], heads)
            if place == asked:  # to load weights for the next would spoil its gradients
                break
    if all(each is NO_FIT for each in found):
        raise Complaint("unexpected parameters", _misfit(module, heads))
    return found


def _undisturbed(call, *inputs):
    """Return what a layer gives; raise Complaint if that depends on chance."""
    before = torch.get_rng_state()
    with parameters_made() as made:
        result = call_with_clones(call, *inputs)[0]
    drawn = not torch.get_rng_state().equal(before)
    if drawn and made:
        hint = (
            "it makes a layer, such as nn.Linear, anew at each call, with weights drawn at random "
            "that never learn: make it once, in __init__, self.W_o = nn.Linear(...)"
        )
        raise Complaint("layer made anew", hint)
    if drawn:
        hint = (
            "it draws at random also after layer.eval(): F.dropout needs training=self.training, "
            "or use nn.Dropout, which knows; weights are drawn once, in __init__"
        )
        raise Complaint("random after training", hint)
    return result


def _see_that_it_learns(module, result, heads):
    """Raise Complaint if no gradient gets from the result to some of the matrices."""
    learned = {each.name: each.parameter for each in _matrices(module, heads)}
    total = weighted_sum(result)
    if total is None:
        return  # then none gets to the inputs either, which is told
    asked = {name: each for name, each in learned.items() if each.requires_grad}
    parameters = list(asked.values())
    options = {"allow_unused": True, "retain_graph": True}
    got = tag_learner_errors(torch.autograd.grad)(total, parameters, **options) if asked else []
    reached = {name for name, gradient in zip(asked, got, strict=True) if gradient is not None}
    deaf = ", ".join(name for name in learned if name not in reached)
    if deaf:
        hint = (
            f"right numbers, but no gradient reaches {deaf}, which cannot learn: .data, .detach(), "
            "torch.no_grad() and requires_grad_(False) cut it off"
        )
        raise Complaint("cannot learn", hint)


def _misfit(module, heads):
    """Say what may be wrong with a module whose parameters fit under no reading."""
    wanted = sum(matrices.numel() for matrices in heads.values())
    several, _, width = heads["W_q"].shape
    shapes = [tuple(each.data.shape) for each in _matrices(module, heads)]
    present = sum(map(math.prod, shapes))
    plain = [each for m in module.modules() for each in vars(m).values()]  # unknown to PyTorch
    lists = [each for each in plain if isinstance(each, list)]
    if any(isinstance(item, nn.Module | nn.Parameter) for each in lists for item in each):
        advice = "PyTorch does not see layers in a list: use nn.ModuleList, nn.ParameterList"
    elif present > wanted:
        wide = "a query or key is d_k wide in every head, not d_model"
        advice = "too many: " + (wide if several > 1 else "one is wider than it should be")
    elif several > 1 and any(width not in shape for shape in shapes):
        advice = (
            f"each head needs all d_model = {width} columns: project first, then cut into heads"
        )
    elif any(isinstance(each, torch.Tensor) and each.ndim > 1 for each in plain):
        advice = "a plain tensor on self does not learn: wrap it, self.W_q = nn.Parameter(...)"
    elif len({*module.parameters()}) < len([*module.named_parameters(remove_duplicate=False)]):
        advice = "one matrix has two names, as after self.W_k = self.W_q: make one for each"
    elif present < wanted:
        advice = "too few: assign each to self in __init__, W_o too, wide enough"
        advice += " for all heads" if several > 1 else ""
    else:
        advice = "in shapes or an order not read here: nn.Linear each, W_o last or named so"
    stored = {name: tuple(matrices.flatten(0, 1).shape) for name, matrices in heads.items()}
    stored["W_o"] = stored["W_o"][::-1]
    expected = ", ".join(f"{name} {shape}" for name, shape in stored.items())
    counts = Counter(shapes).items()
    found = ", ".join(f"{shape} × {n}" if n > 1 else f"{shape}" for shape, n in counts)
    return (
        f"expected matrices {expected} as nn.Linear stores them (and biases, if you like), "
        f"{wanted} entries in all; found {found or 'none'}, {present} entries; {advice}"
    )


def readings(module, heads):
    """Load our matrices into a module once for each way its parameters may be meant.

    Where names such as W_q, key, to_v or out_proj tell the role of each layer, they are taken at
    their word. Otherwise the last or the first is the output projection, unless it is named for
    something else, and the rows of the others, in order, are read as q, k and v in every order, all
    heads of one after another or head by head: three layers, one fused layer, and lists of small
    layers are all right, of nn.Linear or of nn.Conv1d with size 1. The rows of one fused layer may
    also be laid out column by column. A bare nn.Parameter is (in, out), for x @ W, or (out, in),
    and its side of heads may have several dimensions: heads and columns in either order, or q, k, v
    before them. All four may be one parameter, stacked along its first or second dimension. Biases
    become 0, whatever their shape; a scale or a gain stays.

    Parameters
    ----------
    module : torch.nn.Module
    heads : dict of str to torch.Tensor
        "W_q", "W_k", (H, d_k, d_model), "W_v" and "W_o", (H, d_v, d_model): what each head's
        queries, keys and values are made by, and transposed, what its output is projected by.

    Yields
    ------
    bool
        Whether a reading fits; if so, with the weights in place. A module of another size has the
        same readings in the same order.
    """
    found = _matrices(module, heads)
    if len(found) == 1 and found[0].data.ndim > 2:  # those of q, k, v and the output, stacked
        yield from _readings_of(_unstacked(found[0], 0), heads)
        yield from _readings_of(_unstacked(found[0], 1), heads)
    else:
        yield from _readings_of(found, heads)


def _unstacked(matrix, axis):
    """Return four matrices out of one that holds them along an axis; empty ones if it does not."""
    data = matrix.data
    parts = data.unbind(axis) if data.shape[axis] == 4 else 4 * [data.new_empty(0)]
    return [replace(matrix, data=part) for part in parts]


def _readings_of(found, heads):
    named = [each for each in found if each.role == "W_o"]
    ends = [found[-1:], found[:1]]
    nameless = [end for end in ends if end and end[0].role is None]
    for outputs in [named] if named else nameless or ends:
        inputs = [each for each in found if each not in outputs]
        roles = Counter(each.role for each in inputs)
        if set(roles) == set(QKV) and len(set(roles.values())) == 1:
            inputs.sort(key=lambda each: QKV.index(each.role))
            orders = [[block for name in QKV for block in heads[name]]]
        else:
            stacks = [[heads[name] for name in order] for order in itertools.permutations(QKV)]
            orders = [blocks for stack in stacks for blocks in _orders(stack, len(inputs) == 1)]
        for turned, turned_out in itertools.product(_turns(inputs), _turns(outputs)):
            rows = [each.rows(heads["W_q"], turned, inward=True) for each in inputs]
            columns = [each.rows(heads["W_o"], turned_out, inward=False) for each in outputs]
            for blocks in orders:  # 3·H of (d_k or d_v, d_model)
                yield _fill(rows, blocks) and _fill(columns, heads["W_o"])


def _turns(matrices):
    return [False] if all(each.linear for each in matrices) else [False, True]


def _orders(stacks, fused):
    """Yield the blocks of rows of three (H, d, d_model) in each order they may be kept in."""
    yield [block for stack in stacks for block in stack]
    yield [block for blocks in zip(*stacks, strict=True) for block in blocks]
    if fused:  # (H, d, 3), (d, 3, H), (d, H, 3)
        alike = len({stack.shape for stack in stacks}) == 1
        for axes in [(1, 2, 0), (2, 0, 1), (2, 1, 0)]:
            yield list(torch.stack(stacks).permute(*axes, 3).flatten(0, 1)) if alike else []


@dataclass(frozen=True, eq=False)
class _Matrix:
    """A parameter that is no bias: its role, as its name tells it, if it does, and its numbers.

    ``linear`` tells whether it is (out, in), as nn.Linear keeps it.
    """

    name: str
    parameter: nn.Parameter
    role: str | None
    linear: bool
    data: torch.Tensor

    def rows(self, heads, turned, inward):
        """Return a view (..., d_model), a row for each column of a head; None if it has none.

        Parameters
        ----------
        heads : torch.Tensor, (H, d, d_model)
            What it is to hold, or a part.
        turned : bool
            Whether bare parameters are (out, in) as well.
        inward : bool
            Whether d_model comes in, as to W_q, or goes out, as from W_o.
        """
        _, d, width = heads.shape
        axes = [axis for axis, size in enumerate(self.data.shape) if size == width]
        if self.linear:
            axes = [axis for axis in axes if axis == inward]  # 0 is out, 1 in
        if not axes:
            return None
        view = self.data.movedim(axes[-1 if inward == turned else 0], -1)
        columns = [axis for axis, size in enumerate(view.shape[:-1]) if size == d]
        return view.movedim(columns[0], -2) if len(columns) == 1 else view


def _matrices(module, heads):
    """Return the parameters that are no biases, and set the biases to 0."""
    parameters = [
        (*name.rpartition(".")[::2], each)
        for name, each in module.named_parameters()
        if not nn.parameter.is_lazy(each)  # it is still, for nothing uses it
    ]
    linear = {name for name, each in module.named_modules() if isinstance(each, nn.Linear)}
    bare = [each for owner, _, each in parameters if owner not in linear and each.ndim > 1]
    largest = _largest_bias(
        [each.numel() for each in bare],
        sum(matrices.numel() for matrices in heads.values())
        - sum(each.numel() for owner, _, each in parameters if owner in linear and each.ndim > 1),
        heads["W_q"].shape[-1],
    )
    found = []
    for owner, leaf, parameter in parameters:
        is_bare = owner not in linear
        if parameter.ndim > 1 and not (is_bare and parameter.numel() <= largest):
            name = f"{owner}.{leaf}".lstrip(".")
            told = [_role(part) for part in (name if is_bare else owner).split(".")]
            role = next((each for each in reversed(told) if each), None)
            found.append(_Matrix(name, parameter, role, not is_bare, parameter.data))
        elif re.search("^b|_b$|bias", leaf.lower()) or parameter.unique().numel() > 1:
            parameter.data.zero_()  # but no scale or gain, which is not drawn at random
    return found


def _largest_bias(sizes, wanted, width):
    """Return up to which size parameters are biases: without them the others have all entries."""
    for largest in sorted({0, *sizes}):
        if sum(size for size in sizes if size > largest) == wanted:
            return largest
    return width


ROLES = {
    "W_q": "q qs wq qw query queries",
    "W_k": "k ks wk kw key keys",
    "W_v": "v vs wv vw value values val vals",
    "W_o": "o wo ow out output outputs",
}


def _role(name):
    """Return "W_q" for names such as q, W_q, Wq, to_q, query, fc_queries or qProj; and so on."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", name).lower()
    words = re.findall("[a-z]+", spaced)
    roles = [role for role, called in ROLES.items() if set(words) & set(called.split())]
    return roles[0] if len(roles) == 1 else None


def _fill(targets, blocks):
    """Write blocks (rows, d_model) one after another into the targets, whole; tell if they fit."""
    waiting = list(blocks)
    for target in targets:
        taken, rows = [], 0 if target is None else target.shape[:-1].numel()
        while waiting and sum(map(len, taken)) < rows:
            taken.append(waiting.pop(0))
        if not taken or sum(map(len, taken)) != rows:
            return False
        target.copy_(torch.cat(taken).view(target.shape))
    return not waiting
