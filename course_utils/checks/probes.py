"""Inputs that tell right answers from wrong ones; every lesson's checks draw them from here."""

import torch


def queries_and_keys(seed=0):
    """Return (q, k) pairs: plain, other sizes, batched, in single precision, a batch of one.

    L, S and d always differ, so that a transposed result has a wrong shape.
    """
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape, dtype=torch.float64):
        return torch.randn(*shape, generator=rng, dtype=dtype)

    return [
        (normal(5, 4), normal(7, 4)),
        (3 * normal(2, 3), normal(4, 3)),
        (normal(2, 3, 4, 6), normal(2, 3, 5, 6)),
        (normal(4, 8, dtype=torch.float32), normal(3, 8, dtype=torch.float32)),
        (normal(1, 2, 3, 5), normal(1, 2, 4, 5)),  # its 1 must not be squeezed away
    ]
