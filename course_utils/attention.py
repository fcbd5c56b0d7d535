"""What the lessons build, in final form. Later lessons import it from here.

Shapes, the same letters everywhere: L queries, S keys, d_model model width, d_k query and key
width, d_v value width; ``...`` stands for any leading dimensions, such as batch and heads. A test
holds each function to the cell of the lesson that builds it; only the docstring and the shape
check are added here.
"""

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.shapes import expects

# Lesson 01: dot-product similarity


@expects(q="... L d", k="... S d")
def dot_product_scores(q, k):
    """Return the dot product of every query with every key.

    Parameters
    ----------
    q : torch.Tensor, (..., L, d)
    k : torch.Tensor, (..., S, d)

    Returns
    -------
    torch.Tensor, (..., L, S)
        Entry (i, j) is q_i · k_j, in the dtype of the inputs.

    Raises
    ------
    TypeError, ValueError
        If q or k is not a tensor of the shape above.
    """
    return q @ k.transpose(-2, -1)  # (..., L, d) @ (..., d, S) -> (..., L, S)


@expects(q="... L d", k="... S d")
def cosine_similarity(q, k):
    """Return the cosine of the angle between every query and every key.

    Parameters
    ----------
    q : torch.Tensor, (..., L, d)
    k : torch.Tensor, (..., S, d)

    Returns
    -------
    torch.Tensor, (..., L, S)
        Between -1 and 1. A zero vector has no direction; its cosines are 0.

    Raises
    ------
    TypeError, ValueError
        If q or k is not a tensor of the shape above.
    """
    return dot_product_scores(F.normalize(q, dim=-1), F.normalize(k, dim=-1))


@expects(q="... L d", k="... S d")
def euclidean_distance(q, k):
    """Return the length of q_i - k_j for every query and every key.

    Parameters
    ----------
    q : torch.Tensor, (..., L, d)
    k : torch.Tensor, (..., S, d)

    Returns
    -------
    torch.Tensor, (..., L, S)
        0 or more; small means near.

    Raises
    ------
    TypeError, ValueError
        If q or k is not a tensor of the shape above.
    """
    differences = q[..., :, None, :] - k[..., None, :, :]  # (..., L, S, d)
    return differences.norm(dim=-1)  # (..., L, S)


class AdditiveScore(nn.Module):
    """Score queries against keys with a small network: w · tanh(W_q q + W_k k).

    Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and
    translate", 2014, appendix A.1.2 (there without separate names for query and key).

    Parameters
    ----------
    d_q, d_k : int
        Widths of queries and keys; they may differ.
    d_hidden : int
        Width of the hidden layer.
    """

    def __init__(self, d_q, d_k, d_hidden):
        super().__init__()
        self.W_q = nn.Linear(d_q, d_hidden, bias=False)
        self.W_k = nn.Linear(d_k, d_hidden, bias=False)
        self.w = nn.Linear(d_hidden, 1, bias=False)

    @expects(
        lambda self: {"d_q": self.W_q.in_features, "d_k": self.W_k.in_features},
        q="... L d_q",
        k="... S d_k",
    )
    def forward(self, q, k):
        """Return the (..., L, S) scores of queries q (..., L, d_q) against keys k (..., S, d_k)."""
        pairs = self.W_q(q)[..., :, None, :] + self.W_k(k)[..., None, :, :]
        return self.w(pairs.tanh()).squeeze(-1)  # (..., L, S, d_hidden) -> (..., L, S)


class SelfAttention(nn.Module):
    """One head of self-attention, softmax(QKᵀ/√d_k)V, with an output projection.

    Vaswani et al., "Attention is all you need", 2017, equation 1.

    Parameters
    ----------
    d_model : int
        Width of the input and of the output.
    d_k : int, optional
        Width of queries and keys; d_model if not given.
    d_v : int, optional
        Width of values; d_k if not given.
    """

    def __init__(self, d_model, d_k=None, d_v=None):
        super().__init__()
        d_k = d_model if d_k is None else d_k
        d_v = d_k if d_v is None else d_v
        self.W_q = nn.Linear(d_model, d_k, bias=False)
        self.W_k = nn.Linear(d_model, d_k, bias=False)
        self.W_v = nn.Linear(d_model, d_v, bias=False)
        self.W_o = nn.Linear(d_v, d_model, bias=False)

    @expects(lambda self: {"d_model": self.W_q.in_features}, x="... L d_model")
    def forward(self, x):
        """Return output (..., L, d_model) and weights (..., L, L) for x (..., L, d_model)."""
        q, k, v = self.W_q(x), self.W_k(x), self.W_v(x)
        scores = dot_product_scores(q, k) / q.shape[-1] ** 0.5  # (..., L, L)
        weights = scores.softmax(dim=-1)
        return self.W_o(weights @ v), weights


# Lesson 02: variance and scaling


@expects(q="... L d_k", k="... S d_k", v="... S d_v", mask="bool ... L S")
def attention(q, k, v, mask=None, scale=None):
    """Mix the values by how well each query fits each key: softmax(QKᵀ · scale)V.

    Vaswani et al., "Attention is all you need", 2017, equation 1.

    Parameters
    ----------
    q : torch.Tensor, (..., L, d_k)
    k : torch.Tensor, (..., S, d_k)
    v : torch.Tensor, (..., S, d_v)
    mask : torch.Tensor of bool, broadcastable to (..., L, S), optional
        True = may attend.
    scale : float, optional
        What the scores are multiplied by; 1/√d_k if not given.

    Returns
    -------
    output : torch.Tensor, (..., L, d_v)
    weights : torch.Tensor, (..., L, S)
        0 or more; the weights of each query sum to 1.

    Raises
    ------
    TypeError, ValueError
        If q, k, v or mask is not a tensor of the shape above, or mask is not boolean.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = dot_product_scores(q, k) * scale  # (..., L, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)  # a later lesson is about masks
    weights = scores.softmax(dim=-1)  # (..., L, S), rows sum to 1
    return weights @ v, weights


@expects(weights="... S")
def entropy(weights):
    """Return how evenly each row of weights is spread: -Σ p ln p, in nats.

    Shannon, "A mathematical theory of communication", 1948, section 6.

    Parameters
    ----------
    weights : torch.Tensor, (..., S)
        Each row 0 or more, with sum 1.

    Returns
    -------
    torch.Tensor, (...)
        From 0 (all weight on one key) to ln S (equal weights). A weight of 0 adds 0.

    Raises
    ------
    TypeError, ValueError
        If weights is not a tensor with at least one dimension.
    """
    return (-torch.xlogy(weights, weights)).sum(dim=-1)  # xlogy(0, 0) is 0
