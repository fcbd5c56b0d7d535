"""Give a learner's layer our weights, however its parameters are laid out."""

import copy
import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import nn

from course_utils.checks.exercise import UNFIT, Complaint, call_with_clones, owned
from course_utils.checks.gradients import weighted_sum

QKV = ("W_q", "W_k", "W_v")


def layer_outputs(module, heads, *inputs):
    """Return what a learner's module gives for some inputs with our weights, for every reading.

    In the place of one that does not fit stands UNFIT, so that places mean the same everywhere.

    Raises
    ------
    Complaint
        If it is no module, or its parameters fit under no reading.
    """
    if not isinstance(module, nn.Module):
        raise Complaint("not a module", "it must be a class derived from nn.Module")
    learning = any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs)
    # So that NumPy takes what the layer makes. Not in the generator, which any thread may close
    # after an error.
    with torch.set_grad_enabled(learning):
        owned(module.eval)()
        if any(nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
            call_with_clones(owned(module.__call__), *inputs)  # makes such parameters
        found = []
        for fits in readings(module, heads):
            read = _apart(module) if fits and learning else module
            found.append(call_with_clones(owned(read.__call__), *inputs)[0] if fits else UNFIT)
            if fits and learning:
                _see_that_it_learns(read, found[-1], heads["W_q"].shape[-1])
    if all(each is UNFIT for each in found):
        raise Complaint("unexpected parameters", _misfit(module, heads))
    return found


def _apart(module):
    """Return a copy, which keeps the weights of this reading until its gradients are asked for."""
    try:
        return copy.deepcopy(module)
    except Exception:  # some tensors cannot be copied
        return module


def _see_that_it_learns(module, result, width):
    """Raise Complaint if no gradient gets from the result to some of the matrices."""
    learned = {each.name: each.parameter for each in _matrices(module, width)}
    total = weighted_sum(result)
    if total is None:
        return  # then none gets to the inputs either, which is told
    asked = {name: each for name, each in learned.items() if each.requires_grad}
    parameters = list(asked.values())
    options = {"allow_unused": True, "retain_graph": True}
    got = torch.autograd.grad(total, parameters, **options) if asked else []
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
    shapes = [tuple(each.data.shape) for each in _matrices(module, width)]
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

    Layers with names such as W_q, key, to_v or out_proj are taken at their word. Otherwise the last
    or the first is the output projection, and the rows of the others, in order, are read as q, k
    and v in every order, all heads of one after another or head by head: three layers, one fused
    layer of either layout, and lists of small layers are all right, of nn.Linear or of nn.Conv1d
    with size 1. A bare nn.Parameter is (in, out), for x @ W, or (out, in), and its side of heads
    may have several dimensions: heads and columns, or q, k, v before them. Biases become 0,
    whatever their shape; a scale or a gain stays.

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
    width = heads["W_q"].shape[-1]
    found = _matrices(module, width)
    if len(found) == 1 and found[0].data.ndim == 3:  # those of q, k, v and the output, stacked
        found = [replace(found[0], data=data) for data in found[0].data]
    named = [each for each in found if each.role == "W_o"]
    turns = [False, True] if any(not each.linear for each in found) else [False]
    for outputs, turned in itertools.product([named] if named else [found[-1:], found[:1]], turns):
        inputs = [each for each in found if each not in outputs]
        if all(each.role in QKV for each in inputs):
            inputs.sort(key=lambda each: QKV.index(each.role))
            orders = [[block for name in QKV for block in heads[name]]]
        else:
            stacks = [[heads[name] for name in order] for order in itertools.permutations(QKV)]
            orders = [[block for stack in one for block in stack] for one in stacks]
            orders += [[b for blocks in zip(*one, strict=True) for b in blocks] for one in stacks]
        rows = [each.rows(width, turned, inward=True) for each in inputs]
        columns = [each.rows(width, turned, inward=False) for each in outputs]
        for blocks in orders:  # 3·H of (d_k or d_v, d_model)
            yield _fill(rows, blocks) and _fill(columns, heads["W_o"])


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

    def rows(self, width, turned, inward):
        """Return a view (..., d_model), a row for each column of a head; None if it has none.

        Parameters
        ----------
        width : int
            d_model.
        turned : bool
            Whether bare parameters are (out, in) as well.
        inward : bool
            Whether d_model comes in, as to W_q, or goes out, as from W_o.
        """
        axes = [axis for axis, size in enumerate(self.data.shape) if size == width]
        if self.linear:
            axes = [axis for axis in axes if axis == inward]  # 0 is out, 1 in
        return self.data.movedim(axes[-1 if inward == turned else 0], -1) if axes else None


def _matrices(module, width):
    """Return the parameters that are no biases, and set the biases to 0."""
    found = []
    for name, parameter in module.named_parameters():
        owner, _, leaf = name.rpartition(".")
        if nn.parameter.is_lazy(parameter):  # still, for nothing uses it
            continue
        linear = isinstance(module.get_submodule(owner), nn.Linear)
        # As much as a bias for all of q, k and v; a matrix may be called b as well
        bias = re.search("^b|_b$|bias", leaf.lower()) and parameter.numel() <= 3 * width
        vector = parameter.numel() in (*parameter.shape, *range(width + 1))
        if bias or parameter.ndim < 2 or vector and not linear:
            if bias or parameter.unique().numel() > 1:  # a scale or a gain is not drawn at random
                parameter.data.zero_()
            continue
        told = [_role(part) for part in (owner if linear else name).split(".")]
        role = next((each for each in reversed(told) if each), None)
        found.append(_Matrix(name, parameter, role, linear, parameter.data))
    return found


ROLES = {
    "W_q": "q wq query queries",
    "W_k": "k wk key keys",
    "W_v": "v wv value values val vals",
    "W_o": "o wo out output outputs",
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
