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
        raise NamedMistake("not two", "return two things, y and the largest relative error")
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
        return torch.as_tensor(error / UNIT).half()
    except Exception:  # no number: `difference` says what it is
        return error


ITSELF = (
    "these powers have no error to speak of, as from torch.exp2 or 2 ** x: the cubic is asked, and "
    "the bits of the exponent"
)
FLOAT32 = (
    "y is right; the error is taken in float32, which rounds y / 2^x itself, by up to 6 · 10⁻⁸: "
    "take y and x to float64 first, y.double() / x.double().exp2()"
)
POWERS = (
    "right, but 2^n is taken by the unit for powers, as 2.0**n, exp or exp2 do: add n to the "
    "exponent's bits of p"
)
P = "C[0] + f * (C[1] + f * (C[2] + f * C[3]))"
BITS = "(p.view(torch.int32) + (n.to(torch.int32) << 23)).view(torch.float32)"
RIGHT = "x.double().exp2()"
ERROR = f"(y.double() / {RIGHT} - 1).abs().max()"

MISTAKES = [
    ("rounded to the nearest", "x is rounded to the nearest whole number, so that f lies between "
     "−½ and ½: the cubic is made for 0 ≤ f < 1, beyond it is soon far off; use floor",
     ("x.floor()", "x.round()")),
    ("cut off towards zero", "x is cut off towards 0, so that f is negative for negative x: the "
     "cubic is made for 0 ≤ f < 1; use floor", ("x.floor()", "x.trunc()")),
    ("rounded up", "x is rounded up, so that f is negative: the cubic is made for 0 ≤ f < 1; use "
     "floor", ("x.floor()", "x.ceil()")),
    ("sign of the exponent", "the exponent has the wrong sign: the result grows where x falls; add "
     "n to the exponent's bits", ("+ (n.to(", "- (n.to(")),
    ("fraction alone", "that is 2^f: n does not reach the exponent, whose bits begin at bit 23; "
     "add n << 23 to the bits of p", (BITS, "p")),
    ("shifted too far", "n is added one bit too far up: 23 bits lie below the exponent",
     ("<< 23", "<< 24")),
    ("not shifted far enough", "n is added one bit too low: 23 bits lie below the exponent",
     ("<< 23", "<< 22")),
    ("converted", "p is converted to a whole number, which is 1: .view(torch.int32) takes its bits "
     "as they are", ("p.view(torch.int32)", "p.to(torch.int32)")),
    ("bias added", "127 is added to the exponent a second time: p has it in its bits already, "
     "being about 2^f and no bare fraction",
     ("(n.to(torch.int32) <<", "(n.to(torch.int32) + 127 <<")),
    ("bits joined by or", "the bits are joined by |, which loses what both have: add them",
     ("torch.int32) + (n", "torch.int32) | (n")),
    ("bits converted", "the sum of the bits is converted to a float as a number: "
     ".view(torch.float32) reads the bits as they are",
     (".view(torch.float32)", ".to(torch.float32)")),
    ("clamped too low", "right down to −126: below it float32 has no exponent left, and −127 "
     "gives 0 or another number; clamp at −126", ("min=-126", "min=-127")),
    ("clamped from above", "right up to 0, and 1 above it: x is clamped from below only, at −126",
     ("min=-126", "-126, 0")),
    ("zeros in the error", "y is right; where it was set to 0 the error is 1: x is clamped there, "
     "so leave y at 2^−126, or take the error before",
     ("x = x.clamp(min=-126)", "given, x = x, x.clamp(min=-126)"),
     ("    error =", "    y = torch.where(given < -126, 0, y)\n    error =")),
    ("Taylor's cubic", "Taylor's coefficients are right at 0 and off by 1% towards 1: take C",
     (P, "1 + f * (0.693147 + f * (0.240227 + f * 0.0555041))")),
    ("whole part alone", "the powers of the whole parts alone: multiply by the cubic in f, that is "
     "add n to the exponent of p", (P, "C[0] + 0 * f")),
    ("cubic of x", "the cubic is taken of x, not of f: it is made for 0 ≤ f < 1",
     (P, P.replace("f", "x"))),
    ("coefficients turned around", "the coefficients are taken from the other end: C[0] stands "
     "alone, C[3] before f³", (P, "C[3] + f * (C[2] + f * (C[1] + f * C[0]))")),
    ("a square", "f³ is missing: C[3] belongs to it", (" + f * C[3]", "")),
    ("power of e", "that is e^x: it takes no factor log₂e, powers of 2 are asked",
     ("n = x.floor()", "x = x * 1.4426950408889634\n    n = x.floor()")),
    ("not clamped", "right, but for scores far below 0, −∞ among them: the exponent's bits run "
     "into the sign, or f is NaN; clamp x at −126 first", ("x.clamp(min=-126)", "x")),
    ("absolute error", "y is right; the error is absolute, y − 2^x: divide it by 2^x", (ERROR,
      f"(y.double() - {RIGHT}).abs().max()")),
    ("sign of the error", "y is right; the error is the largest upwards only: take abs() before "
     "max()", (".abs().max()", ".max()")),
    ("error of each", "y is right; an error is returned for each number: take the largest, .max()",
     (ERROR, ERROR.removesuffix(".max()"))),
    ("bits of the error", "y is right; −log₂ of the error is returned, how many bits are right: "
     "the error itself is asked", (ERROR, f"-{ERROR}.log2()")),
    ("mean error", "y is right; the error is a mean: the largest is asked",
     (".abs().max()", ".abs().mean()")),
    ("error in percent", "y is right; the error is in percent: y / 2^x − 1 is asked as it is",
     (ERROR, f"100 * {ERROR}")),
    ("error before the clamp", "y is right; the error is taken from 2^x before x was clamped, "
     "where 2^x is 0", ("x = x.clamp(min=-126)", "given, x = x, x.clamp(min=-126)"), (
      RIGHT, "given.double().exp2()")),
    ("64 bits", "n becomes a number of 64 bits, and so does the sum: as float32 each gives two "
     "numbers; take n to torch.int32, as p's bits are", ("n.to(torch.int32)", "n.to(torch.int64)")),
    ("fraction negative", "f has the wrong sign: it is what x is above n, x − n",
     ("f = x - n", "f = n - x")),
    ("constant forgotten", "C[0] is missing: 2^f is about 1 at f = 0", ("C[0] + f *", "f *")),
    ("square for the cube", "C[3] is multiplied by f²: it belongs to f³",
     (P, "C[0] + f * (C[1] + f * (C[2] + C[3]))")),
    ("times n", "the cubic is multiplied by n, not by 2^n: add n to the exponent of p",
     (BITS, "p * n")),
    ("added to the power", "2^n is added to the cubic, a number to a number: 2^(n + f) is their "
     "product; add n << 23 to the bits of p", (BITS, "p + n.exp2()")),
    ("exponent alone", "n in the exponent's place alone is no power: add it to the bits of p, "
     "which have 127 there", (BITS, "(n.to(torch.int32) << 23).view(torch.float32)")),
    ("clamped the wrong way", "x is clamped from above: min=−126 keeps what is larger",
     ("min=-126", "max=-126")),
    ("quotient returned", "y is right; the error is the largest y / 2^x: take off the 1 that a "
     "power without error gives", (" - 1).abs()", ").abs()")),
    ("smallest error", "y is right; the smallest error is returned: the largest is asked",
     (".abs().max()", ".abs().min()")),
    ("errors added", "y is right; the errors are added up: the largest is asked",
     (".abs().max()", ".abs().sum()")),
]  # fmt: skip

exercise = Exercise(
    "6b.5", exp2_polynomial, inputs, MISTAKES, run=run,
    compared="y / 2^x − 1 in units of 0.0001, the error in the same, and y below 2^−126",
    also_right=[by_ldexp, in_numpy],
)  # fmt: skip
