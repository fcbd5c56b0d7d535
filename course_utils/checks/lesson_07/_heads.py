"""What several exercises of lesson 07 need: the weights of causal heads."""

import torch


def causal_weights(rng, B, H, L):
    """Return weights (B, H, L, L), a softmax of random scores over each query's past."""
    scores = 2 * torch.randn(B, H, L, L, generator=rng)
    return scores.masked_fill(torch.ones(L, L).triu(1) > 0, -torch.inf).softmax(dim=-1)
