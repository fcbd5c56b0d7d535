"""5.13: a layer reads a text in pieces, and keeps the keys and values of a window."""

import torch

from course_utils.attention import MultiHeadAttention, attention, merge_heads, split_heads
from course_utils.checks import shared_hints
from course_utils.checks.calls import seeded
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
    positions = torch.arange(S - n, S)[:, None]  # (n, 1), of the new tokens among the S
    ago = positions - torch.arange(S)  # (n, S)
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
    """Overwrite the oldest of `window` slots with each token. Softmax ignores their order."""
    B, n, d = x.shape
    keys, values, count = cache or (*x.new_zeros(2, B, window, d), torch.tensor(0))
    keys, values, outs = keys.clone(), values.clone(), []
    for t in range(n):
        slot, count = count % window, count + 1
        keys[:, slot], values[:, slot] = layer.W_k(x[:, t]), layer.W_v(x[:, t])
        own = layer.W_q(x[:, t : t + 1]), keys[:, :count], values[:, :count]
        heads, _ = attention(*(split_heads(each, layer.num_heads) for each in own))
        outs.append(layer.W_o(merge_heads(heads)))
    return torch.cat(outs, dim=1), (keys, values, count)


def inputs():
    """Return (d_model, num_heads, B, lengths of the pieces, window, factor of the tokens)."""
    return [
        (12, 3, 2, (5, 1, 1, 1, 1), 3, 1),
        (8, 2, 3, (1, 1, 1, 1, 1, 1), 2, 1),
        (8, 4, 2, (2, 6, 3), 4, 1),  # a piece longer than the window, after others
        (10, 2, 1, (3, 4, 2), 20, 1),  # a window longer than the text
        (6, 3, 2, (3, 2, 1), 1, 1),  # each token attends only to itself
        (6, 1, 2, (9,), 3, 1),
        (48, 1, 4, (5, 3, 3), 6, 1),  # large scores, which rounded keys change
        (12, 2, 2, (3, 4), 5, 20),  # e^score overflows
    ]


def run(answer, d_model, num_heads, B, lengths, window, factor):
    """Let the answer read a text in pieces. Count what it keeps, and how often it projects."""
    with seeded():
        layer = MultiHeadAttention(d_model, num_heads).double()
    draw(layer, torch.Generator().manual_seed(511))
    projected = []  # how many numbers went in, in any shape
    for W in (layer.W_k, layer.W_v):
        W.register_forward_pre_hook(lambda _, given: projected.append(given[0].numel()))
    normal, shape = normals(512), (B, sum(lengths), d_model)
    pieces, others = ((factor * normal(*shape)).split(lengths, dim=1) for _ in range(2))
    outputs, cache, most, first = [], None, 0, None
    for piece in pieces:
        output, cache = pair(answer(layer, piece, cache, window), piece, window)
        outputs.append(output)
        most = max(most, held(cache))
        first = first or sum(projected)
    whole = [torch.cat(outputs, dim=1)]
    if not is_same(whole[0], read_in_pieces(continue_text, layer, pieces, window)):
        return whole  # what follows is said of right outputs only
    if first > 2 * pieces[0].numel():
        hint = (
            "The outputs are right, but even in the first call the tokens go through W_k and W_v "
            "more than once. Calling `layer(x, x, x)` projects them too. Project each token once, "
            "and use its key and value for attention and for the cache."
        )
        raise NamedMistake("projected twice in a call", hint, whole)
    one = B * d_model  # numbers in the keys of one token, or in its values
    if most >= one * (2 * window + 1):
        hint = (
            f"The outputs are right, but the cache holds up to {(most + one) // (2 * one)} tokens "
            f"with a window of {window}. At most {window} may stay. Drop tokens that no later "
            "token can see."
        )
        raise NamedMistake("cache grows", hint, whole)
    caches, mixed = [None, None], []
    for piece, other in zip(pieces, others, strict=True):  # two texts, alternately
        output, caches[0] = answer(layer, piece, caches[0], window)
        _, caches[1] = answer(layer, other, caches[1], window)
        mixed.append(output)
    if not is_same(torch.cat(mixed, dim=1), whole[0]):
        hint = (
            "Right for one text, but if calls alternate between two texts, the texts get mixed up. "
            "Keep everything in the cache that you return, and nothing in the layer or in a global "
            "variable."
        )
        raise NamedMistake("kept outside the cache", hint, whole)
    again, once = (
        read_in_pieces(f, layer, pieces, window, redrawn=True) for f in (answer, continue_text)
    )
    if not is_same(again, once):
        hint = (
            "The outputs are right, but later calls project earlier tokens with W_k and W_v again. "
            "Keep their keys and values, not the tokens."
        )
        raise NamedMistake("projected again", hint, whole)
    return whole


def read_in_pieces(answer, layer, pieces, window, redrawn=False):
    """Return the outputs. If ``redrawn``, W_k and W_v change with each piece; cached keys stay."""
    rng, outputs, cache = torch.Generator().manual_seed(513), [], None
    for piece in pieces:
        if redrawn:
            draw(layer.W_k, rng)
            draw(layer.W_v, rng)
        output, cache = answer(layer, piece, cache, window)
        outputs.append(output)
    return torch.cat(outputs, dim=1)


CAUSAL = "(ago >= 0) & (ago < window)"
OF_THE_PIECE = f"{CAUSAL} | (torch.arange(S) < S - n)"
NO_MASK = (
    "Your tokens attend to later tokens of their piece, and to everything in the cache. Let each "
    "token attend only to itself and the `window − 1` tokens before it."
)
OPEN = (
    "Your output is right for the first piece. In later pieces, every token also attends to "
    "everything in the cache. Let each token attend only to itself and the `window − 1` tokens "
    "before it."
)
FIRST = (
    "Your cache keeps the first tokens of the text. Later tokens need the last ones. Keep those, "
    "as in `k[:, :, -window:]`."
)
CUT = "heads, _ ="  # where the keys may be cut too early

CUT_TO_WINDOW = "k, v = k[:, :, -window:], v[:, :, -window:]\n    "
HALF = (
    "Your output is right for the first piece, but later only to two or three digits, as if the "
    "cache held 16-bit floats. Keep the keys and values in their own dtype."
)

MISTAKES = [
    ("cut by one too many",
     "Your windows hold one token too few or, if window is 1, all tokens so far. You get this "
     "result if each token attends to `[-window + 1:]` of the keys so far: for a window of 1, "
     "that is `[0:]`, which cuts nothing. Use `[-window:]`.",
     (CAUSAL, "(ago >= 0) & (ago < (window - 1 if window > 1 else S))"),
     ("left = max(S - (window - 1), 0)", "left = max(S - window, 0) if window > 1 else 0")),
    ("keys cut in place of a mask",
     "Right for pieces of one token. In a longer piece, all tokens attend to the last `window` "
     "keys, even to later ones. You get this result if you cut the keys and use no mask. Attend to "
     "all keys with a mask, then cut the cache.",
     ("heads, _ = attention(q, k, v, (ago >= 0) & (ago < window))",
      CUT_TO_WINDOW + "heads, _ = attention(q, k, v)"),
     ("(k[:, :, left:], v[:, :, left:])", "(k, v)")),
    *(
        (f"cache in {dtype}", HALF,
         ("(k[:, :, left:], v[:, :, left:])",
          f"tuple(x[:, :, left:].to(torch.{dtype}) for x in (k, v))"))
        for dtype in ("float16", "bfloat16")
    ),
    ("sees the rest of the piece",
     "Your tokens attend to later tokens of their own piece. A token's output must be the same as "
     "if the text came one token at a time. Forbid all later tokens.",
     (CAUSAL, "ago < window")),
    ("no mask", f"{NO_MASK} Drop from the cache what no later token may see.",
     (CAUSAL, "ago < S"), ("left = max(S - (window - 1), 0)", "left = 0")),
    ("no mask, cache cut", NO_MASK, (CAUSAL, "ago < S"), ("(window - 1)", "window")),
    ("no mask, cache cut by one more", NO_MASK, (CAUSAL, "ago < S")),
    ("no mask for a single token",
     "Right for pieces of several tokens. A single new token can see window + 1 tokens, because "
     "your cache holds window tokens and you use no mask for it. Mask pieces of one token too.",
     (CAUSAL, f"({CAUSAL}) if n > 1 else None"), ("(window - 1)", "window")),
    ("window for the first piece alone",
     "Your output is right for the first piece. In later pieces, a token also sees tokens before "
     "its window, as if the mask were only causal there. Let each token attend only to itself "
     "and the `window − 1` tokens before it.",
     (CAUSAL, f"({CAUSAL}) if cache is None else ago >= 0"), ("(window - 1)", "window")),
    ("the future of the window too",
     "Your tokens attend to later tokens of their piece, up to `window − 1` of them. You get this "
     "result if you limit only the distance |i − j|. Forbid all later tokens too.",
     (CAUSAL, "ago.abs() < window"), ("(window - 1)", "window")),
    ("split by reshaping",
     "You get this result if you reshape to (B, H, n, d_k) in one step, which mixes tokens. "
     "Reshape to (B, n, H, d_k), then swap n and H, or use split_heads.",
     ("split_heads(W(x), H)", "W(x).reshape(len(x), H, x.shape[1], -1)"),
     ("(window - 1)", "window")),
    ("cache filled with zeros",
     "At the start of the text, your tokens attend to keys of zeros. You get this result if you "
     "start with a cache of window zeros. Start with an empty cache, or mask what it does not hold "
     "yet.",
     ("    S = k.shape[2]", "    else:\n        k, v = (torch.cat([torch.zeros_like(e[:, :, :1])."
      "expand(-1, -1, window, -1), e], dim=2) for e in (k, v))\n    S = k.shape[2]"),
     ("(window - 1)", "window")),
    ("mask for the first piece",
     "Your output is right for the first piece. In later pieces, a token attends to its whole "
     "piece and to everything in the cache, as if only the first piece were masked. Mask every "
     "piece.",
     (CAUSAL, f"({CAUSAL}) if cache is None else None"), ("(window - 1)", "window")),
    ("cache open", OPEN, (CAUSAL, OF_THE_PIECE), ("(window - 1)", "window")),
    ("cache open, cut by one more", OPEN, (CAUSAL, OF_THE_PIECE)),
    ("counted from the beginning of the text",
     "You get this result if you count queries from the start of the text, but keys from the "
     "first one in the cache. These positions no longer agree when the cache has dropped tokens. "
     "With S keys, cached and new, give new token i the position S − n + i.",
     ("    S = k.shape[2]", "    S, seen = k.shape[2], cache[2] if cache else 0"),
     ("torch.arange(S - n, S)", "torch.arange(seen, seen + n)"),
     ("v[:, :, left:])", "v[:, :, left:], seen + n)"), ("(window - 1)", "window")),
    ("aligned at the first key",
     "Your mask gives the new tokens the positions 0 to n − 1. But the cached keys come first, so "
     "the new tokens are the last n of all S keys. Give new token i the position S − n + i.",
     ("torch.arange(S - n, S)", "torch.arange(n)")),
    ("first rows of the mask",
     "Your new tokens get the first n rows of a mask for all S tokens, cached and new. But the "
     "cached tokens come first. Use the last n rows, from row S − n on.",
     ("torch.arange(S - n, S)", "torch.arange(n)"),
     ("(window - 1)", "window")),
    ("no window",
     "Your tokens attend to all earlier tokens. Let each token attend only to itself and the "
     "`window − 1` tokens before it, and drop from the cache what no later token may see.",
     (CAUSAL, "ago >= 0"), ("left = max(S - (window - 1), 0)", "left = 0")),
    ("no window in the mask",
     "You get this result if you cut the cache to `window` tokens, but do not limit the mask to "
     "the window. Then the first token of a later piece sees `window` tokens before it, one too "
     "many, and the next ones see even more. Let each token attend only to itself and the "
     "`window − 1` tokens before it.",
     (CAUSAL, "ago >= 0"),
     ("(window - 1)", "window")),
    ("window in the cache alone",
     "Right if each piece is one token. In a longer piece, a token can attend to more than its "
     "window, because only the cache is limited. Let each token attend only to itself and the "
     "`window − 1` tokens before it.",
     (CAUSAL, "ago >= 0")),
    ("one token too many",
     "Your window has one token too many. The token itself counts too. Allow only this token and "
     "the `window − 1` tokens before it.",
     ("ago < window", "ago <= window"), ("(window - 1)", "window")),
    ("one token too few",
     "Windows larger than 1 have one token too few. Allow the token itself and the `window − 1` "
     "tokens before it.",
     ("ago < window", "ago < max(window - 1, 1)")),
    ("cache one short",
     "Right, except for the first token of later pieces. The earliest token of its window is "
     "missing, because your cache does not hold that token. Keep the last `window − 1` tokens for "
     "the next piece.",
     ("(window - 1)", "max(window - 2, 0)")),
    ("cache not used",
     "You treat each piece as a text of its own. Tokens must also attend to tokens of earlier "
     "pieces. Put the keys and values of the cache before the new ones.",
     ("cache is not None", "False")),
    ("cache replaced",
     "Your cache holds only tokens of the last piece. If that piece is short, the next token must "
     "also see earlier tokens. Keep the last `window − 1` tokens of all pieces so far.",
     ("return out, (k[:, :, left:], v[:, :, left:])",
     "left = max(n - (window - 1), 0)\n"
     "    return out, (k[:, :, S - n :][:, :, left:], v[:, :, S - n :][:, :, left:])")),
    ("new before old",
     "Your new keys and values come before the cached ones, but the mask expects the order of the "
     "text. Concatenate the cached ones first, then the new ones.",
     ("[cache[0], k]", "[k, cache[0]]"), ("[cache[1], v]", "[v, cache[1]]")),
    ("new before old, window kept",
     "Your new keys and values come before the cached ones, but the mask expects the order of the "
     "text. Concatenate the cached ones first, then the new ones.",
     ("[cache[0], k]", "[k, cache[0]]"),
     ("[cache[1], v]", "[v, cache[1]]"), ("(window - 1)", "window")),
    ("cut before attending",
     "You get this result if you cut the keys to the window before the new tokens attend. But "
     "the first new token needs older keys than the last new token does. Attend first, then cut "
     "the cache.",
     (CUT, "k, v, ago = k[:, :, -window:], v[:, :, -window:], ago[:, -window:]\n"
      "    S = k.shape[2]\n    " + CUT)),
    ("first tokens kept", FIRST,
     ("(k[:, :, left:], v[:, :, left:])", "(k[:, :, : window - 1], v[:, :, : window - 1])")),
    ("first tokens kept, as many as the window", FIRST,
     ("(k[:, :, left:], v[:, :, left:])", "(k[:, :, :window], v[:, :, :window])")),
    ("heads merged by reshaping",
     "Each row of your merged heads mixes parts of several tokens. Swap heads and tokens before "
     "you reshape, or use merge_heads.",
     ("merge_heads(heads)", "heads.reshape(x.shape)")),
    ("not scaled", shared_hints.NOT_SCALED, ("(ago < window))", "(ago < window), scale=1.0)")),
    ("divided by root d_model", shared_hints.BY_D_MODEL,
     ("(ago < window))", "(ago < window), scale=d_model**-0.5)"),
     ("H, n = layer.num_heads, x.shape[1]", "(_, n, d_model), H = x.shape, layer.num_heads")),
    ("keys and values exchanged",
     "Keys and values are swapped, in the call or in the cache. Compute the scores from q and k, "
     "and average v.",
     ("attention(q, k, v", "attention(q, v, k")),
    ("cache exchanged",
     "Your output is right for the first piece. After that, cached keys come back as values, and "
     "cached values as keys. Read the cache in the order in which you wrote it.",
     ("[cache[0], k]", "[cache[1], k]"),
     ("[cache[1], v]", "[cache[0], v]")),
    ("biases left out",
     "The bias of W_v is missing. Call all layers, as in `layer.W_v(x)`, instead of computing `x "
     "@ layer.W_v.weight.T`.",
     ("split_heads(W(x), H)", "split_heads(W(x) - (W is layer.W_v) * W.bias, H)")),
    ("biases left out of all",
     "The biases of W_q, W_k and W_v are missing. Call the layers, as in `layer.W_q(x)`, instead "
     "of computing `x @ layer.W_q.weight.T`.",
     ("split_heads(W(x), H)", "split_heads(W(x) - W.bias, H)")),
    ("not projected",
     "Your output is the merged heads. Project them with W_o.",
     ("layer.W_o(merge_heads(heads))", "merge_heads(heads)")),
]  # fmt: skip

exercise = Exercise(
    "5.13", continue_text, inputs, MISTAKES, names="L d_model", run=run,
    compared="the outputs of all pieces, concatenated", also_right=[token_by_token, in_a_ring],
)  # fmt: skip
