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


MISTAKES = [
    ("numbers not bytes", "those are numbers, not bytes: multiply by size",
     ("naive * size, tiled * size", "naive, tiled")),
    ("matrix moved twice", "naive attention moves the matrix four times: scores written, read, "
     "weights written, read", ("L * S + L * S", "0")),
    ("keys read once", "the tiled one reads K and V again for every block of queries, not only "
     "once", ("-(-L // block_q)", "1")),
    ("keys read for each query", "K and V are read for every *block* of queries, not for every "
     "query", ("-(-L // block_q)", "L")),
    ("blocks rounded down", "the last block of queries may be shorter, but it is a block: round L "
     "/ B_q up", ("-(-L // block_q)", "L // block_q")),
    ("blocks not rounded", "a part of a block was counted: the number of blocks is whole, L / B_q "
     "rounded up", ("-(-L // block_q)", "L / block_q")),
    ("one block more", "a block too many where block_q divides L: round L / B_q up, which adds "
     "nothing there", ("-(-L // block_q)", "L // block_q + 1")),
    ("output not written", "L · d numbers are missing in both: q is read, "
     "*and* the output is written",
     ("S * d + L * d  # reads that", "S * d  # reads that"), ("S * d + L * d\n", "S * d\n")),
    ("output not written by naive", "L · d numbers are missing in naive attention: "
     "it reads q *and* writes its output",
     ("S * d + L * d  # reads that", "S * d  # reads that")),
    ("output not written by tiled", "L · d numbers are missing in the tiled one: it "
     "reads q *and* writes its output",
     ("S * d + L * d\n", "S * d\n")),
    ("only keys read", "only K or V is counted in the tiled one; both are read, S · d numbers each",
     ("blocks * 2", "blocks")),
    ("keys of a block read", "of K and V each block of queries reads all S rows, not as many as it "
     "has queries itself", ("blocks * 2 * S * d", "blocks * 2 * block_q * d")),
    ("costs swapped", "the two are swapped: first naive attention's, then the tiled one's",
     ("naive * size, tiled * size", "tiled * size, naive * size")),
    ("lse counted", "the log-sum-exp is counted; it is to be left out here",
     ("tiled = L * d", "tiled = L * d + L")),
    ("matrix moved three times", "the matrix is moved once more: softmax reads the scores and "
     "writes the weights, and the mix reads them again", ("L * S + L * S", "L * S")),
    ("bits moved", "those are bits: `size` is in bytes already",
     ("naive * size, tiled * size", "naive * size * 8, tiled * size * 8")),
    ("matrix not moved", "naive attention lacks its matrix: scores written, read, weights written, "
     "read, 4 · L · S numbers", ("S * d + L * S  #", "S * d  #"), ("L * S + L * S", "0"),
     ("mix = L * S + S * d", "mix = S * d")),
    ("square matrix moved", "the matrix is L × S, not L × L: it has a column for each key",
     ("S * d + L * S  #", "S * d + L * L  #"), ("L * S + L * S", "2 * L * L"),
     ("mix = L * S", "mix = L * L")),
    ("keys or values left out", "naive attention reads K for the scores *and* V for the mix: S · d "
     "numbers each, one of them is missing", ("mix = L * S + S * d", "mix = L * S")),
    ("matrix in tiles moved", "in the tiled one scores are counted; they never leave fast memory",
     ("tiled = L * d", "tiled = L * d + L * S")),
    ("blocks of keys", "the blocks are of queries: L / B_q of them, not S / B_q",
     ("-(-L // block_q)", "-(-S // block_q)")),
    ("naive in bytes alone", "the second is a number of numbers: multiply it by size too",
     ("tiled * size", "tiled")),
    ("queries filled up", "a short last block of queries is counted in full: it reads and writes "
     "what there is", ("tiled = L * d + blocks * 2 * S * d + L * d",
      "tiled = blocks * 2 * (block_q + S) * d")),
    ("matrix moved six times", "the matrix is moved six times, twice too often: softmax reads the "
     "scores once and writes the weights once, and to scale is no pass of its own (q is scaled)",
     ("L * S + L * S", "4 * L * S")),
    ("matrix moved five times", "the matrix is moved five times, once too often: softmax reads the "
     "scores once and writes the weights once", ("L * S + L * S", "3 * L * S")),
    ("tiled with as many keys", "the tiled one is counted as if L = S: of K and of V each block of "
     "queries reads S rows", ("blocks * 2 * S * d", "blocks * 2 * L * d")),
    ("as many keys as queries", "S is not used, as if L = S: K and V have S rows each, and the "
     "matrix is L × S", ("scores = L * d", "S = L\n    scores = L * d")),
    ("naive with as many keys", "naive attention is counted as if L = S: K and V have S rows each, "
     "and the matrix is L × S", ("S * d + L * S  #", "L * d + L * L  #"),
     ("L * S + L * S", "2 * L * L"), ("mix = L * S + S * d", "mix = L * L + L * d")),
    ("queries read for each block", "in the tiled one all of q is read for each block of queries; "
     "a block reads its own rows, so q is read once in all",
     ("tiled = L * d + blocks", "tiled = blocks * L * d + blocks")),
    ("everything for each block", "in the tiled one q and the output are counted for each block of "
     "queries; a block has its own rows of both, so only K and V count so often",
     ("tiled = L * d + blocks * 2 * S * d + L * d", "tiled = blocks * 2 * (L + S) * d")),
]  # fmt: skip

exercise = Exercise(
    "6.6", bytes_moved, inputs, MISTAKES,
    also_right=[by_formula, lambda *given: torch.tensor(by_formula(*given))],
)  # fmt: skip
