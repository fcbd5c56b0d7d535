"""7.6: the columns of W_o through which some heads come in are set to 0."""

import torch

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones


def silence_heads(W_o, heads, num_heads):
    d_k = W_o.shape[1] // num_heads
    silent = W_o.clone()  # (d_model, d_model)
    for head in heads:
        silent[:, head * d_k : (head + 1) * d_k] = 0
    return silent


def by_mask(W_o, heads, num_heads):
    kept = torch.tensor([float(h not in heads) for h in range(num_heads)], dtype=W_o.dtype)
    return W_o * kept.repeat_interleave(W_o.shape[1] // num_heads)


def by_chunks(W_o, heads, num_heads):
    chunks = W_o.chunk(num_heads, dim=1)
    return torch.cat([c * 0 if h in heads else c for h, c in enumerate(chunks)], dim=1)


def inputs():
    rng = torch.Generator().manual_seed(77)
    cases = [(6, 3, [1]), (12, 3, [0, 2]), (8, 4, [3, 1]), (6, 3, []), (5, 5, [3]), (4, 1, [0])]
    cases += [(48, 3, [2, 1]), (9, 3, [0, 1, 2])]
    made = [(torch.randn(n, n, generator=rng), heads, H) for n, H, heads in cases]
    return [*made, (torch.randn(8, 8, generator=rng).T, [2], 4)]  # not contiguous


def a_copy(answer, W_o, heads, num_heads):
    """Call an answer; complain if it returns what it was given or a view of it."""
    given = []

    def remembering(W_o, *rest):
        given.append(W_o)
        return answer(W_o, *rest)

    [result] = call_with_clones(remembering, W_o, heads, num_heads)
    if read(result) is not None and memory(result) == memory(given[0]):
        raise NamedMistake(*ORIGINAL[:2])
    return [result]


def memory(tensor):
    return tensor.untyped_storage().data_ptr()


COLUMNS = "head * d_k : (head + 1) * d_k"
ORIGINAL = (
    "no copy",
    "W_o itself is returned where a copy is asked, also where the list is empty: W_o.clone()",
    ("silent = W_o.clone()", "silent = W_o.clone() if heads else W_o"),
)
MISTAKES = [
    ORIGINAL,
    ("rows silenced",
     "those are rows, what W_o gives out; a head comes in through its columns",
     ("[:, " + COLUMNS, f"[{COLUMNS}")),
    ("rows and columns silenced",
     "the rows are set to 0 as well, what W_o gives out; a head comes in through columns alone",
     (f"silent[:, {COLUMNS}] = 0", f"silent[:, {COLUMNS}] = silent[{COLUMNS}] = 0")),
    ("returned transposed",
     "right columns, but W_o is returned transposed", ("return silent", "return silent.T")),
    ("others silenced",
     "the other way round: these heads are kept, and all the others silenced",
     ("in heads", "in set(range(num_heads)) - set(heads)")),
    ("one column each",
     "one column a head; head h has d_k = d_model / num_heads of them, from h · d_k on",
     (COLUMNS, "head")),
    ("one column too few",
     "the last column of each head is left: a slice ends before its second number, so "
     "(head + 1) · d_k", (COLUMNS, COLUMNS + " - 1")),
    ("to the end",
     "all columns from the head's first one to the end: it ends before (head + 1) · d_k",
     (COLUMNS, "head * d_k :")),
    ("columns in turns",
     "every num_heads-th column; the columns of a head stand side by side, d_k of them (lesson 05)",
     (COLUMNS, "head::num_heads")),
    ("width and number swapped",
     "blocks of num_heads columns; a head is d_k = d_model / num_heads columns wide",
     (COLUMNS, "head * num_heads : (head + 1) * num_heads")),
    ("width of the lesson",
     "blocks of 32 columns, as wide as a head of the lesson; here d_k = d_model / num_heads",
     ("W_o.shape[1] // num_heads", "32")),
    ("last head only", "only the last head of the list is silenced, as where the copy is made anew "
     "for each; make it once, before the loop", ("in heads:", "in heads[-1:]:")),
    ("first head only",
     "only the first of the heads is silenced; the list may name several, or none",
     ("in heads", "in heads[:1]")),
    ("all in between",
     "heads between those named are silenced too: take those of the list, one after the other",
     ("in heads", "in range(min(heads), max(heads) + 1) if heads else []")),
    ("one slice",
     "one slice of columns, from the list's first head to its last: that takes those in between "
     "too, and none where the list runs backwards; take one head after the other",
     ("in heads", "in range(heads[0], heads[-1] + 1) if heads else []")),
    ("none means all", "an empty list silences all heads; it names none, so nothing changes",
     ("in heads", "in heads or range(num_heads)")),
    ("columns cut out", "the columns are gone, and W_o no longer fits: set them to 0",
     ("return silent", "return silent[:, [n for n in range(len(W_o)) if n // d_k not in heads]]")),
    ("counted from one", "heads are counted from 0, as in code; these are one too early",
     (COLUMNS, "(head - 1) * d_k : head * d_k")),
    ("mean in place of 0", "the columns hold a mean, which lets something through: set them to 0",
     ("= 0", f"= W_o[:, {COLUMNS}].mean()")),
    ("minus infinity",
     "the columns hold −inf, as scores before a softmax do; here they are multiplied: set them to "
     "0", ("= 0", "= -torch.inf")),
]  # fmt: skip

exercise = Exercise(
    "7.6", silence_heads, inputs, MISTAKES, names="d_model d_model", run=a_copy,
    also_right=[by_mask, by_chunks],
)  # fmt: skip
