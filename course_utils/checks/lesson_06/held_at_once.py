"""6.7: the bytes that naive and flash attention hold at the worst moment."""

import torch

from course_utils.checks.exercise import Exercise


def held_at_once(B, H, L, S, d, size):
    heads = B * H
    matrix = heads * L * S * size
    output = heads * L * d * size
    naive = 2 * matrix + output  # scores and weights
    lse = heads * L * 4
    flash = output + lse
    return naive, flash


def by_tensors(B, H, L, S, d, size):
    matrix = torch.empty(B, H, L, S, device="meta").numel() * size
    out = torch.empty(B, H, L, d, device="meta").numel() * size
    lse = torch.empty(B, H, L, dtype=torch.float32, device="meta").nbytes
    return torch.tensor(2 * matrix + out), torch.tensor(out + lse)


def inputs():
    shapes = [(1, 1, 8, 8, 4, 4), (2, 3, 12, 20, 4, 2), (3, 2, 7, 9, 5, 4), (1, 8, 30, 10, 8, 2)]
    return [*shapes, (1, 1, 1, 1, 1, 1), (2, 1, 1, 50, 16, 8), (4, 32, 8192, 4096, 128, 2)]


MISTAKES = [
    ("one matrix", "naive attention holds two matrices at once, the scores and the weights",
     ("2 * matrix", "matrix")),
    ("three matrices", "naive attention holds two matrices, not three: the scores and the weights",
     ("2 * matrix", "3 * matrix")),
    ("memory swapped", "the two are swapped: first what naive attention holds, then what flash "
     "holds", ("naive, flash", "flash, naive")),
    ("inputs counted", "q, k and v are counted; asked is what is held besides them",
     ("naive, flash",
      "naive + heads * (L + 2 * S) * d * size, " "flash + heads * (L + 2 * S) * d * size")),
    ("heads forgotten", "the heads are forgotten: each has a matrix and an output of its own",
     ("B * H", "B")),
    ("batch forgotten", "the batch is forgotten: each sequence has matrices and an output of its "
     "own", ("B * H", "H")),
    ("heads and batch forgotten", "that is one head of one sequence: each head of each sequence "
     "has matrices and an output of its own", ("B * H", "1")),
    ("counted not weighed", "those are numbers, not bytes: multiply by size (the lse takes 4 bytes "
     "in any case)", ("L * S * size", "L * S"), ("L * d * size", "L * d"), ("L * 4", "L")),
    ("square matrix", "the matrix is L × S, not L × L or S × S", ("L * S", "L * L")),
    ("square matrix of keys", "the matrix is L × S, not S × S: it has a row for each query",
     ("L * S", "S * S")),
    ("naive without output", "the output is missing from naive attention's; it holds that as well",
     ("2 * matrix + output", "2 * matrix")),
    ("lse forgotten", "the log-sum-exp is missing: 4 bytes (float32) for each query of each head",
     ("output + lse", "output")),
    ("lse for each number", "the log-sum-exp is one number for each query of each head, not one "
     "for each number of the output", ("L * 4", "L * d * 4")),
    ("lse in the dtype", "the log-sum-exp is kept in float32, 4 bytes each, whatever the inputs "
     "are in", ("L * 4", "L * size")),
    ("output of the keys' length", "the output has a row for each query, L of them, not S",
     ("L * d * size", "S * d * size")),
    ("both without output", "the output is missing, in both: L · d numbers for each head",
     ("L * d * size", "0")),
    ("inputs counted in naive", "q, k and v are counted in the first; asked is what is held "
     "besides them", ("naive, flash", "naive + heads * (L + 2 * S) * d * size, flash")),
    ("lse of a sequence", "the log-sum-exp is one number for each query of each *head*: the heads "
     "are missing there", ("heads * L * 4", "B * L * 4")),
    ("lse of the keys' length", "the log-sum-exp is one number for each query, not for each key",
     ("L * 4", "S * 4")),
    ("lse in both", "naive attention returns no log-sum-exp: that is flash's alone",
     ("2 * matrix + output", "2 * matrix + output + heads * L * 4")),
    ("maximum and sum kept", "m and ℓ are not both kept: of them one number for each query is "
     "left, the log-sum-exp", ("L * 4", "L * 8")),
    ("four bytes throughout", "every number is taken to have 4 bytes: only those of the "
     "log-sum-exp have, any other takes size", ("L * S * size", "L * S * 4"),
     ("L * d * size", "L * d * 4")),
    ("mebibytes held", "those are MiB, divided by 2^20: bytes are asked",
     ("naive, flash", "naive / 2**20, flash / 2**20")),
]  # fmt: skip

exercise = Exercise("6.7", held_at_once, inputs, MISTAKES, also_right=[by_tensors])
