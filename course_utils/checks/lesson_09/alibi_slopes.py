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
     "Right for powers of two. For other numbers, take all slopes of the largest power of two "
     "below H first. Then add every second slope of twice that power.",
     "torch.tensor([2.0 ** (-8 * (h + 1) / num_heads) for h in range(num_heads)])"),
    ("begins with 1",
     "Your first slope is 1. Heads count from 1 in the exponent, −8 (h + 1) / H.",
     ("[8 * h / power for h in range(1, power + 1)]", "[8 * h / power for h in range(power)]")),
    ("both begin with 1",
     "Your first slope is 1, and so is the first one that you add after the power of two. Count "
     "from 1 in both exponents.",
     ("[8 * h / power for h in range(1, power + 1)]", "[8 * h / power for h in range(power)]"),
     (REST, REST.replace("range(1,", "range(0,"))),
    ("begins with 1, one rule for all",
     "Your first slope is 1. Heads count from 1 in the exponent, −8 (h + 1) / H. If H is not a "
     "power of two, follow the second rule.",
     "torch.tensor([2.0 ** (-8 * h / num_heads) for h in range(num_heads)])"),
    ("cut from the next power",
     "Your slopes are the first ones of the next larger power of two. Start with all slopes of "
     "the largest power of two below H.",
     "torch.tensor([2.0 ** (-8 * (h + 1) / 2 ** (num_heads - 1).bit_length()) "
     "for h in range(num_heads)])"),
    ("from the even ones",
     "Your added slopes repeat slopes that are already there. Take every second slope of twice "
     "the power, but begin with the first one.",
     (REST, REST.replace("range(1,", "range(2,").replace("(num_heads - power),",
                                                         "(num_heads - power) + 1,"))),
    ("not every second",
     "Your added slopes are the first ones of twice the power. Take only every second one of "
     "these.",
     (REST, "8 * h / (2 * power) for h in range(1, num_heads - power + 1)")),
    ("power below the number",
     "Your result follows the second rule even if H is a power of two. In that case, all slopes "
     "are those of H itself.",
     ("num_heads.bit_length() - 1)", "max((num_heads - 1).bit_length() - 1, 0))")),
    ("always halved",
     "Each of your slopes is half of the one before, which is right only for eight heads. The "
     "exponent is −8 (h + 1) / H.",
     "2.0 ** -torch.arange(1, num_heads + 1)"),
    ("one over the head",
     "Your slopes are 1 / (h + 1). They are powers of 2, with the exponent −8 (h + 1) / H.",
     "1 / torch.arange(1, num_heads + 1)"),
    ("sorted",
     "Your slopes are right, but sorted. The slopes of the power of two must come first, and "
     "then the added ones.",
     ("2.0**-e for e in exponents", "2.0**-e for e in sorted(exponents)")),
    ("negative",
     "Your slopes are negative. Return positive ones, because the minus comes when they are "
     "subtracted from the scores.",
     ("2.0**-e", "-(2.0**-e)")),
    ("exponents",
     "Your result holds the exponents. Return the slopes, which are 2 to the power of minus "
     "these numbers.",
     ("2.0**-e", "e")),
    ("steeper from head to head",
     "Your slopes grow from head to head. The exponent must be negative.",
     ("2.0**-e", "2.0**e")),
    ("natural powers",
     "Your slopes are powers of e. Use powers of 2.",
     ("2.0**-e", "2.718281828**-e")),
    ("powers of two only",
     "Some heads have no slope. After those of the power of two, add the slopes of the remaining "
     "heads.",
     ("    return", "    exponents = exponents[:power]\n    return")),
    ("backwards",
     "Your slopes are right, but in reverse order. Head 0 has the largest slope of the power of "
     "two.",
     ("2.0**-e for e in exponents", "2.0**-e for e in exponents[::-1]")),
    ("one too many",
     "Your result has one slope too many. Return H slopes.",
     ("2 * (num_heads - power), 2)", "2 * (num_heads - power) + 2, 2)")),
    ("4 for 8",
     "Your slopes are the square roots of the right ones. The exponent is −8 (h + 1) / H.",
     ("8 * h / power for", "4 * h / power for"), (REST, REST.replace("8 * h", "4 * h"))),
    ("4 for 8 in the power of two",
     "The slopes of the power of two are the square roots of the right ones. Their exponent is "
     "−8 (h + 1) / H.",
     ("8 * h / power for", "4 * h / power for")),
    ("divided by the head",
     "Your exponents are −8 / (h + 1). They must be −8 (h + 1) / H.",
     "torch.tensor([2.0 ** (-8 / (h + 1)) for h in range(num_heads)])"),
]  # fmt: skip

exercise = Exercise("9.3", alibi_slopes, inputs, MISTAKES, names="H", also_right=[recursively])
