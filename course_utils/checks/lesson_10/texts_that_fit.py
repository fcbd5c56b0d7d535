"""10.3: how many texts fit into the memory that the model leaves free."""

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
    ("model left out", "Your result leaves no memory for the model. Its parameters need memory "
     "before any text does. Subtract them first.", ("memory - parameters * bytes_each", "memory")),
    ("a model for each text", "Your result gives each text its own copy of the model. All texts "
     "share one. Subtract it once, then divide.",
     ("left // a_text", "memory // (parameters * bytes_each + a_text)")),
    ("keys only", "Your result counts half of the cache. It holds keys and values. Multiply by 2.",
     ("2 * layers", "layers")),
    ("one layer only", "Your result counts the cache of one layer. Each layer has its own. "
     "Multiply by the number of layers.", ("2 * layers * ", "2 * ")),
    ("one head only", "Your result counts the cache of one key head. Multiply by their number.",
     ("num_kv_heads * ", "")),
    ("one token only", "Your result counts the cache of one token. A text has S tokens. Multiply "
     "by S.", ("d_k * S", "d_k")),
    ("as square", "Your cache grows like S². It holds one key and one value for each token, and no "
     "attention weights. Multiply by S once.", ("* S *", "* S * S *")),
    ("a byte for a parameter", "Your result gives each parameter one byte. Multiply by "
     "bytes_each.", ("parameters * bytes_each", "parameters")),
    ("a byte for a cached number", "Your result gives each number in the cache one byte. Multiply "
     "by bytes_each.", ("* S * bytes_each", "* S")),
    ("no bytes at all", "Your result gives each number one byte, in the model and in the cache. "
     "Multiply both by bytes_each.",
     ("parameters * bytes_each", "parameters"), ("* S * bytes_each", "* S")),
    ("rounded up", "Your result is rounded up. Only whole texts count. Round down.",
     ("left // a_text", "-(-left // a_text)")),
    ("to the nearest", "Your result is rounded to the nearest number. A text does not fit even if "
     "little memory is missing. Round down.", ("left // a_text", "round(left / a_text)")),
    ("parts of texts", "Your result is not a whole number. Only whole texts count. Round down.",
     ("left // a_text, 0", "left / a_text, 0.0")),
    ("less than none", "Your result is negative where the model itself does not fit. Then no text "
     "fits. Return 0.", ("max(left // a_text, 0)", "left // a_text")),
    ("less than none, rounded towards 0", "Your result is negative where the model itself does not "
     "fit. Then no text fits. Return 0.", ("max(left // a_text, 0)", "int(left / a_text)")),
    ("sign lost", "Your result counts missing memory as free memory. Where the model itself does "
     "not fit, return 0.", ("max(left // a_text, 0)", "abs(left) // a_text")),
    ("one at least", "Your result is 1 where no text fits. Return 0 there.",
     ("max(left // a_text, 0)", "max(left // a_text, 1)")),
]  # fmt: skip

exercise = Exercise("10.3", texts_that_fit, inputs, MISTAKES, also_right=[by_counting, by_floor])
