"""Give a learner's layer our weights, however its parameters are laid out."""

import itertools
import math
import re
from collections import Counter

import torch
from torch import nn

from course_utils.checks.engine import Complaint, call_with_clones

QKV = ("W_q", "W_k", "W_v")


def layer_outputs(module, heads, *inputs):
    """Return what a learner's module gives for some inputs with our weights, for every reading.

    Raises
    ------
    Complaint
        If it is no module, or its parameters fit under no reading.
    """
    if not isinstance(module, nn.Module):
        raise Complaint("not a module", "it must be a class derived from nn.Module")
    # So that NumPy takes what the layer makes. Not in the generator, which any thread may close
    # after an error.
    with torch.no_grad():
        found = [call_with_clones(module.eval(), *inputs)[0] for _ in readings(module, heads)]
    if not found:
        raise Complaint("unexpected parameters", _misfit(module, heads))
    return found


def _misfit(module, heads):
    """Say what may be wrong with a module whose parameters fit under no reading."""
    wanted = sum(matrices.numel() for matrices in heads.values())
    shapes = [tuple(each.shape) for each in module.parameters() if each.ndim > 1]
    present = sum(map(math.prod, shapes))
    several = len(heads["W_q"]) > 1
    lists = [each for m in module.modules() for each in vars(m).values() if isinstance(each, list)]
    if any(isinstance(item, nn.Module | nn.Parameter) for each in lists for item in each):
        advice = "PyTorch does not see layers in a list: use nn.ModuleList, nn.ParameterList"
    elif present > wanted:
        wide = "a query or key is d_k wide in every head, not d_model"
        advice = "too many: " + (wide if several else "one is wider than it should be")
    elif present < wanted:
        advice = "too few: assign each to self in __init__, W_o too, wide enough"
        advice += " for all heads" if several else ""
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
    is the output projection, and the rows of the others, in order, are read as q, k and v in every
    order, all heads of one after another or head by head: three layers, one fused layer of either
    layout, and lists of small layers are all right, of nn.Linear or of nn.Conv1d with size 1. A
    bare nn.Parameter is (in, out), for x @ W, or (out, in), and of three dimensions if it holds one
    matrix for each head. Biases become 0.

    Parameters
    ----------
    module : torch.nn.Module
    heads : dict of str to torch.Tensor
        "W_q", "W_k", (H, d_k, d_model), "W_v" and "W_o", (H, d_v, d_model): what each head's
        queries, keys and values are made by, and transposed, what its output is projected by.

    Yields
    ------
    None
        Once for each reading that fits, with the weights in place.
    """
    for turned in (False, True):  # the second reading of bare parameters
        inputs, outputs = _targets(module, turned)
        if all(role in QKV for role, _ in inputs):
            inputs.sort(key=lambda target: QKV.index(target[0]))
            orders = [[block for name in QKV for block in heads[name]]]
        else:
            stacks = [[heads[name] for name in order] for order in itertools.permutations(QKV)]
            orders = [[block for stack in one for block in stack] for one in stacks]
            orders += [[b for blocks in zip(*one, strict=True) for b in blocks] for one in stacks]
        for blocks in orders:  # 3·H of (d_k or d_v, d_model)
            if _fill(inputs, blocks) and _fill(outputs, heads["W_o"]):
                yield


def _targets(module, turned):
    """Return the places for rows of q, k and v, and those for columns of the output, by role."""
    found = []
    for name, parameter in module.named_parameters():
        owner, _, leaf = name.rpartition(".")
        linear = isinstance(module.get_submodule(owner), nn.Linear | nn.Conv1d)
        if parameter.ndim < 2:
            parameter.data.zero_()
            continue
        told = [_role(part) for part in (owner if linear else name).split(".")]
        role = next((each for each in reversed(told) if each), None)
        matrix = parameter.data.flatten(1) if linear else parameter.data  # Conv1d's: (out, in, 1)
        matrices = matrix if matrix.ndim == 3 else matrix[None]
        found += [(role, m if linear or turned else m.T) for m in matrices]
    if not any(role == "W_o" for role, _ in found):
        found[-1:] = [("W_o", matrix) for _, matrix in found[-1:]]
    inputs = [target for target in found if target[0] != "W_o"]
    return inputs, [(role, matrix.T) for role, matrix in found if role == "W_o"]


def _role(name):
    """Return "W_q" for names such as q, W_q, Wq, to_q, query or q_proj; likewise W_k, W_v, W_o."""
    bare = re.sub(r"^(to|w)_?|_?(w|proj|projection|linear|layer)$", "", name.lower())
    words = {"q": "query", "k": "key", "v": "value", "o": "output"}
    return next((f"W_{q}" for q, word in words.items() if bare and word.startswith(bare)), None)


def _fill(targets, blocks):
    """Write blocks (rows, d_model) under each other into the targets, whole; tell if they fit."""
    waiting = list(blocks)
    for _, target in targets:
        row = 0
        while row < len(target):
            if not waiting or target[row : row + len(waiting[0])].shape != waiting[0].shape:
                return False
            block = waiting.pop(0)
            target[row : row + len(block)] = block
            row += len(block)
    return not waiting
