"""13.6: the delta rule with decay, where a state was shared and decayed too late."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_13._linear import head_inputs


def gated_delta_rule(q, k, v, decay, beta):
    B, H, L, d_k = q.shape
    S = q.new_zeros(B, H, d_k, v.shape[-1])
    outs = []
    for t in range(L):
        q_t, k_t, v_t = q[:, :, t], k[:, :, t], v[:, :, t]  # (B, H, d)
        S = decay[:, :, t, None, None] * S  # forget
        error = v_t - torch.einsum("bhk,bhkv->bhv", k_t, S)  # (B, H, d_v)
        b = beta[:, :, t, None]  # (B, H, 1)
        write = torch.einsum("bhk,bhv->bhkv", k_t, b * error)
        S = S + write
        outs.append(torch.einsum("bhk,bhkv->bhv", q_t, S))
    return torch.stack(outs, dim=2)  # (B, H, L, d_v)


def by_matrix_products(q, k, v, decay, beta):
    S, outs = torch.zeros_like(k[..., 0, :, None] * v[..., 0, None, :]), []
    eye = torch.eye(k.shape[-1], dtype=q.dtype)
    for t in range(q.shape[-2]):
        key, b = k[..., t, :, None], beta[..., t, None, None]
        transition = decay[..., t, None, None] * (eye - b * key @ key.mT)
        S = transition @ S + b * key @ v[..., t, None, :]
        outs.append(q[..., t, None, :] @ S)
    return torch.cat(outs, dim=-2)


def head_by_head(q, k, v, decay, beta):
    def one(q, k, v, decay, beta):
        S, outs = q.new_zeros(k.shape[-1], v.shape[-1]), []
        for q_t, k_t, v_t, a, b in zip(q, k, v, decay, beta, strict=True):
            S = a * S
            S = S + torch.outer(k_t, b * (v_t - k_t @ S))
            outs.append(q_t @ S)
        return torch.stack(outs)

    given = [x.flatten(0, 1) for x in (q, k, v, decay, beta)]
    return torch.stack([one(*row) for row in zip(*given, strict=True)]).unflatten(0, q.shape[:2])


def inputs():
    normal = normals(136)

    def case(B, H, L, d_k, d_v, dtype=torch.float64, **given):
        return head_inputs(normal, B, H, L=L, d_k=d_k, d_v=d_v, dtype=dtype, **given)

    q, k, v, decay, beta = case(2, 3, 5, 4, 3)
    return [tuple(given) for given in (
        case(1, 2, 5, 4, 3),
        case(3, 2, 6, 3, 5),
        case(2, 4, 7, 3, 2, low=0.0),
        case(2, 3, 4, 3, 5, dtype=torch.float32),
        (q, k, v, torch.ones_like(decay), beta),
        (q, k, v, decay, torch.ones_like(beta)),
        (q, k, v, torch.ones_like(decay), torch.zeros_like(beta)),
        (q, 1.3 * k, v, decay, beta),
        case(1, 1, 1, 3, 2),
    )]  # fmt: skip


FORGET = "        S = decay[:, :, t, None, None] * S  # forget\n"
SHARED = '"bhk,bhv->bhkv", k_t, b * error', '"bhk,bhv->hkv", k_t, b * error'
AFTER = "S = S + write", "S = decay[:, :, t, None, None] * (S + write)"
MISTAKES = [
    ("both bugs still there",
     "Your result has both bugs of the code above. First try a batch of two texts, and compare "
     "with each text alone. Then try a decay below 1 at the first token, which must not affect "
     "that token's own write.",
     SHARED, (FORGET, ""), AFTER),
    ("still one state for the batch",
     "Your order of decay and write is right. But each text's state gets the writes of all texts "
     "in the batch. Try a batch of two texts, and compare with each text alone.",
     SHARED),
    ("still decayed after the write",
     "Each text has its own state, which is right. But your decay comes after the write, so it "
     "also affects the token's own write. Decay first, then compute the error, then write.",
     (FORGET, ""), AFTER),
    ("error from the state before the decay",
     "You decay the state before the write, which is right. But your error uses the state from "
     "before the decay, so the recalled value in it is too large. Compute the error from the "
     "decayed state.",
     (FORGET, "        old, S = S, decay[:, :, t, None, None] * S\n"),
     ("k_t, S)", "k_t, old)")),
    ("error before the decay, and one state",
     "You decay the state before the write, which is right. But your error uses the state from "
     "before the decay, and each text's state gets the writes of all texts. Compute the error from "
     "the decayed state, and keep the batch dimension of the write.",
     (FORGET, "        old, S = S, decay[:, :, t, None, None] * S\n"),
     ("k_t, S)", "k_t, old)"), SHARED),
    ("decayed after the read",
     "When query t reads, your state has not yet been multiplied by decay[:, :, t]. You get this "
     "result if you decay after the read. Multiply the state by decay[:, :, t] at the start of "
     "step t.",
     (FORGET, ""),
     ("        outs.append(torch.einsum(\"bhk,bhkv->bhv\", q_t, S))\n",
      "        outs.append(torch.einsum(\"bhk,bhkv->bhv\", q_t, S))\n"
      "        S = decay[:, :, t, None, None] * S\n")),
    ("decayed after the error",
     "Your error comes from the decayed state, but the write is decayed, too. Decay the state "
     "before you compute the error, and add the write as it is.",
     ("S = S + write", "S = S + decay[:, :, t, None, None] * write")),
    ("decayed twice",
     "Your state is decayed twice at each token, before the error and after the write. Remove the "
     "second decay.",
     AFTER),
    ("no decay",
     "Your result has no decay. Multiply the state by the token's decay at the start of each "
     "step.",
     (FORGET, "")),
    ("no delta rule",
     "Your step writes β v, without subtracting what the state returns for the key. Write β times "
     "the error, v − k S.",
     ('v_t - torch.einsum("bhk,bhkv->bhv", k_t, S)', "v_t")),
    ("beta not used",
     "Your step writes the whole error. Multiply it by β.",
     ("b * error", "error")),
    ("beta for the value alone",
     "Your β multiplies only v, not what you subtract from it. Multiply the whole error, v − k S, "
     "by β.",
     ("v_t - torch", "v_t - 1 / b * torch"),
     ("        b = beta[:, :, t, None]  # (B, H, 1)\n", ""),
     ("        error", "        b = beta[:, :, t, None].clamp(min=1e-12)\n        error")),
    ("heads share a state",
     "In your result, all heads of a text share one state. Each head of each text has its own, so "
     "keep both dimensions, B and H.",
     ('"bhk,bhv->bhkv", k_t, b * error)',
      '"bhk,bhv->bkv", k_t, b * error)[:, None].expand(B, H, -1, -1)')),
    ("one state for all",
     "In your result, all texts and heads share one state. Each head of each text has its own, so "
     "keep both dimensions, B and H.",
     ('"bhk,bhv->bhkv", k_t, b * error)',
      '"bhk,bhv->kv", k_t, b * error).expand(B, H, -1, -1)')),
    ("mean over the batch",
     "Your writes are averaged over the batch. Each text has its own state, so keep one write for "
     "each text.",
     ("S = S + write", "S = S + write.mean(dim=0, keepdim=True)")),
    ("read before the write",
     "Your output t is computed before token t writes. Write first, and then read.",
     ("        S = S + write\n", ""),
     ('q_t, S))', 'q_t, S))\n        S = S + write')),
    ("read before everything",
     "Your output t comes from the state before token t decays and writes. Decay, write, and then "
     "read.",
     (FORGET, '        outs.append(torch.einsum("bhk,bhkv->bhv", q_t, S))\n' + FORGET),
     ('        outs.append(torch.einsum("bhk,bhkv->bhv", q_t, S))\n    return', "    return")),
    ("first text alone",
     "All your texts get the outputs of the first one. Each text has its own queries and its own "
     "state, so keep the batch dimension.",
     ("dim=2)  #", "dim=2)[:1].expand(B, -1, -1, -1)  #")),
    ("decays of the first text",
     "In your result, all texts use the decays of the first one. Each text has its own, so use "
     "decay[:, :, t].",
     ("decay[:, :, t, None, None] * S  # forget", "decay[:1, :, t, None, None] * S")),
    ("decays of the first head",
     "In your result, all heads use the decays of the first one. Each head has its own, so use "
     "decay[:, :, t].",
     ("decay[:, :, t, None, None] * S  # forget", "decay[:, :1, t, None, None] * S")),
    ("decays averaged",
     "In your result, all texts share one decay, their mean. Each text has its own, so use "
     "decay[:, :, t].",
     ("decay[:, :, t, None, None] * S  # forget",
      "decay[:, :, t, None, None].mean(dim=0, keepdim=True) * S")),
    ("decay of the next token",
     "Your token t decays the state by decay[:, :, t + 1]. Use its own decay, decay[:, :, t].",
     ("decay[:, :, t, None, None] * S  # forget",
      "decay[:, :, min(t + 1, L - 1), None, None] * S")),
    ("first decay for all",
     "All your tokens use the first token's decay. Multiply the state by decay[:, :, t] at token "
     "t.",
     ("decay[:, :, t, None, None] * S  # forget", "decay[:, :, 0, None, None] * S")),
    ("complement of the decay",
     "Your state is multiplied by 1 − decay. `decay` is the fraction that remains, so multiply by "
     "`decay`.",
     ("decay[:, :, t, None, None] * S  # forget", "(1 - decay[:, :, t, None, None]) * S")),
    ("exponential of the decay",
     "Your state is multiplied by e^decay. `decay` holds the factors themselves, not logarithms, "
     "so multiply by `decay`.",
     ("decay[:, :, t, None, None] * S  # forget", "decay[:, :, t, None, None].exp() * S")),
    ("whole state shrunk",
     "Your step multiplies the whole state by 1 − β. The delta rule does not shrink the whole "
     "state. Add β k (v − k S)ᵀ to the decayed state.",
     ("S = S + write",
      "S = (1 - b[..., None]) * S + torch.einsum('bhk,bhv->bhkv', k_t, b * v_t)")),
    ("negative exponential of the decay",
     "Your state is multiplied by e^(−decay). `decay` holds the factors themselves, so multiply "
     "by `decay`.",
     ("decay[:, :, t, None, None] * S  # forget", "(-decay[:, :, t, None, None]).exp() * S")),
    ("decay squared",
     "Your state is multiplied by the square of the decay before the error is computed. Multiply "
     "it by the decay once.",
     ("decay[:, :, t, None, None] * S  # forget", "decay[:, :, t, None, None] ** 2 * S")),
    ("error from a state decayed once, state decayed twice",
     "Your error comes from the decayed state, but you decay that state again before the write. "
     "Decay it once, before you compute the error.",
     ("S = S + write", "S = decay[:, :, t, None, None] * S + write")),
    ("complement of the decay writes",
     "Your write is multiplied by 1 − decay, as in a moving average. Add the write, β times the "
     "error, as it is.",
     ("S = S + write", "S = S + (1 - decay[:, :, t, None, None]) * write")),
    ("beta twice",
     "Your write is multiplied by β². Multiply the error by β.",
     ("b * error", "b * b * error")),
    ("beta for the erasing alone",
     "Your β multiplies only what you subtract, not v. Multiply the whole error, v − k S, by β.",
     ("v_t - torch", "v_t - beta[:, :, t, None] * torch"),
     ("b * error", "error")),
    ("keys of norm 1",
     "Your result is right only for keys of norm 1, because you divide each key by its norm. Use "
     "the keys as given.",
     ("S = q.new_zeros", "k = torch.nn.functional.normalize(k, dim=-1)\n    S = q.new_zeros")),
    ("queries scaled",
     "Your outputs are divided by √d_k. This exercise scales nothing, so remove the factor.",
     ("dim=2)  #", "dim=2) / d_k**0.5  #")),
    ("sign of the error",
     "Your write has the wrong sign, so the error grows. Add β k (v − k S)ᵀ to the decayed state.",
     ("v_t - torch", "-v_t + torch")),
    ("recalled value added",
     "Your error is v plus what the state returns for the key. Subtract it, so that the error is "
     "v − k S.",
     ("v_t - torch", "v_t + torch")),
    ("tokens before heads",
     "Your outputs have shape (B, L, H, d_v). Stack the tokens along dimension 2.",
     ("dim=2)  #", "dim=1)  #")),
    ("tokens first",
     "Your outputs have the tokens in dimension 0. Stack them along dimension 2.",
     ("dim=2)  #", "dim=0)  #")),
    ("queries and keys of norm 1",
     "You divide queries and keys by their norms. Use both as given.",
     ("S = q.new_zeros",
      "q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))\n"
      "    S = q.new_zeros")),
    ("queries of norm 1",
     "You divide queries by their norms. Use them as given.",
     ("S = q.new_zeros",
      "q = torch.nn.functional.normalize(q, dim=-1)\n"
      "    S = q.new_zeros")),
    ("decays averaged over the heads",
     "In your result, all heads of a text share one decay, their mean. Each head has its own, so "
     "use decay[:, :, t].",
     ("decay[:, :, t, None, None] * S  # forget",
      "decay[:, :, t, None, None].mean(dim=1, keepdim=True) * S")),
    ("betas averaged over the heads",
     "In your result, all heads of a text share one β, their mean. Each head has its own, so use "
     "beta[:, :, t].",
     ("b = beta[:, :, t, None]", "b = beta[:, :, t, None].mean(dim=1, keepdim=True)")),
    ("betas of the first text",
     "In your result, all texts use the β of the first one. Each text has its own, so use beta[:, "
     ":, t].",
     ("b = beta[:, :, t, None]", "b = beta[:1, :, t, None]")),
    ("decays multiplied up",
     "Your state is multiplied at each step by the product of all decays so far. The earlier "
     "decays have already been applied to it, so multiply it by decay[:, :, t] only.",
     ("decay[:, :, t, None, None] * S  # forget",
      "decay[:, :, : t + 1].prod(dim=-1)[..., None, None] * S")),
    ("read with the keys",
     "You read the state with the keys. Read it with the queries.",
     ("(\"bhk,bhkv->bhv\", q_t, S))", "(\"bhk,bhkv->bhv\", k_t, S))")),
    ("state multiplied by beta",
     "Your state is also multiplied by β. Multiply the state only by the decay, and the error by "
     "β.",
     ("decay[:, :, t, None, None] * S  # forget", "(decay * beta)[:, :, t, None, None] * S")),
    ("tokens in reverse order",
     "You go through the tokens from the last to the first. Start with token 0.",
     ("for t in range(L):", "for t in reversed(range(L)):"),
     ("torch.stack(outs, dim=2)", "torch.stack(outs[::-1], dim=2)")),
    ("outputs decayed",
     "Your outputs are multiplied by the token's decay after the read. Decay only the "
     "state, before you compute the error.",
     ("torch.einsum(\"bhk,bhkv->bhv\", q_t, S))",
      "decay[:, :, t, None] * torch.einsum(\"bhk,bhkv->bhv\", q_t, S))")),
    ("root of the decay",
     "Your state is multiplied by the square root of the decay. Multiply it by the decay itself.",
     ("decay[:, :, t, None, None] * S  # forget", "decay[:, :, t, None, None] ** 0.5 * S")),
    ("last output alone",
     "You return only the output of the last token. Return one output for each token.",
     ("torch.stack(outs, dim=2)", "outs[-1]")),
    ("outputs and state",
     "You return the state as well. Return only the outputs.",
     ("return torch.stack(outs, dim=2)", "return torch.stack(outs, dim=2), S")),
    ("erased by beta twice",
     "Your v is multiplied by β, but k S by β². Multiply the whole error, v − k S, by β once.",
     ("b * error", "b * (v_t - b * (v_t - error))")),
    ("decay and beta swapped",
     "You swap the decay and β. Multiply the state by the decay, and the error by β.",
     ("S = q.new_zeros",
      "decay, beta = beta, decay\n"
      "    S = q.new_zeros")),
    ("states averaged over the batch",
     "In your result, all texts share one state, the mean of their states. Each text has its own, "
     "so keep the batch dimension.",
     ("S = S + write", "S = (S + write).mean(dim=0, keepdim=True).expand_as(S)")),
    ("states averaged over the heads",
     "In your result, all heads of a text share one state, the mean of their states. Each head has "
     "its own, so keep the head dimension.",
     ("S = S + write", "S = (S + write).mean(dim=1, keepdim=True).expand_as(S)")),
    ("first beta for all",
     "All your tokens use the first token's β. Multiply the error of token t by beta[:, :, t].",
     ("b = beta[:, :, t, None]", "b = beta[:, :, 0, None]")),
]  # fmt: skip

exercise = Exercise(
    "13.6", gated_delta_rule, inputs, MISTAKES, names="B H L d_v", differentiable=True,
    also_right=[by_matrix_products, head_by_head],
)  # fmt: skip
