"""5.5: the weights of an nn.MultiheadAttention are copied into the course's layer."""

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.attention import MultiHeadAttention
from course_utils.checks.calls import seeded
from course_utils.checks.compare import is_same
from course_utils.checks.exercise import Exercise, NamedMistake, tag_learner_errors
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_05._layers import draw, is_changed, state


def copy_weights(theirs, ours):
    def thirds(stacked):  # (3·d_model, ...) -> three of (d_model, ...)
        return zip((ours.W_q, ours.W_k, ours.W_v), stacked.chunk(3), strict=True)

    with torch.no_grad():
        for linear, weight in thirds(theirs.in_proj_weight):
            linear.weight.copy_(weight)
        ours.W_o.weight.copy_(theirs.out_proj.weight)
        if theirs.in_proj_bias is not None:
            for linear, bias in thirds(theirs.in_proj_bias):
                linear.bias.copy_(bias)
            ours.W_o.bias.copy_(theirs.out_proj.bias)


def by_slices(theirs, ours):
    d = theirs.embed_dim
    for i, name in enumerate(["W_q", "W_k", "W_v"]):
        layer = getattr(ours, name)
        layer.weight.data = theirs.in_proj_weight.data[i * d : (i + 1) * d].clone()
        if theirs.in_proj_bias is not None:
            layer.bias.data = theirs.in_proj_bias.data[i * d : (i + 1) * d].clone()
    ours.W_o.load_state_dict(theirs.out_proj.state_dict())


def by_state_dict(theirs, ours):
    state, new = theirs.state_dict(), {}
    for kind in ("weight", "bias"):
        if f"in_proj_{kind}" in state:
            parts = state[f"in_proj_{kind}"].split(theirs.embed_dim)
            new |= {f"W_{n}.{kind}": p for n, p in zip("qkv", parts, strict=True)}
            new[f"W_o.{kind}"] = state[f"out_proj.{kind}"]
    ours.load_state_dict(new)
    return ours


def inputs():
    """Return (d_model, num_heads, bias, B, L, S)."""
    return [
        (12, 3, True, 2, 4, 5),
        (8, 2, True, 3, 5, 4),
        (6, 2, False, 4, 3, 5),
        (18, 9, True, 1, 2, 3),
        (5, 1, True, 2, 3, 2),
        (4, 4, False, 1, 1, 3),
    ]


NO_BIASES = (
    "Right with biases. With bias=False, in_proj_bias and out_proj.bias are None, so there are no "
    "biases to copy. Copy biases only if in_proj_bias is not None."
)


NO_GRAD = (
    "Your copy raises an error, because PyTorch lets you write into a parameter only inside "
    "`torch.no_grad()`. Copy inside a `with torch.no_grad():` block."
)

ASSIGNED = (
    "You assign a tensor to a parameter, which PyTorch refuses with a TypeError. Copy the numbers "
    "into the parameter instead, as in `ours.W_q.weight.copy_(...)`, inside `torch.no_grad()`."
)


def run(answer, d_model, num_heads, bias, B, L, S):
    """Build both layers, let the answer copy, and run ours."""
    rng, normal = torch.Generator().manual_seed(55), normals(56)
    with seeded():  # building layers draws from the global state
        theirs = nn.MultiheadAttention(d_model, num_heads, bias=bias, batch_first=True).double()
        ours = MultiHeadAttention(d_model, num_heads, bias).double()
    draw(theirs, rng)
    draw(ours, rng)
    before, learning = state(theirs), set(state(ours))
    try:
        answer(theirs, ours)
    except RuntimeError as error:
        if "a leaf Variable that requires grad" not in str(error):
            raise
        raise NamedMistake("records the copy", NO_GRAD) from None
    except (AttributeError, TypeError) as error:
        if "as parameter" in str(error):
            raise NamedMistake("assigns a tensor", ASSIGNED) from None
        if bias or "NoneType" not in str(error):
            raise
        raise NamedMistake("biases taken for granted", NO_BIASES) from None
    if is_changed(theirs, before):
        raise NamedMistake(
            "changes theirs",
            "Your code changes `theirs`, which must stay as it is. Copy from `theirs` to `ours`.",
        )
    if lost := learning - {name for name, (_, learns) in state(ours).items() if learns}:
        hint = (
            f"In `ours`, {', '.join(sorted(lost))} can no longer learn. Keep each nn.Parameter and "
            "its requires_grad, and copy the numbers into it with `.copy_(...)`."
        )
        raise NamedMistake("cannot learn", hint)
    query, key, value = normal(B, L, d_model), normal(B, S, d_model), normal(B, S, d_model)
    result = tag_learner_errors(ours)(query, key, value)
    _, keys, _ = F.linear(key, theirs.in_proj_weight, theirs.in_proj_bias).chunk(3, dim=-1)
    if not is_same(tag_learner_errors(ours.W_k)(key), keys):
        hint = (
            "Your outputs are right, but W_k has the wrong bias. It adds the same number to all "
            "scores of a query, so softmax removes it. Copy this bias all the same."
        )
        raise NamedMistake("bias of W_k", hint, [result])
    with torch.no_grad():
        for parameter in ours.parameters():
            tag_learner_errors(parameter.add_)(1)
    if is_changed(theirs, before):
        hint = (
            "`ours` shares memory with `theirs`, so training one layer changes both. Copy the "
            "numbers, with `.copy_(...)` or `.clone()`."
        )
        raise NamedMistake("shares memory", hint)
    return [result]


MISTAKES = [
    ("weights transposed",
     "W_q, W_k, W_v and W_o are all transposed. in_proj_weight and out_proj store them as "
     "nn.Linear does, as (outputs, inputs). Copy them as they are.",
     ("copy_(weight)", "copy_(weight.T)"), ("out_proj.weight)", "out_proj.weight.T)")),
    ("only inputs transposed",
     "W_q, W_k and W_v are transposed. in_proj_weight stores them as nn.Linear does, as (outputs, "
     "inputs). Copy them as they are.",
     ("copy_(weight)", "copy_(weight.T)")),
    ("only the output transposed",
     "W_o is transposed. out_proj is an nn.Linear, as W_o is. Copy its weight as it is.",
     ("out_proj.weight)", "out_proj.weight.T)")),
    ("biases not copied",
     "The weights are right, but the biases are not copied. If in_proj_bias is not None, copy its "
     "thirds to the biases of W_q, W_k and W_v, and out_proj.bias to the bias of W_o.",
     ("theirs.in_proj_bias is not None", "False")),
    ("output bias not copied",
     "Everything is right except the bias of W_o. If there are biases, copy out_proj.bias to it.",
     ("ours.W_o.bias.copy_(theirs.out_proj.bias)", "")),
    ("input biases not copied",
     "Everything is right except the biases of W_q, W_k and W_v. in_proj_bias holds them one "
     "after another. If it is not None, copy each third to its layer.",
     ("linear.bias.copy_(bias)", "pass")),
    ("output not copied",
     "W_o is not copied. Copy the weight of out_proj to it, and the bias if there is one.",
     ("ours.W_o.weight.copy_(theirs.out_proj.weight)", ""),
     ("ours.W_o.bias.copy_(theirs.out_proj.bias)", "")),
    ("key and value exchanged",
     "W_k and W_v are swapped. in_proj_weight holds W_q, W_k and W_v in that order, and "
     "in_proj_bias holds their biases. Copy the second third of each to W_k, and the last third to "
     "W_v.",
     ("ours.W_k, ours.W_v", "ours.W_v, ours.W_k")),
    ("query and key exchanged",
     "W_q and W_k are swapped. in_proj_weight holds W_q, W_k and W_v in that order, and "
     "in_proj_bias holds their biases. Copy the first third of each to W_q, and the second third "
     "to W_k.",
     ("ours.W_q, ours.W_k", "ours.W_k, ours.W_q")),
    ("value taken first",
     "W_q and W_v are swapped. in_proj_weight holds W_q, W_k and W_v in that order, and "
     "in_proj_bias holds their biases. Copy the first third of each to W_q, and the last third to "
     "W_v.",
     ("ours.W_q, ours.W_k, ours.W_v", "ours.W_v, ours.W_k, ours.W_q")),
    ("rows read head by head",
     "You get this result if you read in_proj_weight and in_proj_bias as q, k and v of head 0, "
     "then q, k and v of head 1, and so on. They hold all of q, then all of k, then all of v. "
     "Split each of them into thirds.",
     ("stacked.chunk(3)",
      "stacked.unflatten(0, (theirs.num_heads, 3, -1)).transpose(0, 1).flatten(1, 2)")),
    ("rows of weights read head by head",
     "The biases are right. You get this result if you read in_proj_weight as q, k and v of head "
     "0, then q, k and v of head 1, and so on. It holds all of q, then all of k, then all of v. "
     "Split it into thirds.",
     ("in thirds(theirs.in_proj_weight):",
      "in thirds(theirs.in_proj_weight.unflatten(0, (theirs.num_heads, 3, -1)).transpose(0, 1)"
      ".flatten(0, 2)):")),
    ("every third row, biases too",
     "W_q, W_k and W_v get every third row of in_proj_weight, and every third entry of "
     "in_proj_bias. These hold all of q, then all of k, then all of v. Split each of them into "
     "thirds.",
     ("stacked.chunk(3)", "[stacked[n::3] for n in range(3)]")),
    ("every third row",
     "W_q, W_k and W_v get every third row of in_proj_weight. It holds all of q, then all of k, "
     "then all of v. Split it into thirds.",
     ("in thirds(theirs.in_proj_weight):", "in zip((ours.W_q, ours.W_k, ours.W_v), "
      "(theirs.in_proj_weight[n::3] for n in range(3)), strict=True):")),
    ("queries for all three",
     "W_q, W_k and W_v all get the first third of in_proj_weight and of in_proj_bias. Copy the "
     "second third of each to W_k, and the last third to W_v.",
     ("stacked.chunk(3)", "3 * stacked.chunk(3)[:1]")),
    ("nothing copied",
     "Your function leaves `ours` unchanged. If you assign a tensor to a variable, no parameter "
     "changes. Write into each parameter, as in `ours.W_q.weight.copy_(...)`.",
     "None"),
    ("records the copy", NO_GRAD, ("torch.no_grad()", "torch.enable_grad()")),
    ("assigns a tensor", ASSIGNED, ("linear.weight.copy_(weight)", "linear.weight = weight")),
    ("biases taken for granted", NO_BIASES, ("theirs.in_proj_bias is not None", "True")),
]  # fmt: skip

exercise = Exercise(
    "5.5", copy_weights, inputs, MISTAKES, names="L d_model|H L S", run=run,
    compared="ours, run after the copy on a query, a key and a value (output, weights)",
    also_right=[by_slices, by_state_dict],
)  # fmt: skip
