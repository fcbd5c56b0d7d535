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

    q, k, v = case(L=5, d_k=3, d_v=2)
    return [
        (q, k, v),
        case(L=6, d_k=4, d_v=5, size=2.0),
        case(2, 3, L=7, d_k=4, d_v=3),
        case(L=150, d_k=2, d_v=3),  # L × L numbers are more than all states
        case(2, L=5, d_k=3, d_v=4, dtype=torch.float32),
        (*out_of_order(*case(2, L=4, d_k=3, d_v=5)),),
        case(1, 1, L=2, d_k=3, d_v=2),
        (q - 8, k - 8, v),  # all φ are small, so any eps shows
        (q + 800, k, v),  # e^800 overflows
    ]


FEATURES = "F.elu(q) + 1, F.elu(k) + 1"
SMALL_ADDED = (
    "Right, unless all features are small. There, what you add to the denominator is not small "
    "compared with it. Features are positive, so add nothing."
)

MISTAKES = [
    ("not normalized",
     "Your outputs are not divided by the sum of the weights. Divide the output of query t by "
     "φ(q_t) · z.",
     ("read / total", "read")),
    ("all keys seen",
     "Each of your queries sees all keys, including later ones. Token t may use only what tokens 0 "
     "to t have written. Go through the tokens one at a time: write token t, and then read with "
     "query t.",
     ("outs = []",
      "return (q @ (k.mT @ v)) / (q * k.sum(dim=-2, keepdim=True)).sum(-1, keepdim=True)")),
    ("normalizer of all keys",
     "Your state is right, but your normalizer z includes later keys. For query t, sum φ(k) only "
     "over tokens 0 to t.",
     ("z = z + k_t", "z = k.sum(dim=-2)")),
    ("read before the write",
     "Your query t sees only tokens before t. The first query sees nothing, so its output is 0 / "
     "0, which is NaN. Write token t to the state and to the normalizer first, and then read.",
     ("outs = []\n", "outs, Z, T = [], z, S\n"),
     ("        S = S +", "        S, z = T, Z\n        T = S +"),
     ("        z = z + k_t", "        Z = z + k_t")),
    ("state read before the write",
     "Your normalizer is right, but the state that query t reads lacks the pair of token t. Write "
     "token t first, and then read.",
     ("S = S + k_t[..., :, None] * v_t[..., None, :]", "before = S"),
     ("outs.append", "S = S + k_t[..., :, None] * v_t[..., None, :]\n        outs.append"),
     ("@ S)", "@ before)")),
    ("normalizer read before the write",
     "Your state is right, but the normalizer of query t lacks the key of token t. Add φ(k_t) to "
     "z before you divide.",
     ("(q_t * z)", "(q_t * (z - k_t))")),
    ("no feature map",
     "Your result has no feature map, so weights can be negative and their sum can be close to 0. "
     "Apply φ(x) = elu(x) + 1 to q and to k.",
     (FEATURES, "q, k")),
    ("features of queries alone",
     "You apply φ to the queries only. Apply φ(x) = elu(x) + 1 to k as well.",
     (FEATURES, "F.elu(q) + 1, k")),
    ("features of keys alone",
     "You apply φ to the keys only. Apply φ(x) = elu(x) + 1 to q as well.",
     (FEATURES, "q, F.elu(k) + 1")),
    ("features of values",
     "You also apply φ to the values. The output is a weighted mean of the values themselves, so "
     "leave v unchanged.",
     (FEATURES, FEATURES + "\n    v = F.elu(v) + 1")),
    ("elu without 1",
     "Your feature map is elu(x), which is negative for negative x. Add 1 to it.",
     (FEATURES, "F.elu(q), F.elu(k)")),
    ("elu minus 1",
     "Your feature map is elu(x) − 1, so weights can be negative. Add 1 instead of subtracting it.",
     (FEATURES, "F.elu(q) - 1, F.elu(k) - 1")),
    ("relu",
     "Your feature map is relu(x), which is 0 for every negative x. Use elu(x) + 1.",
     (FEATURES, "F.relu(q), F.relu(k)")),
    ("relu and 1",
     "Your feature map is relu(x) + 1, which is 1 for every negative x. Use elu(x) + 1.",
     (FEATURES, "F.relu(q) + 1, F.relu(k) + 1")),
    ("exponential",
     "Your feature map is e^x. It equals elu(x) + 1 only for x ≤ 0. Use elu(x) + 1 for all x.",
     (FEATURES, "q.exp(), k.exp()")),
    ("softmax of features",
     "Your feature map is a softmax over the coordinates. Use elu(x) + 1.",
     (FEATURES, "q.softmax(dim=-1), k.softmax(dim=-1)")),
    ("softplus",
     "Your feature map is softplus, log(1 + e^x). Use elu(x) + 1.",
     (FEATURES, "F.softplus(q), F.softplus(k)")),
    ("softmax of the weights",
     "Your weights go through a softmax, where each later key has score 0 and still counts exp(0) "
     "= 1. Divide each φ(q_t) · φ(k_j) by the sum of these weights over j ≤ t, without a softmax.",
     ("    outs = []\n", "    return (q @ k.mT).tril().softmax(dim=-1) @ v\n    outs = []\n")),
    ("causal softmax of the weights",
     "Your weights φ(q_t) · φ(k_j) went through a softmax. They are positive already, so divide "
     "them by their sum instead.",
     ("    outs = []\n",
      "    future = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)\n"
      "    return (q @ k.mT).masked_fill(future, -torch.inf).softmax(dim=-1) @ v\n"
      "    outs = []\n")),
    ("first output zero",
     "Your query t sees only tokens before t, so your first output is 0. Write token t to the "
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
     "Your result is causal softmax attention, scaled by 1/√d_k. Here the weights are φ(q_t) · "
     "φ(k_j). Divide them by their sum over j ≤ t.",
     ("q, k = F", "return F.scaled_dot_product_attention(q, k, v, is_causal=True)\n    q, k = F")),
    ("multiplied by the normalizer",
     "Your outputs are multiplied by the sum of the weights. Divide by it.",
     ("read / total", "read * total")),
    ("not normalized and scaled",
     "Your outputs are divided by √d_k, but not by the sum of the weights. Divide the output of "
     "query t by φ(q_t) · z, and by nothing else.",
     ("read / total", "read / q.shape[-1] ** 0.5")),
    ("each key divided by its sum",
     "In your state, each φ(k_t) is divided by the sum of its own coordinates. Add φ(k_t) v_tᵀ as "
     "it is, and divide only the *output*, by φ(q_t) · z.",
     ("S = S + k_t[..., :, None] *", "S = S + (k_t / k_t.sum(-1, keepdim=True))[..., :, None] *")),
    ("mean over the whole length",
     "Your outputs are divided by L. Divide the output of query t by the sum of its weights, "
     "φ(q_t) · z.",
     ("read / total", "read / k.shape[-2]")),
    ("mean of the products",
     "Your outputs are too large by a factor of d_k. You get this result if φ(q_t) · z is a mean "
     "over the coordinates. Take the sum.",
     ("sum(dim=-1, keepdim=True)  # (..., 1)", "mean(dim=-1, keepdim=True)  # (..., 1)")),
    ("norm of the normalizer",
     "Your outputs are divided by the norm of z. Divide by φ(q_t) · z, the sum of the weights.",
     ("read / total", "read / z.norm(dim=-1, keepdim=True)")),
    ("normalizer with the key",
     "Your outputs are divided by φ(k_t) · z. The weights belong to the query, so divide by "
     "φ(q_t) · z.",
     ("(q_t * z)", "(k_t * z)")),
    ("sigmoid",
     "Your feature map is a sigmoid. Use elu(x) + 1.",
     (FEATURES, "q.sigmoid(), k.sigmoid()")),
    ("elu of x + 1",
     "Your feature map is elu(x + 1), which is negative for x below −1. Add 1 *after* elu.",
     (FEATURES, "F.elu(q + 1), F.elu(k + 1)")),
    ("squares",
     "Your feature map is x². Use elu(x) + 1.",
     (FEATURES, "q**2, k**2")),
    ("keys scaled",
     "Your keys are divided by √d_k before the feature map. This exercise scales nothing, so "
     "remove the division.",
     (FEATURES, "F.elu(q) + 1, F.elu(k / k.shape[-1] ** 0.5) + 1")),
    ("both scaled",
     "Your queries and keys are divided by √d_k before the feature map. This exercise scales "
     "nothing, so remove both divisions.",
     (FEATURES, "F.elu(q / k.shape[-1] ** 0.5) + 1, F.elu(k / k.shape[-1] ** 0.5) + 1")),
    ("elu for queries without 1",
     "Your feature map for queries is elu(x), which can be negative. Add 1, as for keys.",
     (FEATURES, "F.elu(q), F.elu(k) + 1")),
    ("mean over the tokens",
     "Your outputs are divided by the number of tokens so far. Divide by the sum of the weights, "
     "φ(q_t) · z.",
     ("read / total", "read / (t + 1)")),
    ("queries scaled",
     "Your queries are divided by √d_k before the feature map. This exercise scales nothing, so "
     "remove the division.",
     (FEATURES, "F.elu(q / q.shape[-1] ** 0.5) + 1, F.elu(k) + 1")),
    ("scores scaled",
     "Your outputs are also divided by √d_k. Divide them only by φ(q_t) · z.",
     ("read / total", "read / total / q.shape[-1] ** 0.5")),
    ("normalizer of the latest key",
     "Your normalizer holds only the latest key. It must be a running sum, so add φ(k_t) to z at "
     "each token.",
     ("z = z + k_t", "z = k_t")),
    ("latest pair alone",
     "Your state holds only the latest pair. It must be a running sum, so add φ(k_t) v_tᵀ to it "
     "at each token.",
     ("S = S + k_t", "S = k_t")),
    ("latest pair and key alone",
     "Your state and your normalizer hold only the latest token, so each output is the token's "
     "own value. Both must be running sums, so add to them at each token.",
     ("z = z + k_t", "z = k_t"),
     ("S = S + k_t", "S = k_t")),
    ("normalizer without the query",
     "Your normalizer does not depend on the query: it is the sum of all coordinates of z. Divide "
     "by φ(q_t) · z.",
     ("(q_t * z)", "z")),
    ("norm of the output",
     "Your outputs have norm 1. You get this result if you divide each output by its own norm. "
     "Divide it by the sum of its weights, φ(q_t) · z.",
     ("read / total", "F.normalize(read, dim=-1)")),
    ("one state for all",
     "Your state and your normalizer are summed over all leading dimensions. Each batch item and "
     "each head has its own, so keep these dimensions.",
     ("read = ", "dims = tuple(range(S.ndim - 2))\n"
      "        S_all = S.sum(dim=dims, keepdim=True) if dims else S\n        read = "),
     ("@ S)", "@ S_all)"),
     ("(q_t * z)", "(q_t * (z.sum(dim=dims, keepdim=True) if dims else z))")),
    ("one state for the heads",
     "Your state is summed over the last leading dimension, such as the heads. Each head has its "
     "own state, so keep all leading dimensions.",
     ("read = ", "S_all = S.sum(dim=-3, keepdim=True) if S.ndim > 2 else S\n        read = "),
     ("@ S)", "@ S_all)")),
    ("last output alone",
     "You return only the output of the last token. Return one output for each token.",
     ("return torch.stack(outs, dim=-2)", "return outs[-1]")),
    ("state returned",
     "You return the state after the last token. Return the outputs, one for each token.",
     ("return torch.stack(outs, dim=-2)", "return S")),
    ("tokens first",
     "Your outputs have the tokens in the first dimension. They must be in the second-to-last, so "
     "use `torch.stack(outs, dim=-2)`.",
     ("dim=-2)  # (..., L, d_v)", "dim=0)")),
    ("read backward",
     "Your outputs are right for the text in reverse order: query t sees keys t to L − 1. Go "
     "through the tokens from the first to the last.",
     ("for t in range(k.shape[-2])", "for t in reversed(range(k.shape[-2]))"),
     ("torch.stack(outs", "torch.stack(outs[::-1]")),
    ("1 added to the normalizer",
     "You add 1 to the sum of the weights. The weights are positive, so their sum is never 0, and "
     "you need not add anything. Divide by φ(q_t) · z.",
     ("read / total", "read / (total + 1)")),
    ("relu and a small number",
     "Your feature map is relu(x) plus a small number. It is nearly 0 for every negative x, so "
     "negative coordinates add almost nothing to the weights. Use elu(x) + 1.",
     (FEATURES, "F.relu(q) + 1e-6, F.relu(k) + 1e-6")),
    *((f"{eps:g} added to the normalizer", SMALL_ADDED, ("/ total", f"/ (total + {eps})"))
      for eps in (1e-6, 1e-8)),
    ("normalizer clamped",
     "Your normalizer is never below 1. The sum of the weights can be smaller, so divide by "
     "φ(q_t) · z as it is.",
     ("read / total", "read / total.clamp(min=1)")),
    ("sums over the first dimension",
     "Your result is right without a batch. With leading dimensions, you sum over the first of "
     "them. Sum over the tokens, which are the second-to-last dimension of k.",
     ("    outs = []\n"
      "",
      "    S = (k[..., :, None] * v[..., None, :]).cumsum(dim=0)\n"
      "    read = (q[..., None, :] @ S).squeeze(-2)\n"
      "    return read / (q * k.cumsum(dim=0)).sum(dim=-1, keepdim=True)\n"
      "    outs = []\n"
      "")),
    ("features of norm 1",
     "Your features φ(x) are divided by their norms. Use elu(x) + 1 as it is.",
     (FEATURES, "(F.normalize(F.elu(x) + 1, dim=-1) for x in (q, k))")),
    ("elu with another alpha",
     "Your feature map is elu(x, alpha=a) + a with another a. Use alpha = 1, which gives elu(x) "
     "+ 1.",
     (FEATURES, "F.elu(q, alpha=0.5) + 0.5, F.elu(k, alpha=0.5) + 0.5")),
    ("last output for all",
     "All your outputs are that of the last token. For each token, read with its own query right "
     "after the token has written.",
     ("return torch.stack(outs, dim=-2)", "return outs[-1][..., None, :].expand(v.shape)")),
    ("each key weighted by its own query",
     "Your value j has the weight φ(q_j) · φ(k_j) in every output. In output t, give it the "
     "weight φ(q_t) · φ(k_j).",
     ("    outs = []\n"
      "",
      "    own = (q * k).sum(dim=-1, keepdim=True)\n"
      "    return (own * v).cumsum(dim=-2) / own.cumsum(dim=-2)\n"
      "    outs = []\n"
      "")),
    ("output divided by its sum",
     "Each of your outputs is divided by the sum of its own coordinates. Divide it by the sum of "
     "its weights, φ(q_t) · z.",
     ("read / total", "read / read.sum(dim=-1, keepdim=True)")),
    ("normalizer a token late",
     "Your normalizer lacks the token's own key, except at the first token. Add φ(k_t) to z "
     "before you divide.",
     ("(q_t * z)", "(q_t * (z - k_t if t else z))")),
    ("normalizer without the feature map",
     "Your normalizer sums q_t · k_j, without the feature map. Divide by the sum of the weights, "
     "φ(q_t) · φ(k_j).",
     ("q, k = F",
      "q_0, k_0 = q, k\n"
      "    q, k = F"),
     ("z = z + k_t", "z = z + k_0[..., t, :]"),
     ("(q_t * z)", "(q_0[..., t, :] * z)")),
    ("feature map twice",
     "You apply φ twice, to q and to k. Apply it once to each.",
     ("    S = k.new_zeros",
      "    q, k = F.elu(q) + 1, F.elu(k) + 1\n"
      "    S = k.new_zeros")),
    ("elu for keys without 1",
     "Your feature map for keys is elu(x), which can be negative. Add 1, as for queries.",
     (FEATURES, "F.elu(q) + 1, F.elu(k)")),
    ("queries and keys swapped",
     "You swap queries and keys. Write φ(k_t) v_tᵀ into the state, and read it with φ(q_t).",
     (FEATURES, "F.elu(k) + 1, F.elu(q) + 1")),
    ("absolute values",
     "Your feature map is |x|. Use elu(x) + 1.",
     (FEATURES, "q.abs(), k.abs()")),
    ("normalized over the queries",
     "Your weights are divided by their sum over the queries that see a key. Divide the output "
     "of query t by its own sum, φ(q_t) · z.",
     ("    outs = []\n"
      "",
      "    weights = (q @ k.mT).tril()\n"
      "    return (weights / weights.sum(dim=-2, keepdim=True)) @ v\n"
      "    outs = []\n"
      "")),
    ("uniform weights",
     "Your output t is the plain mean of values 0 to t. Give value j the weight φ(q_t) · φ(k_j).",
     ("    outs = []\n"
      "",
      "    number = torch.arange(1, v.shape[-2] + 1, dtype=v.dtype)[:, None]\n"
      "    return v.cumsum(dim=-2) / number\n"
      "    outs = []\n"
      "")),
    ("root of the normalizer",
     "Your outputs are divided by the square root of the sum of the weights. Divide by the sum "
     "itself, φ(q_t) · z.",
     ("read / total", "read / total.sqrt()")),
    ("query divided by its own sum",
     "Your outputs are divided by the sum of the coordinates of φ(q_t). Divide by φ(q_t) · z, "
     "the sum of the weights.",
     ("read / total", "read / q_t.sum(dim=-1, keepdim=True)")),
    ("one normalizer for all queries",
     "All queries of a head are divided by the same number, the sum of all their normalizers. "
     "Divide the output of query t by its own φ(q_t) · z.",
     ("return torch.stack(outs, dim=-2)",
      "future = torch.ones(len(outs), len(outs), dtype=torch.bool).triu(1)\n"
      "    weights = (q @ k.mT).masked_fill(future, 0)\n"
      "    return weights @ v / weights.sum(dim=(-2, -1), keepdim=True)")),
    ("outputs a token late",
     "Your outputs are right, but each is one position too late. Put the output of query t, read "
     "after token t has written, at position t.",
     ("return torch.stack(outs, dim=-2)",
      "return torch.stack([v[..., 0, :], *outs[:-1]], dim=-2)")),
]  # fmt: skip

exercise = Exercise(
    "13.2", causal_linear_attention, inputs, MISTAKES, names="L d_v", run=without_the_matrix,
    differentiable=True, also_right=[by_a_column_of_ones, by_cumulative_sums],
)  # fmt: skip
