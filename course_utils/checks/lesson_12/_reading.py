"""The caches of 12.8, built by hand: what a model loses with each of them, and what it holds."""

import torch
import torch.nn.functional as F

V = 7
# Per cache: bytes of a token, bytes whatever is read, tokens at most, and how far it is off on long
# and on short texts of even length, and on texts of odd length. The last number multiplies the
# logits. Caches are chosen on texts of even lengths, where each criterion finds another cache.
CACHES = {
    "uncompressed": (64, 0, 1000, (0.1, 0.1, 0.2), 1),
    "8 bits": (34, 0, 1000, (0.2, 0.2, 0.3), 1),
    "8 bits, more scales": (40, 0, 1000, (0.1, 0.1, 0.2), 1),
    "4 bits": (16, 0, 1000, (0.45, 0.9, 0.9), 1),
    "4 bits, a recent window": (14, 90, 1000, (0.3, 0.3, 0.05), 1),  # too large on short texts
    "3 bits": (13, 0, 1000, (0.65, 0.55, 0.6), 1.3),
    "2 bits": (9, 0, 1000, (0.9, 0.4, 0.5), 1),
    "window": (64, 0, 5, (2.6, 2.6, 2.4), 1),
    "1 bit": (5, 0, 1000, (0.3, 0.5, 1.7), 0.35),
    "4 bits, a better model": (16, 0, 1000, (0.1, 0.1, 0.1), 2),  # than with the uncompressed cache
}
LONG = 25  # tokens
NAMES = list(CACHES)[:-1]


def texts(seed, lengths):
    """Return a text of random tokens (L,) for each length."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.randint(V, (n,), generator=rng) for n in lengths]


def reader(seed):
    """Return ``read(tokens, name)``, which gives logits (L, V) and the bytes that are held."""
    rng = torch.Generator().manual_seed(seed)
    noise = dict(zip(CACHES, torch.randn(len(CACHES), V, V, generator=rng), strict=True))

    def read(tokens, name):
        each, fixed, most, (long, short, odd), sharp = CACHES[name]
        following = F.one_hot(tokens.roll(-1), V).float()  # (L, V), what comes next
        size = odd if len(tokens) % 2 else long if len(tokens) > LONG else short
        logits = sharp * (2.5 * following + 2 * size * noise[name][tokens])  # (L, V)
        return logits, each * min(len(tokens), most) + fixed

    return read
