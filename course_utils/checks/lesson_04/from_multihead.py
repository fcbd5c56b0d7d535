"""4.7: one mask (B, 1, L, S), True = may attend, of the two in which True means ignore."""

import torch

from course_utils.attention import causal_mask, prefix_mask, sliding_window_mask
from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_04._masks import ADDED, NOT_BOOLEAN


def from_multihead(attn_mask, key_padding_mask):
    padding = key_padding_mask[:, None, None, :]  # (B, 1, 1, S)
    ignored = attn_mask | padding  # (L, S) | (B, 1, 1, S) -> (B, 1, L, S)
    return ~ignored


def by_logic(attn_mask, key_padding_mask):
    return (attn_mask.logical_not() & (key_padding_mask == 0).unsqueeze(1)).unsqueeze(1)


def by_loops(attn_mask, key_padding_mask):
    return torch.stack([torch.logical_or(attn_mask, row)[None] == 0 for row in key_padding_mask])


def inputs():
    def padding(lengths, S):
        return torch.arange(S) >= torch.tensor(lengths)[:, None]  # (B, S), True = ignore

    def causal(L, S):
        return causal_mask(L, S, align="lower_right")

    return [
        (~causal(4, 6), padding([3, 6], 6)),
        (~sliding_window_mask(5, 2), padding([1, 5, 4], 5)),
        (~prefix_mask(3, 2), padding([2, 3, 1], 3).flip(-1)),  # B = L = S, padding at the start
        (~causal(7, 4).T, padding([3, 0, 7, 1], 7)),  # B = L, not contiguous, a row of nothing
        (~causal(5, 3), padding([2], 3)),
        (~causal_mask(1), padding([1], 1)),
        (~causal(1, 12), padding([9, 12], 12)),
    ]


MISTAKES = [
    ("nothing inverted",
     "nothing is turned round: MultiheadAttention's True means ignore, here it must mean may "
     "attend", ("~ignored", "attn_mask & padding")),
    ("still true means ignore",
     "the union of what is to be ignored, still True = ignore: one ~ around it is missing",
     ("~ignored", "ignored")),
    ("not boolean", NOT_BOOLEAN, ("~ignored", "(~ignored).float()")),
    ("added to scores", ADDED,
     ("~ignored", "torch.zeros(ignored.shape).masked_fill(ignored, -torch.inf)")),
    ("a large number added to scores",
     "that is a mask to add to the scores, 0 and -1e9; return a boolean one, True = may attend",
     ("~ignored", "ignored * -1e9")),
    ("joined by exclusive or",
     "a key that both masks ignore is allowed, as by ^: what either ignores is ignored, |",
     ("attn_mask |", "attn_mask ^")),
    ("either allows",
     "a key must be allowed by both masks: ~a & ~b, or ~(a | b); ~a | ~b, which is ~(a & b), lets "
     "one of them suffice", ("attn_mask |", "attn_mask &")),
    ("padding not inverted",
     "only the attention mask is turned round; the padding mask needs its ~ too",
     ("~ignored", "~attn_mask & padding")),
    ("attention not inverted",
     "only the padding mask is turned round; the attention mask needs its ~ too",
     ("~ignored", "attn_mask & ~padding")),
    ("only the first inverted",
     "~ binds tighter than |: ~a | b turns a round and then adds what b ignores; ~(a | b)",
     ("~ignored", "~attn_mask | padding")),
    ("padding left out", "the padding mask is left out",
     ("attn_mask | padding", "attn_mask.expand(len(padding), 1, *attn_mask.shape)")),
    ("attention mask left out",
     "that is the padding mask turned round: the attention mask is left out",
     ("attn_mask | padding", "padding")),
    ("attention mask for its shape alone",
     "right shape, but of the attention mask only the shape is used: what it ignores is allowed",
     ("attn_mask | padding", "padding.expand(-1, -1, len(attn_mask), -1)")),
    ("no place for heads",
     "right entries as (B, L, S): against scores (B, H, L, S) B would meet the heads; "
     "(B, 1, L, S)", ("~ignored", "~ignored[:, 0]")),
    ("padding at the queries",
     "the padding masks queries: (B, S) became (B, 1, S, 1); keys are the last dimension",
     ("[:, None, None, :]", "[:, None, :, None]")),
]  # fmt: skip

exercise = Exercise(
    "4.7", from_multihead, inputs, MISTAKES, names="B 1 L S", also_right=[by_logic, by_loops]
)
