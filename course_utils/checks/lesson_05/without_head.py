"""5.6: the output of a layer if one of its heads outputs zeros."""

import copy

import torch

from course_utils.attention import MultiHeadAttention, attention, merge_heads, split_heads
from course_utils.checks import sandbox
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
            "there is nothing to set to 0 or to subtract. Test for None."
        )
        raise NamedMistake("biases taken for granted", hint, [result]) from None
    if not is_same(plain, of_a_layer(without_head, x, num_heads, head, bias=False)):
        hint = "Right for a layer with biases, but wrong for a layer with bias=False. Try one."
        raise NamedMistake("wrong without biases", hint, [result])
    return [result]


def of_a_layer(answer, x, num_heads, head, bias=True):
    """Build a layer, let the answer run it without a head, and check that it is unchanged."""
    with sandbox.seeded():
        layer = MultiHeadAttention(x.shape[-1], num_heads, bias).double()
    draw(layer, torch.Generator().manual_seed(56))
    before = state(layer)
    whole = layer(x, x, x)[0]
    result = answer(layer, x, head)
    if (
        is_changed(layer, before)
        or not tag_learner_errors(lambda: layer(x, x, x)[0].equal(whole))()
    ):
        hint = "The layer is changed afterwards. Work on a copy, or restore its weights and hooks."
        raise NamedMistake("the layer is changed", hint)
    return result


MISTAKES = [
    ("nothing taken away",
     "Your result is the whole output. Remove the part of the given head.",
     ("merged * others", "merged")),
    ("ablated not scaled", NOT_SCALED, ("attention(q, k, v)", "attention(q, k, v, scale=1.0)")),
    ("that head alone",
     "Your result is the part of this head alone. Return the output without it.",
     ("!= head", "== head")),
    ("counted from one",
     "Your result lacks the wrong head. Count heads from 0.",
     ("!= head", "!= (head - 1) % H")),
    ("merged without transpose",
     "Each row of your merged heads mixes parts of several tokens. Transpose back to (B, L, H, "
     "d_k) first, or use merge_heads.",
     ("merge_heads(heads)", "heads.reshape(x.shape)")),
    ("item of the batch taken for head",
     "You get this result, or an error, if you use heads[head], which is a sequence of the batch. "
     "Heads are dimension 1. Use heads[:, head].",
     ("merged = merge", "heads[head] = 0\n    merged = merge"), ("merged * others", "merged")),
    ("bias lost",
     "Your output lacks the bias of W_o. That bias belongs to no head, so keep it.",
     ("layer.W_o(merged * others)", "layer.W_o(merged * others) - layer.W_o.bias")),
    ("others scaled up",
     "Your other heads are scaled up. Only remove the part of this head.",
     ("merged * others", "merged * others * H / max(H - 1, 1)")),
    ("all of the output scaled up",
     "Your output is scaled up, with the bias of W_o. Only remove the part of this head.",
     ("layer.W_o(merged * others)", "layer.W_o(merged * others) * H / max(H - 1, 1)")),
    ("rows in place of columns",
     "You get this result if you set rows of W_o to 0. In nn.Linear, rows are outputs, and the "
     "columns belong to the heads. Set the head's columns to 0.",
     ("layer.W_o(merged * others)", "merged @ layer.W_o.weight.T * others + layer.W_o.bias")),
    ("one column of the head",
     "You get this result if you set one column of W_o to 0. A head has d_k columns. Set all of "
     "them to 0.",
     (" // d_k != head", " != head")),
    ("every hth column",
     "You get this result if you set every H-th column to 0. The columns of a head are neighbors. "
     "Set head · d_k to (head + 1) · d_k − 1 to 0.",
     ("// d_k != head", "% H != head")),
    ("heads taken for columns",
     "You get this result if you set num_heads columns to 0, from head · num_heads on. A head has "
     "d_k columns. Set head · d_k to (head + 1) · d_k − 1 to 0.",
     ("// d_k != head", "// H != head")),
    ("cut from the input",
     "You get this result if you cut the head's columns from x. But every head reads all of x. "
     "Cut what the head outputs, after attention.",
     ("W(x)", "W(x * (torch.arange(d_model) // d_k != head))"),
     ("merged * others", "merged")),
    ("cut from the values' input",
     "You get this result if you set columns of W_v to 0. In nn.Linear, columns are inputs, which"
     " all heads share. Set the head's rows to 0, and its entries of the bias.",
     ("heads, _ =", "x = x * (torch.arange(d_model) // d_k != head)\n"
      "    v = split_heads(layer.W_v(x), H)\n    heads, _ ="), ("merged * others", "merged")),
    ("cut from the values' input, bias right",
     "You get this result if you set columns of W_v to 0. In nn.Linear, columns are inputs, which"
     " all heads share. Set the head's rows to 0.",
     ("heads, _ =", "v = layer.W_v(x * (torch.arange(d_model) // d_k != head)) - torch.where("
      "torch.arange(d_model) // d_k == head, layer.W_v(0 * x), 0)\n"
      "    v = split_heads(v, H)\n    heads, _ ="), ("merged * others", "merged")),
    ("queries of the head",
     "You get this result if you change the head's queries. Then it still outputs an average of "
     "its values, with other weights. Set its output to 0.",
     ("heads, _ =", "own = torch.arange(d_model) // d_k == head\n    q = split_heads(torch.where("
      "own, layer.W_q(0 * x), layer.W_q(x)), H)\n    heads, _ ="), ("merged * others", "merged")),
    ("head made uniform",
     "You get this result if the head has uniform weights, as scores of 0 give. It still outputs "
     "an average of its values. Set its output to 0.",
     ("merged * others", "torch.where(others, merged, layer.W_v(x).mean(dim=1, keepdim=True))")),
    ("all biases of the values lost",
     "Your result lacks the whole bias of W_v. Remove only the head's entries, from head · d_k "
     "on.",
     ("merged * others", "(merged - layer.W_v.bias) * others")),
    ("columns of the output",
     "You get this result if you set columns of the output to 0. After W_o the heads are mixed, "
     "so no column belongs to one head. Set columns to 0 before W_o.",
     ("layer.W_o(merged * others)", "layer.W_o(merged) * others")),
    ("bias of the values left",
     "In your result, the head still outputs the same vector for every token. What does W_v "
     "return if x is zero? Remove that too.",
     ("merged * others", "torch.where(others, merged, layer.W_v.bias)")),
]  # fmt: skip

exercise = Exercise(
    "5.6", without_head, inputs, MISTAKES, names="L d_model", run=run,
    also_right=[in_a_copy, by_subtracting],
)  # fmt: skip
