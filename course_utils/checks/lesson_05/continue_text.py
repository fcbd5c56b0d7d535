"""5.12: a layer that reads a text in pieces and keeps the keys and values of a window."""

import torch

from course_utils.attention import MultiHeadAttention, attention, merge_heads, split_heads
from course_utils.checks import sandbox, shared_hints
from course_utils.checks.compare import is_same
from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_05._cache import held, pair
from course_utils.checks.lesson_05._layers import draw


def continue_text(layer, x, cache, window):
    H, n = layer.num_heads, x.shape[1]
    q, k, v = (split_heads(W(x), H) for W in (layer.W_q, layer.W_k, layer.W_v))  # (B, H, n, d_k)
    if cache is not None:
        k = torch.cat([cache[0], k], dim=2)  # (B, H, S, d_k)
        v = torch.cat([cache[1], v], dim=2)
    S = k.shape[2]
    places = torch.arange(S - n, S)[:, None]  # (n, 1), of the new tokens among the S
    ago = places - torch.arange(S)  # (n, S)
    heads, _ = attention(q, k, v, (ago >= 0) & (ago < window))  # (B, H, n, d_k)
    out = layer.W_o(merge_heads(heads))  # (B, n, d_model)
    left = max(S - (window - 1), 0)  # the next token sees window - 1 before it
    return out, (k[:, :, left:], v[:, :, left:])


def token_by_token(layer, x, cache, window):
    cache, outputs = cache or {"keys": [], "values": []}, []
    for token in x.split(1, dim=1):
        for name, W in (("keys", layer.W_k), ("values", layer.W_v)):
            cache[name] = [*cache[name], split_heads(W(token), layer.num_heads)][-window:]
        q = split_heads(layer.W_q(token), layer.num_heads)
        heads, _ = attention(q, *(torch.cat(each, dim=2) for each in cache.values()))
        outputs.append(layer.W_o(merge_heads(heads)))
    return torch.cat(outputs, dim=1), cache


def in_a_ring(layer, x, cache, window):
    """Write each token over the oldest of `window` places; order does not matter to softmax."""
    B, n, d = x.shape
    keys, values, count = cache or (*x.new_zeros(2, B, window, d), torch.tensor(0))
    keys, values, outs = keys.clone(), values.clone(), []
    for t in range(n):
        place, count = count % window, count + 1
        keys[:, place], values[:, place] = layer.W_k(x[:, t]), layer.W_v(x[:, t])
        own = layer.W_q(x[:, t : t + 1]), keys[:, :count], values[:, :count]
        heads, _ = attention(*(split_heads(each, layer.num_heads) for each in own))
        outs.append(layer.W_o(merge_heads(heads)))
    return torch.cat(outs, dim=1), (keys, values, count)


def inputs():
    """Return (d_model, num_heads, B, lengths of the pieces, window)."""
    return [
        (12, 3, 2, (5, 1, 1, 1, 1), 3),
        (8, 2, 3, (1, 1, 1, 1, 1, 1), 2),
        (8, 4, 2, (2, 6, 3), 4),  # a piece longer than the window, after others
        (10, 2, 1, (3, 4, 2), 20),  # a window longer than the text
        (6, 3, 2, (3, 2, 1), 1),  # each token sees itself alone
        (6, 1, 2, (9,), 3),
    ]


def run(answer, d_model, num_heads, B, lengths, window):
    """Let the answer read a text piece by piece; count what it keeps and how often it projects."""
    with sandbox.seeded():
        layer = MultiHeadAttention(d_model, num_heads).double()
    draw(layer, torch.Generator().manual_seed(511))
    projected = []  # the numbers that went in, in whatever shape
    for W in (layer.W_k, layer.W_v):
        W.register_forward_pre_hook(lambda _, given: projected.append(given[0].numel()))
    normal = normals(512)
    pieces, others = (normal(B, sum(lengths), d_model).split(lengths, dim=1) for _ in range(2))
    outputs, cache, most, first = [], None, 0, None
    for piece in pieces:
        output, cache = pair(answer(layer, piece, cache, window), piece, window)
        outputs.append(output)
        most = max(most, held(cache))
        first = first or sum(projected)
    whole = [torch.cat(outputs, dim=1)]
    if first > 2 * pieces[0].numel():
        hint = (
            "right outputs, but already in the first call its tokens go through W_k and W_v more "
            "than once, which layer(x, x, x) does as well: project once, and use that for both"
        )
        raise NamedMistake("projected twice in a call", hint, whole)
    one = B * d_model  # numbers, a token's keys or its values; fewer beside them are no token's
    if most >= one * (2 * window + 1):
        hint = (
            f"right outputs, but the cache comes to hold {(most + one) // (2 * one)} tokens with a "
            f"window of {window}: let those go that no later token sees, and mind a window of 1"
        )
        raise NamedMistake("cache grows", hint, whole)
    caches, mixed = [None, None], []
    for piece, other in zip(pieces, others, strict=True):  # two texts in turns
        output, caches[0] = answer(layer, piece, caches[0], window)
        _, caches[1] = answer(layer, other, caches[1], window)
        mixed.append(output)
    if not is_same(torch.cat(mixed, dim=1), whole[0]):
        hint = (
            "right for one text, but two texts read in turns are mixed up: what is kept must be "
            "in the cache that is returned, not in a variable outside or in the layer"
        )
        raise NamedMistake("kept outside the cache", hint, whole)
    again, once = (with_new_matrices(f, layer, pieces, window) for f in (answer, continue_text))
    if not is_same(again, once):
        hint = (
            "right outputs, but earlier tokens go through W_k and W_v again in later calls: keep "
            "their keys and values, not the tokens"
        )
        raise NamedMistake("projected again", hint, whole)
    return whole


def with_new_matrices(answer, layer, pieces, window):
    """Return the outputs if W_k and W_v are others for each piece: keys made before it stay."""
    rng, outputs, cache = torch.Generator().manual_seed(513), [], None
    for piece in pieces:
        draw(layer.W_k, rng)
        draw(layer.W_v, rng)
        output, cache = answer(layer, piece, cache, window)
        outputs.append(output)
    return torch.cat(outputs, dim=1)


CAUSAL = "(ago >= 0) & (ago < window)"
OF_THE_PIECE = f"{CAUSAL} | (torch.arange(S) < S - n)"
NO_MASK = (
    "no mask is used: a token sees what comes after it in its piece, and all before it that is kept"
)
OPEN = (
    "right for the first piece; in later ones every token sees all that is kept: there too it sees "
    "itself and the window − 1 before it, no more"
)
FIRST = "the cache keeps the first tokens of the text, not the last: [-window:], not [:window]"
CUT = "heads, _ ="  # where the keys may be cut too early

MISTAKES = [
    ("sees the rest of the piece",
     "a token sees tokens after it in its own piece: what came as one piece must give the same as "
     "one token at a time, so forbid what comes later", (CAUSAL, "ago < window")),
    ("no mask", NO_MASK, (CAUSAL, "ago < S"), ("left = max(S - (window - 1), 0)", "left = 0")),
    ("no mask, cache cut", NO_MASK, (CAUSAL, "ago < S"), ("(window - 1)", "window")),
    ("no mask, cache cut by one more", NO_MASK, (CAUSAL, "ago < S")),
    ("mask for the first piece",
     "right for the first piece; in later ones a token sees all of its piece and all that is "
     "kept, as without a mask: mask every piece",
     (CAUSAL, f"({CAUSAL}) if cache is None else None"), ("(window - 1)", "window")),
    ("cache open", OPEN, (CAUSAL, OF_THE_PIECE), ("(window - 1)", "window")),
    ("cache open, cut by one more", OPEN, (CAUSAL, OF_THE_PIECE)),
    ("counted from the beginning of the text",
     "the places of the queries are counted on through the text, those of the keys from the first "
     "that is kept: once the cache is cut they do not fit; query i stands at S − n + i",
     ("    S = k.shape[2]", "    S, seen = k.shape[2], cache[2] if cache else 0"),
     ("torch.arange(S - n, S)", "torch.arange(seen, seen + n)"),
     ("v[:, :, left:])", "v[:, :, left:], seen + n)"), ("(window - 1)", "window")),
    ("aligned at the first key",
     "the new tokens are counted from the first key of the cache, but they are the last n of the "
     "S keys: query i stands at S − n + i", ("torch.arange(S - n, S)", "torch.arange(n)")),
    ("first rows of the mask", "the new tokens get the first n rows of a mask for all S: they are "
     "the last n, rows S − n and on", ("torch.arange(S - n, S)", "torch.arange(n)"),
     ("(window - 1)", "window")),
    ("no window",
     "all earlier tokens are seen, as far as they are kept: a token sees itself and the "
     "window − 1 before it", (CAUSAL, "ago >= 0"), ("left = max(S - (window - 1), 0)", "left = 0")),
    ("no window in the mask", "the cache is cut to window tokens, but no mask is: with the new "
     "token they are window + 1, and within a piece more still", (CAUSAL, "ago >= 0"),
     ("(window - 1)", "window")),
    ("window in the cache alone",
     "right where the text comes token by token; within a longer piece a token sees more than its "
     "window: mask there too", (CAUSAL, "ago >= 0")),
    ("one token too many", "one token too many is seen: the window counts the token itself",
     ("ago < window", "ago <= window"), ("(window - 1)", "window")),
    ("one token too few", "one token too few is seen: the window is the token itself and the "
     "window − 1 before it, so ago < window", ("ago < window", "ago < max(window - 1, 1)")),
    ("cache one short", "right within a piece; across pieces one token too few is seen: the next "
     "token sees window − 1 before it", ("(window - 1)", "max(window - 2, 0)")),
    ("cache not used", "each piece is read by itself: the keys and values of the cache stand "
     "before the new ones", ("cache is not None", "False")),
    ("cache replaced", "the cache holds the last piece alone: keep what is left of the window from "
     "before it as well", ("return out, (k[:, :, left:], v[:, :, left:])",
     "left = max(n - (window - 1), 0)\n"
     "    return out, (k[:, :, S - n :][:, :, left:], v[:, :, S - n :][:, :, left:])")),
    ("new before old", "the new keys stand before the old ones: join them in the order of the text",
     ("[cache[0], k]", "[k, cache[0]]"), ("[cache[1], v]", "[v, cache[1]]")),
    ("new before old, window kept", "the new keys stand before the old ones: join them in the "
     "order of the text, old and then new", ("[cache[0], k]", "[k, cache[0]]"),
     ("[cache[1], v]", "[v, cache[1]]"), ("(window - 1)", "window")),
    ("cut before attending",
     "keys are cut to the window before the new tokens have attended: the first tokens of a piece "
     "see other keys than its last, so cut what is kept, afterwards",
     (CUT, "k, v, ago = k[:, :, -window:], v[:, :, -window:], ago[:, -window:]\n"
      "    S = k.shape[2]\n    " + CUT)),
    ("first tokens kept", FIRST,
     ("(k[:, :, left:], v[:, :, left:])", "(k[:, :, : window - 1], v[:, :, : window - 1])")),
    ("first tokens kept, as many as the window", FIRST,
     ("(k[:, :, left:], v[:, :, left:])", "(k[:, :, :window], v[:, :, :window])")),
    ("heads merged by reshaping", "the heads are merged by reshaping alone: transpose L and H "
     "first, or use merge_heads", ("merge_heads(heads)", "heads.reshape(x.shape)")),
    ("not scaled", shared_hints.NOT_SCALED, ("(ago < window))", "(ago < window), scale=1.0)")),
    ("divided by root d_model", shared_hints.BY_D_MODEL,
     ("(ago < window))", "(ago < window), scale=d_model**-0.5)"),
     ("H, n = layer.num_heads, x.shape[1]", "(_, n, d_model), H = x.shape, layer.num_heads")),
    ("keys and values exchanged", "keys and values are exchanged, in the call or in the cache: "
     "scores are made of q and k, and v is averaged", ("attention(q, k, v", "attention(q, v, k")),
    ("cache exchanged", "right for the first piece, then the kept keys come back as values: take "
     "them from the cache in the order in which they went in", ("[cache[0], k]", "[cache[1], k]"),
     ("[cache[1], v]", "[cache[0], v]")),
    ("biases left out", "the biases are left out, of the values at least: call the layers, "
     "layer.W_v(x), not x @ layer.W_v.weight.T",
     ("split_heads(W(x), H)", "split_heads(W(x) - (W is layer.W_v) * W.bias, H)")),
    ("biases left out of all", "the biases are left out: call the layers, layer.W_q(x), not "
     "x @ layer.W_q.weight.T", ("split_heads(W(x), H)", "split_heads(W(x) - W.bias, H)")),
    ("not projected", "W_o is not used: project the merged heads",
     ("layer.W_o(merge_heads(heads))", "merge_heads(heads)")),
]  # fmt: skip

exercise = Exercise(
    "5.12", continue_text, inputs, MISTAKES, names="L d_model", run=run,
    compared="the outputs of all pieces, one after another", also_right=[token_by_token, in_a_ring],
)  # fmt: skip
