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


def _repeat_in_numpy(pattern, length):
    return torch.from_numpy(np.take(pattern.numpy(), range(length), axis=-1, mode="wrap"))


def _answer_by_loop(query, keys, values):
    return torch.stack(
        [row[names.tolist().index(q)] for q, names, row in zip(query, keys, values, strict=True)]
    )


def _answer_by_gather(query, keys, values):
    place = (keys == query.unsqueeze(1)).float().argmax(1)
    return torch.gather(values, 1, place.unsqueeze(1)).squeeze(1)


def _answer_by_weights(query, keys, values):
    return ((keys == query[:, None]) * values).sum(-1)


def _previous_by_loops(weights):
    B, H, L, _ = weights.shape
    total = torch.zeros(H, dtype=weights.dtype)
    for b in range(B):
        for i in range(1, L):
            total += weights[b, :, i, i - 1]
    return total / (B * (L - 1))


def _previous_by_indexing(weights):
    i = torch.arange(1, weights.shape[-1])
    return weights[..., i, i - 1].mean(-1).mean(0)


def _previous_by_slicing(weights):
    return torch.einsum("bhii->bhi", weights[:, :, 1:, :-1]).mean(dim=[0, 2])


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


def _occurrence_by_argmax(tokens):
    L = tokens.shape[-1]
    at = torch.arange(L)
    same = (tokens.unsqueeze(-1) == tokens.unsqueeze(-2)) & (at < at[:, None])
    return (same * (at + 1)).max(dim=-1).values - 1


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


def _induction_by_roll(weights, tokens):
    same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)
    target = same.roll(1, dims=-1)
    per_query = torch.einsum("bhij,bij->bhi", weights, target.to(weights.dtype))
    rows = same.any(-1)
    return torch.stack([per_query[:, h][rows].mean() for h in range(weights.shape[1])])


def _induction_unshifted_keys(weights, tokens):
    earlier = (tokens.unsqueeze(2) == tokens.unsqueeze(1)).tril(diagonal=-1)[:, :, :-1]
    total = (weights[..., 1:] * earlier[:, None]).sum(dim=(0, 2, 3))
    return total / earlier.any(dim=-1).sum()


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


def _accuracy_in_double(logits, tokens):
    L = tokens.shape[1]
    counts = torch.stack([(tokens[:, :i] == tokens[:, i, None]).any(1) for i in range(L - 1)], 1)
    return (logits.argmax(2)[:, :-1] == tokens[:, 1:])[counts].double().mean()


def _silence_by_slices(W_o, heads, num_heads):
    d_k = len(W_o) // num_heads
    W_o = W_o.clone()
    for h in heads:
        W_o[:, h * d_k : h * d_k + d_k] = 0
    return W_o


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


def _copying_by_multi_dot(E, W_v, W_o, U):
    effect = torch.linalg.multi_dot([E, W_v, W_o, U])
    return (effect.diagonal() >= effect.max(dim=1).values).float().mean()


def _copying_transposed(E, W_v, W_o, U):
    effect = (U.T @ W_o.T @ W_v.T @ E.T).softmax(0)
    return (effect.topk(1, dim=0).indices[0] == torch.arange(E.shape[0])).double().mean()


RIGHT = {
    "repeat_pattern": [_repeat_by_tile, _repeat_by_loop, _repeat_in_numpy],
    "dictionary_answer": [_answer_by_loop, _answer_by_gather, _answer_by_weights],
    "previous_token_score": [
        _previous_by_loops,
        _previous_by_indexing,
        _previous_by_slicing,
        _previous_by_mask,
    ],
    "previous_occurrence": [
        _occurrence_by_dictionary,
        _occurrence_by_argmax,
        _occurrence_backwards,
    ],
    "induction_score": [
        _induction_by_loops,
        _induction_by_roll,
        _induction_unshifted_keys,
        _induction_by_matmul,
    ],
    "repeated_accuracy": [_accuracy_by_loops, _accuracy_in_tensors, _accuracy_in_double],
    "silence_heads": [
        _silence_by_slices,
        _silence_by_mask,
        _silence_by_chunks,
        _silence_by_diagonal,
    ],
    "copying_score": [_copying_by_loop, _copying_by_multi_dot, _copying_transposed],
}


# wrong


def _repeat_interleaved(pattern, length):
    return pattern.repeat_interleave(math.ceil(length / pattern.shape[-1]), -1)[..., :length]


def _repeat_floor(pattern, length):
    return torch.cat([pattern] * (length // pattern.shape[-1]) + [pattern[..., :0]], dim=-1)


def _repeat_length_times(pattern, length):
    return torch.cat([pattern] * length, dim=-1)


def _answer_place(query, keys, values):
    return torch.stack([(k == q).nonzero()[0, 0] for q, k in zip(query, keys, strict=True)])


def _answer_indexed(query, keys, values):
    return values[range(len(query)), query]


def _answer_query(query, keys, values):
    return keys[keys == query[:, None]]


def _answer_not_equal(query, keys, values):
    return torch.stack([v[k != q][0] for q, k, v in zip(query, keys, values, strict=True)])


def _previous_self(weights):
    return torch.einsum("bhii->h", weights) / (weights.shape[0] * weights.shape[-1])


def _previous_transposed(weights):
    i = torch.arange(1, weights.shape[-1])
    return weights[..., i - 1, i].mean((0, 2))


def _previous_all_earlier(weights):
    L = weights.shape[-1]
    return torch.stack([weights[:, :, i, :i].sum(-1) for i in range(1, L)], -1).mean((0, -1))


def _previous_over_all_rows(weights):
    B, _, L, _ = weights.shape
    return torch.stack([w.diagonal(-1, -2, -1).sum() for w in weights.unbind(1)]) / (B * L)


def _previous_by_sequence(weights):
    i = torch.arange(1, weights.shape[-1])
    return weights[..., i, i - 1].mean(-1)


def _occurrence_by_index(tokens):
    rows = [
        [row.index(t) if t in row[:i] else -1 for i, t in enumerate(row)]
        for row in tokens.reshape(-1, tokens.shape[-1]).tolist()
    ]
    return torch.tensor(rows).reshape(tokens.shape)


def _occurrence_last(tokens):
    last = {
        (r, int(t)): i
        for r, row in enumerate(tokens.view(-1, tokens.shape[-1]))
        for i, t in enumerate(row)
    }
    rows = enumerate(tokens.view(-1, tokens.shape[-1]))
    return torch.tensor([[last[r, int(t)] for t in row] for r, row in rows]).view(tokens.shape)


def _occurrence_elsewhere(tokens):
    rows = []
    for row in tokens.reshape(-1, tokens.shape[-1]).tolist():
        others = [[j for j, t in enumerate(row) if t == row[i] and j != i] for i in range(len(row))]
        rows.append([max(each, default=-1) for each in others])
    return torch.tensor(rows).reshape(tokens.shape)


def _occurrence_zero(tokens):
    return _occurrence_by_dictionary(tokens).clamp_min(0)


def _occurrence_back(tokens):
    found = _occurrence_by_dictionary(tokens)
    back = torch.arange(tokens.shape[-1]) - found
    back[found == -1] = -1
    return back


def _induction_at_token(weights, tokens):
    same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)
    return torch.einsum("bhij,bij->h", weights, same.to(weights.dtype)) / same.any(-1).sum()


def _induction_all_rows(weights, tokens):
    same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1).roll(1, -1)
    B, _, L, _ = weights.shape
    return torch.einsum("bhij,bij->h", weights, same.to(weights.dtype)) / (B * L)


def _induction_last(weights, tokens):
    found = []
    at = _occurrence_by_dictionary(tokens)
    for b, i in (at >= 0).nonzero().tolist():
        found.append(weights[b, :, i, at[b, i] + 1])
    return torch.stack(found).mean(0)


def _induction_never_itself(weights, tokens):
    scores = []
    for b, h, i in np.ndindex(*weights.shape[:3]):
        keys = [j for j in range(1, i) if tokens[b, j - 1] == tokens[b, i]]
        if keys:
            scores.append((h, weights[b, h, i, keys].sum()))
    each = [[s for g, s in scores if g == h] for h in range(weights.shape[1])]
    return torch.stack([torch.stack(found).mean() for found in each])


def _induction_mean_of_means(weights, tokens):
    return torch.stack(
        [_induction_by_roll(w[None], t[None]) for w, t in zip(weights, tokens, strict=True)]
    ).mean(0)


def _induction_all_rows_with_a_match(weights, tokens):
    same = (tokens[:, :, None] == tokens[:, None, :-1]).float()
    found = torch.einsum("bhij,bij->bhi", weights[..., 1:], same).sum((0, 2))
    return found / (same.sum(-1) > 0).sum()


def _induction_rolled(weights, tokens):
    wanted = (tokens[:, :, None] == tokens.roll(1, -1)[:, None, :]).tril().to(weights.dtype)
    return torch.einsum("bhij,bij->h", weights, wanted) / wanted.any(-1).sum()


def _induction_backwards(weights, tokens):
    after = torch.cat([tokens[:, 1:], torch.full((len(tokens), 1), -1)], dim=1)
    wanted = (tokens[:, :, None] == after[:, None, :]).tril(-1).to(weights.dtype)
    return torch.einsum("bhij,bij->h", weights, wanted) / wanted.any(-1).sum()


def _induction_one_number(weights, tokens):
    return _induction_by_roll(weights, tokens).mean()


def _accuracy_same_place(logits, tokens):
    seen = _occurrence_by_dictionary(tokens) >= 0
    return (logits.argmax(-1) == tokens)[seen].double().mean()


def _accuracy_everywhere(logits, tokens):
    return (logits[:, :-1].argmax(-1) == tokens[:, 1:]).double().mean()


def _accuracy_target_seen(logits, tokens):
    seen = _occurrence_by_dictionary(tokens) >= 0
    return (logits[:, :-1].argmax(-1) == tokens[:, 1:])[seen[:, 1:]].double().mean()


def _accuracy_after_zero(logits, tokens):
    seen = _occurrence_by_dictionary(tokens[:, :-1]) > 0
    return (logits[:, :-1].argmax(-1) == tokens[:, 1:])[seen].double().mean()


def _accuracy_one_too_many(logits, tokens):
    hits = (logits.argmax(-1)[:, :-1] == tokens[:, 1:]).float()
    seen = (_occurrence_by_dictionary(tokens) != -1).float()
    return (hits * seen[:, :-1]).sum() / seen.sum()


def _accuracy_counted(logits, tokens):
    seen = _occurrence_by_dictionary(tokens)[:, :-1] >= 0
    return (logits[:, :-1].argmax(-1) == tokens[:, 1:])[seen].sum()


def _accuracy_mean_of_means(logits, tokens):
    each = [_accuracy_by_loops(a[None], b[None]) for a, b in zip(logits, tokens, strict=True)]
    return sum(each) / len(each)


def _silence_rows(W_o, heads, num_heads):
    d_k = len(W_o) // num_heads
    W_o = W_o.clone()
    for h in heads:
        W_o[h * d_k : (h + 1) * d_k] = 0
    return W_o


def _silence_strided(W_o, heads, num_heads):
    kept = torch.tensor([float(c % num_heads not in heads) for c in range(len(W_o))])
    return W_o * kept


def _silence_kept(W_o, heads, num_heads):
    chunks = W_o.chunk(num_heads, dim=1)
    return torch.cat([c if h in heads else c * 0 for h, c in enumerate(chunks)], dim=1)


def _silence_single(W_o, heads, num_heads):
    W_o = W_o.clone()
    for h in heads:
        W_o[:, h] = 0
    return W_o


def _silence_from_one(W_o, heads, num_heads):
    d_k = len(W_o) // num_heads
    W_o = W_o.clone()
    for h in heads:
        W_o[:, (h - 1) * d_k : h * d_k] = 0
    return W_o


def _silence_from_one_by_chunks(W_o, heads, num_heads):
    chunks = [chunk.clone() for chunk in W_o.chunk(num_heads, dim=1)]
    for h in heads:
        chunks[h - 1] = torch.zeros_like(chunks[h - 1])
    return torch.cat(chunks, dim=1)


def _copying_columns(E, W_v, W_o, U):
    effect = E @ (W_v @ W_o) @ U
    return sum(int(effect[:, t].argmax()) == t for t in range(len(E))) / len(E)


def _copying_diagonal(E, W_v, W_o, U):
    return torch.einsum("ii->", E @ W_v @ W_o @ U) / len(E)


def _copying_count(E, W_v, W_o, U):
    return sum(int(row.argmax()) == t for t, row in enumerate(E @ W_v @ W_o @ U))


def _copying_sum(E, W_v, W_o, U):
    return ((E @ W_v @ W_o @ U).argmax(-1) == torch.arange(len(E))).sum()


def _copying_positive(E, W_v, W_o, U):
    effect = E @ W_v @ W_o @ U
    return sum(float(effect[t, t]) > 0 for t in range(len(E))) / len(E)


def _copying_tied(E, W_v, W_o, U):
    best = torch.einsum("td,de,ef,vf->tv", E, W_v, W_o, E).max(-1).indices
    return sum(int(b) == t for t, b in enumerate(best)) / len(E)


WRONG = [
    ("repeat_pattern", "tokens stutter", _repeat_interleaved),
    ("repeat_pattern", "whole periods only", _repeat_floor),
    ("repeat_pattern", "length counts patterns", _repeat_length_times),
    ("dictionary_answer", "place of the key", _answer_place),
    ("dictionary_answer", "symbol as position", _answer_indexed),
    ("dictionary_answer", "key returned", _answer_query),
    ("dictionary_answer", "first other key", _answer_not_equal),
    ("previous_token_score", "weight on itself", _previous_self),
    ("previous_token_score", "weight on the next", _previous_transposed),
    ("previous_token_score", "all keys before", _previous_all_earlier),
    ("previous_token_score", "first query counted", _previous_over_all_rows),
    ("previous_token_score", "sequences kept apart", _previous_by_sequence),
    ("previous_occurrence", "first occurrence", _occurrence_by_index),
    ("previous_occurrence", "last of all", _occurrence_last),
    ("previous_occurrence", "last other", _occurrence_elsewhere),
    ("previous_occurrence", "zero if none", _occurrence_zero),
    ("previous_occurrence", "distance back", _occurrence_back),
    ("induction_score", "on the occurrence", _induction_at_token),
    ("induction_score", "new tokens counted", _induction_all_rows),
    ("induction_score", "last occurrence only", _induction_last),
    ("induction_score", "heads not kept", _induction_one_number),
    ("induction_score", "itself left out", _induction_never_itself),
    ("induction_score", "each sequence first", _induction_mean_of_means),
    ("induction_score", "later occurrences counted", _induction_all_rows_with_a_match),
    ("induction_score", "rolled round", _induction_rolled),
    ("induction_score", "before every match", _induction_backwards),
    ("repeated_accuracy", "not shifted", _accuracy_same_place),
    ("repeated_accuracy", "all predictions", _accuracy_everywhere),
    ("repeated_accuracy", "next token seen", _accuracy_target_seen),
    ("repeated_accuracy", "averaged by sequence", _accuracy_mean_of_means),
    ("repeated_accuracy", "first position is none", _accuracy_after_zero),
    ("repeated_accuracy", "last token counted", _accuracy_one_too_many),
    ("repeated_accuracy", "counted not shared", _accuracy_counted),
    ("silence_heads", "rows silenced", _silence_rows),
    ("silence_heads", "columns in turns", _silence_strided),
    ("silence_heads", "others silenced", _silence_kept),
    ("silence_heads", "one column each", _silence_single),
    ("silence_heads", "counted from one", _silence_from_one),
    ("silence_heads", "counted from one", _silence_from_one_by_chunks),
    ("copying_score", "largest of columns", _copying_columns),
    ("copying_score", "mean of the diagonal", _copying_diagonal),
    ("copying_score", "number of copied", _copying_count),
    ("copying_score", "number of copied", _copying_sum),
    ("copying_score", "raised at all", _copying_positive),
    ("copying_score", "embeddings for logits", _copying_tied),
    ("copying_score", None, lambda E, W_v, W_o, U: 0.0),
]

HINTS = {
    "repeat_pattern": {
        "tokens stutter": "the whole pattern must come again",
        "whole periods only": "unfinished repetition is missing",
        "not cut": "cut the result at `length`",
        "length counts patterns": "number of tokens, not of patterns",
        "there and back": "runs backwards",
        "last token held": "start again at the beginning",
    },
    "dictionary_answer": {
        "place of the key": "that is where the key stands",
        "key returned": "that is the key itself",
        "symbol as position": "it is a name",
        "looked for among values": "keys and values are swapped",
        "first dictionary for all": "each has its own",
        "first other key": "the comparison is the wrong way round",
        "kept dimension": "one answer an example is (B,)",
    },
    "previous_token_score": {
        "weight on itself": "each token's weight on itself",
        "weight on the next": "rows are queries",
        "all keys before": "the one right before",
        "first query counted": "L - 1 to average over",
        "summed over queries": "is their mean",
        "all heads together": "keep H",
        "sequences kept apart": "average over the sequences too",
        "how often strongest": "the weight it gets",
    },
    "previous_occurrence": {
        "first occurrence": "the last one before the token",
        "last of all": "the last occurrence anywhere",
        "last other": "the last *other* occurrence",
        "finds itself": "strictly before it",
        "next occurrence": "the future must not be looked at",
        "distance back": "asked is its position",
        "zero if none": "must get -1",
        "one after": "here the occurrence itself",
        "whether not where": "not where",
    },
    "induction_score": {
        "on the occurrence": "at what came after it",
        "before the occurrence": "the wrong direction",
        "before every match": "every query finds the key before its own",
        "last occurrence only": "only the last earlier occurrence counts",
        "first occurrence only": "only the first occurrence counts",
        "new tokens counted": "must not count",
        "mean over cells": "then average over queries",
        "each sequence first": "averaged within each sequence first",
        "itself left out": "the second one itself, and it counts",
        "later occurrences counted": "must be an earlier one",
        "rolled round": "round to the front",
        "heads not kept": "keep the dimension H",
    },
    "repeated_accuracy": {
        "not shifted": "those at i predict token i + 1",
        "all predictions": "nobody can get right",
        "next token seen": "whether the present one has",
        "last token counted": "leave it out there too",
        "first position is none": "position 0 is an occurrence too",
        "shifted backwards": "the wrong way",
        "divided by all": "how many predictions count",
        "averaged by sequence": "weigh too much",
        "counted not shared": "the accuracy is their share",
    },
    "silence_heads": {
        "rows silenced": "comes in through its columns",
        "others silenced": "the other way round",
        "one column each": "one column a head",
        "columns in turns": "stand side by side",
        "width and number swapped": "blocks of num_heads columns",
        "first head only": "only the first of the heads",
        "counted from one": "counted from 0",
    },
    "copying_score": {
        "largest of columns": "which token raises a logit most",
        "mean of the diagonal": "count how often",
        "number of copied": "the score is their share",
        "raised at all": "no other one more",
        "head left out": "goes through W_v and W_o",
        "embeddings for logits": "E.T is taken for U",
        "largest in size": "leave the sign",
        "smallest logit": "asked is the largest",
    },
}
