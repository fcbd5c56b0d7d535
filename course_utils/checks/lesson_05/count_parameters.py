"""5.4: how many parameters a layer of multi-head attention has."""

import numpy as np
from torch import nn

from course_utils.checks.calls import seeded
from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise


def count_parameters(d_model, num_heads, bias=True):
    weights = 4 * d_model * d_model  # W_q, W_k, W_v, W_o, for all heads together
    biases = 4 * d_model if bias else 0
    return weights + biases


def by_building(d_model, num_heads, bias=True):
    layers = [nn.Linear(d_model, d_model, bias=bias) for _ in range(4)]
    return sum(p.numel() for layer in layers for p in layer.parameters())


def in_numpy(d_model, num_heads, bias=True):
    return np.prod([4, d_model, d_model + bias])


def inputs():
    return [
        (12, 3, True),
        (8, 2, False),
        (10, 5, True),
        (64, 16, False),
        (6, 2, True),
        (15, 3),
        (7, 1, True),
        (1, 1, False),
    ]


def number(answer, *args):
    """Return the answer's number. It may also build a layer, which draws random numbers."""
    with seeded():
        result = answer(*args)
    found = read(result)
    return [found.item() if found is not None and found.numel() == 1 else result]


MISTAKES = [
    ("every head full width",
     "Your count gives each head d_model columns. A head has only d_model / num_heads columns, so "
     "all heads together have d_model. Count each of the four matrices, and its bias, once for "
     "all heads.",
     "4 * num_heads * d_model * (d_model + bias)"),
    ("one head counted",
     "Your count is that of one head, of width d_k = d_model / num_heads: W_q, W_k and W_v map "
     "d_model to d_k, and W_o maps d_k to d_model. With all heads together, each of the four "
     "matrices maps d_model to d_model. Count these four, and their biases if bias=True.",
     ("d_model * d_model", "d_model * (d_model // num_heads)"),
     ("4 * d_model if", "3 * (d_model // num_heads) + d_model if")),
    ("inputs of one head",
     "Your count has W_q, W_k and W_v for one head only, with d_model / num_heads columns. But "
     "each of the three serves all heads. Count d_model columns for each, and d_model bias "
     "entries if bias=True.",
     "(d_model + bias) * (3 * (d_model // num_heads) + d_model)"),
    ("inputs of one head, whole biases",
     "Your count has the matrices W_q, W_k and W_v of one head only, with d_model / num_heads "
     "columns. But each of the three serves all heads. Count d_model columns for each.",
     ("4 * d_model * d_model", "d_model * (3 * (d_model // num_heads) + d_model)")),
    ("every head full width, one output",
     "Your count gives each head d_model columns in W_q, W_k and W_v, and gives W_o num_heads · "
     "d_model inputs. A head has only d_model / num_heads columns, so all heads together have "
     "d_model. Count each of the four matrices, and its bias, once for all heads.",
     "num_heads * 3 * (d_model + bias) * d_model + (d_model * num_heads + bias) * d_model"),
    ("all of one head",
     "Your count is that of four matrices that map d_model to d_k = d_model / num_heads, the "
     "width of one head. W_q, W_k and W_v serve all heads, and W_o has d_model outputs. Count "
     "four matrices that map d_model to d_model, and their biases if bias=True.",
     "4 * (d_model // num_heads) * (d_model + bias)"),
    ("output not counted",
     "Your count is that of three matrices. Count W_o as well, with its bias if bias=True.",
     "3 * d_model * (d_model + bias)"),
    ("biases not counted",
     "Your count has no biases. Each of the four matrices has a bias of d_model entries if "
     "bias=True. Add them in this case.",
     "4 * d_model * d_model"),
    ("biases the other way round",
     "You add the biases if bias=False, and leave them out if bias=True. Do the opposite.",
     (" if bias else 0", " * (not bias)")),
    ("one matrix counted",
     "Your count is that of one matrix. Count all four, W_q, W_k, W_v and W_o, each with its bias "
     "if bias=True.",
     "d_model * (d_model + bias)"),
    ("every head full width, no biases",
     "Your count gives each head d_model columns, and leaves out the biases. A head has only "
     "d_model / num_heads columns, so all heads together have d_model. Count each of the four "
     "matrices once for all heads. If bias=True, add four biases of d_model entries.",
     "4 * num_heads * d_model * d_model"),
    ("bias of one entry for each head",
     "You count num_heads entries for each bias. The size of a bias does not depend on the number "
     "of heads: each of the four has one entry for each of the d_model outputs of its matrix. "
     "Count d_model entries for each bias.",
     ("4 * d_model if", "4 * num_heads if")),
    ("biases always counted",
     "With bias=False, there are no biases, but you still count them. Count them only if "
     "bias=True.",
     (" if bias else 0", "")),
    ("one bias counted",
     "You count one bias of d_model entries. Each of the four matrices has its own. Count four "
     "biases.",
     ("4 * d_model if", "d_model if")),
    ("bias of one entry",
     "You count one entry for each of the four biases. A bias has one entry for each output of "
     "its matrix. Count d_model entries for each bias.",
     ("4 * d_model if", "4 if")),
    ("single bias entry",
     "You count a single entry for all biases together. Each of the four biases has d_model "
     "entries. Count them all.",
     ("4 * d_model if", "1 if")),
    ("three biases counted",
     "You count three biases of d_model entries. There are four, because W_o has one too. Count "
     "all four.",
     ("4 * d_model if", "3 * d_model if")),
    ("biases of one head",
     "You count biases of d_model / num_heads entries, the width of one head. Each of the four "
     "biases has d_model entries. Count all of these.",
     ("4 * d_model if", "4 * (d_model // num_heads) if")),
    ("output for each head, biases too",
     "You count W_o and its bias once for each head. There is only one W_o, with d_model inputs "
     "for all heads together. Count it once.",
     "(3 + num_heads) * d_model * (d_model + bias)"),
    ("output for each head",
     "You count W_o once for each head. There is only one W_o, with d_model inputs for all heads "
     "together. Count it once.",
     ("4 * d_model * d_model", "(3 + num_heads) * d_model * d_model")),
]  # fmt: skip

exercise = Exercise(
    "5.4", count_parameters, inputs, MISTAKES, run=number, also_right=[by_building, in_numpy]
)
