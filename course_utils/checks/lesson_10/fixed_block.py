"""10.6: a block with four wrong lines, fixed."""

import itertools

import torch
import torch.nn.functional as F

from course_utils.attention import attention, causal_mask, merge_heads, rotary, split_heads
from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def rms_norm(x, weight):
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * weight


def fixed_block(x, w, num_heads, num_kv_heads):
    at, group = torch.arange(x.shape[1]), num_heads // num_kv_heads
    normed = rms_norm(x, w["norm_1"])  # (B, L, d_model)
    q = split_heads(normed @ w["W_q"].T, num_heads)  # (B, H, L, d_k)
    k = split_heads(normed @ w["W_k"].T, num_kv_heads)  # (B, H_kv, L, d_k)
    v = split_heads(normed @ w["W_v"].T, num_kv_heads)  # (B, H_kv, L, d_k)
    q, k = rotary(q, at, interleaved=True), rotary(k, at, interleaved=True)
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    heads, _ = attention(q, k, v, causal_mask(len(at)))  # (B, H, L, d_k)
    x = x + merge_heads(heads) @ w["W_o"].T  # (B, L, d_model)
    normed = rms_norm(x, w["norm_2"])
    gate, up = normed @ w["W_gate"].T, normed @ w["W_up"].T  # (B, L, d_hidden)
    return x + (F.silu(gate) * up) @ w["W_down"].T


def by_modules(x, w, num_heads, num_kv_heads):
    d, L = x.shape[-1], x.shape[1]
    one = F.rms_norm(x, (d,), w["norm_1"], 1e-5)
    q = split_heads(F.linear(one, w["W_q"]), num_heads)
    k, v = (split_heads(F.linear(one, w[name]), num_kv_heads) for name in ("W_k", "W_v"))
    q, k = (rotary(each, torch.arange(L), interleaved=True) for each in (q, k))
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    x = x + F.linear(merge_heads(heads), w["W_o"])
    two = F.rms_norm(x, (d,), w["norm_2"], 1e-5)
    hidden = F.silu(F.linear(two, w["W_gate"])) * F.linear(two, w["W_up"])
    return x + F.linear(hidden, w["W_down"])


def inputs():
    normal = normals(106)

    def probe(B, L, d_k, num_heads, num_kv_heads, d_hidden):
        d, d_kv = num_heads * d_k, num_kv_heads * d_k
        shapes = {"W_q": (d, d), "W_k": (d_kv, d), "W_v": (d_kv, d), "W_o": (d, d)}
        shapes |= {"W_gate": (d_hidden, d), "W_up": (d_hidden, d), "W_down": (d, d_hidden)}
        w = {name: normal(*shape) * 1.5 / shape[1] ** 0.5 for name, shape in shapes.items()}
        w |= {name: 1 + normal(d) / 2 for name in ("norm_1", "norm_2")}
        return 3 * normal(B, L, d), w, num_heads, num_kv_heads

    x, *others = probe(2, 3, 4, 2, 1, 5)
    return [
        (x / 500, *others),  # so small that the norm's 1e-5 counts
        probe(1, 5, 4, 4, 2, 7),
        probe(2, 4, 2, 6, 3, 9),
        probe(3, 6, 4, 3, 1, 5),  # one key head for all
        probe(1, 3, 6, 2, 2, 11),  # a key head for each
        probe(2, 1, 2, 4, 2, 3),  # one token
    ]


ROTATED = "q, k = rotary(q, at, interleaved=True), rotary(k, at, interleaved=True)"
REPEATED = "k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)"
# The wrong lines of the exercise, by name: what to say, and the edit.
GIVEN = {
    "key heads in the wrong order": (
        "Your query heads use the wrong key heads. With six query heads and three key heads, heads "
        "0 and 1 share key head 0. Use repeat_interleave, not repeat.",
        (REPEATED, "k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)"),
    ),
    "values rotated": (
        "Your values are rotated as well. The values carry no position, because it only decides "
        "where a query looks. Rotate only q and k.",
        ("    heads, _ =", "    v = rotary(v, at, interleaved=True)\n    heads, _ ="),
    ),
    "residual stream replaced": (
        "Your second half adds to the normalized x. Both halves must add to x itself. Keep x, and "
        "give the norm's output another name.",
        ("return x + (F.silu", "return normed + (F.silu"),
    ),
    "gate and up exchanged": (
        "Your result applies silu to the wrong product. It belongs to the product with W_gate. "
        "Swap the two.",
        ("F.silu(gate) * up", "gate * F.silu(up)"),
    ),
}


def left_over():
    """Return a mistake for each set of wrong lines that are left, the largest set last."""
    for size in range(1, len(GIVEN) + 1):
        for names in itertools.combinations(GIVEN, size):
            hint, edits = GIVEN[names[0]][0], [GIVEN[name][1] for name in names]
            still = f"{size} of the 4 wrong lines are still there. " if size > 1 else ""
            yield ", ".join(names), still + hint, *edits


MISTAKES = [
    *left_over(),
    ("pairs of halves", "All four errors are fixed, but your pairs are halves now. Neighbors were "
     "right. Keep interleaved=True.", (ROTATED, "q, k = rotary(q, at), rotary(k, at)")),
    ("the lesson's base", "Your base is the 100,000 of the lesson's model. Use 10,000 here, the "
     "default of rotary.",
     ("rotary(q, at, interleaved=True), rotary(k, at, interleaved=True)",
      "(rotary(each, at, base=100_000, interleaved=True) for each in (q, k))")),
    ("nothing rotated", "Your q and k are not rotated, so attention knows no positions. Rotate "
     "both, and leave out only the values.", (ROTATED, "q, k = q, k")),
    ("only keys rotated", "Your q is not rotated. A score depends on the distance only if both q "
     "and k are. Rotate q too.", ("rotary(q, at, interleaved=True)", "q")),
    ("only queries rotated", "Your k is not rotated. A score depends on the distance only if both "
     "q and k are. Rotate k too.", ("rotary(k, at, interleaved=True)", "k")),
    ("x lost", "Your attention output replaces x. Add it to x.", ("x = x + merge", "x = merge")),
    ("first norm left out", "Your attention reads x itself. Give it x normalized with norm_1.",
     ('rms_norm(x, w["norm_1"])', "x")),
    ("second norm left out", "Your second half reads x itself. Give it x normalized with norm_2.",
     ('rms_norm(x, w["norm_2"])', "x")),
    ("second half reads the first x", "Your second half reads x as it was before attention. Let it "
     "read x after attention was added.", ("x = x + merge", "first, x = x, x + merge"),
     ('rms_norm(x, w["norm_2"])', 'rms_norm(first, w["norm_2"])')),
    ("sigmoid", "Your result applies a sigmoid to the gate. silu(z) is z times its sigmoid. Use "
     "F.silu.", ("F.silu(gate)", "gate.sigmoid()")),
    ("gelu", "Your result applies gelu to the gate. This block uses silu. Use F.silu.",
     ("F.silu(gate)", "F.gelu(gate)")),
    ("norm after adding", "Your attention output is added to the normalized x. Both halves must "
     "add to x itself.", ("x = x + merge", "x = normed + merge")),
    ("one norm for both", "Your second half uses the weight of norm_1. It has its own. Use "
     "norm_2.", ('"norm_2"', '"norm_1"')),
    ("first norm's output read twice", "Your second half reads the output of the first norm. Since "
     "then, attention has added to x. Normalize x again, with norm_2.",
     ('    normed = rms_norm(x, w["norm_2"])\n', "")),
    ("another eps", "Your result is right, except for very small x, where the eps of the norm "
     "matters. Use 1e-5, as in rms_norm.",
     ('rms_norm(x, w["norm_1"])', 'F.rms_norm(x, x.shape[-1:], w["norm_1"], 1e-6)'),
     ('rms_norm(x, w["norm_2"])', 'F.rms_norm(x, x.shape[-1:], w["norm_2"], 1e-6)')),
    ("no mask", "Your tokens see later tokens. Use the causal mask.",
     ("attention(q, k, v, causal_mask(len(at)))", "attention(q, k, v)")),
]  # fmt: skip

exercise = Exercise(
    "10.6", fixed_block, inputs, MISTAKES, names="B L d_model", also_right=[by_modules]
)
