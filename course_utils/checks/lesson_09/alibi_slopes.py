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
TWO_STEPS = "If H is not a power of two, follow the two steps of the exercise."
ROUNDED = (
    "Your exponents are rounded to integers. Keep their fractional parts, and divide with `/`, not "
    "`//`."
)
EVEN = (
    "Your slopes are evenly spaced. They must fall by the same factor from head to head. For a "
    f"power of two, head h must have the slope 2^(−8 (h + 1) / H). {TWO_STEPS}"
)
MISTAKES = [
    ("one rule for all numbers",
     "Right for powers of two. Otherwise, start with all slopes for P heads, where P is the "
     "largest power of two below H. Then append the first, third, fifth, … slope for 2P heads "
     "until there are H slopes.",
     "torch.tensor([2.0 ** (-8 * (h + 1) / num_heads) for h in range(num_heads)])"),
    ("begins with 1",
     "Your first slope is 1, as if you had used h instead of h + 1 in the exponent. Let P be the "
     "largest power of two up to H. For h from 0 to P − 1, the exponents are −8 (h + 1) / P.",
     ("[8 * h / power for h in range(1, power + 1)]", "[8 * h / power for h in range(power)]")),
    ("both begin with 1",
     "Your first slope is 1, and so is the first slope that you append from 2P heads. For P heads, "
     "head h (counted from 0) has the exponent −8 (h + 1) / P. For 2P heads, divide by 2P instead "
     "of P.",
     ("[8 * h / power for h in range(1, power + 1)]", "[8 * h / power for h in range(power)]"),
     (REST, REST.replace("range(1,", "range(0,"))),
    ("begins with 1, one rule for all",
     "Your first slope is 1. If H is a power of two, head h (counted from 0) has the exponent −8 "
     "(h + 1) / H. If H is not a power of two, follow the two steps of the exercise.",
     "torch.tensor([2.0 ** (-8 * h / num_heads) for h in range(num_heads)])"),
    ("cut from the next power",
     "Right for powers of two. Otherwise, your slopes are the first ones for 2P heads, where P is "
     "the largest power of two below H. Start with all slopes for P heads. Then append the first, "
     "third, fifth, … slope for 2P heads until there are H slopes.",
     "torch.tensor([2.0 ** (-8 * (h + 1) / 2 ** (num_heads - 1).bit_length()) "
     "for h in range(num_heads)])"),
    ("from the even ones",
     "You append the second, fourth, … slope for 2P heads, which are the slopes for P heads that "
     "you already have. Append the first, third, fifth, … instead.",
     (REST, REST.replace("range(1,", "range(2,").replace("(num_heads - power),",
                                                         "(num_heads - power) + 1,"))),
    ("not every second",
     "You append the first, second, third, … slope for 2P heads. Append only the first, third, "
     "fifth, ….",
     (REST, "8 * h / (2 * power) for h in range(1, num_heads - power + 1)")),
    ("slopes for 2H heads",
     "You append slopes for 2H heads. Append the first, third, fifth, … slope for 2P heads, where "
     "P is the largest power of two below H.",
     (REST, REST.replace("(2 * power)", "(2 * num_heads)"))),
    ("slopes for P heads",
     "The slopes that you append have the exponents −8 / P, −24 / P, …, as for P heads. Append "
     "slopes for 2P heads, so divide by 2P.",
     (REST, REST.replace("(2 * power)", "power"))),
    ("last ones appended",
     "Of the first, third, fifth, … slope for 2P heads, you append the last ones. Start with the "
     "first of these slopes.",
     (REST, "8 * h / (2 * power) for h in range(4 * power - 2 * num_heads + 1, 2 * power, 2)")),
    ("exponents rounded", ROUNDED, ("2.0**-e", "2.0 ** (-e // 1)")),
    ("exponents cut off", ROUNDED, ("2.0**-e", "2.0 ** -(e // 1)")),
    ("exponents rounded, one rule for all", f"{ROUNDED} {TWO_STEPS}",
     "2.0 ** torch.tensor([-8 * (h + 1) // num_heads for h in range(num_heads)])"),
    ("exponents cut off, one rule for all", f"{ROUNDED} {TWO_STEPS}",
     "2.0 ** -torch.tensor([8 * (h + 1) // num_heads for h in range(num_heads)])"),
    ("evenly spaced", EVEN, "torch.arange(1, num_heads + 1) / num_heads / 256"),
    ("evenly spaced from 1 / H", EVEN, "torch.arange(1, num_heads + 1) / num_heads"),
    ("evenly spaced, falling", EVEN, "torch.linspace(0.5, 2**-8, num_heads)"),
    ("power below the number",
     "You follow the two steps even if H is a power of two. In that case, head h must have the "
     "slope 2^(−8 (h + 1) / H).",
     ("num_heads.bit_length() - 1)", "max((num_heads - 1).bit_length() - 1, 0))")),
    ("always halved",
     "Each of your slopes is half of the one before, which is right only for eight heads. For a "
     "power of two, head h must have the slope 2^(−8 (h + 1) / H). If H is not a power of two, "
     "follow the two steps of the exercise.",
     "2.0 ** -torch.arange(1, num_heads + 1)"),
    ("one over the head",
     "Your slopes are 1 / (h + 1). For a power of two, they must be 2^(−8 (h + 1) / H). If H is "
     "not a power of two, follow the two steps of the exercise.",
     "1 / torch.arange(1, num_heads + 1)"),
    ("sorted",
     "Your slopes are right, but sorted. The slopes for P heads must come first, and then the "
     "slopes that you append from 2P heads.",
     ("2.0**-e for e in exponents", "2.0**-e for e in sorted(exponents)")),
    ("negative",
     "Your slopes are negative. Return positive ones, because ALiBi subtracts the slope times the"
     " distance.",
     ("2.0**-e", "-(2.0**-e)")),
    ("exponents",
     "Your result holds an exponent e in place of each slope 2^(−e). Return the slopes themselves.",
     ("2.0**-e", "e")),
    ("steeper from head to head",
     "Your slopes are above 1. The exponents of 2 must be negative.",
     ("2.0**-e", "2.0**e")),
    ("steeper from head to head, one rule for all",
     "Your slopes are above 1. For a power of two, head h must have the slope 2^(−8 (h + 1) / "
     "H). If H is not a power of two, follow the two steps of the exercise.",
     "torch.tensor([2.0 ** (8 * (h + 1) / num_heads) for h in range(num_heads)])"),
    ("natural powers, one rule for all",
     "Your slopes are powers of e. For a power of two, head h must have the slope 2^(−8 (h + 1) "
     "/ H). If H is not a power of two, follow the two steps of the exercise.",
     "torch.tensor([2.718281828 ** (-8 * (h + 1) / num_heads) for h in range(num_heads)])"),
    ("power rounded",
     "Your result is right only if the integer nearest to log2(H) is not above it. P must be the "
     "largest power of two up to H, so always round log2(H) down.",
     ("2 ** (num_heads.bit_length() - 1)", "2 ** round(math.log2(num_heads))"),
     ("    return torch.tensor([2.0**-e for e in exponents])",
      "    return torch.tensor([2.0**-e for e in exponents[:num_heads]])")),
    ("natural powers",
     "Your slopes are powers of e. Use powers of 2.",
     ("2.0**-e", "2.718281828**-e")),
    ("powers of two only",
     "Your result has only P slopes, where P is the largest power of two up to H. Append the "
     "first, third, fifth, … slope for 2P heads until there are H slopes.",
     ("    return", "    exponents = exponents[:power]\n    return")),
    ("backwards",
     "Your slopes are right, but in reverse order. Head 0 comes first.",
     ("2.0**-e for e in exponents", "2.0**-e for e in exponents[::-1]")),
    ("one too many",
     "Your result has one slope too many. Return H slopes.",
     ("2 * (num_heads - power), 2)", "2 * (num_heads - power) + 2, 2)")),
    ("4 for 8",
     "Your slopes are the square roots of the right ones. Double all exponents.",
     ("8 * h / power for", "4 * h / power for"), (REST, REST.replace("8 * h", "4 * h"))),
    ("4 for 8 in the power of two",
     "Your first slopes are the square roots of the right ones. The right ones have the "
     "exponents −8 (h + 1) / P, where P is the largest power of two up to H.",
     ("8 * h / power for", "4 * h / power for")),
    ("divided by the head",
     "Your exponents are −8 / (h + 1). For a power of two, they must be −8 (h + 1) / H. If H is "
     "not a power of two, follow the two steps of the exercise.",
     "torch.tensor([2.0 ** (-8 / (h + 1)) for h in range(num_heads)])"),
]  # fmt: skip

exercise = Exercise("9.3", alibi_slopes, inputs, MISTAKES, names="H", also_right=[recursively])
