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
        probe(3, 6, 4, 3, 1, 5),  # one KV head for all
        probe(1, 3, 6, 2, 2, 11),  # a KV head for each
        probe(2, 1, 2, 4, 2, 3),  # one token
    ]


ROTATED = "q, k = rotary(q, at, interleaved=True), rotary(k, at, interleaved=True)"
REPEATED = "k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)"
# The wrong lines of the exercise, by name: what to say, and the edit.
GIVEN = {
    "KV heads in the wrong order": (
        "Your query heads use the wrong KV heads. With six query heads and three KV heads, query "
        "heads 0 and 1 share KV head 0. Use repeat_interleave, not repeat.",
        (REPEATED, "k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)"),
    ),
    "values rotated": (
        "You rotate the values as well. Position should decide only where a query looks, so the "
        "values must not carry it. Rotate only q and k.",
        ("    heads, _ =", "    v = rotary(v, at, interleaved=True)\n    heads, _ ="),
    ),
    "residual stream replaced": (
        "In the second half, you add to the normalized x. Both halves of the block must add to x "
        "itself. Keep x, and give the output of the norm another name.",
        ("return x + (F.silu", "return normed + (F.silu"),
    ),
    "gate and up exchanged": (
        "You apply silu to the product with W_up. In this block, silu belongs to the product "
        "with W_gate. Apply it there.",
        ("F.silu(gate) * up", "gate * F.silu(up)"),
    ),
}


LEFT = {2: "Two of the four", 3: "Three of the four", 4: "All four"}


def left_over():
    """Return a mistake for each set of wrong lines that are left, the largest set last."""
    for size in range(1, len(GIVEN) + 1):
        for names in itertools.combinations(GIVEN, size):
            hint, edits = GIVEN[names[0]][0], [GIVEN[name][1] for name in names]
            if size > 1:
                hint = f"{LEFT[size]} wrong lines are still there. Here is one of them. {hint}"
            yield ", ".join(names), hint, *edits


NUM_KV = (
    "You repeat each KV head num_kv_heads times. Repeat it once for each of its query heads, "
    "num_heads // num_kv_heads times."
)
MISTAKES = [
    *left_over(),
    ("halves layout", "All four wrong lines are fixed, but you rotate in the halves layout. The "
     "interleaved layout was correct. Keep interleaved=True.",
     (ROTATED, "q, k = rotary(q, at), rotary(k, at)")),
    ("the lesson's base", "You use the base of the lesson's model, 100,000. Here the base "
     "is 10,000. Use the default of `rotary`.",
     ("rotary(q, at, interleaved=True), rotary(k, at, interleaved=True)",
      "(rotary(each, at, base=100_000, interleaved=True) for each in (q, k))")),
    ("nothing rotated", "You rotate neither q nor k, so attention knows no positions. Rotate "
     "both, and leave out only the values.", (ROTATED, "q, k = q, k")),
    ("only keys rotated", "You rotate k, but not q. Then a score depends on the position of the "
     "key, not on its distance from the query. Rotate q too.",
     ("rotary(q, at, interleaved=True)", "q")),
    ("only queries rotated", "You rotate q, but not k. Then a score depends on the position of the "
     "query, not on its distance from the key. Rotate k too.",
     ("rotary(k, at, interleaved=True)", "k")),
    ("x lost", "Your attention output replaces x. Both halves of the block must add to x. Add the "
     "attention output to x.", ("x = x + merge", "x = merge")),
    ("x lost at the end", "Your result is the output of the second half alone. Both halves of the "
     "block must add to x. Add the output to x.", ("return x + (F", "return (F")),
    ("first norm left out", "Your attention reads x itself. Normalize x first, with norm_1.",
     ('rms_norm(x, w["norm_1"])', "x")),
    ("second norm left out", "Your second half reads x itself. Normalize x first, with norm_2.",
     ('rms_norm(x, w["norm_2"])', "x")),
    ("norms swapped", "You use norm_2 before attention and norm_1 before the second half. Swap "
     "the two.", ('"norm_1"', '"norm_X"'), ('"norm_2"', '"norm_1"'), ('"norm_X"', '"norm_2"')),
    ("second half reads the first x", "Your second half reads x as it was before attention, so "
     "it knows nothing of the attention output. Give it the sum of both.",
     ("x = x + merge", "first, x = x, x + merge"),
     ('rms_norm(x, w["norm_2"])', 'rms_norm(first, w["norm_2"])')),
    ("sigmoid", "You apply a sigmoid to the gate. This block uses silu, and silu(z) is "
     "z · sigmoid(z). Use F.silu.", ("F.silu(gate)", "gate.sigmoid()")),
    ("gelu", "You apply gelu to the gate. This block uses silu. Use F.silu.",
     ("F.silu(gate)", "F.gelu(gate)")),
    ("no silu", "You multiply the two products without silu. Apply F.silu to the product with "
     "W_gate first.", ("F.silu(gate)", "gate")),
    ("silu of the product", "You multiply first and apply silu to the result. Apply silu to the "
     "product with W_gate only, and then multiply.", ("F.silu(gate) * up", "F.silu(gate * up)")),
    ("norm after adding", "You add the attention output to the normalized x. Both halves of the "
     "block must add to x itself. Add the attention output to x.",
     ("x = x + merge", "x = normed + merge")),
    ("one norm for both", "You use the weight of norm_1 in both halves. The second half has a norm "
     "of its own. Use norm_2 there.", ('"norm_2"', '"norm_1"')),
    ("first norm's output read twice", "Your second half reads the output of the first norm. But "
     "attention has added to x since then. Normalize x again, with norm_2.",
     ('    normed = rms_norm(x, w["norm_2"])\n', "")),
    ("another eps", "Your result is right, except for very small x, where the eps of the norm "
     "matters. Use 1e-5, as in rms_norm.",
     ('rms_norm(x, w["norm_1"])', 'F.rms_norm(x, x.shape[-1:], w["norm_1"], 1e-6)'),
     ('rms_norm(x, w["norm_2"])', 'F.rms_norm(x, x.shape[-1:], w["norm_2"], 1e-6)')),
    ("heads not merged", "You reshape the head outputs while heads still come before tokens. Then "
     "each row mixes different tokens. Use merge_heads.",
     ("merge_heads(heads)", "heads.reshape(x.shape)")),
    ("output matrix not transposed", "You multiply the heads by W_o itself. Each matrix here has "
     "the shape (d_out, d_in). Multiply by W_o.T.", ('w["W_o"].T', 'w["W_o"]')),
    ("no mask", "In your result, tokens attend to later tokens. Give the causal mask to "
     "`attention`.",
     ("attention(q, k, v, causal_mask(len(at)))", "attention(q, k, v)")),
    ("attention output lost", "Your attention output is missing from the result. Only the second "
     "half reads it. Both halves of the block must add to x, so add the attention output to x, and "
     "return this sum plus the output of the second half.",
     ("x = x + merge", "first, x = x, x + merge"),
     ("return x + (F.silu", "return first + (F.silu")),
    ("only keys in the right order", "Your query heads use the right keys, but the wrong values. "
     "Use repeat_interleave for v too, not repeat.",
     (REPEATED, "k.repeat_interleave(group, dim=1), v.repeat(1, group, 1, 1)")),
    ("only values in the right order", "Your query heads use the right values, but the wrong keys. "
     "Use repeat_interleave for k too, not repeat.",
     (REPEATED, "k.repeat(1, group, 1, 1), v.repeat_interleave(group, dim=1)")),
    ("queries and values rotated", "You rotate q and v, but not k. A score depends on the distance "
     "between two tokens only if q and k are rotated. Rotate q and k, and leave v as it is.",
     (ROTATED, "q, v = rotary(q, at, interleaved=True), rotary(v, at, interleaved=True)")),
    ("keys and values rotated", "You rotate k and v, but not q. A score depends on the distance "
     "between two tokens only if q and k are rotated. Rotate q and k, and leave v as it is.",
     (ROTATED, "k, v = rotary(k, at, interleaved=True), rotary(v, at, interleaved=True)")),
    ("only values rotated", "You rotate only the values. A score depends on the distance between "
     "two tokens only if q and k are rotated. Rotate q and k, and leave v as it is.",
     (ROTATED, "v = rotary(v, at, interleaved=True)")),
    ("repeated once for each KV head", NUM_KV,
     (REPEATED, "k.repeat_interleave(num_kv_heads, dim=1), "
                "v.repeat_interleave(num_kv_heads, dim=1)")),
    ("repeated once for each KV head, and cut", NUM_KV,
     (REPEATED, "k.repeat_interleave(num_kv_heads, dim=1)[:, :num_heads], "
                "v.repeat_interleave(num_kv_heads, dim=1)[:, :num_heads]")),
    ("rotated before the split", "You rotate q and k before you split the heads. Then "
     "the frequencies are spread over all heads, but each head needs all of them. Split the heads "
     "first.",
     ('split_heads(normed @ w["W_q"].T, num_heads)',
      'split_heads(rotary(normed @ w["W_q"].T, at, interleaved=True), num_heads)'),
     ('split_heads(normed @ w["W_k"].T, num_kv_heads)',
      'split_heads(rotary(normed @ w["W_k"].T, at, interleaved=True), num_kv_heads)'),
     (ROTATED, "q, k = q, k")),
    ("tokens repeated", "You repeat dimension 2, which holds tokens. Heads are dimension 1. Use "
     "dim=1.",
     (REPEATED, "k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)")),
    ("silu of both", "You apply silu to both products. Apply it only to the product with W_gate.",
     ("F.silu(gate) * up", "F.silu(gate) * F.silu(up)")),
    ("relu", "You apply relu to the gate. This block uses silu. Use F.silu.",
     ("F.silu(gate)", "F.relu(gate)")),
    ("gelu by tanh", "You apply gelu to the gate. This block uses silu. Use F.silu.",
     ("F.silu(gate)", 'F.gelu(gate, approximate="tanh")')),
    ("no output matrix", "You leave out W_o. Multiply the merged heads by W_o.T before you add "
     "them to x.", ('merge_heads(heads) @ w["W_o"].T', "merge_heads(heads)")),
    ("layer norm second", "Your second norm subtracts the mean, as layer norm does. Use rms_norm.",
     ('rms_norm(x, w["norm_2"])', 'F.layer_norm(x, x.shape[-1:], w["norm_2"])')),
    ("layer norm first", "Your first norm subtracts the mean, as layer norm does. Use rms_norm.",
     ('rms_norm(x, w["norm_1"])', 'F.layer_norm(x, x.shape[-1:], w["norm_1"])')),
    ("layer norm twice", "Your norms subtract the mean, as layer norm does. Use rms_norm.",
     ('rms_norm(x, w["norm_1"])', 'F.layer_norm(x, x.shape[-1:], w["norm_1"])'),
     ('rms_norm(x, w["norm_2"])', 'F.layer_norm(x, x.shape[-1:], w["norm_2"])')),
    ("not scaled", "Your scores are not scaled. Divide them by √d_k, as `attention` does by "
     "default.",
     ("attention(q, k, v, causal_mask(len(at)))",
      "attention(q, k, v, causal_mask(len(at)), scale=1.0)")),
]  # fmt: skip

exercise = Exercise(
    "10.6", fixed_block, inputs, MISTAKES, names="B L d_model", also_right=[by_modules]
)
