"""13.2: causal linear attention with a feature map and a normalizer, in one pass."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals, out_of_order
from course_utils.checks.lesson_13._linear import without_the_matrix


def causal_linear_attention(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1  # (..., L, d_k), all positive
    S = k.new_zeros(*k.shape[:-2], k.shape[-1], v.shape[-1])  # (..., d_k, d_v)
    z = torch.zeros_like(k[..., 0, :])  # (..., d_k)
    outs = []
    for t in range(k.shape[-2]):
        q_t, k_t, v_t = q[..., t, :], k[..., t, :], v[..., t, :]  # (..., d)
        S = S + k_t[..., :, None] * v_t[..., None, :]
        z = z + k_t
        read = (q_t[..., None, :] @ S).squeeze(-2)  # (..., d_v)
        total = (q_t * z).sum(dim=-1, keepdim=True)  # (..., 1)
        outs.append(read / total)
    return torch.stack(outs, dim=-2)  # (..., L, d_v)


def by_a_column_of_ones(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
    S, outs = 0, []
    for i in range(v.shape[-2]):
        S = S + k[..., i : i + 1, :].mT @ v[..., i : i + 1, :]
        outs.append(q[..., i : i + 1, :] @ S)
    out = torch.cat(outs, dim=-2)
    return out[..., :-1] / out[..., -1:]


def by_cumulative_sums(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    S = torch.einsum("...lk,...lv->...lkv", k, v).cumsum(dim=-3)
    numbers = torch.einsum("...lk,...lkv->...lv", q, S)
    return numbers / (q * k.cumsum(dim=-2)).sum(dim=-1, keepdim=True)


def inputs():
    normal = normals(132)

    def case(*batch, L, d_k, d_v, size=1.0, dtype=torch.float64):
        q, k = size * normal(*batch, L, d_k), size * normal(*batch, L, d_k)
        return q.to(dtype), k.to(dtype), normal(*batch, L, d_v).to(dtype)

    return [
        case(L=5, d_k=3, d_v=2),
        case(L=6, d_k=4, d_v=5, size=2.0),
        case(2, 3, L=7, d_k=4, d_v=3),
        case(L=40, d_k=2, d_v=3),  # L × L numbers are more than all states
        case(2, L=5, d_k=3, d_v=4, dtype=torch.float32),
        (*out_of_order(*case(2, L=4, d_k=3, d_v=5)),),
        case(1, 1, L=1, d_k=3, d_v=2),
    ]


FEATURES = "F.elu(q) + 1, F.elu(k) + 1"
MISTAKES = [
    ("not normalized",
     "Your outputs are not divided by the normalizer. Divide the output of query t by φ(q_t) · z, "
     "the sum of its weights.",
     ("read / total", "read")),
    ("all keys seen",
     "Each of your queries sees all keys, including later ones. Token t may only use what tokens 0 "
     "to t have written, so read the state before the next write.",
     ("outs = []",
      "return (q @ (k.mT @ v)) / (q * k.sum(dim=-2, keepdim=True)).sum(-1, keepdim=True)")),
    ("normalizer of all keys",
     "Your state is right, but your normalizer includes later keys. Sum φ(k) over tokens 0 to t "
     "only.",
     ("z = z + k_t", "z = k.sum(dim=-2)")),
    ("read before the write",
     "Your query t sees only tokens before t, and the first query sees nothing. Write token t to "
     "the state and to the normalizer first, and then read.",
     ("outs = []\n", "outs, Z, T = [], z, S\n"),
     ("        S = S +", "        S, z = T, Z\n        T = S +"),
     ("        z = z + k_t", "        Z = z + k_t")),
    ("state read before the write",
     "Your normalizer is right, but the state that you read lacks the token's own pair. Write "
     "first, then read.",
     ("S = S + k_t[..., :, None] * v_t[..., None, :]", "before = S"),
     ("outs.append", "S = S + k_t[..., :, None] * v_t[..., None, :]\n        outs.append"),
     ("@ S)", "@ before)")),
    ("normalizer read before the write",
     "Your state is right, but your normalizer lacks the token's own key. Add φ(k_t) to it before "
     "you divide.",
     ("(q_t * z)", "(q_t * (z - k_t))")),
    ("no feature map",
     "Your result is the one without a feature map. Weights can then be negative, and their sum "
     "close to 0. Apply φ(x) = elu(x) + 1 to q and to k.",
     (FEATURES, "q, k")),
    ("features of queries alone",
     "You apply φ to the queries only. Apply φ(x) = elu(x) + 1 to k as well.",
     (FEATURES, "F.elu(q) + 1, k")),
    ("features of keys alone",
     "You apply φ to the keys only. Apply φ(x) = elu(x) + 1 to q as well.",
     (FEATURES, "q, F.elu(k) + 1")),
    ("features of values",
     "You apply φ to the values as well. The output is a mean of the values as they are, so leave "
     "them unchanged.",
     (FEATURES, FEATURES + "\n    v = F.elu(v) + 1")),
    ("elu without 1",
     "Your feature map is elu(x), which is negative for negative x. Add 1.",
     (FEATURES, "F.elu(q), F.elu(k)")),
    ("elu minus 1",
     "Your feature map is elu(x) − 1, so weights can be negative. Add 1 instead of subtracting it.",
     (FEATURES, "F.elu(q) - 1, F.elu(k) - 1")),
    ("relu",
     "Your feature map is relu(x), which is 0 for every negative x. Use elu(x) + 1.",
     (FEATURES, "F.relu(q), F.relu(k)")),
    ("relu and 1",
     "Your feature map is relu(x) + 1. Use elu(x) + 1, which stays positive and still falls below "
     "1 for negative x.",
     (FEATURES, "F.relu(q) + 1, F.relu(k) + 1")),
    ("exponential",
     "Your feature map is e^x. Use elu(x) + 1, which is e^x only for negative x.",
     (FEATURES, "q.exp(), k.exp()")),
    ("softmax of features",
     "Your feature map is a softmax over the coordinates. Use elu(x) + 1.",
     (FEATURES, "q.softmax(dim=-1), k.softmax(dim=-1)")),
    ("softplus",
     "Your feature map is softplus, log(1 + e^x). Use elu(x) + 1.",
     (FEATURES, "F.softplus(q), F.softplus(k)")),
    ("softmax of the weights",
     "Your weights went through a softmax, with weights of 0 for later keys. Divide φ(q) · φ(k_j) "
     "by the sum of these numbers up to the query, without a softmax.",
     ("    outs = []\n", "    return (q @ k.mT).tril().softmax(dim=-1) @ v\n    outs = []\n")),
    ("causal softmax of the weights",
     "Your weights φ(q) · φ(k_j) went through a softmax. They are positive already. Divide them by "
     "their sum.",
     ("    outs = []\n",
      "    future = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)\n"
      "    return (q @ k.mT).masked_fill(future, -torch.inf).softmax(dim=-1) @ v\n"
      "    outs = []\n")),
    ("first output zero",
     "Your query t sees only tokens before t, and your first output is 0. Write token t to the "
     "state and to the normalizer first, and then read.",
     ("return torch.stack(outs, dim=-2)",
      "S, z, outs = 0 * S, 0 * z, [0 * v[..., 0, :]]\n"
      "    for t in range(k.shape[-2] - 1):\n"
      "        S = S + k[..., t, :, None] * v[..., t, None, :]\n"
      "        z = z + k[..., t, :]\n"
      "        q_t = q[..., t + 1, :]\n"
      "        read = (q_t[..., None, :] @ S).squeeze(-2)\n"
      "        outs.append(read / (q_t * z).sum(dim=-1, keepdim=True))\n"
      "    return torch.stack(outs, dim=-2)")),
    ("softmax attention",
     "Your result is causal attention with a softmax, scaled by 1/√d_k. Here the weight of key j "
     "is φ(q) · φ(k_j), divided by the sum of these weights.",
     ("q, k = F", "return F.scaled_dot_product_attention(q, k, v, is_causal=True)\n    q, k = F")),
    ("multiplied by the normalizer",
     "Your outputs are multiplied by the sum of the weights. Divide by it.",
     ("read / total", "read * total")),
    ("not normalized and scaled",
     "Your outputs are divided by √d_k, but not by the normalizer. Divide the output of query t by "
     "φ(q_t) · z, and by nothing else.",
     ("read / total", "read / q.shape[-1] ** 0.5")),
    ("each key divided by its sum",
     "Your keys are divided by the sum of their own coordinates. Divide the *output* by the sum of "
     "its weights, φ(q_t) · z.",
     ("S = S + k_t[..., :, None] *", "S = S + (k_t / k_t.sum(-1, keepdim=True))[..., :, None] *")),
    ("mean over the whole length",
     "Your outputs are divided by L. Divide the output of query t by the sum of its weights, "
     "φ(q_t) · z.",
     ("read / total", "read / k.shape[-2]")),
    ("mean of the products",
     "Your outputs are d_k times the right ones, as if the normalizer were a mean over the "
     "coordinates. Sum φ(q_t) · z over them.",
     ("sum(dim=-1, keepdim=True)  # (..., 1)", "mean(dim=-1, keepdim=True)  # (..., 1)")),
    ("norm of the normalizer",
     "Your outputs are divided by the norm of z. Divide by φ(q_t) · z, the sum of the weights.",
     ("read / total", "read / z.norm(dim=-1, keepdim=True)")),
    ("normalizer with the key",
     "Your outputs are divided by φ(k_t) · z. The weights are those of the query, so divide by "
     "φ(q_t) · z.",
     ("(q_t * z)", "(k_t * z)")),
    ("sigmoid",
     "Your feature map is a sigmoid. Use elu(x) + 1.",
     (FEATURES, "q.sigmoid(), k.sigmoid()")),
    ("elu of x + 1",
     "Your feature map is elu(x + 1), which can be negative. Add 1 *after* elu.",
     (FEATURES, "F.elu(q + 1), F.elu(k + 1)")),
    ("squares",
     "Your feature map is x². Use elu(x) + 1.",
     (FEATURES, "q**2, k**2")),
    ("keys scaled",
     "Your keys are divided by √d_k before the feature map. Nothing is scaled here.",
     (FEATURES, "F.elu(q) + 1, F.elu(k / k.shape[-1] ** 0.5) + 1")),
    ("both scaled",
     "Your queries and keys are scaled before the feature map. Nothing is scaled here.",
     (FEATURES, "F.elu(q / k.shape[-1] ** 0.5) + 1, F.elu(k / k.shape[-1] ** 0.5) + 1")),
    ("elu for queries without 1",
     "Your feature map for queries is elu(x), which can be negative. Add 1, as for keys.",
     (FEATURES, "F.elu(q), F.elu(k) + 1")),
    ("mean over the tokens",
     "Your outputs are divided by the number of tokens so far. Divide by the sum of the weights, "
     "φ(q_t) · z.",
     ("read / total", "read / (t + 1)")),
    ("queries scaled",
     "Your queries are divided by √d_k before the feature map. Nothing is scaled here.",
     (FEATURES, "F.elu(q / q.shape[-1] ** 0.5) + 1, F.elu(k) + 1")),
    ("scores scaled",
     "Your outputs are divided by √d_k. The normalizer alone scales them. Remove the factor.",
     ("read / total", "read / total / q.shape[-1] ** 0.5")),
    ("normalizer of the latest key",
     "Your normalizer holds only the latest key. Add φ(k_t) at each token, and keep the sum.",
     ("z = z + k_t", "z = k_t")),
    ("latest pair alone",
     "Your state holds only the latest pair. Add φ(k_t) v_tᵀ at each token, and keep the sum.",
     ("S = S + k_t", "S = k_t")),
    ("latest pair and key alone",
     "Your state and your normalizer hold only the latest token, so each output is the token's own "
     "value. Add to both at each token, and keep the sums.",
     ("z = z + k_t", "z = k_t"),
     ("S = S + k_t", "S = k_t")),
    ("normalizer without the query",
     "Your normalizer does not depend on the query: it is the sum of all coordinates of z. Divide "
     "by φ(q_t) · z.",
     ("(q_t * z)", "z")),
    ("norm of the output",
     "Your outputs have norm 1. Divide each by the sum of its weights, φ(q_t) · z, not by its own "
     "norm.",
     ("read / total", "F.normalize(read, dim=-1)")),
    ("one state for all",
     "Each of your outputs mixes the batch items or heads. Each of them has its own state and its "
     "own normalizer. Keep all leading dimensions.",
     ("read = ", "dims = tuple(range(S.ndim - 2))\n"
      "        S_all = S.sum(dim=dims, keepdim=True) if dims else S\n        read = "),
     ("@ S)", "@ S_all)"),
     ("(q_t * z)", "(q_t * (z.sum(dim=dims, keepdim=True) if dims else z))")),
    ("one state for the heads",
     "Your state adds up the pairs of neighboring heads, or of batch items where there are no "
     "heads. Each of them has its own state. Keep all leading dimensions.",
     ("read = ", "S_all = S.sum(dim=-3, keepdim=True) if S.ndim > 2 else S\n        read = "),
     ("@ S)", "@ S_all)")),
    ("last output alone",
     "You return only the output of the last token. Collect one output for each token.",
     ("return torch.stack(outs, dim=-2)", "return outs[-1]")),
    ("state returned",
     "You return the state. Return the outputs, one for each token.",
     ("return torch.stack(outs, dim=-2)", "return S")),
    ("tokens first",
     "Your outputs are stacked along the wrong dimension. The tokens must be the second-to-last "
     "dimension, so use `torch.stack(outs, dim=-2)`.",
     ("dim=-2)  # (..., L, d_v)", "dim=0)")),
    ("read backward",
     "Your outputs are right for the sequence read backward: query t sees keys t to L − 1. It must "
     "see keys 0 to t.",
     ("for t in range(k.shape[-2])", "for t in reversed(range(k.shape[-2]))"),
     ("torch.stack(outs", "torch.stack(outs[::-1]")),
    ("1 added to the normalizer",
     "Your normalizer is too large by 1. All weights are positive, so their sum is never 0, and "
     "nothing must be added. Divide by φ(q_t) · z.",
     ("read / total", "read / (total + 1)")),
]  # fmt: skip

exercise = Exercise(
    "13.2", causal_linear_attention, inputs, MISTAKES, names="L d_v", run=without_the_matrix,
    differentiable=True, also_right=[by_a_column_of_ones, by_cumulative_sums],
)  # fmt: skip
