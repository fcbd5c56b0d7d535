"""Answers to lesson 07's exercises, written apart from the checks: right ones and wrong ones."""

import math

import numpy as np
import torch

# right


def _repeat_by_tile(pattern, length):
    times = math.ceil(length / pattern.shape[-1])
    return torch.cat([pattern] * times, dim=-1)[..., :length]


def _repeat_by_loop(pattern, length):
    period = pattern.size(-1)
    return torch.stack([pattern[..., i % period] for i in range(length)], dim=-1)


def _previous_by_loops(weights):
    B, H, L, _ = weights.shape
    total = torch.zeros(H, dtype=weights.dtype)
    for b in range(B):
        for i in range(1, L):
            total += weights[b, :, i, i - 1]
    return total / (B * (L - 1))


def _previous_by_mask(weights):
    L = weights.shape[-1]
    below = torch.diag(torch.ones(L - 1), -1)
    return torch.einsum("bhij,ij->h", weights, below) / (len(weights) * (L - 1))


def _occurrence_by_dictionary(tokens):
    rows = []
    for row in tokens.reshape(-1, tokens.shape[-1]).tolist():
        last, found = {}, []
        for i, token in enumerate(row):
            found.append(last.get(token, -1))
            last[token] = i
        rows.append(found)
    return torch.tensor(rows).reshape(tokens.shape)


def _occurrence_backwards(tokens):
    found = torch.full_like(tokens, -1)
    for back in range(tokens.shape[-1] - 1, 0, -1):
        same = tokens[..., back:] == tokens[..., :-back]
        places = torch.arange(tokens.shape[-1] - back).expand(same.shape)
        found[..., back:] = torch.where(same, places, found[..., back:])
    return found


def _induction_by_loops(weights, tokens):
    B, H, L, _ = weights.shape
    scores = []
    for h in range(H):
        found = []
        for b in range(B):
            for i in range(L):
                keys = [j + 1 for j in range(i) if tokens[b, j] == tokens[b, i]]
                if keys:
                    found.append(sum(weights[b, h, i, j] for j in keys))
        scores.append(torch.stack(found).mean())
    return torch.stack(scores)


def _induction_by_matmul(weights, tokens):
    same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1).float()
    wanted = same @ torch.diag(torch.ones(tokens.shape[1] - 1), 1)  # one key further on
    found = torch.einsum("bhij,bij->h", weights, wanted)
    return found / (wanted.sum(-1) > 0).sum()


def _accuracy_by_loops(logits, tokens):
    right = []
    for guesses, row in zip(logits.argmax(-1).tolist(), tokens.tolist(), strict=True):
        for i in range(len(row) - 1):
            if row[i] in row[:i]:
                right.append(guesses[i] == row[i + 1])
    return sum(right) / len(right)


def _accuracy_in_tensors(logits, tokens):
    seen = (tokens[:, :, None] == tokens[:, None]).tril(-1).any(-1)[:, :-1]
    hits = logits.max(-1).indices[:, :-1].eq(tokens[:, 1:])
    return (hits * seen).sum() / seen.sum()


def _silence_by_mask(W_o, heads, num_heads):
    kept = torch.tensor([float(h not in heads) for h in range(num_heads)], dtype=W_o.dtype)
    return W_o * kept.repeat_interleave(W_o.shape[1] // num_heads)


def _silence_by_chunks(W_o, heads, num_heads):
    chunks = W_o.chunk(num_heads, dim=1)
    return torch.cat([c * 0 if h in heads else c for h, c in enumerate(chunks)], dim=1)


def _silence_by_diagonal(W_o, heads, num_heads):
    keep = torch.ones(num_heads, len(W_o) // num_heads)
    keep[heads] = 0
    return W_o @ torch.diag(keep.flatten())


def _copying_by_loop(E, W_v, W_o, U):
    hits = 0
    for token, vector in enumerate(E):
        hits += int((vector @ W_v @ W_o @ U).argmax()) == token
    return hits / E.shape[0]


def _copying_transposed(E, W_v, W_o, U):
    effect = (U.T @ W_o.T @ W_v.T @ E.T).softmax(0)
    return (effect.topk(1, dim=0).indices[0] == torch.arange(E.shape[0])).double().mean()


def _kinds_by_restoring(model, tokens):
    """Take away all that look alike; put one back after another."""
    seen = model(tokens)[1]
    kinds = []
    for layer, weights in enumerate(seen):
        row = []
        for h in range(weights.shape[1]):
            row.append(0)
            for kind, look in ((1, _previous_by_loops), (2, None)):
                scores = [
                    (look(each) if look else _induction_by_matmul(each, tokens)).tolist()
                    for each in seen
                ]
                alike = {
                    (i, j) for i, some in enumerate(scores) for j, s in enumerate(some) if s > 0.7
                }
                if (layer, h) in alike:
                    logits = model(tokens, list(alike - {(layer, h)}))[0]
                    row[-1] = kind * int(_accuracy_by_loops(logits, tokens) > 0.5)
        kinds.append(row)
    return torch.tensor(kinds)


def _kinds_by_every_set(model, tokens):
    """Of heads that look alike try all sets: one at work makes some set too large."""
    seen = model(tokens)[1]
    kinds = np.zeros((len(seen), seen.shape[2]), dtype=int)
    for kind in (1, 2):
        looks = [
            _previous_by_mask(each) if kind == 1 else _induction_by_matmul(each, tokens)
            for each in seen
        ]
        alike = [tuple(head) for head in (torch.stack(looks) > 0.4).nonzero().tolist()]
        fine = []
        for gone in range(2 ** len(alike)):
            removed = [head for n, head in enumerate(alike) if gone >> n & 1]
            fine.append(_accuracy_in_tensors(model(tokens, removed)[0], tokens) > 0.5)
        for n, head in enumerate(alike):
            if any(fine[gone] and not fine[gone | 1 << n] for gone in range(len(fine))):
                kinds[head] = kind
    return torch.from_numpy(kinds)


def _induction_by_angles(V, L):
    """Places as angles, two numbers each; place 0 is turned away from by every token."""
    angles = torch.arange(L + 1.0) * 2 * math.pi / (L + 1)
    circle = torch.stack([angles.cos(), angles.sin()], dim=-1) * 300  # (L + 1, 2)
    eye = torch.eye(V)
    blank = torch.zeros(3 * V, 2)
    move = torch.zeros(3 * V, 3 * V)
    move[:V, V : 2 * V] = eye
    layer_1 = torch.cat([blank, circle[:-1]]), torch.cat([blank, circle[1:]]), move
    q, k = torch.zeros(3 * V + L, V), torch.zeros(3 * V + L, V)
    q[:V], k[V : 2 * V] = 500 * eye, eye
    k[3 * V] = -2
    W_v = torch.zeros(3 * V, 3 * V)
    W_v[:V, 2 * V :] = 7 * eye
    return [list(layer_1), [q, k, W_v]]


def _induction_elsewhere(change, layer=0, matrix=2):
    """Change a matrix of a layer of the circuit, W_v unless told otherwise."""

    def answer(V, L):
        layers = _induction_by_angles(V, L)
        layers[layer][matrix] = change(layers[layer][matrix])
        return layers

    return answer


RIGHT = {
    "repeat_pattern": [
        _repeat_by_tile,
        _repeat_by_loop,
        lambda p, n: torch.from_numpy(np.take(p.numpy(), range(n), axis=-1, mode="wrap")),
    ],
    "previous_token_score": [_previous_by_loops, _previous_by_mask],
    "previous_occurrence": [_occurrence_by_dictionary, _occurrence_backwards],
    "induction_score": [_induction_by_loops, _induction_by_matmul],
    "repeated_accuracy": [_accuracy_by_loops, _accuracy_in_tensors],
    "induction_by_hand": [_induction_by_angles],
    "silence_heads": [_silence_by_mask, _silence_by_chunks, _silence_by_diagonal],
    "copying_score": [_copying_by_loop, _copying_transposed],
    "which_heads": [_kinds_by_restoring, _kinds_by_every_set],
}


# wrong


def _places_shut_out(*places):
    """Return a change of W_k in layer 1, which is V wide."""
    return lambda W_k: W_k.index_fill(0, 3 * W_k.shape[1] + torch.tensor(places), -2)


def _without_the_last_symbol(W_v):
    return W_v.index_fill(0, torch.tensor(len(W_v) // 3 - 1), 0)


def _half_from_the_note(W_v):
    return (W_v + W_v.roll(len(W_v) // 3, 0)) / 14


def _repeat_four_times(pattern, length):
    return torch.cat([pattern] * 4, dim=-1)[..., :length]


def _occurrence_of_few_symbols(tokens):
    rows = []
    for row in tokens.reshape(-1, tokens.shape[-1]).tolist():
        last, found = [-1] * 32, []
        for i, token in enumerate(row):
            found.append(last[token])
            last[token] = i
        rows.append(found)
    return torch.tensor(rows).reshape(tokens.shape)


def _silence_and_empty_the_list(W_o, heads, num_heads):
    silent, d_k = W_o.clone(), W_o.shape[1] // num_heads
    while heads:
        head = heads.pop()
        silent[:, head * d_k : head * d_k + d_k] = 0
    return silent


CIRCUITS = [  # mistake, what is changed, in which layer, in which of its matrices
    ("place 1 shut out too", _places_shut_out(1), 1, 1),
    ("tokens do not matter", _places_shut_out(1, 2), 1, 1),
    ("not written into the note", _without_the_last_symbol, 0, 2),
    ("nothing handed over", _without_the_last_symbol, 1, 2),
    ("note handed over too", _half_from_the_note, 1, 2),
    ("overflow", lambda W_k: 1e37 * W_k, 1, 1),
]
WRONG = [
    ("which_heads", None, lambda model, tokens: torch.zeros(2, 3)),
    ("repeat_pattern", None, _repeat_four_times),
    ("previous_token_score", None, lambda weights: _previous_by_loops(weights[..., :24, :24])),
    ("previous_occurrence", None, _occurrence_of_few_symbols),
    ("previous_occurrence", None, lambda tokens: _occurrence_by_dictionary(tokens % 32)),
    ("previous_occurrence", None, lambda t: _occurrence_by_dictionary(t).view(-1, t.shape[-1])),
    ("induction_by_hand", "wrong shapes", lambda V, L: _induction_by_angles(V + 1, L)),
    ("induction_by_hand", "wrong shapes", lambda V, L: None),
    ("induction_by_hand", "not in float32", _induction_elsewhere(torch.Tensor.double)),
    ("induction_by_hand", "not in float32", _induction_elsewhere(torch.Tensor.long, layer=1)),
    ("induction_by_hand", "infinite", _induction_elsewhere(lambda W: W / 0)),
    *(
        ("induction_by_hand", mistake, _induction_elsewhere(change, layer, matrix))
        for mistake, change, layer, matrix in CIRCUITS
    ),
    ("silence_heads", "changes its input", _silence_and_empty_the_list),
    ("copying_score", None, lambda E, W_v, W_o, U: 0.0),
]
