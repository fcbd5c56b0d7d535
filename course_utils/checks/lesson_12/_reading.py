"""The caches of 12.8, built by hand: what a model loses with each of them, and what it holds."""

import torch
import torch.nn.functional as F

V = 7
# per cache: bytes of a token, bytes whatever is read, tokens at most, how far it is off on texts of
# even and of odd length. The caller's texts to choose on have even lengths.
CACHES = {
    "whole": (64, 0, 1000, 0.1, 0.2),
    "8 bits": (34, 0, 1000, 0.2, 0.3),
    "8 bits, more scales": (40, 0, 1000, 0.1, 0.2),
    "4 bits": (16, 0, 1000, 0.5, 0.9),
    "4 bits, a recent window": (14, 90, 1000, 0.3, 0.4),  # above a quarter on short texts
    "3 bits": (13, 0, 1000, 0.6, 0.6),
    "2 bits": (9, 0, 1000, 1.1, 0.5),
    "window": (64, 0, 5, 2.6, 2.4),
    "1 bit": (5, 0, 1000, 1.7, 1.7),
}
NAMES = list(CACHES)


def texts(seed, lengths):
    """Return a text of random tokens (L,) for each length."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.randint(V, (n,), generator=rng) for n in lengths]


def reader(seed):
    """Return ``read(tokens, name)``, which gives logits (L, V) and the bytes that are held."""
    rng = torch.Generator().manual_seed(seed)
    noise = dict(zip(CACHES, torch.randn(len(CACHES), V, V, generator=rng), strict=True))

    def read(tokens, name):
        each, fixed, most, even, odd = CACHES[name]
        following = F.one_hot(tokens.roll(-1), V).float()  # (L, V), what comes next
        size = odd if len(tokens) % 2 else even
        logits = 2.5 * following + size * 2 * noise[name][tokens]  # (L, V)
        return logits, each * min(len(tokens), most) + fixed

    return read
