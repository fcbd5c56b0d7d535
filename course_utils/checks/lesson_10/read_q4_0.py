"""10.2: weights with four bits each, read from the bytes of the older of two formats."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones


def read_q4_0(blocks):
    d = blocks[:, :2].contiguous().view(torch.float16).float()  # (N, 1)
    low, high = blocks[:, 2:] % 16, blocks[:, 2:] // 16  # (N, 16) each
    return d * (torch.cat([low, high], dim=1).float() - 8)  # (N, 32)


def by_numpy(blocks):
    rows = []
    for block in blocks.numpy():
        d = np.frombuffer(block[:2].tobytes(), np.float16).astype(np.float32)
        n = np.concatenate([block[2:] & 15, block[2:] >> 4]).astype(np.int32)
        rows.append(d * (n - 8).astype(np.float32))
    return torch.from_numpy(np.stack(rows))


def by_loops(blocks):
    result = torch.zeros(len(blocks), 32)
    for row, block in zip(result, blocks.tolist(), strict=True):
        d = np.array(block[:2], np.uint8).view(np.float16).item()
        for i, byte in enumerate(block[2:]):
            row[i], row[i + 16] = d * (byte % 16 - 8), d * (byte // 16 - 8)
    return result


def inputs():
    rng = torch.Generator().manual_seed(102)

    def blocks(n):
        steps = torch.randn(n, 1, generator=rng).half().view(torch.uint8)  # (n, 2)
        return torch.cat([steps, torch.randint(256, (n, 16), generator=rng, dtype=torch.uint8)], 1)

    counted = torch.arange(16, dtype=torch.uint8)  # all values of n
    one = torch.tensor([0.5]).half().view(torch.uint8)
    return [
        (torch.cat([one, counted])[None],),
        (torch.cat([one, 16 * counted])[None],),
        (blocks(4),),
        (blocks(32),),
        (blocks(18),),
    ]


HALF = (
    "Your weights have the dtype {}, in which products are rounded more than in float32. Convert n "
    "and d to float32 before you multiply."
)
DOUBLE = (
    "Your numbers are right, but in float64. Return float32, as the exercise says. Convert n "
    "and d to float32 before you multiply."
)


def run(answer, blocks):
    """Let an answer read blocks, and refuse weights in another dtype than float32 by name."""
    results = call_with_clones(answer, blocks)
    kind = str(getattr(results[0], "dtype", None)).removeprefix("torch.")
    if kind in ("float16", "bfloat16"):
        raise NamedMistake("in 16 bits", HALF.format(kind))
    if kind == "float64":
        raise NamedMistake("in float64", DOUBLE, results)
    return results


JOINED = "torch.cat([low, high], dim=1)"
SCALE = "blocks[:, :2].contiguous().view(torch.float16).float()"
SMALLEST = "m = blocks[:, 2:4].contiguous().view(torch.float16).float()\n    low, high = "
MISTAKES = [
    ("neighbors from one byte",
     "You put the two numbers of a byte next to each other. The low halves of all sixteen bytes "
     "come first, then all high halves. Concatenate them in this order.",
     (JOINED, "torch.stack([low, high], dim=2).flatten(1)")),
    ("high halves first", "Your result begins with the high halves. Weights 0 to 15 are the low "
     "halves. Put the low halves first.", (JOINED, "torch.cat([high, low], dim=1)")),
    ("neighbors, high half first",
     "You put the two numbers of a byte next to each other, with the high half first. "
     "Concatenate the low halves of all sixteen bytes, then all high halves.",
     (JOINED, "torch.stack([high, low], dim=2).flatten(1)")),
    ("nothing subtracted", "Your result is d · n, so all weights of a block have the same sign. "
     "Subtract 8 from n before you multiply by d.", (".float() - 8)", ".float())")),
    ("subtracted in bytes",
     "Your result is wrong where n is below 8. A uint8 cannot be negative, so 0 − 8 becomes 248. "
     "Convert n to float before you subtract.",
     (f"{JOINED}.float() - 8", f"{JOINED} - 8")),
    ("two's complement", "You read n as a signed number, so 8 to 15 become −8 to −1. In this "
     "format, a weight is d · (n − 8). Subtract 8 from every n.",
     (f"({JOINED}.float() - 8)", f"({JOINED}.float() + 8) .remainder(16).sub(8)")),
    ("bytes of d swapped", "In your result, the two bytes of d are swapped. Read them in the order "
     "in which they are stored.", (SCALE, SCALE.replace("[:, :2]", "[:, [1, 0]]"))),
    ("high half not shifted", "In your high halves, n is 16 times too large. Divide the byte "
     "by 16 with // 16, or shift it with >> 4.", ("blocks[:, 2:] // 16", "blocks[:, 2:] & 240")),
    ("signed high half", "In your high halves, n is 16 too small where it should be 8 or more. "
     "This happens if the bytes are read as signed numbers. Read them as torch.uint8.",
     ("blocks[:, 2:] // 16", "blocks[:, 2:].view(torch.int8) >> 4")),
    ("d from the end", "You read d from the last two bytes, and n from the first sixteen. A block "
     "begins with d. Read d from the first two bytes, and n from the others.",
     (SCALE, SCALE.replace(":2", "-2:")), ("blocks[:, 2:] % 16", "blocks[:, :-2] % 16"),
     ("blocks[:, 2:] // 16", "blocks[:, :-2] // 16")),
    ("d as bfloat16", "You read d as bfloat16. Its two bytes are a float16. Read them with "
     "view(torch.float16).", (SCALE, SCALE.replace("float16", "bfloat16"))),
    ("d as a whole number", "You read d as a whole number. Its two bytes are a float16. Read them "
     "with view(torch.float16).", (SCALE, SCALE.replace("float16", "int16"))),
    ("d as a whole number without a sign", "You read d as a whole number. Its two bytes are a "
     "float16. Read them with view(torch.float16).", (SCALE, SCALE.replace("float16", "uint16"))),
    ("d without its sign", "You use the absolute value of d. A negative d must flip the signs of "
     "its block. Use d as it is.", (SCALE, SCALE + ".abs()")),
    ("d left out", "Your result is n − 8. Multiply it by the scale d of its block.",
     ("d * (", "(0 * d + 1) * (")),
    ("one d for all", "You use the d of the first block for all blocks. Multiply each block by its "
     "own d.", ("d * (", "d[0] * (")),
    ("middle at 7.5", "Your result is d · (n − 7.5). In this format, a weight is d · (n − 8), so "
     "that n = 8 gives exactly zero. Subtract 8.", ("- 8)", "- 7.5)")),
    ("middle at 7", "Your result is d · (n − 7). In this format, a weight is d · (n − 8). Subtract "
     "8.", ("- 8)", "- 7)")),
    ("d times n, minus 8", "Your result is d · n − 8. Subtract 8 before you multiply: d · (n − 8).",
     (f"d * ({JOINED}.float() - 8)", f"d * {JOINED}.float() - 8")),
    ("divided by d", "You divide n − 8 by d. Multiply n − 8 by d.", ("d * (", "1 / d * (")),
    ("8 minus n", "Your result is d · (8 − n), which has the wrong sign. Subtract 8 from n.",
     (f"d * ({JOINED}.float() - 8)", f"d * (8 - {JOINED}.float())")),
    ("d and m, as in Q4_1",
     "Your result has 28 columns, as if a block had a scale d and a minimum m, as in Q4_1. "
     "This format has no m. Read d from the first two bytes, n from the other sixteen, and use "
     "d · (n − 8).",
     ("low, high = ", SMALLEST),
     ("blocks[:, 2:] % 16", "blocks[:, 4:] % 16"), ("blocks[:, 2:] // 16", "blocks[:, 4:] // 16"),
     (f"d * ({JOINED}.float() - 8)", f"d * {JOINED}.float() + m")),
    ("m from the first numbers",
     "Your result is d · n + m, as in Q4_1. This format has no m. Use d · (n − 8).",
     ("low, high = ", SMALLEST),
     (f"d * ({JOINED}.float() - 8)", f"d * {JOINED}.float() + m")),
    ("numbers from byte 4",
     "Your result has 28 columns, because you read n from byte 4 on. Only the first two bytes hold "
     "d. Read n from byte 2 on.",
     ("blocks[:, 2:] % 16", "blocks[:, 4:] % 16"), ("blocks[:, 2:] // 16", "blocks[:, 4:] // 16")),
    ("rounded to float16",
     "Your weights are rounded to float16. Convert n and d to float32 before you multiply.",
     (f"d * ({JOINED}.float() - 8)",
      f"(d.half() * {JOINED}.half() - 8 * d.half()).float()")),
    ("joined along the blocks",
     "Your rows mix the numbers of different blocks. If you concatenate along dim=0, all low "
     "halves come before all high halves. Concatenate along dim=1.",
     (JOINED, "torch.cat([low, high], dim=0).view(len(blocks), 32)")),
    ("high half not rounded down",
     "In your high halves, n is not a whole number. Divide the byte by 16 with // instead of /.",
     ("blocks[:, 2:] // 16", "blocks[:, 2:] / 16")),
    ("low halves twice",
     "Your high halves are the low ones again. Weight i + 16 is the high half of byte i. Use "
     "// 16 there.",
     ("blocks[:, 2:] // 16", "blocks[:, 2:] % 16")),
    ("high halves twice",
     "Your low halves are the high ones again. Weight i is the low half of byte i. Use % 16 "
     "there.",
     ("blocks[:, 2:] % 16", "blocks[:, 2:] // 16")),
    ("three bits", "Your n are what % 8 and // 8 give. Each half of a byte has four bits, so n "
     "goes from 0 to 15. Use 16 in place of 8.",
     ("blocks[:, 2:] % 16", "blocks[:, 2:] % 8"), ("blocks[:, 2:] // 16", "blocks[:, 2:] // 8")),
]  # fmt: skip

exercise = Exercise(
    "10.2", read_q4_0, inputs, MISTAKES, names="N 32", run=run, also_right=[by_numpy, by_loops]
)
