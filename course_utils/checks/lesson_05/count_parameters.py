"""5.4: how many numbers a layer of multi-head attention learns."""

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
    """Return the answer's number; to count by building a layer, which draws, is right too."""
    with sandbox.seeded():
        result = answer(*args)
    found = read(result)
    return [found.item() if found is not None and found.numel() == 1 else result]


MISTAKES = [
    ("every head full width",
     "each head is counted at full width; it has d_model / H columns, and all together d_model",
     "4 * num_heads * d_model * (d_model + bias)"),
    ("one head counted", "one head is counted: there are H of them, and a full W_o",
     ("d_model * d_model", "d_model * (d_model // num_heads)"),
     ("4 * d_model if", "3 * (d_model // num_heads) + d_model if")),
    ("inputs of one head",
     "W_q, W_k and W_v are counted for one head: they make queries, keys, values of all",
     "(d_model + bias) * (3 * (d_model // num_heads) + d_model)"),
    ("all of one head",
     "all four matrices are counted for one head, d_model to d_k: W_q, W_k, W_v make queries, "
     "keys, values of all heads, and W_o gives d_model columns",
     "4 * (d_model // num_heads) * (d_model + bias)"),
    ("output not counted", "W_o is missing: four matrices, not three",
     "3 * d_model * (d_model + bias)"),
    ("biases not counted", "the biases are missing: one of d_model entries for each of the four",
     "4 * d_model * d_model"),
    ("biases the other way round",
     "biases are counted where there are none, and not where there are: bias=True means that the "
     "four have them", (" if bias else 0", " * (not bias)")),
    ("one matrix counted", "one matrix is counted: there are four, W_q, W_k, W_v and W_o",
     "d_model * (d_model + bias)"),
    ("every head full width, no biases",
     "each head is counted at full width, and no bias: a head has d_model / H columns, and all "
     "together d_model", "4 * num_heads * d_model * d_model"),
    ("bias of one entry for each head",
     "each bias is counted with an entry for each head: it has one for each column, d_model",
     ("4 * d_model if", "4 * num_heads if")),
    ("biases always counted", "biases are counted also where there are none: look at bias",
     (" if bias else 0", "")),
    ("one bias counted", "a bias has d_model entries, and there are four of them, not one",
     ("4 * d_model if", "d_model if")),
    ("bias of one entry",
     "a single entry is counted for each bias: it has one for each column, d_model",
     ("4 * d_model if", "4 if")),
    ("single bias entry", "a single entry is counted for all biases: each has d_model entries",
     ("4 * d_model if", "1 if")),
    ("three biases counted", "three biases are counted: W_o has one as well",
     ("4 * d_model if", "3 * d_model if")),
    ("output for each head", "W_o is counted once for each head: it has H · d_k = d_model rows in "
     "all", ("4 * d_model * d_model", "(3 + num_heads) * d_model * d_model")),
]  # fmt: skip

exercise = Exercise(
    "5.4", count_parameters, inputs, MISTAKES, run=number, also_right=[by_building, in_numpy]
)
