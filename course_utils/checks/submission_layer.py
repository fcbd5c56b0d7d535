"""Load our weights into a learner's layer, however its parameters are laid out."""

import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import nn

from course_utils.checks.exercise import (
    NO_FIT,
    ONLY_LAYOUT,
    NamedMistake,
    call_with_clones,
    tag_learner_errors,
)
from course_utils.checks.gradients import weighted_sum
from course_utils.checks.inputs import parameters_made

QKV = ("W_q", "W_k", "W_v")


def layer_outputs(module, heads, *inputs):
    """Return the outputs of a learner's module with our weights, one for each parameter layout.

    A layout that does not fit gives NO_FIT, so that the layouts have the same numbers for all
    inputs.

    Raises
    ------
    NamedMistake
        If it is no module, or its parameters fit no layout.
    """
    if not isinstance(module, nn.Module):
        raise NamedMistake("not a module", "Your class must be derived from `nn.Module`.")
    call = tag_learner_errors(module.__call__)
    learning = any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs)
    # Without gradients, NumPy takes the layer's tensors. Not set in the generator, which any thread
    # may close after an error.
    with torch.set_grad_enabled(learning):
        tag_learner_errors(module.eval)()
        if any(nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
            call_with_clones(call, *inputs)  # the first call makes such parameters
        outputs, only = [], ONLY_LAYOUT.get()
        for number, fits in enumerate(parameter_layouts(module, heads)):
            fits &= only in (None, number)
            outputs.append(_deterministic(call, *inputs) if fits else NO_FIT)
            if fits and learning:
                _require_gradients(module, outputs[-1], heads)
            if number == only:  # loading weights for the next layout would spoil the gradients
                break
    if all(output is NO_FIT for output in outputs):
        raise NamedMistake("unexpected parameters", _why_no_fit(module, heads))
    return outputs


def _deterministic(call, *inputs):
    """Return the output of a layer; raise NamedMistake if it depends on chance."""
    before = torch.get_rng_state()
    with parameters_made() as made:
        result = call_with_clones(call, *inputs)[0]
    drawn = not torch.get_rng_state().equal(before)
    if drawn and made:
        hint = (
            "Your layer creates a new layer, such as `nn.Linear`, at each call. Its random weights "
            "never learn. Create it once, in `__init__`, as in `self.W_o = nn.Linear(...)`."
        )
        raise NamedMistake("layer made anew", hint)
    if drawn:
        hint = (
            "Your layer draws random numbers even after `layer.eval()`. Draw weights once, in "
            "`__init__`. `F.dropout` needs `training=self.training`; `nn.Dropout` does not."
        )
        raise NamedMistake("random after training", hint)
    return result


def _require_gradients(module, output, heads):
    """Raise NamedMistake if no gradient gets from the output to some of the matrices."""
    matrices = {matrix.name: matrix.parameter for matrix in _matrices(module, heads)}
    total = weighted_sum(output)
    if total is None:
        return  # no gradient gets to the inputs either, and the check says so
    traced = {name: parameter for name, parameter in matrices.items() if parameter.requires_grad}
    gradients = []
    if traced:
        grad = tag_learner_errors(torch.autograd.grad)
        gradients = grad(total, [*traced.values()], allow_unused=True, retain_graph=True)
    reached = [name for name, g in zip(traced, gradients, strict=True) if g is not None]
    missing = ", ".join(name for name in matrices if name not in reached)
    if missing:
        hint = (
            f"Your numbers are right, but no gradient reaches {missing}, so the layer cannot "
            "learn. `.data`, `.detach()`, `torch.no_grad()` and `requires_grad_(False)` stop it."
        )
        raise NamedMistake("cannot learn", hint)


def _why_no_fit(module, heads):
    """Say what may be wrong with a module whose parameters fit no layout."""
    wanted = sum(matrices.numel() for matrices in heads.values())
    several, _, width = heads["W_q"].shape
    shapes = [tuple(each.data.shape) for each in _matrices(module, heads)]
    present = sum(map(math.prod, shapes))
    plain = [value for m in module.modules() for value in vars(m).values()]  # unknown to PyTorch
    items = [item for value in plain if isinstance(value, list) for item in value]
    if any(isinstance(item, nn.Module | nn.Parameter) for item in items):
        advice = (
            "PyTorch does not see layers in a plain list. Use `nn.ModuleList` or "
            "`nn.ParameterList`."
        )
    elif present > wanted:
        wide = "In each head, a query or key has d_k entries, not d_model."
        advice = "These are too many. " + (wide if several > 1 else "One matrix is too wide.")
    elif several > 1 and any(width not in shape for shape in shapes):
        advice = (
            f"Each head needs all d_model = {width} columns. Project first, then split into heads."
        )
    elif any(isinstance(value, torch.Tensor) and value.ndim > 1 for value in plain):
        advice = (
            "A plain tensor on `self` does not learn. Wrap it, as in `self.W_q = "
            "nn.Parameter(...)`."
        )
    elif len({*module.parameters()}) < len([*module.named_parameters(remove_duplicate=False)]):
        advice = "One matrix has two names, as after `self.W_k = self.W_q`. Create one for each."
    elif present < wanted:
        advice = (
            "These are too few. In `__init__`, assign each matrix to `self`, W_o as well, wide "
        )
        advice += "enough for all heads." if several > 1 else "enough."
    else:
        advice = "Their shapes or their order are unknown. Use `nn.Linear` for each, with W_o last."
    stored = {name: tuple(matrices.flatten(0, 1).shape) for name, matrices in heads.items()}
    stored["W_o"] = stored["W_o"][::-1]
    expected = ", ".join(f"{name} {shape}" for name, shape in stored.items())
    counts = Counter(shapes).items()
    shapes = ", ".join(f"{shape} × {n}" if n > 1 else f"{shape}" for shape, n in counts)
    return (
        f"The check expects matrices {expected} as `nn.Linear` stores them, {wanted} entries in "
        f"all (biases are optional). It found {shapes or 'none'}, {present} entries. {advice}"
    )


def parameter_layouts(module, heads):
    """Load our matrices into a module once for each way its parameters may be laid out.

    Names such as W_q, key, to_v or out_proj decide what a layer is for. Where they do not, the
    output projection is the last or the first, unless that one is named for something else, and
    the rows of the others, in order, hold q, k and v in any order, either all heads of one after
    another or head by head. Three layers, one fused layer, and lists of small layers are all right,
    made of nn.Linear or of nn.Conv1d with size 1. The rows of one fused layer may also go column by
    column. A bare nn.Parameter is (in, out), for x @ W, or (out, in), and its side of heads may
    have several dimensions: heads and columns in either order, or q, k, v before them. All four may
    be one parameter, stacked along its first or second dimension. Biases become 0, whatever their
    shape; a scale or a gain keeps its value.

    Parameters
    ----------
    module : torch.nn.Module
    heads : dict of str to torch.Tensor
        "W_q", "W_k", (H, d_k, d_model), "W_v" and "W_o", (H, d_v, d_model): the matrices that make
        each head's queries, keys and values, and, transposed, the one that projects its output.

    Yields
    ------
    bool
        Whether a layout fits; if so, with the weights loaded. A module of another size has the same
        layouts in the same order.
    """
    matrices = _matrices(module, heads)
    if len(matrices) == 1 and matrices[0].data.ndim > 2:  # q, k, v and the output in one
        yield from _layouts_of(_unstacked(matrices[0], 0), heads)
        yield from _layouts_of(_unstacked(matrices[0], 1), heads)
    else:
        yield from _layouts_of(matrices, heads)


def _unstacked(matrix, axis):
    """Return four matrices out of one that holds them along an axis; empty ones if it does not."""
    data = matrix.data
    parts = data.unbind(axis) if data.shape[axis] == 4 else 4 * [data.new_empty(0)]
    return [replace(matrix, data=part) for part in parts]


def _layouts_of(matrices, heads):
    named = [matrix for matrix in matrices if matrix.role == "W_o"]
    ends = [matrices[-1:], matrices[:1]]
    nameless = [end for end in ends if end and end[0].role is None]
    for outputs in [named] if named else nameless or ends:
        inputs = [matrix for matrix in matrices if matrix not in outputs]
        roles = Counter(matrix.role for matrix in inputs)
        if set(roles) == set(QKV) and len(set(roles.values())) == 1:
            inputs.sort(key=lambda matrix: QKV.index(matrix.role))
            orders = [[block for name in QKV for block in heads[name]]]
        else:
            stacks = [[heads[name] for name in order] for order in itertools.permutations(QKV)]
            orders = [blocks for stack in stacks for blocks in _orders(stack, len(inputs) == 1)]
        for out_in, out_in_of_output in itertools.product(_options(inputs), _options(outputs)):
            rows = [each.rows(heads["W_q"], out_in, inward=True) for each in inputs]
            columns = [each.rows(heads["W_o"], out_in_of_output, inward=False) for each in outputs]
            for blocks in orders:  # 3·H of (d_k or d_v, d_model)
                yield _fill(rows, blocks) and _fill(columns, heads["W_o"])


def _options(matrices):
    """Return whether bare parameters among the matrices may be (in, out), or also (out, in)."""
    return [False] if all(matrix.linear for matrix in matrices) else [False, True]


def _orders(stacks, fused):
    """Yield the rows of three (H, d, d_model), as blocks, in each order that a layer may use."""
    yield [block for stack in stacks for block in stack]
    yield [block for blocks in zip(*stacks, strict=True) for block in blocks]
    if fused:  # (H, d, 3), (d, 3, H), (d, H, 3)
        same = len({stack.shape for stack in stacks}) == 1
        for axes in [(1, 2, 0), (2, 0, 1), (2, 1, 0)]:
            yield list(torch.stack(stacks).permute(*axes, 3).flatten(0, 1)) if same else []


@dataclass(frozen=True, eq=False)
class _Matrix:
    """A parameter that is no bias: its role, if its name tells one, and its entries.

    ``linear`` is True for the weight of an nn.Linear, which is (out, in).
    """

    name: str
    parameter: nn.Parameter
    role: str | None
    linear: bool
    data: torch.Tensor

    def rows(self, heads, out_in, inward):
        """Return a view (..., d_model) with a row for each column of a head; None if there is none.

        Parameters
        ----------
        heads : torch.Tensor, (H, d, d_model)
            What it should hold, or a part.
        out_in : bool
            Whether bare parameters are (out, in), too.
        inward : bool
            Whether d_model is the input's size, as for W_q, or the output's, as for W_o.
        """
        _, d, width = heads.shape
        axes = [axis for axis, size in enumerate(self.data.shape) if size == width]
        if self.linear:
            axes = [axis for axis in axes if axis == inward]  # 0 is out, 1 in
        if not axes:
            return None
        view = self.data.movedim(axes[-1 if inward == out_in else 0], -1)
        columns = [axis for axis, size in enumerate(view.shape[:-1]) if size == d]
        return view.movedim(columns[0], -2) if len(columns) == 1 else view


def _matrices(module, heads):
    """Return the parameters that are no biases, and set the biases to 0."""
    parameters = [
        (*name.rpartition(".")[::2], each)
        for name, each in module.named_parameters()
        if not nn.parameter.is_lazy(each)  # a lazy one is not used at all
    ]
    linear = {name for name, each in module.named_modules() if isinstance(each, nn.Linear)}
    bare = [each for owner, _, each in parameters if owner not in linear and each.ndim > 1]
    largest = _largest_bias(
        [each.numel() for each in bare],
        sum(blocks.numel() for blocks in heads.values())
        - sum(each.numel() for owner, _, each in parameters if owner in linear and each.ndim > 1),
        heads["W_q"].shape[-1],
    )
    matrices = []
    for owner, leaf, parameter in parameters:
        is_bare = owner not in linear
        if parameter.ndim > 1 and not (is_bare and parameter.numel() <= largest):
            name = f"{owner}.{leaf}".lstrip(".")
            roles = [_role(part) for part in (name if is_bare else owner).split(".")]
            role = next((role for role in reversed(roles) if role), None)
            matrices.append(_Matrix(name, parameter, role, not is_bare, parameter.data))
        elif re.search("^b|_b$|bias", leaf.lower()) or parameter.unique().numel() > 1:
            parameter.data.zero_()  # but no scale or gain: its entries are all the same
    return matrices


def _largest_bias(sizes, wanted, width):
    """Return the size of the largest bias: the larger parameters have all entries of the heads."""
    for largest in sorted({0, *sizes}):
        if sum(size for size in sizes if size > largest) == wanted:
            return largest
    return width


ROLES = {
    "W_q": "q qs wq qw query queries",
    "W_k": "k ks wk kw key keys",
    "W_v": "v vs wv vw value values val vals",
    "W_o": "o os wo ow out output outputs",
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
