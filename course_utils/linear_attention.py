"""Attention with a memory of fixed size, as lesson 13 builds it: linear attention and variants.

Softmax attention keeps all keys and values. The functions here keep one matrix per head, the state
S. Each token does four things, in this order:

    S ← α S                    forget: multiply by the token's decay α, if there is one
    u = v, or u = β (v - Sᵀk)  choose what to write: the value, or the delta rule's correction
    S ← S + k uᵀ               write
    o = Sᵀ q                   read

The state has shape (..., d_k, d_v) everywhere. Its rows correspond to the coordinates of keys, and
its columns to those of values, so a query reads it as q @ S. There is no scale and no normalizer.
Divide q by √d_k, or append a column of ones to v, if you want them.

- Linear attention: Katharopoulos, Vyas, Pappas and Fleuret, "Transformers are RNNs", 2020
  (arXiv:2006.16236).
- One fixed decay per head: RetNet, Sun et al., 2023 (arXiv:2307.08621). A decay that depends on
  the token: Mamba-2, Dao and Gu, "Transformers are SSMs", 2024 (arXiv:2405.21060).
- The delta rule: Schlag, Irie and Schmidhuber, 2021 (arXiv:2102.11174). In chunks: Yang et al.,
  2024 (arXiv:2406.06484). With decay: Yang, Kautz and Hatamizadeh, "Gated delta networks", 2024
  (arXiv:2412.06464).

A test compares these functions with the lesson, and with the published formulas.
"""

import torch

from course_utils.shapes import expects
from course_utils.tiled import blocks


@expects(decay="floating *batch L")
def decay_matrix(decay):
    """Return the fraction of each token's write that is left at each later position.

    Parameters
    ----------
    decay : torch.Tensor, (..., L)
        The factor by which each token multiplies the state before it writes, in [0, 1].

    Returns
    -------
    torch.Tensor, (..., L, L)
        Row i, column j holds decay[j + 1] · … · decay[i]. It is 1 on the diagonal and 0 above it.

    Raises
    ------
    TypeError, ValueError
        If decay does not have the shape, type or range above.
    """
    _check_gates(decay, None)
    L = decay.shape[-1]
    below = torch.ones(L, L, dtype=torch.bool, device=decay.device).tril(-1)
    factors = torch.where(below, decay[..., :, None], 1)  # (..., L, L), decay[i] where i > j
    return factors.cumprod(dim=-2).tril()  # products: logarithms would not allow a decay of 0


@expects(
    q="floating *batch L d_k",
    k="floating *batch L d_k",
    v="floating *batch L d_v",
    decay="floating *batch L",
)
def linear_attention_masked(q, k, v, decay=None):
    """Return causal linear attention as one masked matrix, (Q Kᵀ ⊙ D) V.

    D is the `decay_matrix`, or the causal mask if there is no decay. Time and memory are quadratic
    in L.

    Parameters
    ----------
    q, k : torch.Tensor, (..., L, d_k), floating point, like v
    v : torch.Tensor, (..., L, d_v)
    decay : torch.Tensor, (..., L), optional
        The factor by which each token multiplies the state before it writes, in [0, 1].

    Returns
    -------
    torch.Tensor, (..., L, d_v)
        In the dtype of v. Sums are computed in float32, or in float64 if an input is float64.

    Raises
    ------
    TypeError, ValueError
        If an argument does not have the shape, type or range above.
    """
    dtype = v.dtype
    q, k, v, decay = _widened(q, k, v, decay)
    scores = q @ k.mT  # (..., L, L)
    scores = scores.tril() if decay is None else scores * decay_matrix(decay)
    return (scores @ v).to(dtype)


@expects(
    q="floating *batch L d_k",
    k="floating *batch L d_k",
    v="floating *batch L d_v",
    decay="floating *batch L",
    beta="floating *batch L",
    state="floating *batch d_k d_v",
)
def linear_attention_recurrent(q, k, v, decay=None, beta=None, state=None):
    """Return causal linear attention token by token, and the state after the last token.

    Time is linear in L, and only the outputs and one state are kept. To generate text, call it
    with one token at a time and the state of the previous call.

    Parameters
    ----------
    q, k : torch.Tensor, (..., L, d_k), floating point, like all others
        With ``beta``, keys should have norm 1, because the delta rule diverges for long keys.
    v : torch.Tensor, (..., L, d_v)
    decay : torch.Tensor, (..., L), optional
        The factor by which each token multiplies the state before it writes, in [0, 1].
    beta : torch.Tensor, (..., L), optional
        If given, tokens write by the delta rule, and beta is the fraction of the correction that
        each token writes, in [0, 1].
    state : torch.Tensor, (..., d_k, d_v), optional
        The state before the first token. Zeros if not given.

    Returns
    -------
    output : torch.Tensor, (..., L, d_v)
        In the dtype of v.
    state : torch.Tensor, (..., d_k, d_v)
        In float32, or in float64 if an input is float64. All sums are computed in this dtype.

    Raises
    ------
    TypeError, ValueError
        If an argument does not have the shape, type or range above.
    """
    dtype = v.dtype
    q, k, v, decay, beta, state = _widened(q, k, v, decay, beta, state)
    _check_gates(decay, beta)
    S = _zero_state(k, v) if state is None else state
    outs = [v[..., :0, :]]  # so that L = 0 works
    for t in range(q.shape[-2]):
        q_t, k_t, u_t = q[..., t : t + 1, :], k[..., t : t + 1, :], v[..., t : t + 1, :]
        if decay is not None:
            S = decay[..., t, None, None] * S
        if beta is not None:
            u_t = beta[..., t, None, None] * (u_t - k_t @ S)  # (..., 1, d_v), the correction
        S = S + k_t.mT @ u_t  # (..., d_k, 1) @ (..., 1, d_v) -> (..., d_k, d_v)
        outs.append(q_t @ S)  # (..., 1, d_v)
    return torch.cat(outs, dim=-2).to(dtype), S


@expects(
    q="floating *batch L d_k",
    k="floating *batch L d_k",
    v="floating *batch L d_v",
    chunk="int from 1",
    decay="floating *batch L",
    beta="floating *batch L",
    state="floating *batch d_k d_v",
)
def linear_attention_chunked(q, k, v, chunk, decay=None, beta=None, state=None):
    """Return causal linear attention chunk by chunk, and the state after the last token.

    The results equal those of `linear_attention_recurrent` up to rounding. Within a chunk, they are
    computed by matrix products, as in `linear_attention_masked`. From chunk to chunk, the state is
    passed on. Time is linear in L.

    Parameters
    ----------
    q, k, v, decay, beta, state
        As in `linear_attention_recurrent`.
    chunk : int
        Number of tokens in a chunk. The last chunk may have fewer.

    Returns
    -------
    output : torch.Tensor, (..., L, d_v)
    state : torch.Tensor, (..., d_k, d_v)
        As in `linear_attention_recurrent`, which also lists the errors.
    """
    dtype = v.dtype
    q, k, v, decay, beta, state = _widened(q, k, v, decay, beta, state)
    _check_gates(decay, beta)
    S = _zero_state(k, v) if state is None else state
    outs = [v[..., :0, :]]  # so that L = 0 works
    for rows in blocks(q.shape[-2], chunk):
        gates = [None if gate is None else gate[..., rows] for gate in (decay, beta)]
        out, S = _one_chunk(q[..., rows, :], k[..., rows, :], v[..., rows, :], *gates, S)
        outs.append(out)
    return torch.cat(outs, dim=-2).to(dtype), S


def _one_chunk(q, k, v, decay, beta, S):
    """Return the output (..., C, d_v) of one chunk of C tokens, and the state after it.

    ``S`` (..., d_k, d_v) is the state before the chunk. The other parameters are those of
    `linear_attention_chunked`.
    """
    ones = q.new_ones(q.shape[-2])  # (C,), no decay, the same in the whole batch
    D = decay_matrix(ones if decay is None else decay)  # (..., C, C)
    since = (ones if decay is None else decay).cumprod(dim=-1)[..., None]  # (..., C, 1), of S
    u = v if beta is None else delta_writes(k, v, beta, D, since * (k @ S))  # (..., C, d_v)
    out = since * (q @ S) + (q @ k.mT * D) @ u  # from before the chunk, and from within it
    kept = D[..., -1, :, None]  # (..., C, 1), what is left of each write at the end
    return out, since[..., -1:, :] * S + (kept * k).mT @ u


def delta_writes(k, v, beta, D, recalled):
    """Return what each token of a chunk writes by the delta rule, all tokens at once.

    Token i writes u_i = β_i (v_i - recalled_i - Σ_{j<i} D_ij (k_i · k_j) u_j). The sum contains
    the writes of earlier tokens, so this is a triangular system, (I + A) U = β (V - recalled). It
    is the UT transform of Yang et al., 2024 (arXiv:2406.06484, section 3).

    Parameters
    ----------
    k : torch.Tensor, (..., C, d_k)
    v : torch.Tensor, (..., C, d_v)
    beta : torch.Tensor, (..., C)
    D : torch.Tensor, (..., C, C)
        The chunk's `decay_matrix`.
    recalled : torch.Tensor, (..., C, d_v)
        The value that each key reads from the state before the chunk, after its decay.

    Returns
    -------
    torch.Tensor, (..., C, d_v)
    """
    b = beta[..., None]  # (..., C, 1)
    A = (b * (k @ k.mT) * D).tril(-1)  # (..., C, C), strictly below the diagonal
    return torch.linalg.solve_triangular(A, b * (v - recalled), upper=False, unitriangular=True)


def _zero_state(k, v):
    return k.new_zeros(*k.shape[:-2], k.shape[-1], v.shape[-1])


def _widened(*tensors):
    """Return the tensors in float32, or in float64 if one of them is. None stays None."""
    wide = torch.float32
    for each in tensors:
        wide = wide if each is None else torch.promote_types(wide, each.dtype)
    return [None if each is None else each.to(wide) for each in tensors]


def _check_gates(decay, beta):
    """Raise a ValueError if a decay or a beta is not in [0, 1], or is NaN."""
    for name, gate in ("decay", decay), ("beta", beta):
        if gate is not None and not ((gate >= 0) & (gate <= 1)).all():
            found = f"{gate.min().item():.4g} to {gate.max().item():.4g}"
            raise ValueError(f"{name} must be from 0 to 1, got values from {found}")
