"""6b.5: 2^x by a cubic and the bits of the exponent, and how far off it is."""

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals

C = (1.0, 0.69512, 0.22764, 0.07707)  # 2^f ≈ C[0] + C[1] f + C[2] f² + C[3] f³ for 0 ≤ f < 1
UNIT = 1e-4  # of relative errors
IN_FLOAT64 = 1e-9  # what an error calculated in float64 may be off, and one in float32 is not


def exp2_polynomial(x):
    x = x.clamp(min=-126)  # the least exponent that float32 has bits for
    n = x.floor()  # whole
    f = x - n  # 0 ≤ f < 1
    p = C[0] + f * (C[1] + f * (C[2] + f * C[3]))  # about 2^f, in [1, 2)
    y = (p.view(torch.int32) + (n.to(torch.int32) << 23)).view(torch.float32)
    error = (y.double() / x.double().exp2() - 1).abs().max()
    return y, error


def by_ldexp(x):
    x = torch.clamp(x, min=-126.0)
    n = torch.floor(x)
    f = x - n
    y = torch.ldexp(C[0] + C[1] * f + C[2] * f**2 + C[3] * f**3, n)
    return y, ((y.double() - 2 ** x.double()) / 2 ** x.double()).abs().max().item()


def in_numpy(x):
    x = np.maximum(x.numpy(), np.float32(-126))
    n = np.floor(x)
    p = np.polyval(np.array(C[::-1], dtype=np.float32), x - n).astype(np.float32)
    y = (p.view(np.int32) + n.astype(np.int32) * 2**23).view(np.float32)
    return y, np.abs(y.astype(np.float64) / np.exp2(x.astype(np.float64)) - 1).max()


def inputs():
    """Return (x,) in float32; what lies below -126 is far enough from 0 to count as such."""
    normal = normals(6500)
    x = torch.tensor
    return [
        (torch.linspace(0, 1, 18)[:-1],),
        (-3 * normal(4, 5, dtype=torch.float32).abs(),),
        (x([-1.9, -0.9, -17.9]),),  # where the cubic lies below 2^x
        (x([-1.3, -0.31, -100.3]),),  # where it lies above
        (x([0.5, -0.5, -2.5, -125.5, -126.0]),),
        (x([-torch.inf, -1000.0, -150.0, -127.5, -0.25]),),
        (x([-126.5, -0.9]),),
        (5 * normal(2, 3, 3, dtype=torch.float32),),
        (x([-0.0, -1.0, -2.0, -20.0]),),  # whole: exact
        (x([30.7, 31.5, 126.3, 127.6]),),  # large
    ]


def run(answer, x):
    """Return y / 2^x - 1 and the error found, in a unit of 0.0001, and y where 2^x nearly is 0.

    In float16, for the answer calculates in float32.
    """
    if x.requires_grad:
        return [None]  # gradients are not asked
    with _Powers() as powers:
        (result,) = call_with_clones(answer, x)
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise NamedMistake("not two", "Return two results: y and the largest relative error.")
    y, error = result
    y = torch.as_tensor(y) if isinstance(y, np.ndarray) else y
    if not isinstance(y, torch.Tensor) or y.shape != x.shape or not y.is_floating_point():
        return [(y, _half(error), y)]
    tiny = x < -126
    off = (y.double() / x.double().exp2() - 1).masked_fill(tiny, 0)
    if off.any() and off.abs().max() < UNIT / 100:
        raise NamedMistake("the power itself", ITSELF)
    results = [(_half(off), _half(error), y.double().masked_fill(~tiny, 0))]
    # Float32 rounds a quotient near 1 by up to 2^-24. One error as a float32 is 10^-11 off at most.
    if IN_FLOAT64 < _distance(error, off.abs().max()) < 1e-6:
        inverse = (1 / (1 + off) - 1).abs().max()  # 2^x / y - 1
        if _distance(error, inverse) < IN_FLOAT64 / 100:
            raise NamedMistake("divided by y", DIVIDED_BY_Y, results)
        raise NamedMistake("error in float32", FLOAT32, results)
    if powers.taken:
        raise NamedMistake("powers all the same", POWERS, results)
    return results


class _Powers(TorchFunctionMode):
    """Note whether a power is taken of an exponent that is a tensor, but in float64: the error."""

    taken = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        place = {"exp": 0, "exp2": 0, "__rpow__": 0, "pow": 1, "__pow__": 1}.get(func.__name__)
        exponent = args[place] if place is not None and place < len(args) else None
        if isinstance(exponent, torch.Tensor) and exponent.dtype != torch.float64:
            self.taken = True
        return func(*args, **(kwargs or {}))


def _distance(error, right):
    try:
        return abs(float(error) - float(right))
    except Exception:  # no single number: `difference` says what it is
        return 0.0


def _half(error):
    try:
        error = torch.as_tensor(error / UNIT)
        half = error.half()
        return half if half.isfinite().all() else error.float()  # large ones differ, too
    except Exception:  # no number: `difference` says what it is
        return error


ITSELF = (
    "Your y has almost no error, as if it came from torch.exp2 or 2 ** x. Compute it with the "
    "cubic and the bits of the exponent."
)
FLOAT32 = (
    "y is right, but your error is computed in float32. This rounds y / 2^x itself, by up to 6 · "
    "10⁻⁸. Convert y and x first: y.double() / x.double().exp2()."
)
DIVIDED_BY_Y = (
    "y is right, but your error is 2^x / y − 1, or the difference divided by y. A relative error "
    "is relative to the exact value. Divide by 2^x."
)
POWERS = (
    "Your numbers are right, but you compute a power with 2.0**n, exp or exp2. On a GPU, this "
    "would use the special function units, which this method avoids. Add n << 23 to the bits of p "
    "instead."
)
TOO_LOW = (
    "Your result is right for x ≥ −126. Below that, float32 has no normal numbers, so adding n << "
    "23 to the bits no longer multiplies by 2^n. Clamp x at −126."
)
P = "C[0] + f * (C[1] + f * (C[2] + f * C[3]))"
BITS = "(p.view(torch.int32) + (n.to(torch.int32) << 23)).view(torch.float32)"
RIGHT = "x.double().exp2()"
ERROR = f"(y.double() / {RIGHT} - 1).abs().max()"

MISTAKES = [
    ("rounded to the nearest",
     "Your result is what you get if x is rounded to the nearest integer. Then f is between −½ "
     "and ½, but the cubic is made for 0 ≤ f < 1. Use floor.",
     ("x.floor()", "x.round()")),
    ("cut off towards zero",
     "Your result is what you get if x is truncated toward 0. Then f is negative for negative x, "
     "but the cubic is made for 0 ≤ f < 1. Use floor.",
     ("x.floor()", "x.trunc()")),
    ("rounded up",
     "Your result is what you get if x is rounded up. Then f is 0 or negative, but the cubic is "
     "made for 0 ≤ f < 1. Use floor.",
     ("x.floor()", "x.ceil()")),
    ("sign of the exponent",
     "You subtract n from the exponent, so your y is about 2^(f − n). Add n << 23 to the bits of p "
     "instead of subtracting it.",
     ("+ (n.to(", "- (n.to(")),
    ("fraction alone",
     "Your result is 2^f, without the factor 2^n. The exponent starts at bit 23, so add n << 23 "
     "to the bits of p.",
     (BITS, "p")),
    ("shifted too far",
     "You add n one bit too high. There are 23 bits below the exponent, so shift n by 23.",
     ("<< 23", "<< 24")),
    ("not shifted far enough",
     "You add n one bit too low. There are 23 bits below the exponent, so shift n by 23.",
     ("<< 23", "<< 22")),
    ("converted",
     "Your result is what you get if p is converted to an integer, which gives 1. Use "
     "p.view(torch.int32), which keeps the bits as they are.",
     ("p.view(torch.int32)", "p.to(torch.int32)")),
    ("bias added",
     "You add 127 to the exponent a second time. p is between 1 and 2, so its exponent bits "
     "already contain 127. Add only n.",
     ("(n.to(torch.int32) <<", "(n.to(torch.int32) + 127 <<")),
    ("bits joined by or",
     "Your result is what you get if the bits are combined with |. Where both numbers have a 1, | "
     "loses one of them. Use +, which carries.",
     ("torch.int32) + (n", "torch.int32) | (n")),
    ("bits converted",
     "Your result is what you get if the sum of the bits is converted to a float of the same "
     "value. But the sum already holds the bits of the right float. Use .view(torch.float32), "
     "which keeps them as they are.",
     (".view(torch.float32)", ".to(torch.float32)")),
    ("clamped too low", TOO_LOW, ("min=-126", "min=-127")),
    ("clamped two too low", TOO_LOW, ("min=-126", "min=-128")),
    ("clamped at the least subnormal number", TOO_LOW, ("min=-126", "min=-149")),
    ("clamped too high",
     "Your result is right for x ≥ −125, but constant below that. float32 has normal numbers down "
     "to 2^−126, so clamp x at −126.",
     ("min=-126", "min=-125")),
    ("clamped far too high",
     "Your result is right for x ≥ −100, but constant below that. float32 has normal numbers down "
     "to 2^−126, so clamp x at −126.",
     ("min=-126", "min=-100")),
    ("0 at −126",
     "Your y is 0 at x = −126, but 2^(−126) is a normal number in float32. Leave y as it is there.",
     ("return y, error", "return torch.where(x <= -126, 0, y), error")),
    ("clamped from above",
     "Your result is right for x ≤ 0, but it is 1 for every larger x. Clamp x only from below, at "
     "−126.",
     ("min=-126", "-126, 0")),
    ("clamped on both sides",
     "Your result is right for x ≤ 126, but constant above that. Clamp x only from below, at −126.",
     ("min=-126", "-126, 126")),
    ("clamped at the largest exponent",
     "Your result is right for x ≤ 127, but constant above that. Clamp x only from below, at −126.",
     ("min=-126", "-126, 127")),
    ("clamped at 30",
     "Your result is right for x ≤ 30, but constant above that. Clamp x only from below, at −126.",
     ("min=-126", "-126, 30")),
    ("shifted 1",
     "Your result is what you get if p is multiplied by 1 << n. This is 2^n only for n from 0 to "
     "30, and 0 for negative n. Add n << 23 to the bits of p.",
     (BITS, "p * (1 << n.to(torch.int32))")),
    ("absolute fraction",
     "Your result is what you get if x is truncated toward 0 and f is made positive. Then n + f is "
     "not x where x is negative. Use n = floor(x) and f = x − n.",
     ("x.floor()", "x.trunc()"), ("f = x - n", "f = (x - n).abs()")),
    ("cubic in 16 bits",
     "Your result is slightly off, as if p were rounded to float16. That leaves only 11 "
     "significant bits. Keep p in float32.",
     (P, f"({P}).half().float()")),
    ("zeros in the error",
     "You set y to 0 for x below −126, and there its relative error is 1. Leave y at 2^−126, or "
     "compute the error before you set y to 0.",
     ("x = x.clamp(min=-126)", "given, x = x, x.clamp(min=-126)"),
     ("    error =", "    y = torch.where(given < -126, 0, y)\n    error =")),
    ("Taylor's cubic",
     "Your result is what you get with the Taylor coefficients. That polynomial is exact at f = "
     "0, but 0.6% too small near f = 1. Use the coefficients in C.",
     (P, "1 + f * (0.693147 + f * (0.240227 + f * 0.0555041))")),
    ("whole part alone",
     "Your result is 2^n, without the factor 2^f. Compute p with the cubic in f, and add n to its "
     "exponent.",
     (P, "C[0] + 0 * f")),
    ("cubic of x",
     "You evaluate the cubic at x instead of f. The cubic is made for 0 ≤ f < 1. Evaluate it at f.",
     (P, P.replace("f", "x"))),
    ("coefficients turned around",
     "Your coefficients are in reverse order. C[0] is the constant term, and C[3] belongs to f³.",
     (P, "C[3] + f * (C[2] + f * (C[1] + f * C[0]))")),
    ("a square",
     "Your polynomial has no f³ term, so it is too small near f = 1. Add C[3] f³.",
     (" + f * C[3]", "")),
    ("power of e",
     "Your result is e^x, but the task is 2^x. If you multiply x by log₂e, leave that out.",
     ("n = x.floor()", "x = x * 1.4426950408889634\n    n = x.floor()")),
    ("clamped after the split",
     "You clamp after splitting x, so f still belongs to the original x. For x = −∞, this f is "
     "NaN. Clamp x first, and then split it.",
     ("x = x.clamp(min=-126)", "x = x"),
     ("f = x - n", "f = x - n\n    n, x = n.clamp(min=-126), x.clamp(min=-126)")),
    ("only n clamped",
     "You clamp n but not x, so f = x − n is no longer between 0 and 1 for x below −126. Clamp x "
     "first, and then split it.",
     ("x = x.clamp(min=-126)", "x = x"), ("x.floor()", "x.floor().clamp(min=-126)"),
     (RIGHT, "x.clamp(min=-126).double().exp2()")),
    ("not clamped",
     "Your result is right, except for x far below −126. There the exponent bits run into the "
     "sign bit. Clamp x at −126 first.",
     ("x.clamp(min=-126)", "x")),
    ("absolute error",
     "y is right, but your error is the absolute one, |y − 2^x|. Divide it by 2^x.",
     (ERROR,
      f"(y.double() - {RIGHT}).abs().max()")),
    ("sign of the error",
     "y is right, but your error counts only results that are too large. Take abs() before max().",
     (".abs().max()", ".max()")),
    ("signed minimum",
     "y is right, but you return the smallest signed error. Take abs() first, and then max().",
     (".abs().max()", ".min()")),
    ("squared error",
     "y is right, but your error is squared. Use abs() instead of the square.",
     (".abs().max()", ".square().max()")),
    ("error against e^x",
     "y is right, but your error compares y with e^x. Compare it with 2^x, so use "
     "exp2 instead of exp.",
     (RIGHT, "x.double().exp()")),
    ("error against 2^n",
     "y is right, but your error compares y with 2^n. Compare it with 2^x.",
     (RIGHT, "n.double().exp2()")),
    ("error against x",
     "y is right, but your error compares y with x. Compare it with 2^x.",
     (RIGHT, "x.double()")),
    ("error doubled",
     "y is right, but your error is twice the right one. Leave out the factor 2.",
     (ERROR, f"2 * {ERROR}")),
    ("error of each",
     "y is right, but you return an error for each number. Return only the largest one, with "
     ".max().",
     (ERROR, ERROR.removesuffix(".max()"))),
    ("bits of the error",
     "y is right, but you return −log₂ of the error, the number of correct bits. Return the error "
     "itself.",
     (ERROR, f"-{ERROR}.log2()")),
    ("mean error",
     "y is right, but you return the mean error. Return the largest one.",
     (".abs().max()", ".abs().mean()")),
    ("error in percent",
     "y is right, but your error is in percent. Leave out the factor 100.",
     (ERROR, f"100 * {ERROR}")),
    ("error before the clamp",
     "y is right, but your error compares y with 2^x of the original x. For x below −126, y stays "
     "at 2^−126, which is far larger than 2^x. Use the clamped x.",
     ("x = x.clamp(min=-126)", "given, x = x, x.clamp(min=-126)"), (
      RIGHT, "given.double().exp2()")),
    ("64 bits",
     "Your result has twice as many numbers as x. If n is int64, the sum is int64 too, and "
     ".view(torch.float32) turns each int64 into two numbers. Convert n to torch.int32.",
     ("n.to(torch.int32)", "n.to(torch.int64)")),
    ("fraction negative",
     "Your f has the wrong sign. Because x = n + f, f must be x − n.",
     ("f = x - n", "f = n - x")),
    ("constant forgotten",
     "Your polynomial has no C[0]. At f = 0, the polynomial must be 1. Add C[0].",
     ("C[0] + f *", "f *")),
    ("square for the cube",
     "You multiply C[3] by f², but it belongs to f³. Multiply it by f³.",
     (P, "C[0] + f * (C[1] + f * (C[2] + C[3]))")),
    ("times n",
     "You multiply the cubic by n instead of 2^n. Add n << 23 to the bits of p.",
     (BITS, "p * n")),
    ("added to the power",
     "Your result is 2^n plus the cubic. But 2^(n + f) is 2^n times 2^f. Add n << 23 to the bits "
     "of p.",
     (BITS, "p + n.exp2()")),
    ("exponent alone",
     "Your result has only n << 23 as its bits. The bits of p, which hold the offset 127 and the "
     "value 2^f, are missing. Add n << 23 to the bits of p.",
     (BITS, "(n.to(torch.int32) << 23).view(torch.float32)")),
    ("clamped the wrong way",
     "You clamp x from above, so every x larger than −126 becomes −126. Clamp x from below: "
     "x.clamp(min=-126).",
     ("min=-126", "max=-126")),
    ("quotient returned",
     "y is right, but you return the largest y / 2^x. Subtract 1 first, so that an exact y has "
     "the error 0.",
     (" - 1).abs()", ").abs()")),
    ("smallest error",
     "y is right, but you return the smallest error. Return the largest one.",
     (".abs().max()", ".abs().min()")),
    ("errors added",
     "y is right, but you return the sum of the errors. Return the largest one.",
     (".abs().max()", ".abs().sum()")),
    ("negative fraction",
     "Your f is negative for negative x, as with x.frac(). The cubic is made for 0 ≤ f < 1. Use n "
     "= floor(x) and f = x − n.",
     ("f = x - n", "f = x.frac()")),
    ("n not rounded down",
     "Your f is right, but n is x rounded toward 0. Negative x must be rounded down. Use n = "
     "floor(x).",
     ("n = x.floor()", "n = x"), ("f = x - n", "f = x - x.floor()")),
    ("n added to the cubic",
     "You add n to the cubic as a number, which gives 2^f + n. Multiply by 2^n instead: add n << "
     "23 to the bits of p.",
     (BITS, "p + n")),
    ("only errors downward",
     "y is right, but your error counts only results that are too small. Take abs() before max().",
     (".abs().max()", ".min().abs()")),
    ("other order",
     "You return the error first. Return y first and the error second.",
     ("return y, error", "return error, y")),
]  # fmt: skip

exercise = Exercise(
    "6b.5", exp2_polynomial, inputs, MISTAKES, run=run,
    compared="three items: y / 2^x − 1 and your error, in units of 0.0001; y where x < −126",
    also_right=[by_ldexp, in_numpy],
)  # fmt: skip
