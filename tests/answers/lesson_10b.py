"""Answers to lesson 10b's exercises, written apart from the checks: right ones and wrong ones."""

import random

import torch
import torch.nn.functional as F

from course_utils.attention import causal_mask, sliding_window_mask

# right


def _streaming_by_loops(L, window, sinks):
    mask = torch.zeros(L, L, dtype=torch.bool)
    for i in range(L):
        for j in range(i + 1):
            mask[i, j] = j < sinks or j > i - window
    return mask


def _streaming_by_masks(L, window, sinks):
    mask = sliding_window_mask(L, window)
    mask[:, :sinks] = True
    return mask & causal_mask(L)


def _above_even_by_loops(weights, tokens):
    kept = []
    for i, token in enumerate(tokens.tolist()):
        after = [j + 1 for j in range(i - 1) if tokens[j] == token]
        if after:
            kept.append(weights[:, i, after].sum(dim=-1) - len(after) / (i + 1))
    return torch.stack(kept).mean(dim=0)


def _above_even_by_a_second_head(weights, tokens):
    L = len(tokens)
    even = causal_mask(L) / torch.arange(1.0, L + 1)[:, None]
    wanted = torch.zeros(L, L)
    wanted[:, 1:] = (tokens[:, None] == tokens[None, :-1]).float()
    wanted = wanted.tril().fill_diagonal_(0)
    rows = wanted.sum(dim=-1) > 0
    return torch.einsum("hij,ij->hi", weights - even, wanted)[:, rows].mean(dim=1)


def _control_by_random_permutation(suspects, num_heads, rng):
    control = []
    for layer in sorted({layer for layer, _ in suspects}):
        inside = {head for at, head in suspects if at == layer}
        order = torch.randperm(num_heads, generator=rng).tolist()
        free = [head for head in order if head not in inside]
        control += [(layer, head) for head in free[: len(inside)]]
    return control


def _control_by_python(suspects, num_heads, rng):
    dice = random.Random(int(torch.randint(2**31, (1,), generator=rng)))
    control = []
    for layer in {layer for layer, _ in suspects}:
        inside = [head for at, head in suspects if at == layer]
        free = sorted(set(range(num_heads)) - set(inside))
        control.extend([layer, head] for head in dice.sample(free, len(inside)))
    return control


def _control_by_multinomial(suspects, num_heads, rng):
    control = []
    for layer in {layer for layer, _ in suspects}:
        inside = [head for at, head in suspects if at == layer]
        chances = torch.ones(num_heads).index_fill(0, torch.tensor(inside), 0)
        drawn = torch.multinomial(chances, len(inside), generator=rng)
        control += [(layer, head) for head in drawn]  # a tensor each
    return control


def _sinks_by_loops(weights):
    layers, B, H, L, _ = weights.shape
    found = torch.ones(layers, H, dtype=torch.bool)
    for layer in range(layers):
        for text in range(B):
            for head in range(H):
                mean = weights[layer, text, head, 1:, 0].sum() / (L - 1)
                found[layer, head] &= mean > 0.5
    return found


def _sinks_by_smallest(weights):
    return weights[:, :, :, 1:, 0].mean(-1).amin(1) > 0.5


def _attributed_by_loops(z, W_o, gamma, x, E):
    d_k = z.shape[1]
    rows = []
    for h in range(len(z)):
        written = W_o[:, h * d_k : (h + 1) * d_k] @ z[h]
        rows.append(E @ (gamma * written * torch.rsqrt((x * x).mean() + 1e-5)))
    return torch.stack(rows)


def _attributed_by_zeros(z, W_o, gamma, x, E):
    alone = torch.block_diag(*z[:, None])  # (H, H * d_k)
    readout = E * gamma / torch.sqrt(x.pow(2).sum() / len(x) + 1e-5)
    return F.linear(F.linear(alone, W_o), readout)


def _honest_by_lists(right, to_choose):
    right, n, H = right.float(), len(right), right.shape[2]
    chosen_by = [i for i in range(n) if to_choose[i]]
    others = [i for i in range(n) if not to_choose[i]]
    scores = [sum(right[i].flatten()[k] for i in chosen_by) for k in range(right[0].numel())]
    best = scores.index(max(scores))
    share = sum(float(right[i].flatten()[best]) for i in others) / len(others)
    return torch.tensor([best // H, best % H, share])


def _bracket_head_by_loops(model, to_choose, held_out):
    def look(tokens, layer, head, removed):
        logits, weights = model(tokens, removed)
        total, score, right = 0, 0.0, 0
        of_texts = logits.argmax(dim=-1).tolist(), weights[layer, :, head].tolist()
        for text, said, looks in zip(tokens.tolist(), *of_texts, strict=True):
            at = None
            for i, token in enumerate(text):
                at = i if token < 3 else at
                if at is not None:
                    total += 1
                    score += looks[i][at]
                    right += said[i] == text[at]
        return score / total, right / total

    def measured(tokens, layer, head):
        score, with_it = look(tokens, layer, head, [])
        return score, with_it - look(tokens, layer, head, [(layer, head)])[1]

    layers, _, H, _, _ = model(to_choose)[1].shape
    every = {(a, h): measured(to_choose, a, h) for a in range(layers) for h in range(H)}
    needed = [head for head, (_, cost) in every.items() if cost > 0.1]
    best = max(needed, key=lambda head: every[head][0])
    return torch.tensor([*best, *measured(held_out, *best)])


RIGHT = {
    "streaming_mask": [_streaming_by_loops, _streaming_by_masks],
    "induction_above_even": [_above_even_by_loops, _above_even_by_a_second_head],
    "control_heads": [
        _control_by_random_permutation,
        _control_by_python,
        _control_by_multinomial,
    ],
    "is_sink": [_sinks_by_loops, _sinks_by_smallest],
    "attribute": [_attributed_by_loops, _attributed_by_zeros],
    "honest_head": [_honest_by_lists],
    "bracket_head": [_bracket_head_by_loops],
}

# wrong, where the judge must see more than one registered mistake shows


WRONG = []
