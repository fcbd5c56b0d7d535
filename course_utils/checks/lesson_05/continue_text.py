"""5.11: a layer that reads a text in pieces and keeps the keys and values of a window."""

import torch

from course_utils.attention import MultiHeadAttention, attention, merge_heads, split_heads
from course_utils.checks import sandbox
from course_utils.checks.exercise import Complaint, Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_05.layers import draw


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


def held(cache):
    """Return how many numbers a cache of tensors holds, in whatever tuples, lists or dicts."""
    if cache is None:
        return 0
    if isinstance(cache, torch.Tensor):
        return cache.numel()
    if isinstance(cache, dict):
        return held(list(cache.values()))
    if isinstance(cache, list | tuple):
        return sum(held(each) for each in cache)
    if isinstance(cache, int):  # a place, or a count
        return 0
    hint = "the cache must be a tensor, or tensors in a tuple, list or dict: the check counts them"
    raise Complaint("unreadable cache", hint)


TWO = "return two things, the output for the new tokens and the cache for the next call"


def run(answer, d_model, num_heads, B, lengths, window):
    """Let the answer read a text piece by piece; count what it keeps and how often it projects."""
    with sandbox.seeded():
        layer = MultiHeadAttention(d_model, num_heads).double()
    draw(layer, torch.Generator().manual_seed(511))
    asked = []
    for W in (layer.W_k, layer.W_v):
        W.register_forward_pre_hook(lambda _, given: asked.append(given[0].shape[-2]))
    outputs, cache, most = [], None, 0
    for piece in normals(512)(B, sum(lengths), d_model).split(lengths, dim=1):
        result = answer(layer, piece, cache, window)
        if not (isinstance(result, list | tuple) and len(result) == 2):
            raise Complaint("output without cache", TWO)
        output, cache = result
        if not (isinstance(output, torch.Tensor) and output.shape == piece.shape):
            hint = "the output must be a tensor shaped as x, (B, n, d_model): the new tokens' alone"
            raise Complaint("not the new tokens' output", hint)
        outputs.append(output)
        most = max(most, held(cache))
    whole = [torch.cat(outputs, dim=1)]
    if sum(asked) > 2 * sum(lengths):
        hint = (
            "right outputs, but earlier tokens go through W_k and W_v again in later calls: keep "
            "their keys and values, not the tokens"
        )
        raise Complaint("projected again", hint, whole)
    if most > 2 * B * d_model * window:
        hint = (
            f"right outputs, but the cache comes to hold {most // (2 * B * d_model)} tokens with a "
            f"window of {window}: let those go that no later token sees, and mind a window of 1"
        )
        raise Complaint("cache grows", hint, whole)
    return whole


CAUSAL = "(ago >= 0) & (ago < window)"
CUT = "heads, _ ="  # where the keys may be cut too early

MISTAKES = [
    ("sees the rest of the piece",
     "a token sees tokens after it in its own piece: what came as one piece must give the same as "
     "one token at a time, so ago ≥ 0 within it", (CAUSAL, "ago < window")),
    ("aligned at the first key",
     "the new tokens are counted from the first key of the cache, but they are the last n of the "
     "S keys: query i stands at S − n + i", ("torch.arange(S - n, S)", "torch.arange(n)")),
    ("no window",
     "all earlier tokens are seen, as far as they are kept: a token sees itself and the "
     "window − 1 before it", (CAUSAL, "ago >= 0"), ("left = max(S - (window - 1), 0)", "left = 0")),
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
    ("cut before attending",
     "keys are cut to the window before the new tokens have attended: the first tokens of a piece "
     "see other keys than its last, so cut what is kept, afterwards",
     (CUT, "k, v, ago = k[:, :, -window:], v[:, :, -window:], ago[:, -window:]\n    " + CUT)),
    ("first tokens kept", "the cache keeps the first tokens of the text, not the last",
     ("(k[:, :, left:], v[:, :, left:])", "(k[:, :, : window - 1], v[:, :, : window - 1])")),
    ("heads merged by reshaping", "the heads are merged by reshaping alone: transpose L and H "
     "first, or use merge_heads", ("merge_heads(heads)", "heads.reshape(x.shape)")),
    ("not projected", "W_o is not used: project the merged heads",
     ("layer.W_o(merge_heads(heads))", "merge_heads(heads)")),
]  # fmt: skip

exercise = Exercise(
    "5.11",
    continue_text,
    inputs,
    MISTAKES,
    names="L d_model",
    run=run,
    compared="the outputs of all pieces, one after another",
)
