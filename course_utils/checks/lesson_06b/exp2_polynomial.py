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
    "Your y has almost no error, as if it came from torch.exp2 or 2 ** x. Use the cubic and the "
    "bits of the exponent."
)
FLOAT32 = (
    "y is right, but your error is computed in float32. This rounds y / 2^x itself, by up to 6 · "
    "10⁻⁸. Convert both first: y.double() / x.double().exp2()."
)
POWERS = (
    "The numbers are right, but you compute a power such as 2.0**n, exp or exp2. On a GPU, this "
    "would use the unit for exponentials. Add n to the exponent bits of p instead."
)
P = "C[0] + f * (C[1] + f * (C[2] + f * C[3]))"
BITS = "(p.view(torch.int32) + (n.to(torch.int32) << 23)).view(torch.float32)"
RIGHT = "x.double().exp2()"
ERROR = f"(y.double() / {RIGHT} - 1).abs().max()"

MISTAKES = [
    ("rounded to the nearest",
     "Your result is the one you get if x is rounded to the nearest integer, so that f is between "
     "−½ and ½. The cubic is made for 0 ≤ f < 1, so use floor.",
     ("x.floor()", "x.round()")),
    ("cut off towards zero",
     "Your result is the one you get if x is truncated toward 0, so that f is negative for "
     "negative x. The cubic is made for 0 ≤ f < 1, so use floor.",
     ("x.floor()", "x.trunc()")),
    ("rounded up",
     "Your result is the one you get if x is rounded up, so that f is negative. The cubic is made "
     "for 0 ≤ f < 1, so use floor.",
     ("x.floor()", "x.ceil()")),
    ("sign of the exponent",
     "Your exponent has the wrong sign, so the result grows where x falls. Add n to the bits of "
     "the exponent.",
     ("+ (n.to(", "- (n.to(")),
    ("fraction alone",
     "Your result is 2^f, so n is missing. The bits of the exponent start at bit 23. Add n << 23 "
     "to the bits of p.",
     (BITS, "p")),
    ("shifted too far",
     "Your n is added one bit too high. There are 23 bits below the exponent.",
     ("<< 23", "<< 24")),
    ("not shifted far enough",
     "Your n is added one bit too low. There are 23 bits below the exponent.",
     ("<< 23", "<< 22")),
    ("converted",
     "Your result is the one you get if p is converted to an integer, which gives 1. Use "
     ".view(torch.int32), which keeps the bits as they are.",
     ("p.view(torch.int32)", "p.to(torch.int32)")),
    ("bias added",
     "Your result adds 127 to the exponent a second time. p is a number between 1 and 2, so its "
     "bits already contain 127. Add only n.",
     ("(n.to(torch.int32) <<", "(n.to(torch.int32) + 127 <<")),
    ("bits joined by or",
     "Your result is the one you get if the bits are joined with |, which loses the bits that both "
     "have. Add them with +.",
     ("torch.int32) + (n", "torch.int32) | (n")),
    ("bits converted",
     "Your result is the one you get if the sum of the bits is converted to a float as a number. "
     "Use .view(torch.float32), which keeps the bits as they are.",
     (".view(torch.float32)", ".to(torch.float32)")),
    ("clamped too low",
     "Right down to −126. Below that, float32 has no exponent left, so a lower clamp gives wrong "
     "results. Clamp x at −126.",
     ("min=-126", "min=-127")),
    ("clamped from above",
     "Right up to 0, but your result is 1 above it. Clamp x only from below, at −126.",
     ("min=-126", "-126, 0")),
    ("zeros in the error",
     "y is right, but where it was set to 0, the error is 1. x is clamped there, so leave y at "
     "2^−126, or compute the error first.",
     ("x = x.clamp(min=-126)", "given, x = x, x.clamp(min=-126)"),
     ("    error =", "    y = torch.where(given < -126, 0, y)\n    error =")),
    ("Taylor's cubic",
     "Your result fits the Taylor coefficients. They are right at f = 0, but off by 1% near f = 1. "
     "Use C.",
     (P, "1 + f * (0.693147 + f * (0.240227 + f * 0.0555041))")),
    ("whole part alone",
     "Your result is 2^n, so the fraction is missing. Multiply by the cubic in f: add n to the "
     "exponent of p.",
     (P, "C[0] + 0 * f")),
    ("cubic of x",
     "Your result is the cubic of x instead of f. The cubic is made for 0 ≤ f < 1, so use f.",
     (P, P.replace("f", "x"))),
    ("coefficients turned around",
     "Your coefficients are in reverse order. C[0] is the constant, and C[3] belongs to f³.",
     (P, "C[3] + f * (C[2] + f * (C[1] + f * C[0]))")),
    ("a square",
     "Your result has no f³. Add C[3] f³.",
     (" + f * C[3]", "")),
    ("power of e",
     "Your result is e^x. The task is 2^x, so leave out the factor log₂e.",
     ("n = x.floor()", "x = x * 1.4426950408889634\n    n = x.floor()")),
    ("not clamped",
     "Right, except for values far below 0, such as −∞. There the exponent's bits run into the "
     "sign, or f is NaN. Clamp x at −126 first.",
     ("x.clamp(min=-126)", "x")),
    ("absolute error",
     "y is right, but your error is the absolute one, y − 2^x. Divide it by 2^x.",
     (ERROR,
      f"(y.double() - {RIGHT}).abs().max()")),
    ("sign of the error",
     "y is right, but your error is only the largest one upward. Use abs() before max().",
     (".abs().max()", ".max()")),
    ("error of each",
     "y is right, but you return an error for each number. Return only the largest one, with "
     ".max().",
     (ERROR, ERROR.removesuffix(".max()"))),
    ("bits of the error",
     "y is right, but you return −log₂ of the error, the number of right bits. Return the error "
     "itself.",
     (ERROR, f"-{ERROR}.log2()")),
    ("mean error",
     "y is right, but your error is a mean. Return the largest one.",
     (".abs().max()", ".abs().mean()")),
    ("error in percent",
     "y is right, but your error is in percent. Return y / 2^x − 1 without the factor 100.",
     (ERROR, f"100 * {ERROR}")),
    ("error before the clamp",
     "y is right, but your error compares with 2^x of the x before clamping, where 2^x may be 0. "
     "Compare with 2^x of the clamped x.",
     ("x = x.clamp(min=-126)", "given, x = x, x.clamp(min=-126)"), (
      RIGHT, "given.double().exp2()")),
    ("64 bits",
     "Your result has twice as many numbers as x. If n has 64 bits, the sum has 64 bits too. "
     "Convert n to torch.int32, as the bits of p are.",
     ("n.to(torch.int32)", "n.to(torch.int64)")),
    ("fraction negative",
     "Your f has the wrong sign. It is what remains of x above n, so use x − n.",
     ("f = x - n", "f = n - x")),
    ("constant forgotten",
     "Your result lacks C[0]. At f = 0, 2^f must be about 1.",
     ("C[0] + f *", "f *")),
    ("square for the cube",
     "Your result multiplies C[3] by f². It belongs to f³.",
     (P, "C[0] + f * (C[1] + f * (C[2] + C[3]))")),
    ("times n",
     "Your result multiplies the cubic by n instead of 2^n. Add n to the exponent of p.",
     (BITS, "p * n")),
    ("added to the power",
     "Your result is 2^n plus the cubic. 2^(n + f) is their product. Add n << 23 to the bits of p.",
     (BITS, "p + n.exp2()")),
    ("exponent alone",
     "Your result uses n alone as the exponent. Add n << 23 to the bits of p, because they already "
     "contain the offset 127.",
     (BITS, "(n.to(torch.int32) << 23).view(torch.float32)")),
    ("clamped the wrong way",
     "Your x is clamped from above. Use min=−126, which keeps larger values.",
     ("min=-126", "max=-126")),
    ("quotient returned",
     "y is right, but your error is the largest y / 2^x. Subtract 1, which is the quotient without "
     "an error.",
     (" - 1).abs()", ").abs()")),
    ("smallest error",
     "y is right, but you return the smallest error. Return the largest one.",
     (".abs().max()", ".abs().min()")),
    ("errors added",
     "y is right, but you return the sum of the errors. Return the largest one.",
     (".abs().max()", ".abs().sum()")),
]  # fmt: skip

exercise = Exercise(
    "6b.5", exp2_polynomial, inputs, MISTAKES, run=run,
    compared="y / 2^x − 1 in units of 0.0001, the error in the same, and y below 2^−126",
    also_right=[by_ldexp, in_numpy],
)  # fmt: skip
