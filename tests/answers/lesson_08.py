"""Answers to lesson 08's exercises, written apart from the checks: right ones and wrong ones."""

import numpy as np
import torch
import torch.nn.functional as F

# right


def _loo_by_mask(predict, x):
    everyone = torch.arange(len(x))
    moved = [predict(x) - predict(x[everyone != t]) for t in range(len(x))]
    return torch.tensor([float(each) for each in moved], dtype=x.dtype).abs()


def _loo_by_rows_of_an_identity(predict, x):
    eye = torch.eye(len(x))
    gone = [predict(eye[eye[t] == 0] @ x) for t in range(len(x))]
    return abs(predict(x) - torch.stack(gone))


def _loo_in_numpy(predict, x):
    gone = [predict(torch.from_numpy(np.delete(x.numpy(), t, axis=0))) for t in range(len(x))]
    return torch.hypot(torch.stack(gone) - predict(x), torch.zeros(()))


def _tau_by_triangle(a, b):
    i, j = torch.triu_indices(len(a), len(a), 1)
    x, y = torch.sign(a[i] - a[j]), torch.sign(b[i] - b[j])
    return F.cosine_similarity(x, y.to(x.dtype), dim=0)


def _tau_by_counting(a, b):
    a, b = a.tolist(), b.tolist()
    pairs = [(i, j) for i in range(len(a)) for j in range(i)]
    agree = sum((a[i] - a[j]) * (b[i] - b[j]) > 0 for i, j in pairs)
    differ = sum((a[i] - a[j]) * (b[i] - b[j]) < 0 for i, j in pairs)
    free_a = sum(a[i] != a[j] for i, j in pairs)
    free_b = sum(b[i] != b[j] for i, j in pairs)
    return (agree - differ) / (free_a * free_b) ** 0.5


def _js_by_entropy(p, q):
    def h(w):
        return torch.special.entr(w).sum(-1)

    return h(0.5 * p + 0.5 * q) - 0.5 * h(p) - 0.5 * h(q)


def _js_by_where(p, q):
    m = 0.5 * (p + q)

    def kl(w):
        return torch.where(w > 0, w * torch.log(w / m), 0.0).sum(-1)

    return 0.5 * (kl(p) + kl(q))


def _js_by_kl_div(p, q):
    log_m = (0.5 * (p + q)).log().clamp(min=-1e9)
    kl = [F.kl_div(log_m, w, reduction="none").sum(-1) for w in (p, q)]
    return sum(kl) / 2


def _js_with_epsilon(p, q):
    m, tiny = (p + q) / 2, 1e-12
    one = p * torch.log((p.double() + tiny) / (m.double() + tiny))
    two = q * torch.log((q.double() + tiny) / (m.double() + tiny))
    return (one + two).sum(-1) / 2


def _rollout_by_multi_dot(weights):
    eye = torch.eye(weights.shape[-1]).to(weights)
    layers = [0.5 * (layer.mean(0) + eye) for layer in weights]
    return torch.linalg.multi_dot(layers[::-1]) if len(layers) > 1 else layers[0]


def _rollout_from_the_top(weights):
    rows = np.eye(weights.shape[-1])
    for layer in reversed(weights.double().numpy()):
        rows = rows @ (layer.mean(axis=0) * 0.5 + np.eye(len(rows)) * 0.5)
    return torch.from_numpy(rows)


def _weighted_by_einsum(weights, v):
    return torch.einsum("...ls,...s->...ls", weights, torch.linalg.vector_norm(v, dim=-1))


def _weighted_by_vectors(weights, v):
    return (weights.unsqueeze(-1) * v.unsqueeze(-3)).norm(dim=-1)


def _picked_by_loops(weights, query, key):
    best, place = -1.0, None
    for layer in range(weights.shape[0]):
        for head in range(weights.shape[1]):
            if weights[layer, head, query, key] > best:
                best, place = weights[layer, head, query, key].item(), (layer, head)
    return torch.tensor(place)


def _picked_by_nonzero(weights, query, key):
    told = weights[..., query, key]
    return (told == told.max()).nonzero()[0]


def _stories_by_any(weights, shown):
    return (weights >= shown).any(0).any(0).float().mean()


def _stories_flat(weights, shown):
    best = weights.flatten(2).flatten(0, 1).max(dim=0).values
    return (best >= shown).sum() / best.numel()


def _other_by_solving(weights, v):
    """Set the last key's part to 1, solve for the others, and try both ways query by query."""
    kept = torch.cat([torch.ones(len(v), 1, dtype=v.dtype), v], dim=1).T  # (d_v + 1, S)
    line = torch.cat([torch.linalg.solve(kept[:, :-1], -kept[:, -1]), torch.ones(1)])
    rows = []
    for row in weights:
        ends = []
        for way in (line, -line):
            step = min(w / -n for w, n in zip(row, way, strict=True) if n < 0)
            ends.append((row + step * way).abs())
        rows.append(max(ends, key=lambda end: _js_by_entropy(row, end)))
    return torch.stack(rows)


def _other_in_numpy(weights, v):
    w, v = weights.numpy(), v.numpy()
    line = np.linalg.svd(np.vstack([v.T, np.ones(len(v))]))[2][-1]  # (S,)
    steps = -w / line  # (L, S), where each weight becomes 0
    far = np.where(steps > 0, steps, np.inf).min(1), np.where(steps < 0, steps, -np.inf).max(1)
    ends = [torch.from_numpy(np.maximum(w + step[:, None] * line, 0)) for step in far]
    apart = [_js_by_where(weights, end) for end in ends]
    return torch.where((apart[0] > apart[1])[:, None], *ends)


def _other_without_measuring(weights, v):
    kept = torch.cat([v, torch.ones(len(v), 1)], dim=1)
    line = torch.linalg.svd(kept).U[:, -1]
    return weights + 1e-3 * line


RIGHT = {
    "leave_one_out": [_loo_by_mask, _loo_by_rows_of_an_identity, _loo_in_numpy],
    "kendall_tau": [_tau_by_triangle, _tau_by_counting],
    "js_divergence": [_js_by_entropy, _js_by_where, _js_by_kl_div, _js_with_epsilon],
    "rollout": [_rollout_by_multi_dot, _rollout_from_the_top],
    "value_weighted": [_weighted_by_einsum, _weighted_by_vectors],
    "cherry_picked": [_picked_by_loops, _picked_by_nonzero],
    "other_picture": [_other_by_solving, _other_in_numpy],
    "share_of_stories": [_stories_by_any, _stories_flat],
}

# wrong


def _tau_counted(add, divide):
    """Return a τ that adds something for each pair of signs and divides the sum as told."""

    def answer(a, b):
        i, j = torch.triu_indices(len(a), len(a), 1)
        x, y = (a[i] - a[j]).sign(), (b[i] - b[j]).sign()
        return add(x, y).sum() / divide(x.count_nonzero(), y.count_nonzero())

    return answer


def _weighted_without_a_row(weights, v):
    return weights * v.norm(dim=-1)


def _picked_by_value(weights, query, key):
    return (weights == weights[:, :, query, key].max()).nonzero()[0, :2]


def _picked_as_pair(weights, query, key):
    told = weights[:, :, query, key]
    return divmod(told.argmax().item(), told.shape[1])


def _stories_by_view(weights, shown):
    flat = weights.view(-1, weights.shape[-2] * weights.shape[-1])
    return (flat.amax(0) >= shown).float().mean()


WRONG = [
    ("kendall_tau", None, _tau_counted(torch.mul, torch.maximum)),
    ("kendall_tau", None, _tau_counted(torch.mul, lambda n_a, n_b: (n_a + n_b) / 2)),
    ("js_divergence", "total variation", lambda p, q: (p - q).abs().sum(-1) / 2),
    ("rollout", None, lambda w: _rollout_by_multi_dot(w).softmax(-1)),
    ("value_weighted", None, _weighted_without_a_row),
    ("value_weighted", None, lambda w, v: w * v.abs().amax(-1)[..., None, :]),
    ("cherry_picked", None, _picked_by_value),
    ("cherry_picked", None, _picked_as_pair),
    ("cherry_picked", None, lambda w, query, key: _picked_by_loops(w, query, key).float()),
    ("other_picture", None, _other_without_measuring),
    ("share_of_stories", None, _stories_by_view),
]
