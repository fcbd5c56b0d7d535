"""10.6: a block with four wrong lines, mended."""

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


TURNED = "q, k = rotary(q, at, interleaved=True), rotary(k, at, interleaved=True)"
SPREAD = "k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)"
# What is wrong in the block that the exercise gives: by its name, what to say, and the edit.
GIVEN = {
    "key heads in turns": (
        "which key head does query head 1 of six use, if there are three? Each serves a group of "
        "neighbours: repeat_interleave, not repeat",
        (SPREAD, "k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)"),
    ),
    "values turned": (
        "the values are turned too; a place says where to look, not what is handed over",
        ("    heads, _ =", "    v = rotary(v, at, interleaved=True)\n    heads, _ ="),
    ),
    "stream replaced": (
        "the second half adds to the normed stream; both halves add to x as it is",
        ("return x + (F.silu", "return normed + (F.silu"),
    ),
    "gate and up exchanged": (
        "silu is taken of the wrong one of two products: the gate goes through it",
        ("F.silu(gate) * up", "gate * F.silu(up)"),
    ),
}


def left_over():
    """Return a mistake for each choice of wrong lines that are left, the fullest last."""
    for size in range(1, len(GIVEN) + 1):
        for names in itertools.combinations(GIVEN, size):
            hint, edits = GIVEN[names[0]][0], [GIVEN[name][1] for name in names]
            still = f"{size} of the 4 wrong lines are left; for one, " if size > 1 else ""
            yield ", ".join(names), still + hint, *edits


MISTAKES = [
    *left_over(),
    ("pairs of halves", "all four are mended, but the pairs are no longer neighbours: they were "
     "right", (TURNED, "q, k = rotary(q, at), rotary(k, at)")),
    ("the lesson's base", "the base is 100,000, as of the lesson's model; here it is 10,000",
     ("rotary(q, at, interleaved=True), rotary(k, at, interleaved=True)",
      "(rotary(each, at, base=100_000, interleaved=True) for each in (q, k))")),
    ("nothing turned", "q and k are not turned, so that attention knows no places: only values "
     "have none", (TURNED, "q, k = q, k")),
    ("keys alone turned", "q is not turned: places show in a product of two that are",
     ("rotary(q, at, interleaved=True)", "q")),
    ("queries alone turned", "k is not turned: places show in a product of two that are",
     ("rotary(k, at, interleaved=True)", "k")),
    ("stream lost", "what attention gives takes the place of x; it is added to x",
     ("x = x + merge", "x = merge")),
    ("first norm left out", "attention reads x itself; it reads it normed, with norm_1",
     ('rms_norm(x, w["norm_1"])', "x")),
    ("second norm left out", "the second half reads x itself; it reads it normed, with norm_2",
     ('rms_norm(x, w["norm_2"])', "x")),
    ("second half reads the first x", "the second half reads x as it was before attention added to "
     "it", ("x = x + merge", "first, x = x, x + merge"),
     ('rms_norm(x, w["norm_2"])', 'rms_norm(first, w["norm_2"])')),
    ("sigmoid", "the gate goes through a sigmoid alone; silu is the sigmoid times its number",
     ("F.silu(gate)", "gate.sigmoid()")),
    ("gelu", "the gate goes through gelu; here it is silu", ("F.silu(gate)", "F.gelu(gate)")),
    ("norm after adding", "the normed stream is what attention adds to as well; both halves add to "
     "x as it is", ("x = x + merge", "x = normed + merge")),
    ("one norm for both", "the second half reads with the weights of the first norm",
     ('"norm_2"', '"norm_1"')),
    ("first norm's output read twice", "the second half reads what the first half's norm gave; "
     "attention has added to x since", ('    normed = rms_norm(x, w["norm_2"])\n', "")),
    ("no mask", "without a mask a token sees what comes after it",
     ("attention(q, k, v, causal_mask(len(at)))", "attention(q, k, v)")),
]  # fmt: skip

exercise = Exercise(
    "10.6", fixed_block, inputs, MISTAKES, names="B L d_model", also_right=[by_modules]
)
