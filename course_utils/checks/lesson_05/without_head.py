"""5.6: what a layer returns if one of its heads hands over nothing."""

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
    """Let the answer run a layer without a head, then one that has no biases."""
    x = normals(57)(B, L, d_model)
    result = of_a_layer(answer, x, num_heads, head)
    try:
        plain = of_a_layer(answer, x, num_heads, head, bias=False)
    except (AttributeError, TypeError) as error:
        if "NoneType" not in str(error):
            raise
        hint = (
            "right for a layer with biases; with bias=False W_v.bias and W_o.bias are None, and "
            "there is nothing to set to 0 or to take away: look for None"
        )
        raise NamedMistake("biases taken for granted", hint, [result]) from None
    if not is_same(plain, of_a_layer(without_head, x, num_heads, head, bias=False)):
        hint = "right for a layer with biases, and not for one without them, bias=False"
        raise NamedMistake("wrong without biases", hint, [result])
    return [result]


def of_a_layer(answer, x, num_heads, head, bias=True):
    """Build a layer, let the answer run it without a head; the layer must stay as it is."""
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
        hint = "it leaves the layer changed: work on a copy, or put it back (weights, hooks)"
        raise NamedMistake("the layer is changed", hint)
    return result


MISTAKES = [
    ("nothing taken away", "that is the whole output: nothing is taken away",
     ("merged * others", "merged")),
    ("ablated not scaled", NOT_SCALED, ("attention(q, k, v)", "attention(q, k, v, scale=1.0)")),
    ("that head alone", "that is the part of this head alone: the others are wanted, without it",
     ("!= head", "== head")),
    ("counted from one", "another head is missing: heads count from 0",
     ("!= head", "!= (head - 1) % H")),
    ("merged without transpose", "the heads are merged by reshaping alone: transpose back to "
     "(B, L, H, d_k) first, or use merge_heads",
     ("merge_heads(heads)", "heads.reshape(x.shape)")),
    ("item of the batch taken for head",
     "item number head of the batch is set to 0, an error if the batch is smaller: heads are "
     "dimension 1, heads[:, head]",
     ("merged = merge", "heads[head] = 0\n    merged = merge"), ("merged * others", "merged")),
    ("bias lost", "the bias of W_o is lost: it belongs to no head",
     ("layer.W_o(merged * others)", "layer.W_o(merged * others) - layer.W_o.bias")),
    ("others scaled up", "the remaining heads are scaled up; take the head's part away, no more",
     ("merged * others", "merged * others * H / max(H - 1, 1)")),
    ("all of the output scaled up",
     "the output is scaled up, the bias of W_o too; take the head's part away, no more",
     ("layer.W_o(merged * others)", "layer.W_o(merged * others) * H / max(H - 1, 1)")),
    ("rows in place of columns",
     "the rows of W_o are set to 0, as nn.Linear keeps it: they are outputs; the head's are "
     "columns",
     ("layer.W_o(merged * others)", "merged @ layer.W_o.weight.T * others + layer.W_o.bias")),
    ("one column of the head", "one column of W_o is set to 0: a head has d_k of them",
     (" // d_k != head", " != head")),
    ("every hth column",
     "every H-th column is set to 0: a head's columns are neighbours, head · d_k and those after "
     "it", ("// d_k != head", "% H != head")),
    ("heads taken for columns",
     "num_heads columns are set to 0, from head · num_heads on: a head is d_k wide, not num_heads",
     ("// d_k != head", "// H != head")),
    ("cut from the input",
     "the head's columns are cut from x, of which each head reads all; what the head hands over is "
     "to be cut, after attention", ("W(x)", "W(x * (torch.arange(d_model) // d_k != head))"),
     ("merged * others", "merged")),
    ("cut from the values' input",
     "the columns of W_v are set to 0, as nn.Linear keeps it: they are inputs, for all heads; the "
     "head's are rows, and entries of its bias",
     ("heads, _ =", "x = x * (torch.arange(d_model) // d_k != head)\n"
      "    v = split_heads(layer.W_v(x), H)\n    heads, _ ="), ("merged * others", "merged")),
    ("cut from the values' input, bias right",
     "the columns of W_v are set to 0, as nn.Linear keeps it: they are inputs, for all heads; the "
     "head's are rows",
     ("heads, _ =", "v = layer.W_v(x * (torch.arange(d_model) // d_k != head)) - torch.where("
      "torch.arange(d_model) // d_k == head, layer.W_v(0 * x), 0)\n"
      "    v = split_heads(v, H)\n    heads, _ ="), ("merged * others", "merged")),
    ("queries of the head",
     "the head still hands over an average of its values, by other weights: its queries are set to "
     "0 or changed; set to 0 what it hands over",
     ("heads, _ =", "own = torch.arange(d_model) // d_k == head\n    q = split_heads(torch.where("
      "own, layer.W_q(0 * x), layer.W_q(x)), H)\n    heads, _ ="), ("merged * others", "merged")),
    ("head made uniform",
     "the head's scores are set to 0, which makes its weights equal: it still hands over an "
     "average; set what it hands over to 0",
     ("merged * others", "torch.where(others, merged, layer.W_v(x).mean(dim=1, keepdim=True))")),
    ("all biases of the values lost",
     "the whole bias of W_v is set to 0: only the head's entries of it go, head · d_k and those "
     "after it", ("merged * others", "(merged - layer.W_v.bias) * others")),
    ("columns of the output",
     "columns of the output are set to 0: W_o has mixed the heads by then, and a column of it is "
     "of no head; cut before W_o",
     ("layer.W_o(merged * others)", "layer.W_o(merged) * others")),
    ("bias of the values left",
     "something is still handed over for this head, the same for every token: what does W_v give "
     "for an x of zeros?",
     ("merged * others", "torch.where(others, merged, layer.W_v.bias)")),
]  # fmt: skip

exercise = Exercise(
    "5.6", without_head, inputs, MISTAKES, names="L d_model", run=run,
    also_right=[in_a_copy, by_subtracting],
)  # fmt: skip
