"""Caches that keep less: fewer bits, fewer tokens, or one small latent instead of keys and values.

The letters are those of the lessons. H_kv is the number of KV heads (key heads
with their value heads), and d_c the width of a latent.
"""

from dataclasses import dataclass

import torch

from course_utils.attention import attention
from course_utils.shapes import expects

WHOLE = 16  # bits of a number that is not quantized


@dataclass(frozen=True)
class Quantized:
    """A quantized tensor, as `quantize` returns it.

    The codes are packed without gaps. For example, a byte holds two codes of 4 bits, and three
    bytes hold eight codes of 3 bits. The first code has the lowest bits.
    """

    codes: torch.Tensor  # uint8, (bytes,)
    low: torch.Tensor  # a number is low + code · scale; both have size 1 along dim
    scale: torch.Tensor
    bits: int
    shape: torch.Size  # of the original tensor
    dim: int  # the numbers along this dimension share one low and one scale

    @property
    def nbytes(self):
        return self.codes.nbytes + self.low.nbytes + self.scale.nbytes


@expects(x="floating ...", bits="int from 1", dim="dim of x")
def quantize(x, bits, dim):
    """Round each number to one of 2^bits levels from the smallest to the largest along ``dim``.

    This is asymmetric round-to-nearest quantization, as in Liu et al., "KIVI: a tuning-free
    asymmetric 2bit quantization for KV cache", 2024, section 3.

    Parameters
    ----------
    x : torch.Tensor, (...)
        Not empty. A NaN or an infinity makes its slice NaN.
    bits : int
        From 1 to 8.
    dim : int
        With -2, keys (..., S, d_k) get one scale per channel; with -1, one per token.

    Returns
    -------
    Quantized
        Its ``low`` and ``scale`` have the dtype of x.

    Raises
    ------
    TypeError, ValueError
        If x is empty or not floating point, or bits or dim is not as above.
    """
    if bits > 8:
        raise ValueError(f"bits must be from 1 to 8, got {bits}")
    if x.numel() == 0:
        raise ValueError(f"x must not be empty, got shape {tuple(x.shape)}")
    wide = x.double()  # in float16, high - low could overflow
    low, high = wide.amin(dim, keepdim=True), wide.amax(dim, keepdim=True)  # (..., 1, ...)
    scale = ((high - low) / (2**bits - 1)).to(x.dtype)  # rounded as it is stored
    codes = ((wide - low) / scale).nan_to_num(0).round().clamp(0, 2**bits - 1)  # 0 / 0 is code 0
    return Quantized(_pack(codes.long(), bits), low.to(x.dtype), scale, bits, x.shape, dim)


def dequantize(quantized):
    """Return the numbers of a `Quantized`, low + code · scale, in its shape and dtype."""
    low, scale, shape = quantized.low, quantized.scale, quantized.shape
    codes = _unpack(quantized.codes, quantized.bits)[: shape.numel()].reshape(shape)
    return (low.double() + codes * scale.double()).to(low.dtype)


def _pack(codes, bits):
    """Return int64 codes packed as uint8 (bytes,). Eight codes take ``bits`` bytes."""
    codes = torch.nn.functional.pad(codes.flatten(), (0, -codes.numel() % 8)).reshape(-1, 8)
    words = (codes << bits * torch.arange(8)).sum(dim=-1, keepdim=True)  # (n, 1)
    return (words >> 8 * torch.arange(bits) & 255).to(torch.uint8).flatten()


def _unpack(packed, bits):
    """Return the codes that `_pack` has packed, int64 (8·n,)."""
    words = (packed.long().reshape(-1, bits) << 8 * torch.arange(bits)).sum(dim=-1, keepdim=True)
    return (words >> bits * torch.arange(8) & 2**bits - 1).flatten()


# Caches in place of the dict of `language_model.LanguageModel`


class _Cache:
    """What both caches have in common: layers are read and set as the entries of a dict are.

    ``cache[layer]`` is (k, v), each (B, H_kv, S, d_k), of the tokens that are kept. The model
    appends new tokens to k and v, and sets ``cache[layer]`` to the result.
    """

    def __init__(self, dtype):
        self._dtype = dtype
        self._layers = {}  # per layer, a list of parts of the keys, and one of the values
        self._seen = {}  # per layer, how many tokens have come

    def __contains__(self, layer):
        return layer in self._layers

    def __len__(self):
        return len(self._layers)

    def __getitem__(self, layer):
        return tuple(torch.cat([*map(_read, parts)], dim=-2) for parts in self._layers[layer])

    def __setitem__(self, layer, pair):
        (k, v), (keys, values) = pair, self._layers.get(layer, ([], []))
        kept = sum(part.shape[-2] for part in keys)
        if k.shape[:-1] != v.shape[:-1] or k.shape[-2] < kept:
            raise ValueError(
                f"k and v must have shape (B, H_kv, S, d_k) and begin with the {kept} kept tokens, "
                f"got {tuple(k.shape)} and {tuple(v.shape)}"
            )
        self._seen[layer] = self._seen.get(layer, 0) + k.shape[-2] - kept
        self._layers[layer] = self._keep(keys, values, k.to(self._dtype), v.to(self._dtype))

    @property
    def num_tokens(self):
        return self._seen.get(0, 0)  # the position of the next one

    @property
    def nbytes(self):
        """The bytes of all stored tensors."""
        pairs = self._layers.values()
        return sum(part.nbytes for pair in pairs for parts in pair for part in parts)


class QuantizedCache(_Cache):
    """A quantized cache: keys with one scale per channel, values with one scale per token.

    As soon as ``recent + group`` tokens are unquantized, the oldest ``group`` of them are
    quantized, much as in algorithm 1 of KIVI.

    Parameters
    ----------
    bits_k, bits_v : int
        From 1 to 8, or 16 for numbers that stay unquantized.
    recent, group : int
        At least how many of the newest tokens stay unquantized, and how many tokens are quantized
        together.
    dtype : torch.dtype
        The dtype of unquantized numbers, minima and scales.
    """

    @expects(bits_k="int from 1", bits_v="int from 1", recent="int from 0", group="int from 1")
    def __init__(self, bits_k, bits_v, recent=32, group=32, dtype=torch.float16):
        super().__init__(dtype)
        for name, bits in [("bits_k", bits_k), ("bits_v", bits_v)]:
            if 8 < bits != WHOLE:
                raise ValueError(f"{name} must be from 1 to 8, or {WHOLE} unquantized, got {bits}")
        self.bits_k, self.bits_v, self.recent, self.group = bits_k, bits_v, recent, group

    def _keep(self, keys, values, k, v):
        keys, values = keys[:-1], values[:-1]  # all parts but the last are groups
        old = sum(part.shape[-2] for part in keys)
        k, v = k[..., old:, :], v[..., old:, :]
        while k.shape[-2] >= self.recent + self.group:
            keys = [*keys, _store(k[..., : self.group, :], self.bits_k, dim=-2)]
            values = [*values, _store(v[..., : self.group, :], self.bits_v, dim=-1)]
            k, v = k[..., self.group :, :], v[..., self.group :, :]
        return [*keys, k.clone()], [*values, v.clone()]  # no view, which would hold all of them


def _store(x, bits, dim):
    return x.clone() if bits == WHOLE else quantize(x, bits, dim)


def _read(part):
    return dequantize(part) if isinstance(part, Quantized) else part


class WindowCache(_Cache):
    """A cache of the newest tokens and the first ones, for a model that attends to no others.

    Xiao et al., "Efficient streaming language models with attention sinks", 2023.

    Parameters
    ----------
    window : int
        How many tokens a query sees, itself included. So window - 1 are kept for the next token.
    sinks : int
        How many tokens at the start of the text stay visible, in addition to the window.
    dtype : torch.dtype
        The dtype of the stored keys and values.
    """

    @expects(window="int from 1", sinks="int from 0")
    def __init__(self, window, sinks=0, dtype=torch.float16):
        super().__init__(dtype)
        self.window, self.sinks = window, sinks

    def _keep(self, keys, values, k, v):
        start = max(self.sinks, k.shape[-2] - self.window + 1)
        parts = [(x[..., : self.sinks, :], x[..., start:, :]) for x in (k, v)]
        return [[torch.cat(part, dim=-2)] for part in parts]

    def attend(self, q, k, v, mask):
        """Return `attention` limited to the window and the sinks. Pass it to the model as attend.

        The keys after the sinks have consecutive positions, even if tokens have been dropped.
        """
        key = torch.arange(k.shape[-2])  # (S,)
        query = key[k.shape[-2] - q.shape[-2] :, None]  # (L, 1), the last ones
        return attention(q, k, v, mask & ((query - key < self.window) | (key < self.sinks)))


# Fewer numbers: multi-head latent attention

_SHAPES = dict(q="B H L d_k", q_rope="B H L d_rope", latent="B S d_c", k_rope="B S d_rope")
_SHAPES |= dict(W_k="H d_k d_c", W_v="H d_v d_c", mask="bool B H L S")


@expects(**_SHAPES)
def latent_attention(q, q_rope, latent, k_rope, W_k, W_v, mask=None):
    """Return multi-head latent attention: all heads compute keys and values from one latent.

    DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1, equations 9 to 19. For each token, a layer caches
    only a latent and one rotated key: d_c + d_rope numbers, however many heads there are.

    Parameters
    ----------
    q, q_rope : torch.Tensor, (B, H, L, d_k) and (B, H, L, d_rope)
        The part of the queries that is not rotated, and the part that is.
    latent, k_rope : torch.Tensor, (B, S, d_c) and (B, S, d_rope)
        The cached numbers. All heads share the rotated part of the keys.
    W_k, W_v : torch.Tensor, (H, d_k, d_c) and (H, d_v, d_c)
        A head's keys are W_k @ latent, and its values W_v @ latent.
    mask : torch.Tensor of bool, broadcastable to (B, H, L, S), optional
        True = may attend.

    Returns
    -------
    output, weights : torch.Tensor, (B, H, L, d_v) and (B, H, L, S)
    """
    latent, k_rope = latent[:, None], k_rope[:, None]  # (B, 1, S, ...), the same for all heads
    k, v = latent @ W_k.mT, latent @ W_v.mT  # (B, H, S, d_k), (B, H, S, d_v)
    k = torch.cat([k, k_rope.expand(-1, k.shape[1], -1, -1)], dim=-1)  # (B, H, S, d_k + d_rope)
    return attention(torch.cat([q, q_rope], dim=-1), k, v, mask)


@expects(**_SHAPES)
def absorbed_attention(q, q_rope, latent, k_rope, W_k, W_v, mask=None):
    """Return the same as `latent_attention`, without computing keys or values of any head.

    Since q · (W_k c) = (W_kᵀ q) · c, the queries can absorb W_k. W_v is applied after the weighted
    sum. Parameters and results are those of `latent_attention`.
    """
    scale = (q.shape[-1] + q_rope.shape[-1]) ** -0.5  # as in latent_attention
    q = torch.cat([q @ W_k, q_rope], dim=-1)  # (B, H, L, d_c + d_rope)
    k = torch.cat([latent, k_rope], dim=-1)[:, None]  # (B, 1, S, d_c + d_rope)
    out, weights = attention(q, k, latent[:, None], mask, scale)  # (B, H, L, d_c)
    return out @ W_v.mT, weights  # (B, H, L, d_v)
