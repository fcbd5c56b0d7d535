"""6.6: the bytes that naive and tiled attention move."""

import math

import torch

from course_utils.checks.exercise import Exercise


def bytes_moved(L, S, d, block_q, size):
    scores = L * d + S * d + L * S  # reads q and k, writes the matrix
    softmax = L * S + L * S  # reads it, writes another
    mix = L * S + S * d + L * d  # reads that and v, writes the output
    blocks = -(-L // block_q)  # rounded up
    naive = scores + softmax + mix
    tiled = L * d + blocks * 2 * S * d + L * d
    return naive * size, tiled * size


def by_formula(L, S, d, block_q, size):
    naive = size * (4 * L * S + 2 * L * d + 2 * S * d)
    return [naive, size * (2 * L * d + 2 * S * d * math.ceil(L / block_q))]


def inputs():
    shapes = [(8, 8, 4, 2, 4), (12, 20, 4, 5, 2), (7, 9, 3, 4, 1), (30, 10, 8, 7, 2)]
    return [*shapes, (5, 6, 2, 9, 4), (1, 1, 1, 1, 2), (1, 50, 16, 3, 4), (4096, 2048, 128, 128, 2)]


FRACTION = "You count a fraction of a block. Round L / block_q up."
TILED = "tiled = L * d + blocks * 2 * S * d + L * d"
MISTAKES = [
    ("numbers not bytes",
     "Your results count numbers, not bytes. Multiply by size.",
     ("naive * size, tiled * size", "naive, tiled")),
    ("matrix moved twice",
     "Your naive attention moves two matrices. Count four: the scores are written and read, "
     "and so are the weights.",
     ("L * S + L * S", "0")),
    ("keys read once",
     "Your tiled attention reads K and V only once. Count them once for each block of queries.",
     ("-(-L // block_q)", "1")),
    ("keys read for each query",
     "Your tiled attention reads K and V for each query. Count them once for each *block* of "
     "queries.",
     ("-(-L // block_q)", "L")),
    ("blocks rounded down",
     "Your number of blocks is rounded down. A shorter last block also counts, so round L / "
     "block_q up.",
     ("-(-L // block_q)", "L // block_q")),
    ("blocks not rounded", FRACTION, ("-(-L // block_q)", "L / block_q")),
    ("numbers rounded down", FRACTION,
     ("-(-L // block_q)", "L / block_q"), ("tiled * size", "int(tiled) * size")),
    ("bytes rounded down", FRACTION,
     ("-(-L // block_q)", "L / block_q"), ("tiled * size", "int(tiled * size)")),
    ("blocks rounded to the nearest",
     "Your number of blocks is rounded to the nearest integer. A shorter last block also counts, "
     "so round L / block_q up.",
     ("-(-L // block_q)", "round(L / block_q)")),
    ("one block more",
     "You count one block too many when block_q divides L. Round L / block_q up, which adds "
     "nothing in that case.",
     ("-(-L // block_q)", "L // block_q + 1")),
    ("output not written",
     "Both results lack L · d numbers. Attention must read q and write its output. Count both.",
     ("S * d + L * d  # reads that", "S * d  # reads that"),
     ("S * d + L * d\n", "S * d\n")),
    ("output not written by naive",
     "Your naive attention lacks L · d numbers. It must read q and write its output. Count both.",
     ("S * d + L * d  # reads that", "S * d  # reads that")),
    ("output not written by tiled",
     "Your tiled attention lacks L · d numbers. It must read q and write its output. Count both.",
     ("S * d + L * d\n", "S * d\n")),
    ("only keys read",
     "Your tiled attention counts only K or only V. Count both, S · d numbers each.",
     ("blocks * 2", "blocks")),
    ("values read once",
     "Your tiled attention reads one of K and V for each block of queries, and the other only "
     "once. It must read both for each block.",
     ("blocks * 2 * S * d", "(blocks + 1) * S * d")),
    ("keys of a block read",
     "Your blocks of queries read only block_q rows of K and V. Each block must read all S rows.",
     ("blocks * 2 * S * d", "blocks * 2 * block_q * d")),
    ("costs swapped",
     "Your two results are in the wrong order. Return naive attention first, then tiled "
     "attention.",
     ("naive * size, tiled * size", "tiled * size, naive * size")),
    ("lse counted",
     "You count the log-sum-exp. Leave it out here.",
     ("tiled = L * d", "tiled = L * d + L")),
    ("matrix moved three times",
     "Your naive attention moves three matrices. Count four: the first step writes the scores, "
     "softmax reads them and writes the weights, and the last step reads the weights.",
     ("L * S + L * S", "L * S")),
    ("bits moved",
     "Your results are in bits. Do not multiply by 8, because `size` is in bytes.",
     ("naive * size, tiled * size", "naive * size * 8, tiled * size * 8")),
    ("matrix not moved",
     "Your naive attention lacks its matrices. The scores are written and read, and so are the "
     "weights. Add 4 · L · S numbers.",
     ("S * d + L * S  #", "S * d  #"),
     ("L * S + L * S", "0"),
     ("mix = L * S + S * d", "mix = S * d")),
    ("square matrix moved",
     "Your matrix has L × L numbers. Count L × S, with one column per key.",
     ("S * d + L * S  #", "S * d + L * L  #"),
     ("L * S + L * S", "2 * L * L"),
     ("mix = L * S", "mix = L * L")),
    ("keys or values left out",
     "Your naive attention lacks S · d numbers. It must read K for the scores *and* V for the "
     "output.",
     ("mix = L * S + S * d", "mix = L * S")),
    *(
        (f"matrix in tiles moved, {times} times",
         "Your tiled attention counts scores. They never leave fast memory, so leave them out.",
         ("tiled = L * d", f"tiled = L * d + {times} * L * S"))
        for times in (1, 2, 4)
    ),
    ("output written for each block of keys",
     "Your tiled attention writes the output for each block of keys. It must write each row of "
     "the output only once, L · d numbers in all.",
     (TILED, "tiled = L * d + blocks * 2 * S * d + -(-S // block_q) * L * d")),
    ("queries read for each block of keys",
     "Your tiled attention reads K and V once, and q for each block of keys, as if the outer loop "
     "went over keys. Read q once, and read K and V for each block of queries.",
     (TILED, "tiled = 2 * S * d + -(-S // block_q) * L * d + L * d")),
    ("blocks of keys",
     "You count S / block_q blocks. The blocks are blocks of queries, so divide L by block_q.",
     ("-(-L // block_q)", "-(-S // block_q)")),
    ("naive in bytes alone",
     "Your second result counts numbers. Multiply it by size too.",
     ("tiled * size", "tiled")),
    ("queries filled up",
     "You count a shorter last block of queries as a full one. Count only the rows that exist.",
     (TILED,
      "tiled = blocks * 2 * (block_q + S) * d")),
    *((f"matrix moved {times} times",
       f"Your naive attention moves L × S numbers {times} times. Count them four times: the scores "
       "are written once and read once, and so are the weights. (Q, K, V and the output are "
       "counted in addition.)",
       ("L * S + L * S", f"{more} * L * S"))
      for times, more in (("six", 4), ("five", 3))),
    ("tiled with as many keys",
     "Your tiled attention is right only for L = S. Each block of queries reads S rows of K "
     "and of V.",
     ("blocks * 2 * S * d", "blocks * 2 * L * d")),
    ("as many keys as queries",
     "Your results do not depend on S. K and V have S rows each, and the matrix is L × S.",
     ("scores = L * d", "S = L\n    scores = L * d")),
    ("naive with as many keys",
     "Your naive attention is right only for L = S. K and V have S rows each, and the matrix "
     "is L × S.",
     ("S * d + L * S  #", "L * d + L * L  #"),
     ("L * S + L * S", "2 * L * L"),
     ("mix = L * S + S * d", "mix = L * L + L * d")),
    ("queries read for each block",
     "Your tiled attention reads all of q for each block of queries. A block reads only its "
     "own rows, so q is read once in total.",
     ("tiled = L * d + blocks", "tiled = blocks * L * d + blocks")),
    ("everything for each block",
     "Your tiled attention counts all of q and the output for each block of queries. Each block "
     "has its own rows of q and of the output, so count these once. Only K and V are read in "
     "full for each block.",
     (TILED, "tiled = blocks * 2 * (L + S) * d")),
    ("blocks of keys outside",
     "Your tiled attention reads K and V once, and moves q and the output for each block of keys, "
     "as if the outer loop went over keys. Move q and the output once, and read K and V for each "
     "block of queries.",
     (TILED,
      "tiled = 2 * S * d + -(-S // block_q) * 2 * L * d")),
]  # fmt: skip

exercise = Exercise(
    "6.6", bytes_moved, inputs, MISTAKES,
    also_right=[by_formula, lambda *given: torch.tensor(by_formula(*given))],
)  # fmt: skip
