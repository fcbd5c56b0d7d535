"""10.3: how many texts fit into the memory that the model leaves free."""

import math

import torch

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones


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


def exact_fits():
    """Return inputs in which a number of texts fills the memory exactly, which floats may miss."""
    small, large = (134_515_008, 30, 3, 64), (8_030_261_248, 32, 8, 128)
    fits = [(small, 1000, 27), (small, 3000, 28), (small, 8192, 10), (large, 8192, 7)]
    made = []
    for (parameters, layers, num_kv_heads, d_k), S, texts in fits:
        memory = 2 * parameters + texts * 4 * layers * num_kv_heads * d_k * S
        made.append((memory, parameters, S, layers, num_kv_heads, d_k, 2))
    return made


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
        *exact_fits(),
    ]


TENSOR = "Your number is right, but it is a tensor. Return an int: use .item()."
FLOAT = (
    "Your numbers are right, but they are floats. Return an int: use // on ints, or convert the "
    "result with int(...)."
)
MISTAKES = [
    ("model left out", "You leave no memory for the model. Its parameters need memory before any "
     "text does. Subtract their bytes first.", ("memory - parameters * bytes_each", "memory")),
    ("a model for each text", "You give each text its own copy of the model, but all texts share "
     "one. Subtract the bytes of the model once, then divide by the bytes of one cache.",
     ("left // a_text", "memory // (parameters * bytes_each + a_text)")),
    ("keys only", "You count only half of the cache. It holds both keys and values, so multiply "
     "by 2.",
     ("2 * layers", "layers")),
    ("queries as well", "Your cache is 1.5 times as large as it should be, as if it held queries "
     "too. It holds only keys and values, so the factor is 2, not 3.",
     ("2 * layers", "3 * layers")),
    ("one layer only", "You count the cache of one layer. Each layer has its own. Multiply by the "
     "number of layers.", ("2 * layers * ", "2 * ")),
    ("one head only", "You count the cache of one KV head. Multiply by the number of KV heads.",
     ("num_kv_heads * ", "")),
    ("one token only", "You count the cache of one token. A text has S tokens. Multiply by S.",
     ("d_k * S", "d_k")),
    ("as square", "Your cache grows like S². It holds keys and values of each token, but no "
     "attention weights. Multiply by S only once.", ("* S *", "* S * S *")),
    ("a byte for a parameter", "You count one byte for each parameter. Multiply the number of "
     "parameters by bytes_each.", ("parameters * bytes_each", "parameters")),
    ("a byte for a cached number", "You count one byte for each number in the cache. Multiply the "
     "size of the cache by bytes_each.", ("* S * bytes_each", "* S")),
    ("no bytes at all", "You count one byte for each number, in the model and in the cache. "
     "Multiply both by bytes_each.",
     ("parameters * bytes_each", "parameters"), ("* S * bytes_each", "* S")),
    ("always four bytes", "You count four bytes for each number, whatever bytes_each is. Multiply "
     "by bytes_each, in the model and in the cache.",
     ("parameters * bytes_each", "parameters * 4"), ("* S * bytes_each", "* S * 4")),
    ("rounded up", "Your result is rounded up. Only whole texts count. Round down.",
     ("left // a_text", "-(-left // a_text)")),
    ("to the nearest", "Your result is rounded to the nearest whole number. A text does not fit "
     "even if only a little memory is missing. Round down.",
     ("left // a_text", "round(left / a_text)")),
    ("exact fit left out", "Your result is 1 too small where the last text fills the memory "
     "exactly. Such a text fits. Divide all of the free memory, and round down.",
     ("left // a_text", "(left - 1) // a_text")),
    ("parts of texts", "Your result is not rounded. Only whole texts count. Round down.",
     ("left // a_text, 0", "left / a_text, 0.0")),
    ("less than none", "Your result is negative if the model itself does not fit. In this case, no "
     "text fits. Return 0.", ("max(left // a_text, 0)", "left // a_text")),
    ("less than none, rounded towards 0", "Your result is negative if the memory is far too small "
     "for the model. Return 0 whenever the model itself does not fit.",
     ("max(left // a_text, 0)", "int(left / a_text)")),
    ("sign lost", "You count missing memory as free memory. If the model itself does not fit, "
     "return 0.", ("max(left // a_text, 0)", "abs(left) // a_text")),
    ("one at least", "Your result is 1 where no text fits. Return 0 there.",
     ("max(left // a_text, 0)", "max(left // a_text, 1)")),
    ("one at least where the model fits", "Your result is 1 where the model fits, but no text "
     "does. Return 0 there.",
     ("max(left // a_text, 0)", "max(left // a_text, 1 if left >= 0 else 0)")),
    ("rounded twice", "Your result is 1 too large for some inputs, as if you rounded down before "
     "subtracting. Subtract the bytes of the model from the memory first. Then divide, and round "
     "down once.",
     ("left // a_text", "memory // a_text - parameters * bytes_each // a_text")),
    ("model rounded up", "Your result is 1 too small for some inputs, as if the model took up the "
     "memory of a whole number of texts. Subtract the bytes of the model from the memory first. "
     "Then divide, and round down once.",
     ("left // a_text", "memory // a_text + -(parameters * bytes_each) // a_text")),
    ("one text for the model", "You set aside the memory of one text for the model. But the model "
     "takes parameters * bytes_each bytes. Subtract these first, and then divide.",
     ("left // a_text", "memory // a_text - 1")),
    ("model twice", "You subtract the model twice. Its parameters need memory only once. Multiply "
     "only the cache by 2.", ("parameters * bytes_each", "2 * parameters * bytes_each")),
    ("absolute value", "Your result is positive if the model itself does not fit. In this case, "
     "no text fits either, so return 0.",
     ("max(left // a_text, 0)", "abs(left // a_text)")),
    *((f"no parentheses after {size}",
       "Your result is far too large. Python computes `a // b * c` as `(a // b) * c`. Put the "
       "bytes of one text in parentheses.",
       ("left // a_text", f"left // {size} * (a_text // {size})"))
      for size in ("2", "layers", "num_kv_heads", "d_k", "S", "bytes_each")),
    *((f"no parentheses after {size}, with /",
       "Your result is far too large. Python computes `a / b * c` as `(a / b) * c`. Put the "
       "bytes of one text in parentheses.",
       ("left // a_text", f"int(left / {size} * (a_text // {size}))"))
      for size in ("layers", "num_kv_heads", "d_k", "S")),
    ("memory in bits", "You count the memory in bits, but the model in bytes. Count both in bytes.",
     ("left // a_text", "(8 * memory - parameters * bytes_each) // a_text")),
    ("free memory in bits", "You count the free memory in bits, but the cache in bytes. Count both "
     "in bytes.", ("left // a_text", "8 * left // a_text")),
    ("one token more", "Your cache has S + 1 tokens for each text. It holds S. Multiply by S.",
     ("d_k * S", "d_k * (S + 1)")),
    ("d_k squared", "Your cache grows like d_k². Each key and each value has d_k numbers. "
     "Multiply by d_k once.", ("d_k * S", "d_k * d_k * S")),
    ("tokens counted", "Your result is the number of tokens in all texts. Return the number of "
     "texts.", ("left // a_text", "left // a_text * S")),
    ("tokens times S", "Your result is far too large, as if the free memory were divided by one "
     "token and multiplied by S. A text has S tokens. Divide by the bytes of S tokens.",
     ("left // a_text", "left // (a_text // S) * S")),
    ("gigabytes",
     "Your result is 1 too small for some texts that fill the memory exactly. Floats, as "
     "after a division by 1e9, are rounded. Use // on ints.",
     ("left // a_text",
      "int((memory / 1e9 - parameters * bytes_each / 1e9) / (a_text / 1e9))")),
    ("float32",
     "Your result is wrong for some texts that fill the memory exactly. A float32 has only 24 "
     "bits, so large numbers are rounded. Use // on ints.",
     ("left // a_text",
      "int((torch.tensor(float(memory)) - float(parameters * bytes_each)).item() // a_text)")),
    ("model added", "You add the bytes of the model to the memory. Subtract them, because the "
     "model takes memory away from the texts.",
     ("memory - parameters", "memory + parameters")),
    ("minus one for none", "Your result is −1 where no text fits. Return 0 there.",
     ("max(left // a_text, 0)", "(left // a_text if left >= a_text else -1)")),
    ("minus one where the model does not fit", "Your result is −1 if the model itself does not "
     "fit. Return 0 there.", ("max(left // a_text, 0)", "max(left // a_text, -1)")),
]  # fmt: skip


def run(answer, *args):
    """Let an answer count, and refuse a right number by name if it is no int."""
    results = call_with_clones(answer, *args)
    if isinstance(results[0], float):
        raise NamedMistake("float", FLOAT, results)
    if isinstance(results[0], torch.Tensor):
        raise NamedMistake("tensor", TENSOR, results)
    return results


exercise = Exercise(
    "10.3", texts_that_fit, inputs, MISTAKES, run=run, also_right=[by_counting, by_floor]
)
