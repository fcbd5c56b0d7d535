"""5.4: how many parameters a layer of multi-head attention has."""

import numpy as np
from torch import nn

from course_utils.checks import sandbox
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
    with sandbox.seeded():
        result = answer(*args)
    found = read(result)
    return [found.item() if found is not None and found.numel() == 1 else result]


MISTAKES = [
    ("every head full width",
     "Your count gives each head the full width. A head has d_model / H columns. Count d_model "
     "columns for all heads together.",
     "4 * num_heads * d_model * (d_model + bias)"),
    ("one head counted",
     "Your count has one head and a full W_o. Count all H heads.",
     ("d_model * d_model", "d_model * (d_model // num_heads)"),
     ("4 * d_model if", "3 * (d_model // num_heads) + d_model if")),
    ("inputs of one head",
     "Your count has W_q, W_k and W_v for one head only. They make the queries, keys and values "
     "of all heads. Count all d_model columns.",
     "(d_model + bias) * (3 * (d_model // num_heads) + d_model)"),
    ("all of one head",
     "Your count is that of four matrices that map d_model to d_k, the width of one head. W_q, "
     "W_k and W_v serve all heads, and W_o has d_model outputs. Let all four map d_model to "
     "d_model.",
     "4 * (d_model // num_heads) * (d_model + bias)"),
    ("output not counted",
     "Your count has three matrices. Count W_o as well.",
     "3 * d_model * (d_model + bias)"),
    ("biases not counted",
     "The biases are missing. Each of the four matrices has a bias of d_model entries. Add them "
     "if bias=True.",
     "4 * d_model * d_model"),
    ("biases the other way round",
     "You add the biases if bias=False, and leave them out if bias=True. It should be the other "
     "way round.",
     (" if bias else 0", " * (not bias)")),
    ("one matrix counted",
     "You count one matrix. Count all four: W_q, W_k, W_v and W_o.",
     "d_model * (d_model + bias)"),
    ("every head full width, no biases",
     "Your count gives each head the full width, and has no biases. A head has d_model / H "
     "columns. Count d_model columns for all heads together, and add the biases.",
     "4 * num_heads * d_model * d_model"),
    ("bias of one entry for each head",
     "Your count of the biases depends on the number of heads. All heads together share one bias "
     "of d_model entries for each matrix. Count four such biases.",
     ("4 * d_model if", "4 * num_heads if")),
    ("biases always counted",
     "You count biases even where there are none. Count them only if bias=True.",
     (" if bias else 0", "")),
    ("one bias counted",
     "You count one bias of d_model entries. Count four, one for each matrix.",
     ("4 * d_model if", "d_model if")),
    ("bias of one entry",
     "You count one entry for each bias. Each bias has one entry for each column. Count d_model "
     "entries.",
     ("4 * d_model if", "4 if")),
    ("single bias entry",
     "You count a single entry for all biases. Each of the four biases has d_model entries. Count "
     "them all.",
     ("4 * d_model if", "1 if")),
    ("three biases counted",
     "You count three biases. Count the bias of W_o too.",
     ("4 * d_model if", "3 * d_model if")),
    ("biases of one head",
     "You count biases of d_model / H entries, the width of one head. Each of the four biases has "
     "d_model entries. Count all of them.",
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
