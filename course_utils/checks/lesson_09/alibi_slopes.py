"""9.3: ALiBi's slopes for any number of heads."""

import math

import torch

from course_utils.checks.exercise import Exercise


def alibi_slopes(num_heads):
    power = 2 ** (num_heads.bit_length() - 1)  # the largest power of two in num_heads
    exponents = [8 * h / power for h in range(1, power + 1)]
    exponents += [8 * h / (2 * power) for h in range(1, 2 * (num_heads - power), 2)]
    return torch.tensor([2.0**-e for e in exponents])  # (H,)


def recursively(num_heads):
    if num_heads & (num_heads - 1) == 0:
        start = 2 ** -(8 / num_heads)
        return torch.tensor([start ** (h + 1) for h in range(num_heads)])
    power = 2 ** int(math.log2(num_heads))
    rest = recursively(2 * power)[::2][: num_heads - power]
    return torch.cat([recursively(power), rest])


def inputs():
    return [(8,), (6,), (1,), (2,), (3,), (12,), (16,), (20,), (31,)]


REST = "8 * h / (2 * power) for h in range(1, 2 * (num_heads - power), 2)"
MISTAKES = [
    ("one rule for all numbers",
     "right for powers of two; else come the slopes of the largest power of two in it, then every "
     "second one of twice that many heads",
     "torch.tensor([2.0 ** (-8 * (h + 1) / num_heads) for h in range(num_heads)])"),
    ("begins with 1", "the first slope is 1: heads count from 1 in the exponent, −8 (h + 1) / H",
     ("[8 * h / power for h in range(1, power + 1)]", "[8 * h / power for h in range(power)]")),
    ("both begin with 1",
     "the first slope is 1, and the first of the missing ones too: heads count from 1 in both "
     "exponents, −8 (h + 1) / H",
     ("[8 * h / power for h in range(1, power + 1)]", "[8 * h / power for h in range(power)]"),
     (REST, REST.replace("range(1,", "range(0,"))),
    ("begins with 1, one rule for all",
     "the first slope is 1: heads count from 1 in the exponent; and for numbers that are no powers "
     "of two there is a rule of their own",
     "torch.tensor([2.0 ** (-8 * h / num_heads) for h in range(num_heads)])"),
    ("cut from the next power",
     "those are the first slopes of the next power of two; first come all of the largest power of "
     "two in num_heads",
     "torch.tensor([2.0 ** (-8 * (h + 1) / 2 ** (num_heads - 1).bit_length()) "
     "for h in range(num_heads)])"),
    ("from the even ones",
     "the missing slopes are some that are there already: every second one of twice as many heads, "
     "but from the second on; begin with the first",
     (REST, REST.replace("range(1,", "range(2,").replace("(num_heads - power),",
                                                         "(num_heads - power) + 1,"))),
    ("not every second",
     "the rest are the first slopes of twice as many heads; take every second one",
     (REST, "8 * h / (2 * power) for h in range(1, num_heads - power + 1)")),
    ("power below the number",
     "a power of two is taken for none: its slopes are all of its own, so the largest power of two "
     "is searched up to num_heads itself",
     ("num_heads.bit_length() - 1)", "max((num_heads - 1).bit_length() - 1, 0))")),
    ("always halved",
     "each slope is half the one before, which is right for eight heads alone: −8 (h + 1) / H",
     "2.0 ** -torch.arange(1, num_heads + 1)"),
    ("sorted", "right slopes, but sorted; the rest come after those of the power of two",
     ("2.0**-e for e in exponents", "2.0**-e for e in sorted(exponents)")),
    ("negative", "the slopes have a minus; it comes when they are taken from the scores",
     ("2.0**-e", "-(2.0**-e)")),
    ("exponents", "those are the exponents; a slope is 2 to the power of minus that",
     ("2.0**-e", "e")),
    ("steeper from head to head", "they grow from head to head: the exponent is negative",
     ("2.0**-e", "2.0**e")),
    ("natural powers", "powers of e; they are powers of two", ("2.0**-e", "2.718281828**-e")),
    ("powers of two only", "num_heads is rounded down to a power of two: heads are missing",
     ("    return", "    exponents = exponents[:power]\n    return")),
    ("backwards", "right slopes, the smallest first; head 0 has the largest of its power of two",
     ("2.0**-e for e in exponents", "2.0**-e for e in exponents[::-1]")),
    ("one too many", "there is one slope too many",
     ("2 * (num_heads - power), 2)", "2 * (num_heads - power) + 2, 2)")),
    ("4 for 8", "each slope is the root of what it should be: −8 (h + 1) / H, with 8",
     ("8 * h / power for", "4 * h / power for"), (REST, REST.replace("8 * h", "4 * h"))),
    ("4 for 8 in the power of two", "the slopes of the power of two are the roots of what they "
     "should be: −8 (h + 1) / H, with 8", ("8 * h / power for", "4 * h / power for")),
    ("divided by the head", "the exponent is 8 divided by the number of the head; it is multiplied "
     "by that and divided by H: −8 (h + 1) / H",
     "torch.tensor([2.0 ** (-8 / (h + 1)) for h in range(num_heads)])"),
]  # fmt: skip

exercise = Exercise("9.3", alibi_slopes, inputs, MISTAKES, names="H", also_right=[recursively])
