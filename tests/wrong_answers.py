"""Wrong answers whose verdict no row of MISTAKES tests.

Either no mistake may be named (None), as the answer makes none of the known ones, or it is named by
the exercise's own ``run`` or by its gradients. An answer is a function or class, or pairs (old,
new) of pieces of the exercise's right answer, as in a row of MISTAKES.
"""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from course_utils import attention
from course_utils.attention import rotary
from course_utils.checks.exercise import EXERCISES

R = {name: exercise.reference for name, exercise in EXERCISES.items()}
GRADIENTS, THROUGH, REJECTS = "wrong gradients", "lets broken code through", "rejects right code"
VERDICT, OTHERS = "returns a verdict", "unexpected parameters"


def squeezed(name):
    """Return a right answer that drops dimensions of size 1."""
    return lambda *args: R[name](*args).squeeze()


def same_output_after(key, change):
    """Return a test that replaces the values of a key: 0 is allowed to all queries, 5 to none."""

    def catches_leak(attention):
        for size in (1, 1000) * 6:
            q, k, v = size * torch.randn(4, 3), torch.randn(6, 3), torch.randn(6, 2)
            mask = torch.rand(4, 6) < 0.5
            mask[:, 0], mask[:, 5] = True, False
            other = v.index_fill(0, torch.tensor(key), change) if change else v
            assert torch.allclose(attention(q, k, v, mask)[0], attention(q, k, other, mask)[0])

    return catches_leak


class NotALayer:
    def __init__(self, d_model, num_heads):
        pass


def kept_outside(layer, x, cache, window, kept={}):  # noqa: B006
    cache = None if cache is None else kept["cache"]
    out, kept["cache"] = R["continue_text"](layer, x, cache, window)
    return out, torch.zeros(1)


def keeping_tokens(layer, x, cache, window):
    tokens = x if cache is None else torch.cat([cache, x], dim=1)
    out, _ = R["continue_text"](layer, tokens, None, window)
    return out[:, -x.shape[1] :], tokens[:, -window:]


def without_a_kernel(q, k, v, splits):
    grouped = q.unflatten(0, (len(k), -1))
    return attention.attention(grouped, k, v)[0].flatten(0, 1)


def with_an_idle_kernel(q, k, v, splits):
    R["split_decode"](q, k, v, splits)
    return without_a_kernel(q, k, v, splits)


def counted_outside(q, k, v, keys, values, window, counted=[]):  # noqa: B006
    counted[:] = [*counted, None] if len(keys) else [None]
    at = torch.tensor([len(counted)])
    keys, values = torch.cat([keys, rotary(k, at)])[-window:], torch.cat([values, v])[-window:]
    return attention.attention(rotary(q, at), keys, values)[0], keys, values


def with_all_weights(q, k, v):
    weights = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT).tril()
    return weights @ v / weights.sum(dim=-1, keepdim=True)


def token_after_token(k, v, decay, beta):
    M, N = torch.eye(k.shape[-1], dtype=k.dtype), 0
    for t in range(k.shape[-2]):
        key, b = k[..., t, :, None], beta[..., t, None, None]
        step = decay[..., t, None, None] * (
            torch.eye(k.shape[-1], dtype=k.dtype) - b * key @ key.mT
        )
        M, N = step @ M, step @ N + b * key @ v[..., t, None, :] if t else b * key @ v[..., :1, :]
    return M, N


def by_columns(model, texts, steps):
    """Read the prompts one column after the other."""
    missing = torch.tensor([max(map(len, texts)) - len(text) for text in texts])  # (B,)
    tokens = torch.stack([F.pad(t, (n, 0)) for t, n in zip(texts, missing.tolist(), strict=True)])

    def attend(q, k, v, mask):
        there = torch.arange(k.shape[-2]) >= missing[:, None, None, None]  # (B, 1, 1, S)
        return attention.attention(q, k, v, mask & there)

    cache, written = {}, []
    for column in tokens.T:
        logits = model(column[:, None], cache, attend=attend)
    for step in range(steps):
        written.append(logits[:, -1:].argmax(dim=-1))  # (B, 1)
        if step < steps - 1:
            logits = model(written[-1], cache, attend=attend)
    return torch.cat(written, dim=1)


def one_after_another(model, texts, steps):
    rows = []
    for text in texts:
        for _ in range(steps):
            text = torch.cat([text, model(text[None])[0, -1:].argmax(-1)])
        rows.append(text[-steps:])
    return torch.stack(rows)


def one_pass_variance(q, k):
    scores = (q * k).sum(-1)
    return (scores.square().mean() - scores.mean() ** 2) * len(q) / (len(q) - 1)


ROLES = "self.W_q, self.W_k, self.W_v, self.W_o = ("
LAST_COPY = "ours.W_o.bias.copy_(theirs.out_proj.bias)"
FLASH = "q, k, v, block_q, block_k)"

TABLE = {
    "dot_product_scores": [
        (None, lambda q, k: torch.einsum("bld,bsd->ls", q, k)),
        (None, lambda q, k: q @ k.transpose(1, 2)),
        (None, squeezed("dot_product_scores")),
    ],
    "cosine_similarity": [
        ("computed in float32", lambda q, k: R["cosine_similarity"](q.float(), k.float())),
        ("extreme lengths", lambda q, k: F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT),
        (None, lambda q, k: R["cosine_similarity"](q, k) * (q != 0).all(-1)[..., None]),
    ],
    "euclidean_distance": [
        ("root of a negative", [(".clamp(min=0)", "")]),
        ("uses cdist", lambda q, k: torch.cdist(q, k)),
        ("makes all differences", lambda q, k: (q[..., None, :] - k[..., None, :, :]).norm(dim=-1)),
        ("makes all differences", lambda q, k: np.linalg.norm(
            q[..., None, :].detach().numpy() - k[..., None, :, :].detach().numpy(), axis=-1)),
    ],
    "nearest_key": [
        ("eps in the cosine", [("MEASURES[measure](q, k)",
                                "q @ (k / (k.norm(dim=-1, keepdim=True) + 0.1)).mT "
                                "if measure == 'cosine' else MEASURES[measure](q, k)")]),
    ],
    "soft_lookup": [(GRADIENTS, [("weights @ v", "weights.detach() @ v")])],
    "as_dot_products": [
        ("looks at the other side", lambda q, k: (q + k.mean(), k)),
        ("too wide", lambda q, k: [F.pad(x, (0, 9)) for x in R["as_dot_products"](q, k)]),
        ("not a pair", lambda q, k: -torch.cdist(q, k).square() / 2),
        ("not tensors", lambda q, k: (q, None)),
        ("two widths", lambda q, k: (q, R["as_dot_products"](q, k)[1])),
        ("other rows", lambda q, k: R["as_dot_products"](k, k)),
        ("two dtypes", lambda q, k: (q, k.float())),
        (GRADIENTS, lambda q, k: R["as_dot_products"](q, k.detach())),
    ],
    "SelfAttention": [
        (OTHERS, [("W_k = nn.Linear(d_model, d_k, bias=False)", "W_k = self.W_q")]),
        ("wants a batch", [("q = self", "B, L, d_model = x.shape\n        q = self")]),
        ("remembers a call", [("scaled = scores", "self.seen = getattr(self, 'seen', 0 * scores)\n"
                               "        scaled = (scores + self.seen)")]),
        (GRADIENTS, [("softmax(dim=-1)", "softmax(dim=-1).detach()")]),
    ],
    "score_variance": [
        ("mean far above the spread", one_pass_variance),
        ("computed in float32", lambda q, k: (q.float() * k.float()).sum(-1).var()),
    ],
    "scaled_scores": [
        ("changes its input", lambda q, k: q.div_(q.shape[-1] ** 0.5) @ k.mT),
        (GRADIENTS, lambda q, k: q @ k.detach().mT / q.shape[-1] ** 0.5),
    ],
    "entropy": [
        ("epsilon in the logarithm", lambda w: -(w * (w + 1e-6).log()).sum(-1)),
        (None, lambda w: -(w * (w + 0.001).log()).sum(-1)),  # an epsilon that is too large
    ],
    "effective_keys": [
        ("epsilon in the logarithm", lambda w: (w + 1e-6).pow(-w).prod(-1)),
        (None, lambda w: R["effective_keys"](w).round()),
    ],
    "gradient_norm": [
        (None, squeezed("gradient_norm")),
        ("small norms lost", lambda s: (n := R["gradient_norm"](s)) * (1 + 0.5 * (n < 1e-3))),
    ],
    "cosine_attention": [
        (None, lambda q, k, v, T: R["cosine_attention"](q + 0.1, k, v, T)),
        (GRADIENTS, lambda q, k, v, T: R["cosine_attention"](q.detach(), k, v, T)),
    ],
    "attention_by_distance": [
        (GRADIENTS, lambda q, k, v: R["attention_by_distance"](q, k.detach(), v)),
        ("rounded", [("(6 * d_k) ** 0.5", "(2.45 * d_k**0.5)")]),
        ("another factor", [("(6 * d_k) ** 0.5", "(4 * d_k**0.5)")]),
        (None, [("(6 * d_k) ** 0.5", "(6 * d_k + 1) ** 0.5")]),
    ],
    "overflowing_logits": [
        ("nothing for a format",
         lambda dtype: None if dtype == torch.float64 else torch.full((2,), 89, dtype=dtype)),
    ],
    "softmax": [
        (GRADIENTS, [("(e / total)", "(e / total.detach())")]),
        ("epsilon in a sum of 1 or more", [("(e / total)", "(e / (total + 1e-6))")]),
        ("subtracted in half precision", [("(x.double() - m)", "(x - m).double()")]),
        (None, lambda x, dim=-1: torch.softmax(x, dim).squeeze()),
    ],
    "logsumexp": [
        ("calculated in float32",
         lambda x, counts, dim=-1: torch.logsumexp(x.float() + counts.log(), dim)),
        ("finite for an empty row",
         lambda x, counts, dim=-1: torch.logsumexp(x + (counts + 1e-6).double().log(), dim)),
        (GRADIENTS, [("(counts * e)", "(counts * e.detach())")]),
        (None, attention.logsumexp),
    ],
    "softmax_vjp": [
        ("makes the n × n matrix", [("mean =", "torch.diag_embed(p)\n    mean =")]),
        (None, attention.softmax_vjp),
    ],
    "temperature_for_entropy": [
        ("not a temperature", lambda x, target: 0.0),
        ("not a number", lambda x, target: x),
        ("near but not near enough", [("range(30)", "range(8)")]),
        *[("interval too short", [("1e-4, 1e4", f"{low}, {high}")]) for low, high in (
            (1e-3, 1e4), (0.01, 1e4), (1, 1e4), (1e-4, 1e3), (1e-4, 1), (0.1, 10))],
        (None, lambda x, target: 2.0),
    ],
    "online_update": [
        (GRADIENTS, lambda m, ell, *rest: R["online_update"](m, ell.detach(), *rest)),
        (None, attention.online_update),
        *[(name, [("both / total.masked_fill(total == 0, 1)[..., None]", out)])
          for name, out in (  # its NaN comes back as an input, and is no change in place
              ("block alone", "x.softmax(-1) @ v"),
              ("both outputs added", "out + x.softmax(-1) @ v"),
              ("outputs averaged", "(out + x.softmax(-1) @ v) / 2"))],
        *[("epsilon in the sum", [("total.masked_fill(total == 0, 1)", f"(total + {eps})")])
          for eps in (1e-5, 1e-8)],
    ],
    "merge": [(GRADIENTS, [("shares = e", "shares = e.detach()")]), (None, attention.merge)],
    "streamed_entropy": [
        ("reads twice", [("return ell", "s = sum(x.sum(-1) for x in blocks)\n    return ell")]),
        *[("keeps the whole row", lambda blocks, keep=keep: R["streamed_entropy"](keep(blocks)))
          for keep in (list, lambda blocks, h=[]: (h.append(x.amax(-1)) or x for x in blocks))],
    ],
    "causal_mask": [
        (None, lambda L, S=None: torch.ones(5, 5).tril().bool()),
        (None, lambda L, S=None: R["causal_mask"](L, S).int()),
    ],
    "sliding_window_mask": [(None, attention.sliding_window_mask)],
    "attention": [
        (GRADIENTS, [("scores.masked_fill(~mask & ~empty, -torch.inf)",  # NaN in rows without keys
                      "scores + torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)")]),
        (None, lambda *given: [each.squeeze() for each in R["attention"](*given)]),
        *[("epsilon in the sum", [("weights @ v, weights", f"weights @ v / {s}, weights / {s}")])
          for s in ("(1 + 1e-6)", "(weights.sum(-1, True) + 1e-6)")],
    ],
    "decode": [(GRADIENTS, lambda q, k, v, *old: R["decode"](q, k, v, *(x.detach() for x in old)))],
    "catches_leak": [
        (THROUGH, [("L, S = 4, 6", "L, S = 6, 6")]),
        (REJECTS, [("allclose(weights, expected, atol=1e-2)", "equal(weights, expected + 1)")]),
        (VERDICT, lambda attention: True),
        ("too few large scores", [("[1, 1000] * 9", "[1, 1, 300]")]),
        ("forbidden inf or NaN", same_output_after(5, torch.inf)),
        ("mask read as forbidden", same_output_after(0, 9.0)),
        ("queries that may see the key", same_output_after(3, 9.0)),
        ("the same tensors twice", same_output_after(0, None)),
    ],
    "catches_wrong_mask": [
        (THROUGH, [("(4, 4), (3, 7), (1, 5), (9, 12)", "(3, 3), (1, 4)")]),
        (THROUGH, [("torch.equal(mask, right)", "(mask == right).all()")]),  # broadcasts
        *[(THROUGH, [("mask, right", f"{weak.format('mask')}, {weak.format('right')}")])
          for weak in ("{}[L // 2]", "{}[::2]", "{}.sum(0)", "{}[..., [0, -1]]")],
        *[(f"expects {what}", [("torch.ones(L, S, dtype=torch.bool).tril(S - L)", expected)])
          for what, expected in (
              ("an inverted mask", "torch.ones(L, S, dtype=torch.bool).triu(S - L + 1)"),
              ("the upper left", "torch.ones(L, S, dtype=torch.bool).tril()"),
              ("the diagonal forbidden", "torch.ones(L, S, dtype=torch.bool).tril(S - L - 1)"),
              ("one key too far", "torch.ones(L, S, dtype=torch.bool).tril(S - L + 1)"))],
        ("expects the sizes swapped", [("causal_mask(L, S)", "causal_mask(S, L)")]),
        (REJECTS, [("causal_mask(L, S)", "causal_mask(L, S) + 1")]),
    ],
    "shared_prefix_attention": [
        ("puts both together", [("m = torch", "torch.cat([common, own], -1)\n    m = torch")]),
        ("copies the prefix", [("@ k_prefix", "@ k_prefix.repeat(len(q), 1, 1, 1)")]),
        (GRADIENTS, lambda q, k, *rest: R["shared_prefix_attention"](q, k.detach(), *rest)),
    ],
    "split_heads": [
        ("error without numbers", [("num_heads must divide d_model = {d_model}, got", "not")]),
        ("error without numbers", [(", got {num_heads}", "")]),
        (None, [("x.reshape(", "x.view(-1).view(")]),  # fails for an x that is not contiguous
    ],
    "merge_heads": [
        (None, squeezed("merge_heads")),
        (None, lambda x: x.transpose(1, 2).view(len(x), x.shape[2], -1)),
    ],
    "MultiHeadAttention": [
        (GRADIENTS, [("softmax(dim=-1)", "softmax(dim=-1).detach()")]),
        (GRADIENTS, [("self.W_k(key)", "F.linear(key, self.W_k.weight.data, self.W_k.bias)")]),
        (GRADIENTS, [("range(4))", "range(4))\n        self.W_k.requires_grad_(False)")]),
        (GRADIENTS, [(".nan_to_num(0)", ""), ("weights @ v", "(weights @ v).nan_to_num(0)"),
                     ("(merged), weights", "(merged), weights.nan_to_num(0)")]),
        ("random after training", [("(merged), weights", "(merged), F.dropout(weights, 0.1)")]),
        ("layer made anew", [("self.W_o(", "nn.Linear(merged.shape[-1], merged.shape[-1])(")]),
        ("not a class", R["MultiHeadAttention"](12, 3)),
        ("not a class", attention.attention),
        ("not a module", NotALayer),
        (OTHERS, [("self.W_o(merged)", "merged"), (ROLES, "self.W = ["), ("range(4))", "range(3)]"),
                  ("self.W_q(query), self.W_k(key), self.W_v(value)",
                   "(W(x) for W, x in zip(self.W, (query, key, value)))")]),
        (None, [("(merged), weights", "(merged), weights.squeeze()")]),
        (None, [(" / d_k**0.5", ""), ("self.W_q(query)", "3 * self.W_q(query)")]),
    ],
    "copy_weights": [
        ("shares memory", [(LAST_COPY, f"{LAST_COPY}\n    ours.W_o = theirs.out_proj")]),
        ("changes theirs", [(LAST_COPY, f"{LAST_COPY}\n    theirs.in_proj_weight.data.zero_()")]),
        ("cannot learn", [(LAST_COPY, f"{LAST_COPY}\n    ours.requires_grad_(False)")]),
        ("bias of W_k", [("linear.bias.copy_(bias)",
                          "linear is ours.W_k or linear.bias.copy_(bias)")]),
    ],
    "without_head": [
        ("biases taken for granted", [("* others)", "* others + 0 * layer.W_v.bias)")]),
        ("wrong without biases", [("* others", "* (1 if layer.W_v.bias is None else others)")]),
        ("the layer is changed",
         lambda layer, x, head: R["without_head"](layer.requires_grad_(False), x, head)),
    ],
    "grouped_attention": [
        ("KV heads repeated", [("scores =", "k.repeat_interleave(group, dim=1)\n    scores =")]),
    ],
    "continue_text": [
        ("kept outside the cache", kept_outside),
        ("no cache", lambda *args: (R["continue_text"](*args)[0], None)),
        ("cache grows", [("left = max(S - (window - 1), 0)", "left = 0")]),
        ("projected again", keeping_tokens),
        ("projected twice in a call", [("S = k", "layer.W_k(x)\n    S = k")]),
        ("output without cache", lambda layer, x, cache, window: x),
        ("unreadable cache", lambda layer, x, cache, window: (x, {1})),
    ],
    "catches_wrong_split": [
        (VERDICT, lambda split_heads: True),
        (REJECTS, [("assert heads.shape", "assert heads.is_contiguous() and heads.shape")]),
        (THROUGH, lambda split_heads: None),
    ],
    "catches_wrong_layer": [(REJECTS, [("draw(", "assert layer.num_heads == H\n    draw(")])],
    "tile_update": [(GRADIENTS, [("(m - base).exp()", "(m - base).exp().detach()")])],
    "flash_forward": [
        ("makes the whole matrix", lambda q, k, v, *blocks: R["flash_forward"](q, k, v, 99, 99)),
        ("blocks not used", lambda q, k, v, *blocks: R["flash_forward"](q, k, v, 1, 99)),
        ("keys not cut", lambda q, k, v, rows, columns: R["flash_forward"](q, k, v, rows, 99)),
        ("queries not cut", lambda q, k, v, rows, columns: R["flash_forward"](q, k, v, 1, columns)),
        ("scores kept", [("output, lse =", "kept = []\n    output, lse ="),
                         ("m_new =", "kept.append(scores)\n            m_new =")]),
        ("blocks exchanged", [(FLASH, "q, k, v, block_k, block_q)")]),
        (GRADIENTS, torch.no_grad()(R["flash_forward"])),
    ],
    "flash_causal": [
        ("blocks not used", lambda q, k, v, *blocks: R["flash_causal"](q, k, v, 1, 99)),
        ("blocks exchanged", [(FLASH, "q, k, v, block_k, block_q)")]),
        ("reads the future", [("if j > positions[-1]:", "if False:")]),
    ],
    "attend_in_parts": [
        ("keys not cut", lambda q, k, v, size: R["attend_in_parts"](q, k, v, 99)),
        ("scores kept", [("out, lse =", "kept = []\n    out, lse ="),
                         ("out_j =", "kept.append(scores)\n        out_j =")]),
        ("parts too large",
         lambda q, k, v, size: R["attend_in_parts"](q, k, v, -(-k.shape[-2] // size))),
    ],
    "paged_attention": [
        ("pages gathered", [("m = torch", "gathered = k_pages[table]\n        m = torch")]),
    ],
    "windowed_kernel": [("blocks before the window", [("window + 1, 0)", "window, 0)")])],
    "grouped_kernel": [(None, [("kv_head = head // GROUP", "kv_head = head / GROUP")])],
    "half_kernel": [("factors in 32 bits", [("p.to(v.dtype), v", "p, v.to(tl.float32)")])],
    "lazy_rescale": [(None, lambda *args: R["lazy_rescale"](*args)[:2])],
    "exp2_polynomial": [
        ("the power itself", lambda x: (x.exp2(), 0.0)),
        ("error in float32", [("y.double() / x.double().exp2()", "y / x.exp2()")]),
        ("divided by y",
         [("y.double() / x.double().exp2()", "x.double().exp2() / y.double()")]),
        ("not two", lambda x: R["exp2_polynomial"](x)[0]),
    ],
    "split_decode": [
        ("no kernel", without_a_kernel),
        ("kernel not used", with_an_idle_kernel),
        ("not float32", lambda *args: R["split_decode"](*args).half()),
        ("not split", lambda q, k, v, splits: R["split_decode"](q, k, v, 1)),
        ("more parts than splits",
         lambda q, k, v, splits: R["split_decode"](q, k, v, -(-k.shape[1] // 16))),
    ],
    "repeat_pattern": [(None, lambda p, n: torch.cat([p] * -(-n // len(p)), -1)[..., :n])],
    "previous_occurrence": [
        (None, lambda tokens: R["previous_occurrence"](tokens % 32)),
        (None, lambda tokens: R["previous_occurrence"](tokens).view(-1, tokens.shape[-1])),
    ],
    "induction_by_hand": [
        ("wrong shapes", lambda V, L: R["induction_by_hand"](V + 1, L)),
        ("wrong shapes", lambda V, L: None),
        ("not in float32", [("first = W_q, W_k, W_v", "first = W_q, W_k, W_v.double()")]),
        ("not in float32", [("(W_q, W_k, W_v)", "(W_q, W_k, W_v.long())")]),
        ("infinite", [("first = W_q, W_k, W_v", "first = W_q, W_k, W_v / 0")]),
    ],
    "silence_heads": [("changes its input", [("return", "heads.clear()\n    return")])],
    "value_weighted": [(None, lambda weights, v: weights * v.norm(dim=-1))],
    "cherry_picked": [(None, lambda *args: R["cherry_picked"](*args).float())],
    "other_picture": [("not at an end", lambda w, v: w + 1e-3 * (R["other_picture"](w, v) - w))],
    "decode_rotary": [("another order", lambda *args: R["decode_rotary"](*args)[::-1])],
    "catches_lost_place": [
        (REJECTS, [(", causal_mask(LENGTH)", "")]),
        (VERDICT, lambda decode: True),
    ],
    "catches_absolute": [
        (REJECTS, [("at + far", "at + at + far")]),
        (THROUGH, [("SHIFTS", "[8]"), ("assert not torch", "torch")]),
        (VERDICT, lambda attend: True),
    ],
    "rolling_step": [
        ("kept outside the cache", counted_outside),
        ("outgrows the window", [("len(keys) == window", "False")]),
        ("not three things", lambda *args: R["rolling_step"](*args)[0]),
    ],
    "asks_back": [
        ("not found",
         lambda n: (99 * rotary(torch.ones(n, 2), -torch.arange(n)), torch.ones(n, 2))),
        ("wrong shapes", lambda n: torch.zeros(n, 4)),
        ("infinite", lambda n: (torch.full((n, 4), torch.inf), torch.ones(n, 4))),
        ("not in float32", lambda n: (torch.ones(n, 4).double(), torch.ones(n, 4))),
    ],
    "read_q4_0": [
        ("in 16 bits", lambda blocks: R["read_q4_0"](blocks).half()),
        (None, lambda blocks: R["read_q4_0"](blocks).flatten()),
    ],
    "generate_together": [
        ("a call for each text", one_after_another),
        ("changes its input", [("    cache,", "    texts.reverse()\n    cache,")]),
        ("one call too many", [("return torch.cat", "model(new, cache)\n    return torch.cat")]),
        ("read in pieces", by_columns),
        ("read again", [("cache, written = {}, []", "cache, written, new = {}, [], new"),
                        ("new = model(new, cache,", "new = model(torch.cat([first, *written], 1),"),
                        ("cache, written, new =", "first = new\n    cache, written, new =")]),
    ],
    "ring_step": [
        (GRADIENTS, lambda *args: [each.detach() for each in R["ring_step"](*args)]),
        ("changes its input", [("return", "lse.copy_(both)\n    return")]),
        (None, lambda q, k, v, out, lse: (out, lse)),
    ],
    "bytes_sent": [("another order", lambda *args: R["bytes_sent"](*args)[::-1])],
    "order_of_calls": [
        ("one after another", [("rank % 2 == 0", "rank % 3 != 1")]),
        ("deadlock", [("rank % 2 == 0", "rank // 2 % 2 == 0")]),
        ("wrong neighbor", lambda r, W: [("send", (r + 1) % W), ("recv", (r + 1) % W)]),
    ],
    "shard_tokens": [
        ("unbalanced", lambda each, W: torch.arange(sum(each)).view(W, -1).T.reshape(W, -1)),
    ],
    "absorbed_attention": [
        ("keys expanded", [("q_latent @ latent.mT /", "q @ (latent @ W_k.mT).mT /")]),
        ("values expanded", [("return mixed @ W_v.mT", "return weights @ (latent @ W_v.mT)")]),
    ],
    "causal_linear_attention": [("makes the whole matrix", with_all_weights)],
    "decayed_in_chunks": [
        ("makes the whole matrix", lambda *given: R["decayed_in_chunks"](*given[:-1], 99)),
        ("token by token", lambda *given: R["decayed_in_chunks"](*given[:-1], 1)),
        ("number of chunks",
         lambda *given: R["decayed_in_chunks"](*given[:-1], -(-given[0].shape[-2] // given[-1]))),
    ],
    "gated_delta_rule": [(GRADIENTS, [("S = S + write", "S = S.detach() + write")])],
    "chunk_as_map": [("loop over the tokens", token_after_token)],
}  # fmt: skip


def with_slopes_for_2H_heads(r, H):
    P = 1 << (H.bit_length() - 1)
    rest = [2 ** (-8 * h / (2 * H)) for h in range(1, 2 * (H - P), 2)]
    return torch.cat([r(H)[:P], torch.tensor(rest)])


def with_outputs_set_to_zero(r, q, k, v, beta, text):
    first = F.pad(text.diff(dim=1) != 0, (1, 0), value=True)  # (B, L)
    return r(q, k, v, beta, torch.zeros_like(text)).masked_fill(first[:, None, :, None], 0)


# Known mistakes made in a second way: of two that mirror each other, one, as it is told wrong once
# their answers are exchanged. An edit of the right answer, or a function of the right answer and
# the arguments.
MIRRORED = [
    ("dot", "first left out", lambda r, a, b: r(a[1:], b[1:])),
    ("padding_mask", "one token too many", lambda r, n, S: r(n + 1, S)),
    ("sliding_window_mask", "window and itself", lambda r, L, n, sinks: r(L, n + 1, sinks)),
    ("prefix_mask", "prefix too long", lambda r, L, n: r(L, n + 1)),
    ("continue_text", "one token too many", lambda r, *args: r(*args[:3], args[3] + 1)),
    ("windowed_kernel", "window one too narrow", ("j < window", "j < window - 1")),
    ("repeat_pattern", "one token too long", lambda r, pattern, n: r(pattern, n + 1)),
    ("repeat_pattern", "starts one later", lambda r, pattern, n: r(pattern, n + 1)[..., 1:]),
    ("silence_heads", "one column too many", ("(head + 1) * d_k", "(head + 1) * d_k + 1")),
    ("kendall_tau", "pairs counted twice", lambda r, a, b: 2 * r(a, b)),
    ("decode_rotary", "one position too early", ("arange(S - L, S)", "arange(S - L, S) - 1")),
    ("rolling_step", "one position apart", ("rotary(q, position)", "rotary(q, position + 1)")),
    ("next_token", "a rank too near", ("chosen[:, None])", "(chosen[:, None] - 1).clamp(min=0))")),
    ("streaming_mask", "one too many", lambda r, L, window, sinks: r(L, window + 1, sinks)),
    ("blocks_received", "one rank too low", lambda r, rank, *rest: r(rank - 1, *rest)),
    ("keep_window", "one position early", ("(window - 1) +", "window +")),
    ("quantize_per_channel", "rounded up", (".round()", ".ceil()")),
    ("split_heads", "heads reversed", lambda r, x, H: r(x, H).flip(1)),
    ("as_sdpa", "scaled twice", lambda r, q, *rest: r(q / q.shape[-1] ** 0.5, *rest)),
    ("alibi_slopes", "slopes for 2H heads", with_slopes_for_2H_heads),
    ("next_token", "softmax twice",
     lambda r, x, T, *rest: r((x / T).softmax(-1), 1, *rest) if T else r(x, T, *rest)),
    ("packed_delta_rule", "outputs set to zero", with_outputs_set_to_zero),
    ("state_from_pairs", "first pair missing", lambda r, k, v: r(k[..., 1:, :], v[..., 1:, :])),
]  # fmt: skip

WRONG = [(name, *row) for name, rows in TABLE.items() for row in rows]
MIRRORED = [(n, m, partial(a, R[n]) if callable(a) else [a]) for n, m, a in MIRRORED]
