"""Answers to lesson 08's exercises, written apart from the checks: right ones and wrong ones."""

import math

import numpy as np
import torch
import torch.nn.functional as F

# right


def _loo_by_mask(predict, x):
    everyone = torch.arange(len(x))
    moved = [predict(x) - predict(x[everyone != t]) for t in range(len(x))]
    return torch.tensor([float(each) for each in moved], dtype=x.dtype).abs()


def _loo_by_lists(predict, x):
    out = x.new_empty(len(x))
    for t in range(len(x)):
        rows = [row for n, row in enumerate(x) if n != t]
        out[t] = abs(predict(torch.stack(rows)) - predict(x))
    return out


def _loo_by_rows_of_an_identity(predict, x):
    eye = torch.eye(len(x))
    gone = [predict(eye[eye[t] == 0] @ x) for t in range(len(x))]
    return abs(predict(x) - torch.stack(gone))


def _loo_in_numpy(predict, x):
    gone = [predict(torch.from_numpy(np.delete(x.numpy(), t, axis=0))) for t in range(len(x))]
    return torch.hypot(torch.stack(gone) - predict(x), torch.zeros(()))


def _tau_by_loops(a, b):
    total, n_a, n_b = 0, 0, 0
    for i in range(len(a)):
        for j in range(i):
            x, y = np.sign(float(a[i] - a[j])), np.sign(float(b[i] - b[j]))
            total, n_a, n_b = total + x * y, n_a + abs(x), n_b + abs(y)
    return torch.tensor(total / math.sqrt(n_a * n_b))


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


def _rollout_row_normalised(weights):
    eye = torch.eye(weights.shape[-1], dtype=weights.dtype)
    product = None
    for layer in weights:
        a = layer.sum(0) / len(layer) + eye
        a = a / a.sum(-1, keepdim=True)
        product = a if product is None else torch.einsum("ij,jk->ik", a, product)
    return product


def _rollout_from_the_top(weights):
    rows = np.eye(weights.shape[-1])
    for layer in reversed(weights.double().numpy()):
        rows = rows @ (layer.mean(axis=0) * 0.5 + np.eye(len(rows)) * 0.5)
    return torch.from_numpy(rows)


def _rollout_with_plain_identities(weights):
    L = weights.shape[-1]
    out = torch.eye(L)
    for layer in weights.mean(1):
        out = (layer / 2 + torch.eye(L) / 2) @ out
    return out


def _weighted_by_einsum(weights, v):
    return torch.einsum("...ls,...s->...ls", weights, torch.linalg.vector_norm(v, dim=-1))


def _weighted_by_vectors(weights, v):
    return (weights.unsqueeze(-1) * v.unsqueeze(-3)).norm(dim=-1)


def _weighted_by_diagonal(weights, v):
    return weights @ torch.diag_embed((v * v).sum(-1) ** 0.5)


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


def _picked_by_unravel(weights, query, key):
    told = weights[..., query, key]
    return torch.stack(torch.unravel_index(told.argmax(), told.shape))


def _stories_by_any(weights, shown):
    return (weights >= shown).any(0).any(0).float().mean()


def _stories_by_loops(weights, shown):
    _, _, L, S = weights.shape
    told = [weights[:, :, i, j].max().item() >= shown for i in range(L) for j in range(S)]
    return sum(told) / len(told)


def _stories_flat(weights, shown):
    best = weights.flatten(2).flatten(0, 1).max(dim=0).values
    return (best >= shown).sum() / best.numel()


RIGHT = {
    "leave_one_out": [_loo_by_mask, _loo_by_lists, _loo_by_rows_of_an_identity, _loo_in_numpy],
    "kendall_tau": [_tau_by_loops, _tau_by_triangle, _tau_by_counting],
    "js_divergence": [_js_by_entropy, _js_by_where, _js_by_kl_div, _js_with_epsilon],
    "rollout": [
        _rollout_by_multi_dot,
        _rollout_row_normalised,
        _rollout_from_the_top,
        _rollout_with_plain_identities,
    ],
    "value_weighted": [_weighted_by_einsum, _weighted_by_vectors, _weighted_by_diagonal],
    "cherry_picked": [_picked_by_loops, _picked_by_nonzero, _picked_by_unravel],
    "share_of_stories": [_stories_by_any, _stories_by_loops, _stories_flat],
}


# wrong


def _loo_signed(predict, x):
    return torch.stack([predict(x) - predict(_without(x, t)) for t in range(len(x))])


def _without(x, t):
    return x[[n for n in range(len(x)) if n != t]]


def _loo_zeroed(predict, x):
    moved = []
    for t in range(len(x)):
        keep = torch.ones(len(x), 1, dtype=x.dtype)
        keep[t] = 0
        moved.append((predict(x * keep) - predict(x)).abs())
    return torch.stack(moved)


def _loo_alone(predict, x):
    return torch.stack([abs(predict(x) - predict(x[[t]])) for t in range(len(x))])


def _loo_no_base(predict, x):
    return torch.tensor([predict(_without(x, t)).item() for t in range(len(x))])


def _tau_a(a, b):
    i, j = torch.tril_indices(len(a), len(a), -1)
    return ((a[i] - a[j]).sign() * (b[i] - b[j]).sign()).mean()


def _tau_concordant(a, b):
    i, j = torch.tril_indices(len(a), len(a), -1)
    return ((a[i] - a[j]) * (b[i] - b[j]) > 0).double().mean()


def _tau_rootless(a, b):
    i, j = torch.tril_indices(len(a), len(a), -1)
    x, y = (a[i] - a[j]).sign(), (b[i] - b[j]).sign()
    return (x * y).sum() / (x.count_nonzero() * y.count_nonzero())


def _tau_gamma(a, b):
    i, j = torch.triu_indices(len(a), len(a), 1)
    moved = (a[i] - a[j]) * (b[i] - b[j])
    agree, disagree = (moved > 0).sum(), (moved < 0).sum()
    return (agree - disagree) / (agree + disagree)


def _tau_pearson(a, b):
    return F.cosine_similarity(a - a.mean(), b - b.mean(), dim=0)


def _tau_all_sums(a, b):
    i, j = torch.triu_indices(len(a), len(a), 1)
    both = torch.sign(a[:, None] - a[None]) * torch.sign(b[:, None] - b[None])
    return both.sum() / ((a[i] != a[j]).sum() * (b[i] != b[j]).sum()).sqrt()


def _tau_differences(a, b):
    i, j = torch.triu_indices(len(a), len(a), 1)
    total = ((a[i] - a[j]) * (b[i] - b[j])).sum()
    return total / ((a[i] != a[j]).sum() * (b[i] != b[j]).sum()) ** 0.5


def _tau_by_comparing(a, b):
    total = n_a = n_b = 0
    for i in range(len(a)):
        for j in range(i + 1, len(a)):
            total += 1 if (a[i] > a[j]) == (b[i] > b[j]) else -1
            n_a, n_b = n_a + bool(a[i] != a[j]), n_b + bool(b[i] != b[j])
    return total / math.sqrt(n_a * n_b)


def _js_kl(p, q):
    return torch.xlogy(p, p / q).sum(-1)


def _js_sum(p, q):
    return 2 * _js_by_entropy(p, q)


def _js_bits(p, q):
    return _js_by_entropy(p, q) / math.log(2)


def _js_nan(p, q):
    m = 0.5 * (p + q)
    return 0.5 * (p * (p.log() - m.log())).sum(-1) + 0.5 * (q * (q.log() - m.log())).sum(-1)


def _js_kl_div_turned(p, q):
    m = (p + q) / 2
    each = [F.kl_div(w.log(), m, reduction="none").sum(-1) for w in (p, q)]
    return (each[0] + each[1]) / 2


def _js_from_sum(p, q):
    m = p + q
    return (torch.xlogy(p, p / m).nansum(-1) + torch.xlogy(q, q / m).nansum(-1)) / 2


def _js_entropies(p, q):
    h = [-torch.xlogy(w, w).sum(-1) for w in ((p + q) / 2, p, q)]
    return h[0] - h[1] - h[2]


def _js_root(p, q):
    return _js_by_where(p, q) ** 0.5


def _rollout_reversed(weights):
    eye = torch.eye(weights.shape[-1]).to(weights)
    out = eye
    for layer in weights.mean(1):
        out = out @ (0.5 * layer + 0.5 * eye)
    return out


def _rollout_plain(weights):
    out = torch.eye(weights.shape[-1]).to(weights)
    for layer in weights.mean(1):
        out = layer @ out
    return out


def _rollout_too_large(weights):
    eye = torch.eye(weights.shape[-1]).to(weights)
    out = eye
    for layer in weights.mean(1):
        out = (layer + eye) @ out
    return out


def _rollout_without_brackets(weights):
    eye = out = torch.eye(weights.shape[-1])
    for layer in weights.mean(1):
        out = (layer + eye / 2) @ out
    return out


def _rollout_half_weights(weights):
    eye = out = torch.eye(weights.shape[-1])
    for layer in weights.mean(1):
        out = (0.5 * layer + eye) @ out
    return out


def _rollout_wrong_mean(weights):
    eye = torch.eye(weights.shape[-1])
    out = eye
    for layer in weights.mean(0):
        out = (layer + eye) / 2 @ out
    return out


def _rollout_head_by_head(weights):
    eye = torch.eye(weights.shape[-1])
    out = eye
    for layer in weights:
        out = (layer + eye) / 2 @ out
    return out.mean(0)


def _weighted_l1(weights, v):
    return weights * v.norm(p=1, dim=-1).unsqueeze(-2)


def _weighted_rows(weights, v):
    moved = weights * v.norm(dim=-1).unsqueeze(-2)
    return F.normalize(moved, p=1, dim=-1)


def _weighted_output(weights, v):
    return torch.linalg.norm(weights @ v, dim=-1)


def _picked_flat(weights, query, key):
    return weights[:, :, query, key].flatten().argmax()


def _picked_swapped(weights, query, key):
    told = weights[:, :, query, key]
    layer, head = divmod(told.argmax().item(), told.shape[1])
    return torch.tensor([head, layer])


def _picked_from_one(weights, query, key):
    told = weights[:, :, query, key]
    return (told == told.amax()).nonzero().flatten() + 1


def _picked_key_first(weights, query, key):
    told = weights.mT[:, :, query, key]
    return torch.tensor(divmod(told.argmax().item(), told.shape[1]))


def _stories_entries(weights, shown):
    return (weights >= shown).float().mean()


def _stories_mean(weights, shown):
    return (weights.mean((0, 1)) >= shown).float().mean()


def _stories_without_masked(weights, shown):
    seen = (weights > 0).flatten(0, 1).any(0)
    return ((weights >= shown).flatten(0, 1).any(0) & seen).sum() / seen.sum()


def _stories_summed(weights, shown):
    return (weights >= shown).any(0).any(0).sum()


def _stories_counted(weights, shown):
    return int((weights.amax((0, 1)) >= shown).sum())


WRONG = [
    ("leave_one_out", "sign kept", _loo_signed),
    ("leave_one_out", "zeroed instead of removed", _loo_zeroed),
    ("leave_one_out", "only the token kept", _loo_alone),
    ("leave_one_out", "prediction without the token", _loo_no_base),
    ("kendall_tau", "all pairs counted", _tau_a),
    ("kendall_tau", "share that agrees", _tau_concordant),
    ("kendall_tau", "pearson", _tau_pearson),
    ("kendall_tau", "pairs counted twice", _tau_all_sums),
    ("kendall_tau", "signs not taken", _tau_differences),
    ("kendall_tau", "ties that agree", _tau_by_comparing),
    ("kendall_tau", "without the root", _tau_rootless),
    ("kendall_tau", "ties left out", _tau_gamma),
    ("js_divergence", "kl alone", _js_kl),
    ("js_divergence", "not halved", _js_sum),
    ("js_divergence", "in bits", _js_bits),
    ("js_divergence", "zeros are nan", _js_nan),
    ("js_divergence", "distance not divergence", _js_root),
    ("js_divergence", "reversed kl", _js_kl_div_turned),
    ("js_divergence", "mean not halved", _js_from_sum),
    ("js_divergence", "entropies not halved", _js_entropies),
    ("rollout", "first layer left", _rollout_reversed),
    ("rollout", "no residual", _rollout_plain),
    ("rollout", "residual not halved", _rollout_too_large),
    ("rollout", "identity halved alone", _rollout_without_brackets),
    ("rollout", "weights halved alone", _rollout_half_weights),
    ("rollout", "heads for layers", _rollout_wrong_mean),
    ("rollout", "heads averaged last", _rollout_head_by_head),
    ("value_weighted", "sizes added", _weighted_l1),
    ("value_weighted", "normalised again", _weighted_rows),
    ("value_weighted", "length of the mixture", _weighted_output),
    ("cherry_picked", "flat place", _picked_flat),
    ("cherry_picked", "head before layer", _picked_swapped),
    ("cherry_picked", "picked from one", _picked_from_one),
    ("cherry_picked", "query and key exchanged", _picked_key_first),
    ("share_of_stories", "share of weights", _stories_entries),
    ("share_of_stories", "heads averaged", _stories_mean),
    ("share_of_stories", "masked pairs left out", _stories_without_masked),
    ("share_of_stories", "number of pairs", _stories_counted),
    ("share_of_stories", "number of pairs", _stories_summed),
]

HINTS = {
    "leave_one_out": {
        "sign kept": "how far it moves is their size",
        "difference turned round": "after minus before",
        "zeroed instead of removed": "remove its row",
        "only the token kept": "the other way round",
        "the rest cut off too": "those after it",
        "prediction without the token": "compare it with the one for all",
        "difference squared": "are squared",
        "neighbour removed": "off by one",
    },
    "kendall_tau": {
        "all pairs counted": "where entries tie",
        "without the root": "the root is missing",
        "ties left out": "in one of the two count in the other",
        "diagonal counted": "is no pair",
        "pearson": "order alone",
        "spearman": "of ranks",
        "share that agrees": "disagree count -1",
        "only neighbours": "take all pairs",
        "pairs counted once": "the divisor twice",
        "pairs counted twice": "the divisor once",
        "signs not taken": "only their signs count",
        "ties that agree": "takes a tie for an order",
    },
    "js_divergence": {
        "kl alone": "not symmetric",
        "symmetric kl": "with their mean m",
        "not halved": "take their mean",
        "half of it": "half of q is missing",
        "reversed kl": "m belongs second",
        "mean not halved": "the sum there and not the mean",
        "entropies not halved": "halve their sum",
        "in bits": "natural logarithm",
        "distance not divergence": "square root",
        "zeros are nan": "it must add 0",
        "mean over keys": "Σ over the last",
        "one number for all": "one for each",
    },
    "rollout": {
        "first layer left": "wrong order",
        "no residual": "residual connection is missing",
        "residual not halved": "rows sum to more than 1",
        "weights halved alone": "only the weights are halved",
        "identity halved alone": "only the identity is halved",
        "heads for layers": "the heads are dimension 1",
        "heads averaged last": "the heads of a layer first",
        "one residual": "not in every layer",
        "heads summed": "heads are added",
        "strongest head": "largest of the heads",
        "last layer only": "multiply all",
        "layers averaged": "is multiplied",
        "entry by entry": "matrix product",
        "rollout transposed": "transposed",
    },
    "value_weighted": {
        "length squared": "its root is the length",
        "sizes added": "root of the squares' sum",
        "entries added": "the vector's length",
        "normalised again": "divided by their sums",
        "lengths along queries": "along the columns",
        "length over keys": "over d_v",
        "length of the mixture": "one length for each key",
        "vectors not lengths": "take their lengths",
        "values alone": "multiply by the weights",
    },
    "cherry_picked": {
        "head before layer": "turn them round",
        "flat place": "quotient and rest",
        "divided by layers": "as many entries as heads",
        "query and key exchanged": "rows are queries",
        "largest anywhere": "the one pair",
        "picked from one": "from 1",
        "smallest weight": "wants the largest",
        "averages first": "may be elsewhere",
    },
    "share_of_stories": {
        "share of weights": "a pair counts once",
        "all heads must": "some head shows it",
        "heads averaged": "take the largest",
        "number of pairs": "divide by",
        "strictly larger": ">=",
        "share of heads": "share of pairs is asked",
        "share without": "no head shows",
        "share of queries": "count pairs",
        "masked pairs left out": "*all* pairs count",
    },
}
