"""10.3: how many texts a memory has room for, beside the model."""

import math

from course_utils.checks.exercise import Exercise


def texts_that_fit(memory, parameters, S, layers, num_kv_heads, d_k, bytes_each):
    left = memory - parameters * bytes_each
    a_text = 2 * layers * num_kv_heads * d_k * S * bytes_each
    return max(left // a_text, 0)


def by_counting(memory, parameters, S, layers, num_kv_heads, d_k, bytes_each):
    token = sum(num_kv_heads * d_k * bytes_each for _ in range(layers) for _ in "kv")
    room = memory - bytes_each * parameters
    return room // (token * S) if room > 0 else 0


def by_floor(memory, parameters, S, layers, num_kv_heads, d_k, bytes_each):
    numbers = memory / bytes_each - parameters
    return max(0, math.floor(numbers / (2 * S * layers * num_kv_heads * d_k)))


def inputs():
    return [
        (80 * 10**9, 135 * 10**6, 8192, 30, 3, 64, 2),
        (10_000, 600, 10, 2, 3, 4, 4),  # 2400 and 1920 bytes
        (10**6, 600, 10, 2, 3, 4, 4),
        (10_000, 2000, 5, 1, 2, 6, 2),  # just so
        (2 * 10**6, 2000, 5, 1, 2, 6, 2),
        (2400 + 3 * 1920, 600, 10, 2, 3, 4, 4),  # just so
        (2400 + 3 * 1920 - 1, 600, 10, 2, 3, 4, 4),
        (1000, 600, 10, 2, 3, 4, 4),  # not even the model
        (2400, 600, 10, 2, 3, 4, 4),
        (1000, 6000, 10, 2, 3, 4, 4),  # far from it
        (70_000, 100, 7, 3, 1, 5, 1),
        (10**6, 16, 9, 4, 2, 8, 2),
    ]


MISTAKES = [
    ("model left out", "the model's own numbers take memory too, before any text does",
     ("memory - parameters * bytes_each", "memory")),
    ("a model for each text", "each text gets a model of its own; they share one",
     ("left // a_text", "memory // (parameters * bytes_each + a_text)")),
    ("keys only", "half of it is forgotten: keys and values are kept, both",
     ("2 * layers", "layers")),
    ("one layer only", "that is one layer's cache: each layer has its own",
     ("2 * layers * ", "2 * ")),
    ("one head only", "that is one key head's cache: each of them has its own",
     ("num_kv_heads * ", "")),
    ("one token only", "that is the cache of one token; a text has S", ("d_k * S", "d_k")),
    ("as square", "the cache grows as S, not as S²: no weights are kept", ("* S *", "* S * S *")),
    ("a byte for a parameter", "a number of the model is counted as one byte: times bytes_each",
     ("parameters * bytes_each", "parameters")),
    ("a byte for a cached number", "a number of the cache is counted as one byte: times bytes_each",
     ("* S * bytes_each", "* S")),
    ("no bytes at all", "numbers are counted as bytes: both times bytes_each",
     ("parameters * bytes_each", "parameters"), ("* S * bytes_each", "* S")),
    ("rounded up", "rounded up: a text that does not fit whole does not fit",
     ("left // a_text", "-(-left // a_text)")),
    ("to the nearest", "rounded to the nearest number: a text that does not fit whole does not "
     "fit, however little is missing", ("left // a_text", "round(left / a_text)")),
    ("parts of texts", "texts come whole: round down",
     ("left // a_text, 0", "left / a_text, 0.0")),
    ("less than none", "where not even the model fits, no text does: 0, not fewer",
     ("max(left // a_text, 0)", "left // a_text")),
    ("less than none, rounded towards it",
     "where not even the model fits, no text does: 0, not fewer",
     ("max(left // a_text, 0)", "int(left / a_text)")),
    ("sign lost", "where not even the model fits, what is missing is counted as if it were left: 0",
     ("max(left // a_text, 0)", "abs(left) // a_text")),
    ("one at least", "where the model leaves no room, no text fits: 0",
     ("max(left // a_text, 0)", "max(left // a_text, 1)")),
]  # fmt: skip

exercise = Exercise("10.3", texts_that_fit, inputs, MISTAKES, also_right=[by_counting, by_floor])
