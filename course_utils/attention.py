"""What the lessons build, in final form. Later lessons import it from here.

Shapes use the same letters everywhere: L queries, S keys, H heads, d_model the model width, d_k the
width of queries and keys, d_v the width of values. ``...`` stands for any leading dimensions, such
as batch and heads. The decorator `expects` checks the arguments. A wrong shape raises a ValueError
and a wrong type a TypeError, and the message says what was expected.

Each function is the same as in the lesson that builds it, and a test compares the two. Only the
docstring and the decorator are added here.
"""

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.shapes import expects
from course_utils.tiled import tiled_attention  # noqa: F401  (lesson 06, in a file of its own)

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
        From -1 to 1. A zero vector has no direction, so its cosines are 0.
    """
    return dot_product_scores(F.normalize(q, dim=-1), F.normalize(k, dim=-1))


@expects(q="... L d", k="... S d")
def euclidean_distance(q, k):
    """Return the Euclidean distance ‖q_i − k_j‖ between every query and every key.

    Parameters
    ----------
    q : torch.Tensor, (..., L, d)
    k : torch.Tensor, (..., S, d)

    Returns
    -------
    torch.Tensor, (..., L, S)
        0 or more. A small distance means similar vectors.
    """
    differences = q[..., :, None, :] - k[..., None, :, :]  # (..., L, S, d)
    return differences.norm(dim=-1)  # (..., L, S)


class AdditiveScore(nn.Module):
    """Score queries against keys with a small network: w · tanh(W_q q + W_k k).

    Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and
    translate", 2014, appendix A.1.2. They do not use the words query and key.

    Parameters
    ----------
    d_q, d_k : int
        Widths of queries and keys, which may differ.
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
        Width of queries and keys. It is d_model if not given.
    d_v : int, optional
        Width of values. It is d_k if not given.
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


@expects(weights="... S")
def entropy(weights):
    """Return the entropy of each row of weights, -Σ p ln p, in nats.

    Shannon, "A mathematical theory of communication", 1948, section 6.

    Parameters
    ----------
    weights : torch.Tensor, (..., S)
        Nonnegative; each row sums to 1.

    Returns
    -------
    torch.Tensor, (...)
        From 0 (all weight on one key) to ln S (uniform weights). A weight of 0 contributes 0.
    """
    return (-torch.xlogy(weights, weights)).sum(dim=-1)  # xlogy(0, 0) is 0


# Lesson 03: softmax stability


@expects(x="floating ...", dim="dim of x")
def softmax(x, dim=-1):
    """Return weights e^x / Σ e^x along ``dim``, for scores of any size.

    The largest score is subtracted first, so no exponential exceeds 1. All steps are computed in
    float64, so the sum does not overflow for float16 inputs, however many scores there are.

    Parameters
    ----------
    x : torch.Tensor, (...)
    dim : int
        The dimension along which weights sum to 1.

    Returns
    -------
    torch.Tensor, (...)
        The shape and dtype of x. A slice that is all -inf, or contains +inf or NaN, gives NaN, as
        in PyTorch.
    """
    e = (x.double() - x.amax(dim, keepdim=True)).exp()  # (..., n), the largest is e^0 = 1
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)  # float64: room for any number of terms


@expects(x="floating ...", dim="dim of x")
def logsumexp(x, dim=-1):
    """Return log Σ e^x along ``dim``, a smooth maximum between max(x) and max(x) + log n.

    Parameters
    ----------
    x : torch.Tensor, (..., n, ...)
    dim : int
        The dimension, of size n, to sum over.

    Returns
    -------
    torch.Tensor
        The shape of x without ``dim``. A slice that is all -inf gives -inf, the log of 0.
    """
    m = x.amax(dim, keepdim=True)  # (..., 1)
    m = m.masked_fill(m.isinf(), 0)  # all -inf: subtract 0, because -inf - -inf is NaN
    total = (x.double() - m).exp().sum(dim, keepdim=True)  # (..., 1)
    return (m + total.log()).squeeze(dim).to(x.dtype)


@expects(x="floating ...", dim="dim of x")
def log_softmax(x, dim=-1):
    """Return the log of the softmax weights along ``dim``, finite even if a weight underflows.

    Equal to ``x - logsumexp(x)``, but more accurate for large logits, because the maximum is
    subtracted before the log of the sum.

    Parameters
    ----------
    x : torch.Tensor, (...)
    dim : int

    Returns
    -------
    torch.Tensor, (...)
        The shape and dtype of x, 0 or less. A slice that is all -inf gives NaN, as in PyTorch.
    """
    shifted = x.double() - x.amax(dim, keepdim=True)  # (..., n), the largest is 0
    total = shifted.exp().sum(dim, keepdim=True)  # (..., 1)
    return (shifted - total.log()).to(x.dtype)


@expects(p="... n", g="... n")
def softmax_vjp(p, g):
    """Return gᵀ(diag(p) - ppᵀ), the gradient with respect to the scores.

    The n × n Jacobian is never computed.

    Parameters
    ----------
    p : torch.Tensor, (..., n)
        Softmax weights along the last dimension.
    g : torch.Tensor, (..., n)
        The gradient with respect to the weights.

    Returns
    -------
    torch.Tensor, (..., n)
        The gradient with respect to the scores. Each row sums to 0.
    """
    return p * (g - (p * g).sum(dim=-1, keepdim=True))  # (..., n)


@expects(m="*batch", ell="*batch", x="*batch n")
def online_update(m, ell, x):
    """Update the state (m, ℓ) of an online softmax with a block of scores.

    Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 3.

    Parameters
    ----------
    m : torch.Tensor, (...)
        The largest score so far, -inf before the first block.
    ell : torch.Tensor, (...)
        Σ e^(x - m) over the scores so far, 0 before the first block.
    x : torch.Tensor, (..., n)
        The next block of scores, of any size.

    Returns
    -------
    m, ell : torch.Tensor, (...)
        The state after the block. ``m + ell.log()`` is the logsumexp of all scores so far. After
        the last block, ``(x - m).exp() / ell`` gives the softmax weights of any block x.
    """
    m_new = torch.maximum(m, x.amax(dim=-1))  # (...)
    base = m_new.masked_fill(m_new == -torch.inf, 0)  # all -inf so far: subtract 0
    new = (x - base[..., None]).exp().sum(dim=-1)  # (...), the sum of this block
    return m_new, ell * (m - base).exp() + new


@expects(out_a="*batch L d_v", lse_a="*batch L", out_b="*batch L d_v", lse_b="*batch L")
def merge(out_a, lse_a, out_b, lse_b):
    """Merge attention over two disjoint sets of keys into attention over both.

    Merging is associative and commutative up to rounding, so parts can be computed anywhere and
    merged in any order. Dao et al., "FlashAttention", 2022, section 3.1, for two blocks.

    Parameters
    ----------
    out_a, out_b : torch.Tensor, (..., L, d_v)
        softmax(scores) @ v over each set of keys.
    lse_a, lse_b : torch.Tensor, (..., L)
        The logsumexp of the scores over each set, or -inf if a query has no allowed key in the
        set. The output of such a query is ignored, even if it is NaN.

    Returns
    -------
    out : torch.Tensor, (..., L, d_v)
        Zeros where both parts are empty, so (0, -inf) is the identity element.
    lse : torch.Tensor, (..., L)
        -inf where both parts are empty.
    """
    outs, lses = torch.stack([out_a, out_b]), torch.stack([lse_a, lse_b])  # (2, ..., L[, d_v])
    empty = lses == -torch.inf  # (2, ..., L)
    outs = outs.masked_fill(empty[..., None], 0)  # the output of an empty part may be NaN
    shares = softmax(lses.masked_fill(empty.all(dim=0), 0), dim=0)  # (2, ..., L)
    return (shares[..., None] * outs).sum(dim=0), logsumexp(lses, dim=0)


# Lesson 04: masking


@expects(L="int from 0", S="int from 0", align="corner")
def causal_mask(L, S=None, *, align=None):
    """Return the causal mask: a query may attend to its own position and to earlier ones.

    Parameters
    ----------
    L, S : int
        Number of queries and number of keys. S is L if not given.
    align : {"lower_right", "upper_left"}
        How queries align with keys. Required if L ≠ S. "lower_right" aligns the last query with
        the last key, as in decoding with a cache. If S < L, the first queries have no allowed key.
        "upper_left" aligns the first query with the first key, as `is_causal` does in PyTorch's
        scaled_dot_product_attention.

    Returns
    -------
    torch.Tensor of bool, (L, S)
        True = may attend.
    """
    S = L if S is None else S
    offset = 0 if L == S else {"lower_right": S - L, "upper_left": 0}[align]
    last_key = torch.arange(L)[:, None] + offset  # (L, 1), the last key each query may see
    return torch.arange(S) <= last_key  # (L, S)


@expects(lengths="whole B", S="int from 0")
def padding_mask(lengths, S):
    """Return the mask for sequences right-padded to length S: no query attends to padding.

    Parameters
    ----------
    lengths : torch.Tensor of int, or sequence of int, (B,)
        Number of tokens of each sequence.
    S : int
        The padded length.

    Returns
    -------
    torch.Tensor of bool, (B, 1, 1, S)
        True = may attend. The mask broadcasts over heads and queries.
    """
    lengths = torch.as_tensor(lengths)[:, None, None, None]  # (B, 1, 1, 1)
    return torch.arange(S, device=lengths.device) < lengths  # (B, 1, 1, S)


@expects(L="int from 0", window="int from 1")
def sliding_window_mask(L, window):
    """Return a causal sliding-window mask: a token and the window - 1 tokens before it.

    Beltagy, Peters and Cohan, "Longformer", 2020, section 3.1, with a window on both sides.

    Parameters
    ----------
    L : int
        Number of tokens.
    window : int
        How many tokens a token sees, itself included. At least 1, and L gives the causal mask.

    Returns
    -------
    torch.Tensor of bool, (L, L)
        True = may attend.
    """
    distance = torch.arange(L)[:, None] - torch.arange(L)  # (L, L), query i - key j
    return (0 <= distance) & (distance < window)


@expects(L="int from 0", prefix="int from 0")
def prefix_mask(L, prefix):
    """Return the mask for a prefix LM: every query sees the prefix, and the rest is causal.

    Raffel et al., "Exploring the limits of transfer learning" (T5), 2019, section 3.2.1.

    Parameters
    ----------
    L : int
        Number of tokens.
    prefix : int
        Length of the prefix. 0 gives the causal mask, and L or more allows everything.

    Returns
    -------
    torch.Tensor of bool, (L, L)
        True = may attend.
    """
    return causal_mask(L) | (torch.arange(L) < prefix)  # (L, L) | (L,) -> (L, L)


@expects(ids="whole ... L")
def document_mask(ids):
    """Return the mask for packed documents: a token may attend only to its own document.

    To hide future tokens too, combine the mask with ``& causal_mask(L)``.

    Parameters
    ----------
    ids : torch.Tensor of int, or sequence of int, (..., L)
        The document of each token. The tokens of a document need not be contiguous.

    Returns
    -------
    torch.Tensor of bool, (..., L, L)
        True = may attend. For ids (B, L) and several heads, insert a head dimension: ``[:, None]``.
    """
    ids = torch.as_tensor(ids)
    return ids[..., :, None] == ids[..., None, :]  # (..., L, 1) == (..., 1, L) -> (..., L, L)


@expects(q="... L d_k", k="... S d_k", v="... S d_v", mask="bool ... L S")
def attention(q, k, v, mask=None, scale=None):
    """Return scaled dot-product attention, softmax(QKᵀ · scale)V, and its weights.

    Vaswani et al., "Attention is all you need", 2017, equation 1 and section 3.2.3.

    Parameters
    ----------
    q : torch.Tensor, (..., L, d_k)
    k : torch.Tensor, (..., S, d_k)
    v : torch.Tensor, (..., S, d_v)
    mask : torch.Tensor of bool, broadcastable to (..., L, S), optional
        True = may attend.
    scale : float, optional
        The scores are multiplied by this factor, which is 1/√d_k if not given.

    Returns
    -------
    output : torch.Tensor, (..., L, d_v)
    weights : torch.Tensor, (..., L, S)
        The weights of each query sum to 1, and those of forbidden keys are 0. For a query with no
        allowed key, weights, output and gradient are 0, as in PyTorch's
        scaled_dot_product_attention.

    Notes
    -----
    A NaN or infinite entry of v reaches the output even if the mask forbids its key, because
    0 × NaN is NaN.
    Scores have the dtype of q and k, so in float16 they overflow above 65504. q is scaled before
    the product, because q · k may overflow even if the score, which is √d_k times smaller, does
    not. `tiled.tiled_attention` computes scores in float32.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = dot_product_scores(q * scale, k)  # (..., L, S)
    if mask is None:
        weights = scores.softmax(dim=-1)  # (..., L, S), rows sum to 1
    else:
        empty = ~mask.any(dim=-1, keepdim=True)  # (..., L, 1), no allowed key
        scores = scores.masked_fill(~mask, -torch.inf).masked_fill(empty, 0)  # no row is all -inf
        weights = scores.softmax(dim=-1).masked_fill(empty, 0)
    return weights @ v, weights


# Lesson 05: multi-head


@expects(x="... L d_model", num_heads="divisor of d_model")
def split_heads(x, num_heads):
    """Split the width into heads, and move the head dimension before the tokens.

    Parameters
    ----------
    x : torch.Tensor, (..., L, d_model)
    num_heads : int
        H, which divides d_model.

    Returns
    -------
    torch.Tensor, (..., H, L, d_model / H)
        With d_k = d_model / H, head h holds columns h · d_k to (h + 1) · d_k − 1 of x. The result
        is a view of x.
    """
    heads = x.unflatten(-1, (num_heads, -1))  # (..., L, H, d_k)
    return heads.transpose(-3, -2)  # (..., H, L, d_k)


@expects(x="... H L d")
def merge_heads(x):
    """Concatenate the heads of each token. This is the inverse of `split_heads`.

    Parameters
    ----------
    x : torch.Tensor, (..., H, L, d)

    Returns
    -------
    torch.Tensor, (..., L, H · d)
    """
    return x.transpose(-3, -2).flatten(-2)  # (..., L, H, d) -> (..., L, H·d)


class MultiHeadAttention(nn.Module):
    """Multi-head attention: H heads of width d_model / H, and an output projection.

    Vaswani et al., "Attention is all you need", 2017, section 3.2.2. With the same weights and
    ``batch_first=True``, `torch.nn.MultiheadAttention` gives the same output. But there, True in a
    mask means may *not* attend, a query with no allowed key gives NaN, and by default the weights
    are averaged over the heads.

    Parameters
    ----------
    d_model : int
        Width of the inputs and of the output.
    num_heads : int
        H, which divides d_model.
    bias : bool
        Whether the four projections have a bias.
    """

    @expects(d_model="int from 1", num_heads="divisor of d_model")
    def __init__(self, d_model, num_heads, bias=True):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.Linear(d_model, d_model, bias)
        self.W_k = nn.Linear(d_model, d_model, bias)
        self.W_v = nn.Linear(d_model, d_model, bias)
        self.W_o = nn.Linear(d_model, d_model, bias)

    @expects(
        lambda self: {"d_model": self.W_q.in_features, "H": self.num_heads},
        query="*batch L d_model",
        key="*batch S d_model",
        value="*batch S d_model",
        mask="bool ... H L S",
    )
    def forward(self, query, key, value, mask=None):
        """Return output (..., L, d_model) and the weights of each head (..., H, L, S).

        query has shape (..., L, d_model), and key and value have shape (..., S, d_model). mask is
        boolean, with True = may attend, and broadcasts to (..., H, L, S), so one mask per sequence
        has shape (B, 1, L, S). For a query with no allowed key, the weights are 0 and the output is
        the bias of W_o.
        """
        q, k, v = self.W_q(query), self.W_k(key), self.W_v(value)  # (..., L or S, d_model)
        q, k, v = (split_heads(x, self.num_heads) for x in (q, k, v))  # (..., H, L or S, d_k)
        heads, weights = attention(q, k, v, mask)  # (..., H, L, d_k), (..., H, L, S)
        return self.W_o(merge_heads(heads)), weights


class MultiHeadSelfAttention(nn.Module):
    """Multi-head self-attention: `MultiHeadAttention` with x as query, key and value.

    Parameters
    ----------
    d_model, num_heads : int
        As in `MultiHeadAttention`.
    """

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attend = MultiHeadAttention(d_model, num_heads)

    def forward(self, x, mask=None):
        """Return output (..., L, d_model) and weights (..., H, L, L) for x (..., L, d_model).

        mask is as in `MultiHeadAttention.forward`.
        """
        return self.attend(x, x, x, mask)


# Lesson 07: attention learns


@expects(weights="B H L L")
def previous_token_score(weights):
    """Return each head's mean attention weight on the previous token.

    Elhage et al., "A mathematical framework for transformer circuits", 2021, section on two-layer
    attention-only models.

    Parameters
    ----------
    weights : torch.Tensor, (B, H, L, L)

    Returns
    -------
    torch.Tensor, (H,)
        From 0 to 1: the mean over all sequences, and over all queries but the first, which has no
        previous token.
    """
    previous = weights.diagonal(-1, dim1=-2, dim2=-1)  # (B, H, L - 1), query i + 1 on key i
    return previous.mean(dim=(0, -1))


@expects(tokens="whole ... L")
def follows_same_token(tokens):
    """Return a mask of the keys that directly follow an earlier occurrence of the query's token.

    Parameters
    ----------
    tokens : torch.Tensor of int, or sequence of int, (..., L)

    Returns
    -------
    torch.Tensor of bool, (..., L, L)
        Entry (i, j) is True if token j - 1 equals token i and j ≤ i.
    """
    tokens = torch.as_tensor(tokens)
    same = tokens[..., :, None] == tokens[..., None, :-1]  # (..., L, L - 1), token i = token j
    return F.pad(same, (1, 0)).tril()  # (..., L, L), moved from key j to key j + 1


@expects(weights="B H L L", tokens="whole B L")
def induction_score(weights, tokens):
    """Return each head's mean weight on keys right after an earlier occurrence of the token.

    Olsson et al., "In-context learning and induction heads", 2022, who call it the
    prefix-matching score.

    Parameters
    ----------
    weights : torch.Tensor, (B, H, L, L)
    tokens : torch.Tensor of int, or sequence of sequences of int, (B, L)

    Returns
    -------
    torch.Tensor, (H,)
        From 0 to 1: the weight on the keys of `follows_same_token`, averaged over all queries
        that have such a key. NaN if no query has one.
    """
    targets = follows_same_token(tokens)  # (B, L, L)
    on_targets = (weights * targets[:, None]).sum(dim=-1)  # (B, H, L)
    return on_targets.sum(dim=(0, 2)) / targets.any(dim=-1).sum()


# Lesson 09: positions


@expects(L="int from 0", d_model="multiple of 2")
def sinusoidal_positions(L, d_model):
    """Return a vector for each position: sines and cosines at d_model / 2 frequencies.

    Vaswani et al., "Attention is all you need", 2017, section 3.5. The angle of pair i at position
    p is p · 10000^(-2i / d_model), in radians.

    Parameters
    ----------
    L : int
        Number of positions, counted from 0.
    d_model : int
        Width, even.

    Returns
    -------
    torch.Tensor of float32, (L, d_model)
        Columns 2i and 2i + 1 hold the sine and cosine of pair i. Add it to the embeddings.
    """
    inv_freq = 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)  # (d_model / 2,)
    angles = torch.arange(L)[:, None] * inv_freq  # (L, d_model / 2), radians
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()  # (L, d_model)


@expects(x="even ... L d", positions="... L")
def rotary(x, positions, base=10000, interleaved=False):
    """Rotate each pair of entries of a query or key by its position times the pair's frequency.

    The dot product of a rotated query and a rotated key depends on their positions only through the
    difference. Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021,
    section 3.2, uses ``interleaved=True``. Many models pair entry i with entry i + d/2 instead.

    Parameters
    ----------
    x : torch.Tensor, (..., L, d)
        Queries or keys of one head, with d even. Values are not rotated.
    positions : torch.Tensor, (L,) or (..., L)
        The positions of the L rows. They may start anywhere and may be fractions. If they differ
        between sequences, they need a dimension for the heads: (B, 1, L) if x is (B, H, L, d).
    base : float
        The angle of pair i at position p is p · base^(-2i / d), in radians.
    interleaved : bool
        If True, pair i is entries 2i and 2i + 1. If False, it is entries i and i + d/2.

    Returns
    -------
    torch.Tensor, (..., L, d)
        The shape, dtype and norms of x. Angles are computed in float64, because at position 100,000
        the error in float32 would be up to 0.004.

    Raises
    ------
    ValueError
        If ``positions`` has leading dimensions, but fewer of them than x has. Positions (B, L)
        would broadcast over the heads of x, so head b would get the positions of sequence b.
    """
    if 1 < positions.ndim < x.ndim - 1:  # (B, L) would broadcast over the heads of (B, H, L, d)
        raise ValueError(
            f"positions {tuple(positions.shape)} must have one dimension fewer than x "
            f"{tuple(x.shape)}; insert one for the heads, as in positions[:, None]"
        )
    d = x.shape[-1]
    inv_freq = base ** (-torch.arange(0, d, 2, device=x.device).double() / d)  # (d / 2,)
    angles = positions[..., None] * inv_freq  # (..., L, d / 2), radians
    pairs = x.unflatten(-1, (-1, 2)) if interleaved else x.unflatten(-1, (2, -1)).mT
    a, b = pairs.unbind(-1)  # (..., L, d / 2) each
    rotated = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
    rotated = torch.stack(rotated, dim=-1)  # (..., L, d / 2, 2)
    return (rotated if interleaved else rotated.mT).flatten(-2).to(x.dtype)  # (..., L, d)


@expects(L="int from 0", S="int from 0", num_heads="int from 1")
def alibi_bias(L, S, num_heads):
    """Return the ALiBi bias of each head: minus the distance, times the slope of the head.

    Press, Smith and Lewis, "Train short, test long: attention with linear biases enables input
    length extrapolation", 2022, section 3. If num_heads is not a power of two, the slopes are those
    of the paper's code.

    Parameters
    ----------
    L, S : int
        Number of queries and number of keys. The last query aligns with the last key.
    num_heads : int
        H. If H is a power of two, head h has slope 2^(-8 (h + 1) / H).

    Returns
    -------
    torch.Tensor of float32, (num_heads, L, S)
        0 if query and key have the same position. Otherwise negative, even for future keys.
    """
    power = 2 ** (num_heads.bit_length() - 1)  # the largest power of two up to num_heads
    steps = [*range(2, 2 * power + 1, 2)]  # one for each slope of `power` heads
    steps += range(1, 2 * (num_heads - power), 2)  # the other heads: slopes in between
    slopes = 2.0 ** (-4 * torch.tensor(steps) / power)  # (H,)
    distance = (torch.arange(S - L, S)[:, None] - torch.arange(S)).abs()  # (L, S)
    return -slopes[:, None, None] * distance  # (H, L, S)
