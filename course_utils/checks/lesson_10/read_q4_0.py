"""10.2: weights in four bits, in the older of two formats, read from their bytes."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones


def read_q4_0(blocks):
    d = blocks[:, :2].contiguous().view(torch.float16).float()  # (n, 1)
    low, high = blocks[:, 2:] % 16, blocks[:, 2:] // 16  # (n, 16) each
    return d * (torch.cat([low, high], dim=1).float() - 8)  # (n, 32)


def by_numpy(blocks):
    rows = []
    for block in blocks.numpy():
        d = np.frombuffer(block[:2].tobytes(), np.float16).astype(np.float32)
        n = np.concatenate([block[2:] & 15, block[2:] >> 4]).astype(np.int32)
        rows.append(d * (n - 8))
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

    counted = torch.arange(16, dtype=torch.uint8)  # all whole numbers, low and high apart
    one = torch.tensor([0.5]).half().view(torch.uint8)
    return [
        (torch.cat([one, counted])[None],),
        (torch.cat([one, 16 * counted])[None],),
        (blocks(4),),
        (blocks(32),),
        (blocks(18),),
    ]


HALF = "right but for rounding to {}: make n and d float32 before they are multiplied"


def run(answer, blocks):
    """Let an answer read blocks, and see whether the weights come in 16 bits, less than asked."""
    results = call_with_clones(answer, blocks)
    kind = str(getattr(results[0], "dtype", None)).removeprefix("torch.")
    if kind in ("float16", "bfloat16"):
        raise NamedMistake("in 16 bits", HALF.format(kind))
    return results


JOINED = "torch.cat([low, high], dim=1)"
SCALE = "blocks[:, :2].contiguous().view(torch.float16).float()"
MISTAKES = [
    ("neighbours from one byte",
     "the two numbers of a byte become neighbours; the low ones of all sixteen bytes come first, "
     "then the high ones", (JOINED, "torch.stack([low, high], dim=2).flatten(1)")),
    ("high ones first", "the high numbers come first: weights 0 to 15 are the low ones",
     (JOINED, "torch.cat([high, low], dim=1)")),
    ("neighbours, high first",
     "the two numbers of a byte become neighbours, the high one first; the low ones of all sixteen "
     "bytes come first, then the high ones",
     (JOINED, "torch.stack([high, low], dim=2).flatten(1)")),
    ("nothing subtracted", "no weight is negative: here n − 8 is multiplied by d, not n",
     (".float() - 8)", ".float())")),
    ("subtracted in bytes",
     "8 is taken from bytes, which know no negative numbers: 0 − 8 is 248; make them floats first",
     (f"{JOINED}.float() - 8", f"{JOINED} - 8")),
    ("complement", "n is read as a number with a sign, 8 to 15 as −8 to −1; it is n − 8 for all",
     (f"({JOINED}.float() - 8)", f"({JOINED}.float() + 8) .remainder(16).sub(8)")),
    ("bytes of d swapped", "the two bytes of d are swapped: leave them in their order",
     (SCALE, SCALE.replace("[:, :2]", "[:, [1, 0]]"))),
    ("high half in its place", "the high half stays where it stands in its byte, 16 times too "
     "large: shift it, // 16 or >> 4", ("blocks[:, 2:] // 16", "blocks[:, 2:] & 240")),
    ("high half with a sign", "bytes are read with a sign, so that high halves from 8 on come out "
     "negative; they are torch.uint8",
     ("blocks[:, 2:] // 16", "blocks[:, 2:].view(torch.int8) >> 4")),
    ("d from the end", "d is read from the last two bytes; a block begins with it",
     (SCALE, SCALE.replace(":2", "-2:")), ("blocks[:, 2:] % 16", "blocks[:, :-2] % 16"),
     ("blocks[:, 2:] // 16", "blocks[:, :-2] // 16")),
    ("d as bfloat16", "d is read as bfloat16; it is float16, of the same two bytes",
     (SCALE, SCALE.replace("float16", "bfloat16"))),
    ("d as a whole number", "d is read as a whole number; its two bytes are a float16",
     (SCALE, SCALE.replace("float16", "int16"))),
    ("d left out", "those are the whole numbers; each is multiplied by its block's d",
     ("d * (", "(0 * d + 1) * (")),
    ("one d for all", "the first block's d is used for all; each block begins with its own",
     ("d * (", "d[0] * (")),
    ("middle at 7.5", "n − 7.5 is taken; it is n − 8, so that one of the sixteen is zero",
     ("- 8)", "- 7.5)")),
    ("d times n, minus 8", "8 is taken off after d was multiplied: d · (n − 8)",
     (f"d * ({JOINED}.float() - 8)", f"d * {JOINED}.float() - 8")),
    ("divided by d", "divided by d; multiply", ("d * (", "1 / d * (")),
]  # fmt: skip

exercise = Exercise(
    "10.2", read_q4_0, inputs, MISTAKES, names="n 32", run=run, also_right=[by_numpy, by_loops]
)
