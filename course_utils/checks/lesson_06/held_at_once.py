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
    ("one matrix",
     "Your naive attention holds one matrix. Count two, the scores and the weights, because "
     "both exist at the same time.",
     ("2 * matrix", "matrix")),
    ("weights in float32",
     "Your weights take 4 bytes per number. Only the log-sum-exp is in float32. The scores and the "
     "weights both take `size` bytes.",
     ("2 * matrix", "matrix + heads * L * S * 4")),
    ("three matrices",
     "Your naive attention holds three matrices. Count only two, the scores and the weights.",
     ("2 * matrix", "3 * matrix")),
    ("memory swapped",
     "Your two results are in the wrong order. Return naive attention first, then tiled attention.",
     ("naive, flash", "flash, naive")),
    ("inputs counted",
     "Your results include q, k and v. Leave them out.",
     ("naive, flash",
      "naive + heads * (L + 2 * S) * d * size, " "flash + heads * (L + 2 * S) * d * size")),
    ("heads forgotten",
     "Your count leaves out the heads. Each head has its own matrices and its own output.",
     ("B * H", "B")),
    ("batch forgotten",
     "Your count leaves out the batch. Each sequence has its own matrices and its own output.",
     ("B * H", "H")),
    ("heads and batch forgotten",
     "Your count is for one head of one sequence. Multiply by B · H.",
     ("B * H", "1")),
    ("counted not weighed",
     "Your results count numbers, not bytes. Multiply by size. Only the log-sum-exp always takes 4 "
     "bytes per number.",
     ("L * S * size", "L * S"),
     ("L * d * size", "L * d"),
     ("L * 4", "L")),
    ("square matrix",
     "Your matrix has L × L numbers. Count L × S, with one column per key.",
     ("L * S", "L * L")),
    ("square matrix of keys",
     "Your matrix has S × S numbers. Count L × S, with one row per query.",
     ("L * S", "S * S")),
    ("naive without output",
     "Your naive attention lacks the output. Add it.",
     ("2 * matrix + output", "2 * matrix")),
    ("lse forgotten",
     "Your tiled attention lacks the log-sum-exp. Add 4 bytes (float32) per query and head.",
     ("output + lse", "output")),
    ("lse for each number",
     "Your result has one log-sum-exp for every entry of the output. Count one for each query of "
     "each head of each sequence.",
     ("L * 4", "L * d * 4")),
    ("lse in the dtype",
     "Your log-sum-exp takes `size` bytes per number. It is in float32, so it takes 4 bytes "
     "whatever the inputs are.",
     ("L * 4", "L * size")),
    ("output of the keys' length",
     "You count S rows for attention's output. It has L rows, one per query.",
     ("L * d * size", "S * d * size")),
    ("both without output",
     "Both results lack the output. Add L · d numbers per head.",
     ("L * d * size", "0")),
    ("inputs counted in naive",
     "Your first result includes q, k and v. Leave them out.",
     ("naive, flash", "naive + heads * (L + 2 * S) * d * size, flash")),
    ("lse of a sequence",
     "Your log-sum-exp lacks the heads. Count one number per query and *head*.",
     ("heads * L * 4", "B * L * 4")),
    ("lse of one head",
     "You count the log-sum-exps of only one head of one sequence. Count one number per query, for "
     "each head of each sequence.",
     ("heads * L * 4", "L * 4")),
    ("lse of one sequence",
     "Your log-sum-exp lacks the batch. Count one number per query and head of each *sequence*.",
     ("heads * L * 4", "H * L * 4")),
    ("lse of four times the size",
     "Your log-sum-exp takes 4 · size bytes per number. It is in float32, so it takes 4 bytes "
     "whatever the inputs are.",
     ("L * 4", "L * 4 * size")),
    ("output of one head",
     "Your output lacks the heads. Each head has an output of L · d numbers.",
     ("heads * L * d", "B * L * d")),
    ("output of one sequence",
     "Your output lacks the batch. Each sequence has its own output.",
     ("heads * L * d", "H * L * d")),
    ("matrices of one head",
     "Your matrices lack the heads. Each head has its own scores and weights.",
     ("heads * L * S", "B * L * S")),
    ("matrices of one sequence",
     "Your matrices lack the batch. Each sequence has its own scores and weights.",
     ("heads * L * S", "H * L * S")),
    ("lse of the keys' length",
     "Your log-sum-exp has one number per key. Count one per query.",
     ("L * 4", "S * 4")),
    ("lse in both",
     "Your naive attention includes a log-sum-exp. Leave it out, because only tiled attention "
     "returns one.",
     ("2 * matrix + output", "2 * matrix + output + heads * L * 4")),
    ("maximum and sum kept",
     "Your tiled attention holds 8 bytes per query and head besides the output. It must hold "
     "only one number, the log-sum-exp, and not both m and ℓ. Count 4 bytes.",
     ("L * 4", "L * 8")),
    ("four bytes throughout",
     "Your results take 4 bytes for every number. Only the log-sum-exp takes 4 bytes. All other "
     "numbers take `size`.",
     ("L * S * size", "L * S * 4"),
     ("L * d * size", "L * d * 4")),
    ("mebibytes held",
     "Your results are in MiB. Return bytes.",
     ("naive, flash", "naive / 2**20, flash / 2**20")),
]  # fmt: skip

exercise = Exercise("6.7", held_at_once, inputs, MISTAKES, also_right=[by_tensors])
