"""What each explorer of the page should say, calculated with the course's own functions.

An oracle takes the values of the controls and yields pairs: a phrase of the words, and what is
expected of it. Each # in the phrase stands for a number, and then the numbers are expected; without
one, True says that the words hold the phrase, False that they do not. Who rewords an explorer
changes the phrase here.
"""

import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import torch

from course_utils import attention as course
from course_utils import data
from course_utils.explorers.memory import WRITES, pairs
from course_utils.linear_attention import linear_attention_recurrent
from course_utils.tiled import blocks, key_blocks
from course_utils.views import example, unique_labels

KERNELS = Path(data.__file__).with_name("kernel_fit.json").read_text(encoding="utf-8")
COMPILED = json.loads(KERNELS)["compiled"]  # what each kernel takes
NUMBER = r"(-?(?:\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?|inf|NaN))"


def disagreements(words, expectations):
    """Return the pairs of an oracle that words do not hold to.

    Numbers may differ by half of their last digit, and by what float32 and the page's float64 may.
    """
    return [pair for pair in expectations if not _holds(words, *pair)]


def _holds(words, phrase, expected):
    found = re.search(re.escape(phrase).replace(r"\#", NUMBER) + r"(?![\d.]*\d)", words)
    if isinstance(expected, bool):
        return bool(found) == expected
    expected = expected if isinstance(expected, list) else [expected]
    if found is None:
        return False
    texts = [text.replace(",", "") for text in found.groups()]
    return all(_near(text, float(number)) for text, number in zip(texts, expected))  # noqa: B905


def _near(text, number):
    if not math.isfinite(number):
        return math.isnan(float(text)) if math.isnan(number) else float(text) == number
    digits, _, power = text.partition("e")
    last = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    last *= "." in text or bool(power)  # else it is whole, or its digits after the point are 0
    return abs(float(text) - number) <= 0.52 * last + 5.2e-4 * abs(number) + 1e-9


def sentence(last, sharpness):
    words = [*"The hen stayed off the road because it was".split(), last]
    k = torch.tensor([[word == "hen", word == "road"] for word in words]).double()  # (S, 2)
    q = torch.tensor([[last != "wide", last != "tired"]]) * sharpness * 2**0.5  # (1, 2)
    weights = course.attention(q.double(), k, k)[1][0]  # (S,)
    yield "every word has weight #" if sharpness == 0 else "every other word has #", weights[0]
    yield "undecided", last == "old" and sharpness > 0
    for word, weight in zip(words, weights, strict=True):
        if sharpness and weight == weights.max():
            yield f"{word} #", weight


def similarity(angle, length):
    q = torch.tensor([2.0, 0]).double()
    k = torch.polar(*torch.tensor([length, math.radians(angle)]).double())
    k = torch.view_as_real(k)
    dot, cosine = (q @ k).item(), math.cos(math.radians(angle))
    yield "k = (#, #)", k.tolist()
    yield "dot product #, cosine", dot
    yield ("cosine #", cosine) if length else ("cosine none", True)
    yield "distance #", (q - k).norm()
    yield "-0.00", False
    larger = dot > 4 + 1e-9 and cosine < 0.995
    yield "found: dot product", larger
    yield "found: the cosine is 1.00, although", angle == 0 and 0 < length <= 0.1
    yield "a larger distance is possible", angle == 0 and length > 0.1 and length != 2
    yield "found: at 90° the dot product is 0.00", abs(angle) == 90 and length > 0


def _norm(scores):
    """Return the Frobenius norm (...) of the Jacobian of the softmax of scores (..., S)."""
    weights = scores.double().softmax(dim=-1)
    jacobian = weights.diag_embed() - weights[..., :, None] * weights[..., None, :]
    return jacobian.square().sum((-2, -1)).sqrt()


def scaling(d_k, scaled):
    rng = torch.Generator().manual_seed(31)
    q, k = torch.randn(512, generator=rng).double(), torch.randn(8, 512, generator=rng).double()
    scores_at = lambda d, scale: (k[:, :d] @ q[:d]) / (d**0.5 if scale else 1)  # noqa: E731
    largest_at = lambda d, scale: scores_at(d, scale).softmax(-1).max()  # noqa: E731
    scores = scores_at(d_k, scaled)
    weights = scores.softmax(-1)
    two, norm = weights.topk(2).values.sum(), _norm(scores)
    yield "largest absolute score #;", scores.abs().max()
    yield "entropy # of at most #", [course.entropy(weights), math.log(8)]
    yield "gradient norm #", norm
    ends = scaled and d_k in (4, 512)
    if ends:
        yield "the largest weight from # to #", [largest_at(d_k, False), largest_at(d_k, True)]
    before = largest_at(max(d_k - 4, 4), False)
    one = not scaled and before < 0.99 <= weights.max()
    yield "found: at d_k", bool(ends or one)
    yield "one key has", bool(one)
    yield "the gradient norm is large", bool(not one and not ends and two >= 0.95 and norm >= 0.45)


def saturation(temperature, d_k, scaled, dtype, method, **set_scores):
    kind = getattr(torch, dtype)

    def scores_of(values):
        scores = torch.tensor(values).double().to(kind) * d_k**0.5
        return scores / d_k**0.5 if scaled else scores

    untempered = scores_of(list(set_scores.values()))
    scores = untempered / temperature
    naive = scores.exp()
    exponentials = (scores - scores.max()).exp() if method == "stable" else naive
    total = lambda some: some.double().sum().to(kind)  # noqa: E731
    weights = exponentials / total(exponentials)
    jacobian = weights.diag() - weights.outer(weights)
    yield "softmax of #, #, #, #, #: ", scores.tolist()
    yield "weights #, #, #, #, #;", weights.tolist()
    yield "entropy #", course.entropy(weights.double())
    yield "gradient norm #", jacobian.double().norm()
    for name, values in {"score": scores, "exp": exponentials}.items():
        for word, at in {"inf": values.isinf(), "NaN": values.isnan()}.items():
            keys = ", ".join(str(j + 1) for j in at.nonzero()[:, 0].tolist())
            yield f"{name} is {word} at key {keys}", bool(keys)
    alone = exponentials.isfinite().all() and total(exponentials).isinf()
    yield "the sum of the exponentials is inf", bool(alone)
    below = (scores_of([set_scores["score_1"] - 0.5]) / temperature).exp().isfinite()
    first = scores[0].isfinite() and naive[0].isinf() and below and set_scores["score_1"] % 0.5 == 0
    found = bool(method == "naive" and first)
    yield "is the smallest value of score 1 whose exponential is inf", found
    yield "every exponential is 0", bool(method == "naive" and total(naive) == 0)
    fails = scores.isfinite().all() and (total(naive).isinf() or total(naive) == 0)
    yield "for which naive fails", bool(method == "stable" and fails)
    norms = _norm(untempered / (torch.arange(1, 101).double() / 20)[:, None])
    varies = method == "stable" and bool(norms.max() > norms.min() + 0.01)
    best = varies and bool(_norm(untempered.double() / temperature) >= norms.max() - 1e-9)
    yield "no other temperature has a larger gradient norm", best
    yield "at the lowest temperature", varies and not best and temperature == 0.05


def mask_of(causal, window, prefix, padding, side, documents, join, toggled):
    """Return the mask (L, S), the masks it is composed of by name, and the pairs toggled."""
    real = course.padding_mask([8 - padding], 8)[0, 0].expand(8, 8)
    chosen = {
        "causal": causal and course.causal_mask(8),
        "window": window and course.sliding_window_mask(8, window),
        "prefix": prefix and course.prefix_mask(8, prefix),
        "padding": padding and (real if side == "right" else real.flip(-1)),
        "documents": documents > 1 and course.document_mask(torch.arange(8) * documents // 8),
    }
    chosen = {name: mask for name, mask in chosen.items() if torch.is_tensor(mask)}
    mask = _joined(chosen, join)
    pairs = [(int(i), int(j)) for i, j in re.findall(r"([0-9]+)\s*-\s*([0-9]+)", toggled)]
    pairs = [pair for pair in dict.fromkeys(pairs) if max(pair) < 8]
    for pair in pairs:
        mask[pair] = ~mask[pair]
    return mask, chosen, pairs


def _joined(chosen, join):
    masks = torch.stack([*chosen.values()] or [torch.ones(8, 8, dtype=torch.bool)])
    return masks.all(dim=0) if join == "and" else masks.any(dim=0)


def mask(**values):
    allowed, chosen, pairs = mask_of(**values)
    empty = ~allowed.any(dim=-1)
    yield "# of 64 pairs allowed", int(allowed.sum())
    yield f"rows with no allowed key: {_runs(empty)};", True
    rows = [f"query {i}: {_runs(row)}" for i, row in enumerate(allowed)]
    yield "keys that each query sees: " + "; ".join(rows), True
    count = values["padding"]
    names = {
        "causal": "causal", "window": f"window {values['window']}",
        "prefix": f"prefix {values['prefix']}", "documents": f"{values['documents']} documents",
        "padding": f"{count} padding token{'s' * (count > 1)} on the {values['side']}",
    }  # fmt: skip
    yield f" {values['join']} ".join(names[name] for name in chosen) or "no mask", True
    yield "toggled pairs: " + ", ".join(f"{i}-{j}" for i, j in pairs), bool(pairs)
    finding = "" if pairs else _of_masks(allowed, chosen, values)
    yield f"found: {finding}", bool(finding)


def _of_masks(allowed, chosen, values):
    """Return which question of lesson 04 some masks answer, without the rest of the sentence."""
    every, joined_by_and = _joined(chosen, "and"), values["join"] == "and"
    empty = ~every.any(dim=-1)
    if {"causal", "padding"} <= chosen.keys() and values["side"] == "left":
        if joined_by_and:
            return f"rows {_runs(empty)} have no allowed key"
        if empty.any() and allowed.any(dim=-1).all():
            return f'with "or", rows {_runs(empty)} have an allowed key again'
    others = {name: mask for name, mask in chosen.items() if name != "prefix"}
    if {"causal", "prefix"} <= chosen.keys() and joined_by_and:
        if _joined(others, "and").equal(every):
            return 'with "and", the prefix has no effect'
    if "documents" in chosen and values["window"] == 8 and joined_by_and:
        return "the widest window is the causal mask"
    if chosen.keys() == {"causal", "documents"} and not joined_by_and:
        return "every token sees all earlier tokens"
    return ""


def _runs(flags):
    """Return which of some flags (n,) are true, as text: "0–2 and 4", or "none"."""
    text = "".join("x" if flag else " " for flag in flags)
    spans = [(run.start(), run.end() - 1) for run in re.finditer("x+", text)]
    return " and ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in spans) or "none"


def head(head, query):
    tokens = np.array("the cat saw the dog because the dog barked".split())
    names = [f"{n} {word}" for n, word in enumerate(tokens)]
    i, j = np.indices((9, 9))
    rule, allowed = {
        0: ("the token before", j == i - 1), 1: ("the token after", j == i + 1),
        2: ("the first token", j == 0), 3: ("the same token", tokens[:, None] == tokens),
        4: ("itself", j == i), 5: ("all tokens so far", j <= i),
    }[head]  # fmt: skip
    weights = (4.0 * torch.tensor(allowed)).softmax(dim=-1).double()  # (L, L)
    yield f"head {head} of 6;", True
    if query == "every token":
        entries = [f"{name} → {names[row.argmax()]} #" for name, row in zip(names, weights)]  # noqa: B905
        yield ", ".join(entries), weights.amax(dim=-1).tolist()
        yield "rule", False
        return
    ordered = weights[names.index(query)].sort(descending=True, stable=True)
    many = max(1, int((ordered.values >= 0.05).sum()))
    entries = [f"{names[j]} #" for j in ordered.indices[:many]]
    yield f"{query} attends to: " + ", ".join(entries), ordered.values[:many].tolist()
    nothing = {0: "0 the", 1: "8 barked"}.get(head)  # there is no token before, or after
    yield f"rule: each token attends to {rule}", query != nothing


def tile(step, block_q, block_k, causal):
    offset = 0 if causal else None
    plan_of = lambda *sizes: [  # noqa: E731
        (rows, keys) for rows in blocks(12, sizes[0])
        for keys in key_blocks(12, sizes[1], rows, offset)
    ]  # fmt: skip
    plan = plan_of(block_q, block_k)
    step = min(step, len(plan))
    yield f"step {step} of {len(plan)}: ", True
    yield "# bytes moved (naive attention: # in all)", [_bytes(plan, step), 3072]
    every = math.ceil(12 / block_q) * math.ceil(12 / block_k)
    yield "tiles skipped: #", every - len(plan)
    if step:
        rows, keys = plan[step - 1]
        q, k, _ = torch.randn(3, 12, 4, generator=torch.Generator().manual_seed(6)).double()
        last = min(keys.stop, rows.start + 1) if causal else keys.stop
        scores = (k[:last] @ q[rows.start]) / 2  # of all keys that the first query has read
        yield (
            f"queries {rows.start}–{rows.stop - 1}, keys and values {keys.start}–{keys.stop - 1};",
            True,
        )
        yield "m = #, ℓ = #", [scores.max(), (scores - scores.max()).exp().sum()]
    ends = step == len(plan) and (block_q, block_k) != (4, 3)
    yield "found", ends
    if ends:
        begun = plan_of(4, 3)
        bytes_then = _bytes(begun, len(begun))
        yield "found: # bytes in all; block_q = 4 and block_k = 3 move #", [
            _bytes(plan, step), bytes_then]  # fmt: skip


def _bytes(plan, step):
    """Return the bytes that some steps move: Q, O and lse once for each block of queries."""
    taken = plan[:step]
    numbers = sum(8 * (keys.stop - keys.start) for _, keys in taken)  # K and V
    numbers += sum(4 * (rows.stop - rows.start) for rows, keys in taken if keys.start == 0)
    for number, (rows, _) in enumerate(taken, start=1):
        if number == len(plan) or plan[number][0] != rows:  # its last tile
            numbers += 5 * (rows.stop - rows.start)
    return 4 * numbers


def views(layer, head, query, key, several, hide):
    tokens, q, k, weights = example()
    names = unique_labels(tokens)
    product = q[layer, head, query] @ k[layer, head, key]
    for h in range(12) if several else [head]:
        row = weights[layer, h, query]
        yield f'"{names[row.argmax()]}" in head {h} (#)', row.max()
    yield f'layer {layer}: "{names[query]}" attends most to', True
    pair = f"{names[query]}→{names[key]}"
    sums = [product, product / 4]
    yield f"{pair}: the 16 products sum to #, divided by √16 this is the score #", sums
    yield "softmax over 9 keys gives #", weights[layer, head, query, key]
    all_heads = weights[..., query, key]
    yield "across the 144 heads, this weight ranges from # to #", [all_heads.min(), all_heads.max()]
    if hide:
        yield "leave out key 0, which has weight #;", weights[layer, head, query, 0]
    looks = bool(weights[layer, head, query].argmax() == key)
    yield "found", looks and (query, key) != (6, 1)


def positions(i, j, power, layout):
    both = torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0]).double().expand(2, -1)
    q, k = course.rotary(both, torch.tensor([i, j]), 10**power, layout == "interleaved")
    side = f"{abs(i - j)} {'before' if i > j else 'after'} the query" if i != j else "same position"
    yield f"query at {i}, key at {j}", True
    yield f"{side}): dot product", True
    yield "dot product #; base", q @ k
    yield f"base {10**power:,}; pairs: {layout}", True
    off = abs(math.remainder(i - j, 2 * math.pi)) * 180 / math.pi
    meet = layout == "halves" and i != j and off < 20
    yield "of clock 0 meet again", meet
    half = layout == "halves" and 31 * 10 ** (-power * 3 / 4) > math.pi
    yield "even the slowest clock", half and not meet
    yield "two clocks have no hands", layout == "interleaved"


def fit(gpu, d, block_q, block_k, stages):
    shared, registers, spilled = COMPILED[f"{gpu},{d},{block_q},{block_k},{stages}"]
    room = {"A100": 163, "L4": 99, "H100": 227}[gpu]  # KiB of a program; there is 1 more in all
    yield "shared memory #", round(shared)
    yield f"of {room} KiB; registers {registers} of 255 for each thread, {spilled} bytes", True
    fits = shared <= room
    yield "does not fit, because shared memory is too small", not fits
    yield "fits, but registers are spilled", fits and spilled > 0
    by_memory = (room + 1) // (shared + 1)
    by_registers = 65536 // (256 * 8 * math.ceil(registers / 8))
    count = min(by_memory, by_registers) * fits
    yield f"{count:.0f} program{'s' * (count != 1)} at a time", True
    yield "limited by shared memory", fits and by_memory < by_registers
    yield "limited by registers", fits and by_memory > by_registers
    too_few = spilled > 0 and block_q == block_k == 128
    yield "found", bool(fits and d == 128 and (too_few or count > 1))


def _ring_work(ranks, causal, zigzag):
    """Return the work of each rank in each step, (W ranks, W steps), in blocks."""
    pieces = [[rank, 2 * ranks - 1 - rank] if zigzag else [rank] for rank in range(ranks)]
    work = np.zeros((ranks, ranks))
    for rank, step in np.ndindex(ranks, ranks):
        meet = itertools.product(pieces[rank], pieces[(rank - step) % ranks])
        allowed = [((i > j) + (i >= j)) / 2 if causal else 1 for i, j in meet]  # of many tokens
        work[rank, step] = np.mean(allowed)
    return work


def ring(step, ranks, causal, zigzag):
    step = min(step, ranks - 1)
    work = _ring_work(ranks, causal, zigzag)
    longest = work.max(axis=0)
    idle_time = longest - work
    spent = longest[: step + 1].sum()
    yield f"step {step} (steps 0 to {ranks - 1}):", True
    listed = ", ".join(str((rank - step) % ranks) for rank in range(ranks))
    yield f"hold the keys of ranks {listed};", True
    yield "in blocks: " + ", ".join({0: "0", 0.5: "½", 1: "1"}[w] for w in work[:, step]), True
    idle = [str(rank) for rank in range(ranks) if idle_time[rank, step]]
    verb = "is" if len(idle) == 1 else "are"
    yield f"{', '.join(idle)} {verb} idle" if idle else "no rank is idle", True
    yield "time so far # of # blocks", [spent, longest.sum()]
    idle_share = idle_time[:, : step + 1].sum() / ranks / spent
    yield f"idle for {100 * idle_share:.0f}% of the time so far", True
    last, in_order = step == ranks - 1, causal and not zigzag
    yield "found", last and causal
    if last and in_order:
        most = 100 * idle_time[0].sum() / longest.sum()
        yield f"rank {ranks - 1} is never idle, and rank 0 is idle the longest", True
        yield f"the longest, for {most:.0f}% of the time", True
    yield "4 ranks are the fewest", last and in_order and ranks == 4
    equal = "all ranks have equal work in every step; the mask cuts through tiles only in step 0"
    yield equal, last and causal and zigzag


def cache(model, tokens, texts, kind, bits):
    layers, heads, kv_heads, d_k, d_v = {
        "Llama 3.1 8B": (32, 32, 8, 128, 128), "Llama 3.1 70B": (80, 64, 8, 128, 128),
        "Gemma 3 27B": (62, 32, 16, 128, 128), "gpt-oss-120b": (36, 64, 8, 64, 64),
        "DeepSeek-V3": (61, 128, 128, 192, 128), "SmolLM2-135M": (30, 9, 3, 64, 64),
    }[model]  # fmt: skip
    numbers = 576 if model == "DeepSeek-V3" else kv_heads * (d_k + d_v)
    numbers = {"heads not shared": heads * (d_k + d_v), "one KV head": d_k + d_v,
               "a latent": 576}.get(kind, numbers)  # fmt: skip
    window, every = {"Gemma 3 27B": (1024, 6), "gpt-oss-120b": (128, 2)}.get(model, (tokens, 1))
    if kind == "windows":
        window, every = 1024, 6
    kept = [tokens if layer % every == every - 1 else min(window, tokens)
            for layer in range(layers)]  # fmt: skip
    full = sum(layer % every == every - 1 for layer in range(layers))
    per_token = numbers * (16 if bits == 16 else bits + 1) / 8  # bytes of a layer
    gb = texts * sum(kept) * per_token / 1e9
    yield f"{texts} text{'s' * (texts > 1)} of {tokens:,} tokens", True
    yield f"a token takes {round(per_token):,} bytes in a layer", True
    yield "bits: # GB", gb
    yield "GB, #% of a GPU", 100 * gb / 80 if gb <= 80 else False
    yield (f"needs {math.ceil(gb / 80):,} GPUs", True) if gb > 80 else ("needs", False)
    if every == 1:
        yield f"all {layers} layers keep all tokens", True
    else:
        parts = [texts * n * per_token / 1e9 for n in (full * tokens, sum(kept) - full * tokens)]
        yield f"{full} of {layers} layers keep all tokens and take # GB", parts[0]
        yield "the others keep a window and take # GB", parts[1]
    nothing = every > 1 and tokens <= window
    yield "found: a window of 1,024 tokens saves nothing", nothing
    own = (model, kind, bits) == ("DeepSeek-V3", "heads not shared", 2)
    yield "found: 13.3 times the bytes as published", own
    most = not nothing and not own and gb <= 80 < gb * (texts + 1) / texts
    yield f"found: at most {texts} text{'s' * (texts > 1)} on one GPU", most


def memory_state(written, delta, decay, keys):
    """Return the state (4, 4) after some pairs, and the keys (7, 4) of a to g."""
    random_keys, values = pairs()
    unit = (
        torch.cat([torch.eye(4).double(), random_keys[4:]]) if keys == "orthogonal" else random_keys
    )
    k = unit[[ord(name) - ord("a") for name in WRITES[:written]]]  # (L, 4)
    gates = torch.full((written,), decay).double(), torch.ones(written).double() if delta else None
    return linear_attention_recurrent(k, k, values[:written], *gates)[1], unit


def _recalled(written, delta, decay, keys):
    """Return what each key that was written recalls (4,), its error, and whether it is right."""
    (state, unit), values = memory_state(written, delta, decay, keys), pairs()[1]
    found = {}
    for name in dict.fromkeys(WRITES[:written]):
        wanted, recalled = WRITES[:written].rindex(name), unit[ord(name) - ord("a")] @ state
        fits = values[:written] @ recalled
        best = bool((fits >= fits[wanted] - 1e-9).sum() == 1)
        found[name] = recalled.tolist(), (recalled - values[wanted]).norm().item() / 2, best
    return found


def memory(written, read, delta, decay, keys):
    found = _recalled(written, delta, decay, keys)
    state, unit = memory_state(written, delta, decay, keys)
    yield f"{written} of 8 pairs written, {'' if delta else 'no '}delta rule, decay #", decay
    yield f"{keys} keys.", True
    yield f"Key {read} recalls (#, #, #, #)", (unit[ord(read) - ord("a")] @ state).tolist()
    yield "but it was not written", read not in found
    if read in found:
        _, error, best = found[read]
        yield "Its latest value is (#, #, #, #)", pairs()[1][WRITES[:written].rindex(read)].tolist()
        yield "The error is # times the norm of that value", error
        yield "and every other value fits worse", best
        yield "but another value fits at least as well", not best
    errors, right = [one[1] for one in found.values()], sum(one[2] for one in found.values())
    if found:
        yield f"{right} of {len(found)} keys recall the right value", True
        yield "and the mean error is #", np.mean(errors)
    exact = written == 4 and max(errors) < 0.005
    yield "found: 4 keys that do not overlap are all recalled exactly", exact
    added = _recalled(written, False, decay, keys)
    rule = delta and decay == 1 and not exact
    replaced = rule and written == 5 and read == "a"
    yield "found: the delta rule replaced the first value of a", replaced
    if replaced:
        yield "without it, the error is #", added["a"][1]
    fewer = rule and not replaced and right < sum(one[2] for one in added.values())
    yield f"without the delta rule, {sum(one[2] for one in added.values())} keys recall", fewer
    if fewer:
        yield "although their mean error is #", np.mean([one[1] for one in added.values()])
