"""7.6: set the columns of W_o that belong to some heads to 0."""

import torch

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones


def silence_heads(W_o, heads, num_heads):
    d_k = W_o.shape[1] // num_heads
    copy = W_o.clone()  # (d_model, d_model)
    for head in heads:
        copy[:, head * d_k : (head + 1) * d_k] = 0
    return copy


def by_mask(W_o, heads, num_heads):
    keep = torch.tensor([float(h not in heads) for h in range(num_heads)], dtype=W_o.dtype)
    return W_o * keep.repeat_interleave(W_o.shape[1] // num_heads)


def by_chunks(W_o, heads, num_heads):
    chunks = W_o.chunk(num_heads, dim=1)
    return torch.cat([c * 0 if h in heads else c for h, c in enumerate(chunks)], dim=1)


def inputs():
    rng = torch.Generator().manual_seed(77)
    cases = [(6, 3, [1]), (12, 3, [0, 2]), (8, 4, [3, 1]), (6, 3, []), (5, 5, [3]), (4, 1, [0])]
    cases += [(48, 3, [2, 1]), (9, 3, [0, 1, 2])]
    made = [(torch.randn(n, n, generator=rng), heads, H) for n, H, heads in cases]
    return [*made, (torch.randn(8, 8, generator=rng).T, [2], 4)]  # not contiguous


def check_copy(answer, W_o, heads, num_heads):
    """Call an answer; raise a hint if it returns its input or a view of it."""
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
    "You return W_o itself. Return a copy, `W_o.clone()`, even if the list is empty.",
    ("copy = W_o.clone()", "copy = W_o.clone() if heads else W_o"),
)
MISTAKES = [
    ORIGINAL,
    ("rows silenced",
     "Your zeros are in rows of W_o. The output of a head is multiplied by columns of W_o (as in "
     "`concatenated @ W_o.T`), so set those to 0.",
     ("[:, " + COLUMNS, f"[{COLUMNS}")),
    ("rows and columns silenced",
     "Your result has zeros in rows as well. A row of W_o belongs to one entry of the output and "
     "mixes all heads. Change only columns.",
     (f"copy[:, {COLUMNS}] = 0", f"copy[:, {COLUMNS}] = copy[{COLUMNS}] = 0")),
    ("returned transposed",
     "You set the right columns to zero, but your result is transposed. Return the copy as it is, "
     "without `.T`.",
     ("return copy", "return copy.T")),
    ("others silenced",
     "You remove all heads except the listed ones. Remove the listed ones.",
     ("in heads", "in set(range(num_heads)) - set(heads)")),
    ("one column each",
     "Your result has one zero column per head. Head h has d_k = d_model / num_heads columns, so "
     "set all of them to 0, starting at column h · d_k.",
     (COLUMNS, "head")),
    ("one column too few",
     "The last column of each head is not zero. A slice ends before its second number, so end it "
     "at (head + 1) · d_k.", (COLUMNS, COLUMNS + " - 1")),
    ("one column too many",
     "The column after each listed head is also zero. It belongs to the next head. A slice ends "
     "before its second number, so end it at (head + 1) · d_k.",
     (COLUMNS, COLUMNS + " + 1")),
    ("to the end",
     "Your zeros continue to the last column. Stop before column (head + 1) · d_k.",
     (COLUMNS, "head * d_k :")),
    ("columns in turns",
     "Your zeros are in every num_heads-th column. The d_k columns of a head are next to each "
     "other (lesson 05).",
     (COLUMNS, "head::num_heads")),
    ("width and number swapped",
     "You get this result if you take each head to be num_heads columns wide. A head has d_k = "
     "d_model / num_heads columns. Set these to 0.",
     (COLUMNS, "head * num_heads : (head + 1) * num_heads")),
    ("width of the lesson",
     "You get this result if you take each head to be 32 columns wide, as in the lesson. Here, a "
     "head has d_k = d_model / num_heads columns. Set these to 0.",
     ("W_o.shape[1] // num_heads", "32")),
    ("last head only",
     "Only the last head of the list is removed. If you copy W_o inside a loop, each copy undoes "
     "the earlier removals. Copy it once, before the loop.", ("in heads:", "in heads[-1:]:")),
    ("first head only",
     "Only the first head of the list is removed. The list may name several heads. Set the "
     "columns of every one of them to 0.",
     ("in heads", "in heads[:1]")),
    ("all in between",
     "You also remove heads between the listed ones. Remove only the listed heads, one after "
     "another.",
     ("in heads", "in range(min(heads), max(heads) + 1) if heads else []")),
    ("one slice",
     "You remove everything from the first listed head to the last one. This includes heads in "
     "between, and goes wrong if the list is not in order. Remove the listed heads one by one.",
     ("in heads", "in range(heads[0], heads[-1] + 1) if heads else []")),
    ("as many, from the first",
     "You remove as many heads as the list names, but always the first ones. The list holds the "
     "numbers of the heads. Loop over the list itself.",
     ("in heads", "in range(len(heads))")),
    ("up to the last head",
     "You remove everything from the first listed head up to the start of the last one. Remove "
     "each listed head, and no other, one after another.",
     (COLUMNS, "heads[0] * d_k : heads[-1] * d_k")),
    ("counted from the end",
     "You count the heads from the last one. Count them from the first: head h starts at column "
     "h · d_k.",
     ("in heads", "in [num_heads - 1 - each for each in heads]")),
    ("everything",
     "Your result is 0 everywhere unless the list is empty. Set only the columns of the listed "
     "heads to 0.",
     ("in heads", "in (range(num_heads) if heads else [])")),
    ("none means all",
     "With an empty list, you remove all heads. An empty list names no head, so return W_o "
     "unchanged.",
     ("in heads", "in heads or range(num_heads)")),
    ("columns cut out",
     "Your result has fewer columns, so it no longer fits the concatenated outputs. Keep the "
     "columns, and set them to 0.",
     ("return copy", "return copy[:, [n for n in range(len(W_o)) if n // d_k not in heads]]")),
    ("counted from one",
     "You remove the head before each listed one. Heads are counted from 0. Start the columns of "
     "a head at head · d_k.",
     (COLUMNS, "(head - 1) * d_k : head * d_k")),
    ("mean in place of 0",
     "Your columns hold a mean, so the head still has an effect. Set them to 0.",
     ("= 0", f"= W_o[:, {COLUMNS}].mean()")),
    ("minus infinity",
     "Your columns hold −inf, as masked scores do. But W_o is a factor in a product, so set the "
     "columns to 0.", ("= 0", "= -torch.inf")),
]  # fmt: skip

exercise = Exercise(
    "7.6", silence_heads, inputs, MISTAKES, names="d_model d_model", run=check_copy,
    also_right=[by_mask, by_chunks],
)  # fmt: skip
