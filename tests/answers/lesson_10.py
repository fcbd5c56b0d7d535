"""Answers to lesson 10's exercises, written apart from the checks: right ones and wrong ones."""

import math

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from course_utils.attention import attention, causal_mask, merge_heads, rotary, split_heads
from course_utils.language_model import ROTARY

# right


def _folded_by_diagonal(weight, W):
    return W @ torch.diag(weight)


def _folded_by_loops(weight, W):
    return torch.stack([W[:, i] * weight[i] for i in range(len(weight))], dim=1)


def _folded_by_einsum(weight, W):
    return torch.einsum("oi,i->oi", W, weight)


def _read_by_numpy(blocks):
    rows = []
    for block in blocks.numpy():
        d = np.frombuffer(block[:2].tobytes(), np.float16).astype(np.float32)
        n = np.concatenate([block[2:] & 15, block[2:] >> 4]).astype(np.int32)
        rows.append(d * (n - 8))
    return torch.from_numpy(np.stack(rows))


def _read_by_loops(blocks):
    result = torch.zeros(len(blocks), 32)
    for row, block in zip(result, blocks.tolist(), strict=True):
        d = np.array(block[:2], np.uint8).view(np.float16).item()
        for i, byte in enumerate(block[2:]):
            row[i], row[i + 16] = d * (byte % 16 - 8), d * (byte // 16 - 8)
    return result


def _read_by_bits(blocks):
    blocks = blocks.clone()
    d = blocks[:, 0:2].contiguous().view(torch.half)
    n = torch.hstack([blocks[:, 2:].bitwise_and(15), blocks[:, 2:].bitwise_right_shift(4)])
    return (n.to(torch.int8) - 8).float().mul(d.float())


def _read_by_gguf(blocks):
    return torch.from_numpy(gguf.dequantize(blocks.numpy(), gguf.GGMLQuantizationType.Q4_0))


def _fit_by_counting(memory, parameters, S, layers, num_kv_heads, d_k, bytes_each):
    token = sum(num_kv_heads * d_k * bytes_each for _ in range(layers) for _ in "kv")
    room = memory - bytes_each * parameters
    return room // (token * S) if room > 0 else 0


def _fit_by_floor(memory, parameters, S, layers, num_kv_heads, d_k, bytes_each):
    numbers = memory / bytes_each - parameters
    return max(0, math.floor(numbers / (2 * S * layers * num_kv_heads * d_k)))


def _perplexity_by_loops(logits, tokens, starts):
    lost = []
    for b in range(len(tokens)):
        for place in range(starts[b].item(), tokens.shape[1]):
            share = torch.log_softmax(logits[b, place - 1], dim=-1)
            lost.append(-share[tokens[b, place]])
    return torch.exp(sum(lost) / len(lost))


def _perplexity_by_cross_entropy(logits, tokens, starts):
    targets = tokens.clone()
    for row, start in zip(targets, starts.tolist(), strict=True):
        row[:start] = -100
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten()).exp()


def _perplexity_by_weights(logits, tokens, starts):
    L = tokens.shape[1]
    logs = logits - logits.logsumexp(dim=-1, keepdim=True)
    picked = logs[:, : L - 1].gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
    counts = (torch.arange(L)[None, 1:] >= starts.unsqueeze(1)).to(picked)
    return math.e ** (-(picked * counts).sum() / counts.sum())


def _token_by_loops(logits, T, top_p, u):
    chosen = []
    for row, point in zip(logits, u.tolist(), strict=True):
        if T == 0:
            chosen.append(int(row.argmax()))
            continue
        share = torch.softmax(row / T, dim=-1)
        order = sorted(range(len(share)), key=lambda i, share=share: -share[i].item())
        nucleus, held = [], 0.0
        for i in order:
            nucleus.append(i)
            held += share[i].item()
            if held >= top_p:
                break
        point, far = point * held, 0.0
        for i in nucleus:
            far += share[i].item()
            if point < far:
                break
        chosen.append(i)
    return torch.tensor(chosen)


def _token_by_searchsorted(logits, T, top_p, u):
    if not T:
        return logits.max(dim=1).indices
    share = F.softmax(logits.double() / T, dim=1)
    ordered, order = torch.sort(share, dim=1, descending=True)
    far = ordered.cumsum(1)
    last = (far < top_p).sum(1, keepdim=True).clamp(max=logits.shape[1] - 1)
    rank = torch.searchsorted(far, u[:, None] * far.gather(1, last), right=True)
    return order.gather(1, rank).squeeze(1)


def _token_by_masking(logits, T, top_p, u):
    if T == 0:
        return torch.argmax(logits, 1)
    ordered, order = (logits / T).sort(dim=1, descending=True)
    share = ordered.softmax(1)
    out = torch.cat([torch.zeros(len(u), 1), share.cumsum(1)[:, :-1]], dim=1) >= top_p
    share = ordered.masked_fill(out, -torch.inf).softmax(1)
    rank = (u.unsqueeze(1) >= share.cumsum(1)).sum(1)
    return order[torch.arange(len(u)), rank]


def _block_by_modules(x, w, num_heads, num_kv_heads):
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


def _block_by_heads(x, w, num_heads, num_kv_heads):
    def normed(x, weight):
        return weight * x * torch.rsqrt((x**2).mean(-1, keepdim=True) + 1e-5)

    at, d_k, y = torch.arange(x.shape[1]), x.shape[-1] // num_heads, normed(x, w["norm_1"])
    added = 0
    for h in range(num_heads):
        own = slice(h * d_k, (h + 1) * d_k)
        g = h * num_kv_heads // num_heads
        shared = slice(g * d_k, (g + 1) * d_k)
        q = rotary(y @ w["W_q"][own].T, at, interleaved=True)
        k = rotary(y @ w["W_k"][shared].T, at, interleaved=True)
        head, _ = attention(q, k, y @ w["W_v"][shared].T, causal_mask(len(at)))
        added = added + head @ w["W_o"][:, own].T
    x = x + added
    y = normed(x, w["norm_2"])
    gate = y @ w["W_gate"].T
    return x + (gate * gate.sigmoid() * (y @ w["W_up"].T)) @ w["W_down"].T


def _accepted_by_loop(guess, logits):
    written = []
    for i in range(len(guess) + 1):
        written.append(logits[i].argmax())
        if i == len(guess) or written[-1] != guess[i]:
            break
    return torch.stack(written)


def _accepted_by_first_wrong(guess, logits):
    best = logits.argmax(1)
    wrong = (best[: len(guess)] != guess).nonzero().flatten().tolist()
    n = wrong[0] if wrong else len(guess)
    return torch.cat([guess[:n], best[n, None]])


def _accepted_by_padding(guess, logits):
    best = logits.max(dim=1).indices
    same = F.pad((best[:-1] == guess).int(), (1, 0), value=1).cummin(0).values
    return best[same.bool()]


def _together_filled_behind(model, texts, steps):
    """Fill up behind, and let each new token stand where it stands: places go on unevenly."""
    lengths = torch.tensor([len(text) for text in texts])
    longest, B = int(lengths.max()), len(texts)
    tokens = pad_sequence(texts, batch_first=True)

    def attend(q, k, v, mask):
        at = torch.arange(k.shape[2])
        own = (at < lengths[:, None, None, None]) | (at >= longest)
        return attention(q, k, v, mask & own)

    def rotate(x, positions):  # new tokens come right after each text's own
        return ROTARY(x, positions + lengths[:, None, None] - longest)  # (B, 1, 1)

    cache, written = {}, []
    logits = model(tokens, cache, attend=attend)[torch.arange(B), lengths - 1]
    for step in range(steps):
        written.append(logits.argmax(dim=-1))
        if step < steps - 1:
            logits = model(written[-1][:, None], cache, attend=attend, rotate=rotate)[:, -1]
    return torch.stack(written, dim=1)


def _together_by_sdpa(model, texts, steps):
    longest = max(len(text) for text in texts)
    tokens = torch.zeros(len(texts), longest, dtype=torch.long)
    own = torch.zeros(len(texts), longest + steps, dtype=torch.bool)
    for b, text in enumerate(texts):
        tokens[b, longest - len(text) :] = text
        own[b, longest - len(text) :] = True

    def attend(q, k, v, mask):
        S = k.size(2)
        seen = mask & own[:, None, None, :S] | torch.eye(S, dtype=torch.bool)[S - q.size(2) :]
        return F.scaled_dot_product_attention(q, k, v, seen), None

    cache = {}
    result = tokens[:, :0]
    for _ in range(steps):
        tokens = model(tokens, cache=cache, attend=attend)[:, -1].argmax(-1, keepdim=True)
        result = torch.hstack([result, tokens])
    return result


def _together_widely_filled(model, texts, steps):
    """Fill up to a whole multiple of eight tokens, more than the longest text needs."""
    width = 8 * math.ceil(max(len(text) for text in texts) / 8)
    return _together(model, texts, steps, width, hidden=True)


def _together(model, texts, steps, width, hidden):
    """Fill up in front to a width; ``hidden`` tells whether the filling is, in which calls."""
    missing = torch.tensor([width - len(text) for text in texts]).view(-1, 1, 1, 1)
    new = torch.stack([F.pad(t, (width - len(t), 0), value=3) for t in texts])

    def attend(q, k, v, mask):
        own = torch.arange(k.shape[2]) >= missing
        return attention(q, k, v, mask & own if hidden in (True, len(written)) else mask)

    cache, written = {}, []
    for _ in range(steps):
        new = model(new, cache, attend=attend)[:, -1:].argmax(-1)
        written.append(new)
    return torch.cat(written, dim=1)


RIGHT = {
    "fold_norm": [_folded_by_diagonal, _folded_by_loops, _folded_by_einsum],
    "read_q4_0": [_read_by_numpy, _read_by_loops, _read_by_bits, _read_by_gguf],
    "texts_that_fit": [_fit_by_counting, _fit_by_floor],
    "answer_perplexity": [
        _perplexity_by_loops, _perplexity_by_cross_entropy, _perplexity_by_weights
    ],
    "next_token": [_token_by_loops, _token_by_searchsorted, _token_by_masking],
    "fixed_block": [_block_by_modules, _block_by_heads],
    "accepted": [_accepted_by_loop, _accepted_by_first_wrong, _accepted_by_padding],
    "generate_together": [
        _together_filled_behind, _together_by_sdpa, _together_widely_filled
    ],
}  # fmt: skip


# wrong


def _token(logits, T, top_p, u):
    if T == 0:
        return logits.argmax(-1)
    share = (logits / T).softmax(-1)
    ordered, order = share.sort(-1, descending=True)
    kept = share.gather(1, order) * (ordered.cumsum(-1) - ordered < top_p)
    line = (kept / kept.sum(-1, keepdim=True)).cumsum(-1)
    return order.gather(1, (line <= u[:, None]).sum(-1, keepdim=True))[:, 0]


def _each_alone(model, texts, steps):
    rows = []
    for text in texts:
        for _ in range(steps):
            text = torch.cat([text, model(text[None])[0, -1:].argmax(-1)])
        rows.append(text[-steps:])
    return torch.stack(rows)


def _all_read_again(model, texts, steps):
    longest = max(len(text) for text in texts)
    tokens = torch.stack([F.pad(text, (longest - len(text), 0)) for text in texts])
    missing = torch.tensor([longest - len(text) for text in texts]).view(-1, 1, 1, 1)

    def attend(q, k, v, mask):
        return attention(q, k, v, mask & (torch.arange(k.shape[2]) >= missing))

    for _ in range(steps):
        new = model(tokens, attend=attend)[:, -1:].argmax(-1)
        tokens = torch.cat([tokens, new], dim=1)
    return tokens[:, -steps:]


def _read(blocks, joined):
    d = _read_by_bits(blocks)  # in the right order
    return joined(d[:, :16], d[:, 16:])


WRONG = [
    ("fold_norm", None, lambda weight, W: W * weight.square().mean().sqrt()),
    ("read_q4_0", None, lambda blocks: _read(blocks, lambda a, b: torch.cat([a, -b], -1))),
    ("read_q4_0", None, lambda blocks: _read_by_bits(blocks).flatten()),
    ("read_q4_0", "in 16 bits", lambda blocks: _read_by_bits(blocks).half()),
    ("read_q4_0", "in 16 bits", lambda blocks: _read_by_bits(blocks).half().numpy()),
    ("texts_that_fit", None, lambda m, p, S, n, h, d, b: 7),
    ("answer_perplexity", None, lambda *given: _perplexity_by_loops(*given) + 1),
    ("next_token", None,
     lambda x, T, p, u: (_token(x, T, p, u) + 1) % x.shape[1]),
    ("fixed_block", None, lambda x, w, *heads: _block_by_modules(x, w, *heads) - x),
    ("accepted", None, lambda g, x: _accepted_by_loop(g, x).flip(0) + 1),
    ("generate_together", "a call for each text", _each_alone),
    ("generate_together", "read again", _all_read_again),
    ("generate_together", None, lambda model, texts, steps: torch.ones(len(texts), steps).long()),
]  # fmt: skip
