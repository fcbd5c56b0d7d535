"""9.12: matrices of a head that looks as many positions back as each token asks."""

import torch
import torch.nn.functional as F

from course_utils.attention import attention, causal_mask, rotary
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones


def asks_back(n):
    key = torch.ones(1, 64)  # (1, d_k), the same in every pair
    back = torch.arange(n)
    W_q = 100 * rotary(key.expand(n, -1), -back)  # (n, d_k), row b rotated back by b
    W_k = key.expand(n, -1).clone()  # (n, d_k), the same for every token
    return W_q, W_k


def by_rotary(n):
    key = torch.cat([torch.ones(32), torch.zeros(32)])[None]  # (1, d_k)
    asked = [500 * rotary(key, torch.tensor([-b]))[0] for b in range(n)]
    return torch.stack(asked), key.repeat(n, 1)


def by_angles(n):
    half = 40
    angles = torch.arange(n)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    rows = torch.cat([angles.cos(), -angles.sin()], dim=-1)
    return 300 * rows, F.pad(torch.ones(n, half), (0, half))


def inputs():
    """Return (n, number of texts, their length)."""
    return [(4, 5, 16), (9, 6, 40), (2, 3, 9), (16, 4, 100), (100, 5, 100)]


def run(answer, n, B, L):
    """Run the head on random texts; raise NamedMistake if a query does not attend to its key."""
    W_q, W_k = matrices(call_with_clones(answer, n)[0], n)
    tokens = torch.randint(n, (B, L), generator=torch.Generator().manual_seed(98))
    x, at = F.one_hot(tokens, n).float(), torch.arange(L)  # (B, L, n), (L,)
    _, weights = attention(rotary(x @ W_q, at), rotary(x @ W_k, at), x, causal_mask(L))
    wanted = at[:, None] - tokens[..., None]  # (B, L, 1), may lie before the text
    there = wanted[..., 0] >= 0  # (B, L)
    found = weights.gather(2, wanted.clamp(min=0))[..., 0]  # (B, L)
    if (found[there] > 0.9).all():
        return [torch.ones(())]
    raise NamedMistake("not found", what_is_missing(W_q, W_k, x, tokens))


def is_pair_of_others(result):
    """Tell whether a result is a pair, but of lists instead of tensors."""
    is_pair = isinstance(result, list | tuple) and len(result) == 2
    return is_pair and all(isinstance(each, list) for each in result)


def matrices(result, n):
    try:
        W_q, W_k = result
        fits = W_q.shape == W_k.shape and W_q.ndim == 2 and len(W_q) == n
        fits = fits and W_q.shape[1] > 0 and W_q.shape[1] % 2 == 0
    except (TypeError, ValueError, AttributeError):
        fits = False
    if is_pair_of_others(result):
        raise NamedMistake("not tensors", NOT_TENSORS)
    if not fits:
        hint = f"Return the pair W_q, W_k. Both must have n = {n} rows and the same even d_k."
        raise NamedMistake("wrong shapes", hint)
    if W_q.dtype != torch.float32 or W_k.dtype != torch.float32:
        raise NamedMistake(
            "not in float32",
            "Return both matrices in float32, the dtype of torch.zeros and torch.ones.",
        )
    if not (W_q.isfinite().all() and W_k.isfinite().all()):
        raise NamedMistake(
            "infinite", "Your matrices contain infinity or NaN. Use large finite numbers."
        )
    return W_q, W_k


NOT_TENSORS = (
    "Your two matrices are not tensors. Return tensors, for example with `torch.tensor(...)`, "
    "because `head` multiplies tensors by them."
)
SOFT = (
    "Each token gives its largest weight to the right key, but the other keys get too much. Use "
    "more pairs of entries, or make the scores larger, for example with larger entries in W_q."
)
ITSELF = (
    "Each token attends to itself. Make row b of W_q the key's vector, rotated by an angle that "
    "depends on b."
)
FORWARD = (
    "Your queries are rotated in the wrong direction. They ask for later tokens, which the mask "
    "hides. For number b, rotate the key's vector back by b positions."
)
AHEAD = (
    "Your queries ask for later tokens, which the mask hides, so each token attends to itself. For "
    "number b, rotate the key's vector back by b positions."
)
TWICE = (
    "Your head looks 2b positions back instead of b. Rotate row b of W_q back by b positions, not "
    "by 2b."
)
ONE_FOR_ALL = "Your head looks equally far back for every number. Row b of W_q must depend on b."
TOO_FAR = (
    "Your head misses the right key by the same number of positions for every b. With b = 0, a "
    "token must attend to itself, and with b = 1 to the token before it."
)
NEIGHBORS = (
    "Your matrices would be right for the interleaved layout. Here, `rotary` pairs entry i with "
    "entry i + d_k / 2. Reorder the columns of both matrices accordingly."
)
BY_CONTENT = (
    "Your keys depend on the numbers that the tokens carry. Any token can be b positions back, so"
    " make all rows of W_k the same."
)
LARGE = (
    "Right for small numbers b, but not for large ones. Each b from 0 to n − 1 needs its own row "
    "in W_q."
)
OVERFLOW = "Your scores overflow to infinity or NaN. Use smaller numbers in W_q and W_k."
ELSEWHERE = (
    "Your head does not look b positions back. Choose each query so that its dot product with the"
    " key is largest at distance b."
)


def what_is_missing(W_q, W_k, x, tokens):
    """Return a hint from the positions of the keys with the largest weights."""
    if not torch.allclose(W_k, W_k[:1].expand_as(W_k)):
        return BY_CONTENT
    at = torch.arange(tokens.shape[1])  # (L,)
    paired = (rotary(x @ W, at, interleaved=True) for W in (W_q, W_k))
    pairs_back = at - attention(*paired, x, causal_mask(len(at)))[1].argmax(dim=-1)  # (B, L)
    q, k = rotary(x @ W_q, at), rotary(x @ W_k, at)  # (B, L, d_k)
    if not (q @ k.mT).isfinite().all():
        return OVERFLOW
    back = at - attention(q, k, x, causal_mask(len(at)))[1].argmax(dim=-1)  # (B, L), how far
    unmasked = at - attention(q, k, x)[1].argmax(dim=-1)  # (B, L)
    n = len(W_q)
    room = n if 2 * n < len(at) else tokens
    inner = (tokens > 0) & (at > room) & (at < len(at) - room)  # (B, L), room to both sides
    far = inner & (at >= 2 * tokens)  # (B, L), with room for twice as far
    is_twice = far.any() and (back[far] == 2 * tokens[far]).all()
    back, asked, unmasked = back[inner], tokens[inner], unmasked[inner]
    if (back == asked).all():
        return SOFT
    first_wrong = asked[back != asked].min()
    if first_wrong > 4:
        return LARGE
    if (pairs_back[inner] == asked).all():
        return NEIGHBORS
    if (unmasked == -asked).all():
        return FORWARD
    if is_twice:
        return TWICE
    if (back == 0).all():
        return AHEAD if (unmasked < 0).any() and (unmasked <= 0).all() else ITSELF
    if len(back.unique()) == 1:
        return ONE_FOR_ALL
    return TOO_FAR if len((back - asked).unique()) == 1 else ELSEWHERE


ROTATED = "rotary(key.expand(n, -1), -back)"
MISTAKES = [
    ("not large enough", SOFT, ("100 * rotary", "rotary")),
    ("attends to itself", ITSELF, (ROTATED, "key.expand(n, -1)")),
    ("one distance for all", ONE_FOR_ALL, (ROTATED, "rotary(key.expand(n, -1), -torch.ones(n))")),
    ("rotated forwards", FORWARD, ("-back)", "back)")),
    ("neighbors as pairs", NEIGHBORS,
     (ROTATED, "rotary(key.expand(n, -1), -back, interleaved=True)")),
    ("too far by one", TOO_FAR, ("-back)", "-back - 1)")),
    ("ahead", AHEAD, ("-back)", "n - 1 - back)")),
    ("twice as far", TWICE, ("-back)", "-2 * back)")),
    ("other frequencies", ELSEWHERE, ("-back)", "-back, base=100)")),
    ("not tensors", NOT_TENSORS, ("return W_q, W_k", "return W_q.tolist(), W_k.tolist()")),
    ("one row above 31", LARGE, (ROTATED, f"{ROTATED}[back.clamp(max=31)]")),
    ("keys that differ", BY_CONTENT, ("-1).clone()", "-1) * (1 + back[:, None])")),
]  # fmt: skip

exercise = Exercise("9.12", asks_back, inputs, MISTAKES, run=run, also_right=[by_rotary, by_angles])
