"""5.6: the output of a layer if one of its heads outputs zeros."""

import copy

import torch

from course_utils.attention import MultiHeadAttention, attention, merge_heads, split_heads
from course_utils.checks.calls import seeded
from course_utils.checks.compare import is_same
from course_utils.checks.exercise import Exercise, NamedMistake, tag_learner_errors
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_05._layers import draw, is_changed, state
from course_utils.checks.shared_hints import NOT_SCALED


def without_head(layer, x, head):
    H, d_model = layer.num_heads, x.shape[-1]
    d_k = d_model // H
    q, k, v = (split_heads(W(x), H) for W in (layer.W_q, layer.W_k, layer.W_v))  # (B, H, L, d_k)
    heads, _ = attention(q, k, v)  # (B, H, L, d_k)
    merged = merge_heads(heads)  # (B, L, d_model)
    others = torch.arange(d_model) // d_k != head  # (d_model,), columns of the other heads
    return layer.W_o(merged * others)


def in_a_copy(layer, x, head):
    other = copy.deepcopy(layer)
    d_k = x.shape[-1] // layer.num_heads
    with torch.no_grad():
        other.W_o.weight[:, head * d_k : head * d_k + d_k] = 0
    return other(x, x, x)[0]


def in_a_new_layer(layer, x, head):
    new = type(layer)(x.shape[-1], layer.num_heads, bias=layer.W_o.bias is not None).to(x.dtype)
    new.load_state_dict(layer.state_dict())
    new.W_o.weight.data.unflatten(1, (layer.num_heads, -1))[:, head] = 0
    return new(x, x, x)[0]


def by_subtracting(layer, x, head):
    output, weights = layer(x, x, x)
    d_k = x.shape[-1] // layer.num_heads
    own = slice(head * d_k, (head + 1) * d_k)
    return output - weights[:, head] @ layer.W_v(x)[..., own] @ layer.W_o.weight[:, own].T


def inputs():
    """Return (d_model, num_heads, head, B, L)."""
    return [
        (12, 3, 1, 2, 5),
        (8, 4, 0, 3, 4),
        (10, 2, 1, 2, 3),
        (12, 3, 2, 4, 5),
        (18, 9, 8, 1, 2),
        (6, 1, 0, 1, 1),
    ]


def run(answer, d_model, num_heads, head, B, L):
    """Let the answer run a layer without a head, then a layer that has no biases."""
    x = normals(57)(B, L, d_model)
    result = of_a_layer(answer, x, num_heads, head)
    try:
        plain = of_a_layer(answer, x, num_heads, head, bias=False)
    except (AttributeError, TypeError) as error:
        if "NoneType" not in str(error):
            raise
        hint = (
            "Right for a layer with biases. With bias=False, W_v.bias and W_o.bias are None, so "
            "there is nothing to set to 0 or to subtract. Use a bias only if it is not None."
        )
        raise NamedMistake("biases taken for granted", hint, [result]) from None
    if not is_same(plain, of_a_layer(without_head, x, num_heads, head, bias=False)):
        hint = (
            "Right for a layer with biases, but wrong for a layer with bias=False. Build such "
            "a layer, and look at what each of its heads outputs."
        )
        raise NamedMistake("wrong without biases", hint, [result])
    return [result]


def of_a_layer(answer, x, num_heads, head, bias=True):
    """Build a layer, let the answer run it without a head, and check that it is unchanged."""
    with seeded():
        layer = MultiHeadAttention(x.shape[-1], num_heads, bias).double()
    draw(layer, torch.Generator().manual_seed(56))
    before = state(layer)
    whole = layer(x, x, x)[0]
    result = answer(layer, x, head)
    if (
        is_changed(layer, before)
        or not tag_learner_errors(lambda: layer(x, x, x)[0].equal(whole))()
    ):
        hint = (
            "Your code leaves the layer changed. Work on a copy, or restore all that you change, "
            "such as weights and hooks."
        )
        raise NamedMistake("the layer is changed", hint)
    return result


OWN = "own = torch.arange(d_model) // d_k == head\n    "
NO_GRAD = (
    "PyTorch lets you change a parameter in place only inside `torch.no_grad()`. Copy the layer, "
    "and change the copy inside a `with torch.no_grad():` block."
)

MISTAKES = [
    ("weight changed outside no_grad", NO_GRAD,
     ("heads, _ =", "layer.W_o.weight[:, head * d_k : (head + 1) * d_k] = 0\n    heads, _ =")),
    ("whole weight changed outside no_grad", NO_GRAD,
     ("heads, _ =", "layer.W_o.weight.mul_(0)\n    heads, _ =")),
    ("head cut out of the layer",
     "You get this error if you remove the head from the matrices but keep num_heads, which then "
     "does not divide the width. Keep the matrices as large as they are, and set the head's "
     "columns of W_o.weight to 0.",
     ("split_heads(W(x), H)",
      "split_heads(W(x)[..., torch.arange(d_model) // d_k != head], H)")),
    ("values' bias alone",
     "You get this result if you set only the head's part of W_v.bias to 0. The head then still "
     "outputs an average of its values. Set the output of the head to 0, after attention.",
     ("heads, _ =", OWN + "lost = torch.where(own, layer.W_v(0 * x), 0)\n    "
      "v = split_heads(layer.W_v(x) - lost, H)\n    heads, _ ="), ("merged * others", "merged")),
    ("bias of the output lost in part",
     "Your output lacks part of the bias of W_o. You get this result if you also zero entries "
     "head · d_k through (head + 1) · d_k − 1 of W_o.bias. The bias belongs to no head, so keep "
     "all of it.",
     ("layer.W_o(merged * others)", "layer.W_o(merged * others) - layer.W_o.bias * ~others")),
    ("head set to 0, merged without transpose",
     "Each row of your merged heads mixes parts of several tokens. Transpose back to (B, L, H, "
     "d_k) before you reshape, or use merge_heads.",
     ("merged = merge_heads(heads)",
      "heads[:, head] = 0\n    merged = heads.reshape(x.shape)"), ("merged * others", "merged")),
    ("nothing taken away",
     "Your result is the output of the whole layer. Before W_o, set the output of the given head "
     "to 0.",
     ("merged * others", "merged")),
    ("ablated not scaled", NOT_SCALED, ("attention(q, k, v)", "attention(q, k, v, scale=1.0)")),
    ("that head alone",
     "Your result is the output with the given head alone. Keep all other heads instead, and set "
     "the output of the given head to 0 before W_o.",
     ("!= head", "== head")),
    ("counted from one",
     "You get this result if you remove head − 1 instead of head. Heads are counted from 0. "
     "Remove columns head · d_k to (head + 1) · d_k − 1 of the merged heads.",
     ("!= head", "!= (head - 1) % H")),
    ("merged without transpose",
     "Each row of your merged heads mixes parts of several tokens. Transpose back to (B, L, H, "
     "d_k) before you reshape, or use merge_heads.",
     ("merge_heads(heads)", "heads.reshape(x.shape)")),
    ("item of the batch taken for head",
     "You get this result, or an error, if you set `heads[head]` to 0. The first dimension is the "
     "batch, so `heads[head]` is a whole sequence. The heads are dimension 1. Set `heads[:, "
     "head]` to 0.",
     ("merged = merge", "heads[head] = 0\n    merged = merge"), ("merged * others", "merged")),
    ("bias lost",
     "Your output lacks the bias of W_o. That bias belongs to no head, so keep it.",
     ("layer.W_o(merged * others)", "layer.W_o(merged * others) - layer.W_o.bias")),
    ("others scaled up",
     "Your other heads are scaled up by num_heads / (num_heads − 1). In the layer, a head that "
     "outputs zeros does not change the others. Leave them as they are.",
     ("merged * others", "merged * others * H / max(H - 1, 1)")),
    ("all of the output scaled up",
     "Your whole output, with the bias of W_o, is scaled up by num_heads / (num_heads − 1). A "
     "head that outputs zeros does not change what the others contribute. Leave out this factor.",
     ("layer.W_o(merged * others)", "layer.W_o(merged * others) * H / max(H - 1, 1)")),
    ("rows in place of columns",
     "You get this result if you set rows of W_o.weight to 0. In nn.Linear, rows belong to "
     "outputs and columns to inputs, and the heads are inputs of W_o. Set columns head · d_k to "
     "(head + 1) · d_k − 1 to 0.",
     ("layer.W_o(merged * others)", "merged @ layer.W_o.weight.T * others + layer.W_o.bias")),
    ("one column of the head",
     "You get this result if you set only column `head` of W_o.weight to 0. Each head has d_k "
     "columns. Set columns head · d_k to (head + 1) · d_k − 1 to 0.",
     (" // d_k != head", " != head")),
    ("every hth column",
     "You get this result if you set columns head, head + num_heads, head + 2 · num_heads and so "
     "on of W_o.weight to 0. The columns of a head are consecutive. Set columns head · d_k to "
     "(head + 1) · d_k − 1 to 0.",
     ("// d_k != head", "% H != head")),
    ("heads taken for columns",
     "You get this result if you set num_heads columns of W_o.weight to 0, from column head · "
     "num_heads on. Each head has d_k columns. Set columns head · d_k to (head + 1) · d_k − 1 to "
     "0.",
     ("// d_k != head", "// H != head")),
    ("cut from the input",
     "You get this result if you set columns of x to 0. But every head reads all columns of x. "
     "Set the output of the head to 0, after attention.",
     ("W(x)", "W(x * (torch.arange(d_model) // d_k != head))"),
     ("merged * others", "merged")),
    ("cut from the values' input",
     "You get this result if you set columns of W_v.weight to 0. In nn.Linear, columns belong to "
     "inputs, which all heads share, and rows belong to outputs. Set the head's rows of "
     "W_v.weight and its entries of W_v.bias to 0 instead.",
     ("heads, _ =", "x = x * (torch.arange(d_model) // d_k != head)\n"
      "    v = split_heads(layer.W_v(x), H)\n    heads, _ ="), ("merged * others", "merged")),
    ("cut from the values' input, bias right",
     "You get this result if you set columns of W_v.weight to 0. In nn.Linear, columns belong to "
     "inputs, which all heads share, and rows belong to outputs. Set the head's rows of "
     "W_v.weight to 0 instead, and leave your bias of W_v as it is.",
     ("heads, _ =", "v = layer.W_v(x * (torch.arange(d_model) // d_k != head)) - torch.where("
      "torch.arange(d_model) // d_k == head, layer.W_v(0 * x), 0)\n"
      "    v = split_heads(v, H)\n    heads, _ ="), ("merged * others", "merged")),
    ("queries of the head",
     "You get this result if you set the head's rows of W_q.weight to 0. Then the head still "
     "outputs an average of its values, only with other weights. Set the output of the head to 0, "
     "after attention.",
     ("heads, _ =", "own = torch.arange(d_model) // d_k == head\n    q = split_heads(torch.where("
      "own, layer.W_q(0 * x), layer.W_q(x)), H)\n    heads, _ ="), ("merged * others", "merged")),
    ("head made uniform",
     "You get this result if the head has uniform weights, as when all of its scores are 0. Then "
     "it still outputs an average of its values. Set the output of the head to 0, after attention.",
     ("merged * others", "torch.where(others, merged, layer.W_v(x).mean(dim=1, keepdim=True))")),
    ("all biases of the values lost",
     "Your result lacks the whole bias of W_v. Only entries head · d_k to (head + 1) · d_k − 1 "
     "belong to the given head. Remove those, and keep the others.",
     ("merged * others", "(merged - layer.W_v.bias) * others")),
    ("columns of the output",
     "You get this result if you set columns of the output to 0. W_o mixes the heads, so no "
     "column of the output belongs to one head. In the merged heads, set the columns of this "
     "head to 0 before you apply W_o.",
     ("layer.W_o(merged * others)", "layer.W_o(merged) * others")),
    ("bias of the values left",
     "In your result, the removed head still outputs a vector, the same for every token. What does "
     "W_v return if x is zero? Set the head's part of that vector to 0 as well.",
     ("merged * others", "torch.where(others, merged, layer.W_v.bias)")),
]  # fmt: skip

exercise = Exercise(
    "5.6", without_head, inputs, MISTAKES, names="L d_model", run=run,
    also_right=[in_a_copy, in_a_new_layer, by_subtracting],
)  # fmt: skip
