"""4.7: one mask (B, 1, L, S), True = may attend, from two masks in which True means ignore."""

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
        (~prefix_mask(3, 2), padding([2, 3, 1], 3).flip(-1)),  # B = L = S, left padding
        (~causal(7, 4).T, padding([3, 0, 7, 1], 7)),  # B = L, not contiguous, one empty row
        (~causal(5, 3), padding([2], 3)),
        (~causal_mask(1), padding([1], 1)),
        (~causal(1, 12), padding([9, 12], 12)),
    ]


MISTAKES = [
    ("nothing inverted",
     "Your mask allows only the keys that both given masks mark as ignored. In "
     "nn.MultiheadAttention, True means 'ignore', but here True must mean 'may attend'. Invert "
     "both masks before you combine them with &.", ("~ignored", "attn_mask & padding")),
    ("still true means ignore",
     "Your result is True where a key must be ignored. Invert it with ~.",
     ("~ignored", "ignored")),
    ("not boolean", NOT_BOOLEAN, ("~ignored", "(~ignored).float()")),
    ("added to scores", ADDED,
     ("~ignored", "torch.zeros(ignored.shape).masked_fill(ignored, -torch.inf)")),
    ("a large number added to scores",
     "Your result is a float mask of 0 and -1e9, to be added to scores. Return a boolean mask in "
     "which True means 'may attend'.",
     ("~ignored", "ignored * -1e9")),
    ("joined by exclusive or",
     "Your mask allows a key that both given masks mark as ignored, as happens with ^. A key must "
     "be ignored if either of them says so. Use |.",
     ("attn_mask |", "attn_mask ^")),
    ("either allows",
     "Your mask allows a key even if only one of the two masks allows it. Both must allow the "
     "key. For masks a and b, write ~a & ~b, which equals ~(a | b).",
     ("attn_mask |", "attn_mask &")),
    ("padding not inverted",
     "Only the attention mask is inverted. Invert the padding mask too.",
     ("~ignored", "~attn_mask & padding")),
    ("attention not inverted",
     "Only the padding mask is inverted. Invert the attention mask too.",
     ("~ignored", "attn_mask & ~padding")),
    ("only the first inverted",
     "Only the attention mask is inverted. If you write ~a | b for masks a and b, then ~ applies "
     "only to a. Write ~(a | b).",
     ("~ignored", "~attn_mask | padding")),
    ("padding left out",
     "Your result leaves out the padding mask. A key must be ignored if either mask says so. "
     "Combine the two masks with |, and invert the result.",
     ("attn_mask | padding", "attn_mask.expand(len(padding), 1, *attn_mask.shape)")),
    ("attention mask left out",
     "Your result is the inverted padding mask alone. A key must be ignored if either mask says "
     "so. Combine the two masks with |, and invert the result.",
     ("attn_mask | padding", "padding")),
    ("attention mask for its shape alone",
     "The shape is right, but your result allows keys that `attn_mask` marks as ignored. A key "
     "must be ignored if either mask says so. Combine the two masks with |, and invert the result.",
     ("attn_mask | padding", "padding.expand(-1, -1, len(attn_mask), -1)")),
    ("no dimension for heads",
     "The entries are right, but the shape is (B, L, S). Against scores (B, H, L, S), B would be "
     "aligned with H. Give the mask the shape (B, 1, L, S).", ("~ignored", "~ignored[:, 0]")),
    ("padding of the first sequence",
     "You use the padding of the first sequence for the whole batch. Each sequence has its own "
     "row in `key_padding_mask`. Turn the padding mask (B, S) into (B, 1, 1, S).",
     ("[:, None, None, :]", "[:1, None, None, :].expand(len(key_padding_mask), 1, 1, -1)")),
    ("padding of any sequence",
     "If a key is padding in any sequence, your mask hides it from the whole batch. Each sequence "
     "has its own row in `key_padding_mask`. Turn the padding mask (B, S) into (B, 1, 1, S).",
     ("key_padding_mask[:, None, None, :]",
      "key_padding_mask.any(0).expand(len(key_padding_mask), 1, 1, -1)")),
    ("padding of all sequences",
     "Your mask forbids a padding key only if it is padding in every sequence. Each sequence has "
     "its own row in `key_padding_mask`. Turn the padding mask (B, S) into (B, 1, 1, S).",
     ("key_padding_mask[:, None, None, :]",
      "key_padding_mask.all(0).expand(len(key_padding_mask), 1, 1, -1)")),
    ("padding at the heads",
     "Your mask has shape (B, S, L, S), because the keys of the padding mask are aligned with the "
     "heads. Keys are the last dimension of the scores. Turn the padding mask (B, S) into (B, 1, "
     "1, S).", ("[:, None, None, :]", "[:, :, None, None]")),
    ("attention mask transposed",
     "Right, except when L = S. Then your attention mask is transposed, as .T does. The rows of "
     "`attn_mask` are already queries. Use it as it is.",
     ("attn_mask |", "(attn_mask.T if len(attn_mask) == len(attn_mask.T) else attn_mask) |")),
    ("rows with no key opened",
     "Right, except for a query with no allowed key. Your mask lets this query see every key. "
     "Leave its row False everywhere, as the two masks say.",
     ("    return ~ignored", "    ignored = ignored & ~ignored.all(-1, keepdim=True)\n"
      "    return ~ignored")),
    ("padded queries ignored too",
     "Right, except when L = S. Then your mask also hides every key from queries at padding "
     "positions. `key_padding_mask` is only about keys. Mask only the keys.",
     ("attn_mask | padding", "attn_mask | padding | (padding.mT if attn_mask.shape[0] == "
      "attn_mask.shape[1] else padding)")),
    ("padding at the queries",
     "Your padding mask masks queries. Keys are the last dimension of the scores. Turn the "
     "padding mask (B, S) into (B, 1, 1, S).",
     ("[:, None, None, :]", "[:, None, :, None]")),
]  # fmt: skip

exercise = Exercise(
    "4.7", from_multihead, inputs, MISTAKES, names="B 1 L S", also_right=[by_logic, by_loops]
)
