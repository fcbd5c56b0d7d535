"""12.2: keys rounded to 2^bits levels, with one scale for each channel."""

import numpy as np
import torch

from course_utils.cache import dequantize, quantize
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def quantize_per_channel(k, bits):
    low = k.amin(dim=-2, keepdim=True)  # (B, H, 1, d_k)
    high = k.amax(dim=-2, keepdim=True)  # (B, H, 1, d_k)
    step = (high - low) / (2**bits - 1)  # (B, H, 1, d_k)
    step = torch.where(step == 0, 1, step)  # a constant channel has no range
    codes = ((k - low) / step).round()  # (B, H, S, d_k), from 0 to 2^bits - 1
    return low + codes * step


def by_the_module(k, bits):
    return dequantize(quantize(k, bits, -2))


def by_numpy(k, bits):
    x = k.numpy().astype(np.float64)
    low, span = x.min(axis=2, keepdims=True), np.ptp(x, axis=2, keepdims=True)
    scale = np.maximum(span / (2**bits - 1), 1e-12)
    return torch.from_numpy(low + scale * np.rint((x - low) / scale)).to(k.dtype)


def by_loops(k, bits):
    out = torch.empty_like(k)
    B, H, _, d_k = k.shape
    for b in range(B):
        for h in range(H):
            for c in range(d_k):
                column = k[b, h, :, c]
                levels = torch.linspace(0, 1, 2**bits, dtype=torch.float64)
                levels = column.min() + levels * (column.max() - column.min())
                nearest = (column[:, None] - levels).abs().argmin(dim=-1)
                out[b, h, :, c] = levels[nearest].to(k.dtype)
    return out


def inputs():
    normal = normals(122)
    outlying = normal(2, 3, 9, 5, dtype=torch.float32)
    outlying[:, :, :, 2] += 20  # a channel far from 0
    outlying[:, 1, :, 4] *= 10
    constant = normal(2, 2, 6, 4)
    constant[0, 1, :, 3] = -1.5
    constant[1, 0, :, 0] = 0
    return [
        (normal(2, 3, 7, 5), 2),
        (normal(1, 2, 11, 4, dtype=torch.float32), 4),
        (outlying, 3),
        (normal(3, 1, 10, 6) + 3, 4),  # all above 0
        (normal(2, 2, 300, 3), 8),
        (normal(2, 5, 6, 3).transpose(1, 2), 1),
        (4 * normal(2, 2, 8, 3) - 5, 5),
        (constant, 4),  # channels without a range
        (normal(2, 2, 1, 3), 2),  # a single token has none either
    ]


STEP = "step = (high - low) / (2**bits - 1)"
GUARD = "step = torch.where(step == 0, 1, step)"
CODES = "codes = ((k - low) / step).round()"
RESULT = "low + codes * step"
LOW = "low = k.amin(dim=-2, keepdim=True)"
HIGH = "high = k.amax(dim=-2, keepdim=True)"


def _reduced(dim):
    return (LOW, LOW.replace("-2", dim)), (HIGH, HIGH.replace("-2", dim))


SYMMETRIC = (
    "Your levels are symmetric around 0. If all numbers in a channel lie on one side of 0, half of "
    "these levels are never used. Spread the levels from the smallest to the largest number in the "
    "channel."
)
MISTAKES = [
    ("constant channel",
     "Your result is right, except that a channel whose numbers are all equal gives NaN. Its "
     "scale is 0, and 0 / 0 is NaN. Return such a channel unchanged.",
     (GUARD, "")),
    ("constant channel as 0",
     "Your result is right, except that a channel whose numbers are all equal becomes 0. Return "
     "such a channel unchanged.",
     (GUARD, ""), (RESULT, f"({RESULT}).nan_to_num(0)")),
    ("constant channel off by one",
     "Your result is right, except for channels whose numbers are all equal. You add something to "
     "them. Return such a channel unchanged.",
     (CODES, "codes = torch.where(high == low, 1, (k - low) / step).round()")),
    ("per token",
     "Your result has one scale for each token. Keys need one scale for each channel. Take the "
     "smallest and the largest number over the tokens, with dim=-2.",
     *_reduced("-1")),
    ("per head",
     "Your result has one scale for all channels of a head. A channel with large numbers then "
     "makes the scale too large for the other channels. Reduce over the tokens alone, with "
     "dim=-2.",
     *_reduced("(-2, -1)")),
    ("one for all",
     "Your result has one scale for the whole tensor. Each channel of each head of each text "
     "needs its own scale. Reduce over the tokens alone, with dim=-2 and keepdim=True.",
     *_reduced("(0, 1, 2, 3)")),
    ("over heads",
     "Your smallest and largest numbers are taken over the heads. All tokens of a channel must "
     "share one scale. Take the smallest and largest number over the tokens, with dim=-2.",
     *_reduced("1")),
    ("over the batch",
     "Your smallest and largest numbers are taken over the batch. All tokens of a channel must "
     "share one scale. Take the smallest and largest number over the tokens, with dim=-2.",
     *_reduced("0")),
    ("range of the first text",
     "In your result, all texts use the range of the first text. Each text needs its own. Reduce "
     "over the tokens of each text, with dim=-2.",
     (LOW, LOW.replace("k.", "k[:1].")),
     (HIGH, HIGH.replace("k.", "k[:1]."))),
    ("range of the first head",
     "In your result, all heads use the range of the first head. Each head needs its own. Reduce "
     "over the tokens of each head, with dim=-2.",
     (LOW, LOW.replace("k.", "k[:, :1].")),
     (HIGH, HIGH.replace("k.", "k[:, :1]."))),
    ("over texts and heads",
     "Your smallest and largest numbers are taken over the texts and the heads. All tokens of a "
     "channel must share one scale. Take the smallest and largest number over the tokens alone, "
     "with dim=-2.",
     *_reduced("(0, 1)")),
    ("texts share",
     "In your result, all texts of the batch share one scale for each channel of a head. Each "
     "text needs its own. Reduce over the tokens alone, with dim=-2.",
     *_reduced("(0, -2)")),
    ("heads share",
     "In your result, all heads share one scale for each channel. Each head needs its own. "
     "Reduce over the tokens alone, with dim=-2.",
     *_reduced("(1, -2)")),
    ("texts and heads share",
     "In your result, all texts and heads share one scale for each channel. Each head of each "
     "text needs its own. Reduce over the tokens alone, with dim=-2.",
     *_reduced("(0, 1, -2)")),
    ("2^bits steps",
     "Your scale is the range divided by 2^bits, which gives one level too many. Between 2^bits "
     "levels, there are only 2^bits − 1 gaps. Divide the range by 2^bits − 1.",
     (STEP, "step = (high - low) / 2**bits")),
    ("2^bits steps, clamped",
     "Your scale is the range divided by 2^bits, so the largest number is not a level. "
     "Between 2^bits levels, there are only 2^bits − 1 gaps. Divide the range by 2^bits − 1.",
     (STEP, "step = (high - low) / 2**bits"), (CODES, CODES + ".clamp(max=2**bits - 1)")),
    ("signed steps",
     "Your scale is the range divided by 2^(bits − 1) − 1, so you use only half of the levels. "
     "Divide the range by 2^bits − 1.",
     (STEP, "step = (high - low) / max(2**(bits - 1) - 1, 1)")),
    ("half of the levels",
     "Your scale is the range divided by 2^(bits − 1). Your levels are too far apart, and the "
     "highest codes are never used. Divide the range by 2^bits − 1.",
     (STEP, "step = (high - low) / 2**(bits - 1)")),
    ("levels are bits",
     "Your scale is the range divided by `bits`. There must be 2^bits levels. Divide the range by "
     "2^bits − 1.",
     (STEP, "step = (high - low) / bits")),
    ("levels are bits, less one",
     "Your result has only `bits` levels. There must be 2^bits levels. Divide the range by 2^bits "
     "− 1.",
     (STEP, "step = (high - low) / max(bits - 1, 1)")),
    ("one level too many",
     "Your scale is the range divided by 2^bits + 1, which gives two levels too many. "
     "Between 2^bits levels, there are 2^bits − 1 gaps. Divide the range by 2^bits − 1.",
     (STEP, "step = (high - low) / (2**bits + 1)")),
    ("two steps too few",
     "Your result has one level too few. Between 2^bits levels, there are 2^bits − 1 gaps. Divide "
     "the range by 2^bits − 1.",
     (STEP, "step = (high - low) / max(2**bits - 2, 1)")),
    ("always 2 bits",
     "Your result has 4 levels, whatever `bits` is. Use 2^bits levels.",
     (STEP, "step = (high - low) / 3")),
    ("levels are twice the bits",
     "Your result has 2 · bits levels. There must be 2^bits levels. Divide the range by 2^bits − "
     "1.",
     (STEP, "step = (high - low) / (2 * bits - 1)")),
    ("always 4 bits",
     "Your result has 16 levels, whatever `bits` is. Use 2^bits levels.",
     (STEP, "step = (high - low) / 15")),
    ("always 8 bits",
     "Your result has 256 levels, whatever `bits` is. Use 2^bits levels.",
     (STEP, "step = (high - low) / 255")),
    ("rounded down",
     "Your numbers are rounded down to a level. The nearest level may be the one above. Use "
     "`round`.",
     (CODES, "codes = ((k - low) / step).floor()")),
    ("rounded down after an eps",
     "Your numbers are rounded down to a level. The nearest level may be the one above. Use "
     "`round`.",
     (GUARD, "step = step + 1e-8"), (CODES, "codes = ((k - low) / step).floor()")),
    ("middle of a bin",
     "Your levels are the middles of 2^bits equal parts of the range. The lowest level must be the "
     "smallest number in the channel, and the highest level its largest number. Divide the range "
     "by 2^bits − 1, and round to the nearest level.",
     (STEP, "step = (high - low) / 2**bits"),
     (CODES, "codes = ((k - low) / step).floor().clamp(0, 2**bits - 1) + 0.5")),
    ("around the mean",
     "Your levels are centered on the mean of the channel. Then some levels can lie outside its "
     "range. Spread the levels from the smallest to the largest number in the channel.",
     (LOW, "mean = k.mean(dim=-2, keepdim=True)"),
     (HIGH, "high = (k - mean).abs().amax(dim=-2, keepdim=True)\n    low = -high"),
     (CODES, "codes = ((k - mean) / step).round()"), (RESULT, "mean + codes * step")),
    ("symmetric around the mean",
     "Your levels are symmetric around the mean of the channel. Then some levels can lie outside "
     "its range. Spread the levels from the smallest to the largest number in the channel.",
     (LOW, "mean = k.mean(dim=-2, keepdim=True)"),
     (HIGH, "high = (k - mean).abs().amax(dim=-2, keepdim=True)\n    low = -high"),
     (CODES, "codes = ((k - mean - low) / step).round()"),
     (RESULT, "mean + low + codes * step")),
    ("rounded up",
     "Your numbers are rounded up to a level. The nearest level may be the one below. Use "
     "`round`.",
     (CODES, "codes = ((k - low) / step).ceil()")),
    ("codes returned",
     "Your result contains the codes. Return the numbers that they stand for, low + code · scale.",
     (RESULT, "codes")),
    ("codes returned as uint8",
     "Your result contains the codes. Return the numbers that they stand for, low + code · scale.",
     (RESULT, "codes.to(torch.uint8)")),
    ("half a step too large",
     "Your numbers are too large by half a step (half the scale). Code 0 stands for the smallest "
     "number in the channel. Return low + code · scale.",
     (RESULT, "low + (codes + 0.5) * step")),
    ("counted from the largest",
     "You count codes down from the largest number in the channel, but they were counted up from "
     "the smallest. Return low + code · scale.",
     (RESULT, "high - codes * step")),
    ("rounding error",
     "Your result is k minus the rounded numbers. Return the rounded numbers themselves, low + "
     "code · scale.",
     (RESULT, "k - (low + codes * step)")),
    ("codes, low and scale",
     "Your result is a tuple. Return one tensor with the rounded numbers, low + code · scale.",
     (RESULT, "codes, low, step")),
    ("low left out",
     "Your result is code · scale. Code 0 stands for the smallest number in the channel. Add this "
     "number.",
     (RESULT, "codes * step")),
    ("low not subtracted",
     "Your result is k, rounded to a multiple of the scale, plus low. But a code counts steps "
     "from low. Subtract low before you divide by the scale.",
     (CODES, "codes = (k / step).round()")),
    ("rounded to multiples",
     "Your levels are multiples of the scale, so the smallest number in the channel is usually not "
     "a level. Subtract low before you divide by the scale, and add low at the end.",
     (CODES, "codes = (k / step).round()"), (RESULT, "codes * step")),
    ("symmetric", SYMMETRIC,
     (LOW, "low = -k.abs().amax(dim=-2, keepdim=True)"), (HIGH, "high = -low")),
    ("symmetric multiples", SYMMETRIC,
     (STEP, "step = k.abs().amax(dim=-2, keepdim=True) / max(2**(bits - 1) - 1, 1)"),
     (CODES, "codes = (k / step).round()"), (RESULT, "codes * step")),
    ("symmetric multiples, to 2^(bits − 1)", SYMMETRIC,
     (STEP, "step = k.abs().amax(dim=-2, keepdim=True) / 2**(bits - 1)"),
     (CODES, "codes = (k / step).round().clamp(-(2**(bits - 1)), 2**(bits - 1) - 1)"),
     (RESULT, "codes * step")),
    ("symmetric multiples, not clamped", SYMMETRIC,
     (STEP, "step = k.abs().amax(dim=-2, keepdim=True) / 2**(bits - 1)"),
     (CODES, "codes = (k / step).round()"), (RESULT, "codes * step")),
    ("fixed levels",
     "Your levels are the multiples of 1 / (2^bits − 1) in all channels. Each channel has its "
     "own range. Spread its levels from its smallest to its largest number.",
     (CODES, "codes = (k * (2**bits - 1)).round()"), (RESULT, "codes / (2**bits - 1)")),
    ("from 0",
     "Your levels start at 0, whatever the smallest number in the channel is. Put the lowest level "
     "at the smallest number in the channel.",
     (LOW, "low = torch.zeros_like(k.amin(dim=-2, keepdim=True))")),
    ("from 0, clamped",
     "Your levels run from 0 to the largest number in the channel. All numbers on the other side "
     "of 0 become 0. Put the lowest level at the smallest number in the channel.",
     (LOW, "low = torch.zeros_like(k.amin(dim=-2, keepdim=True))"),
     (CODES, CODES + ".clamp(0, 2**bits - 1)")),
    ("middle as the lowest",
     "Your numbers are too large by half the range. Code 0 stands for the smallest number in the "
     "channel. Subtract this number before you divide by the scale, and add it at the end.",
     (RESULT, "(low + high) / 2 + codes * step")),
    ("unchanged",
     "Your result is not rounded. Replace each number with the nearest of the 2^bits levels of "
     "its channel.",
     (RESULT, "k")),
]  # fmt: skip

exercise = Exercise(
    "12.2", quantize_per_channel, inputs, MISTAKES, names="B H S d_k",
    also_right=[by_the_module, by_numpy, by_loops],
)  # fmt: skip
