"""Lesson 07's shared pieces: weights of causal heads."""

import torch


def causal_weights(rng, B, H, L):
    """Return weights (B, H, L, L), each row a softmax of normal scores over keys up to its own."""
    scores = 2 * torch.randn(B, H, L, L, generator=rng)
    return scores.masked_fill(torch.ones(L, L).triu(1) > 0, -torch.inf).softmax(dim=-1)
