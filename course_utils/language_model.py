"""A real language model around the course's own attention: SmolLM2-135M-Instruct.

Allal et al., "SmolLM2: when smol goes big", 2025. The architecture is that of Llama (Touvron et
al., 2023). The letters are those of the lessons. H_kv is the number of KV heads (key heads
with their value heads), and V is the vocabulary size.
"""

import itertools
from functools import partial

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import nn

from course_utils.attention import attention, causal_mask, merge_heads, rotary, split_heads
from course_utils.model_file import model_file

SMOLLM2 = dict(num_layers=30, V=49152, d_model=576, num_heads=9, num_kv_heads=3, d_hidden=1536)
EPS = 1e-5  # added under the root in every norm
ROTARY = partial(rotary, base=100_000, interleaved=True)  # as in the model's file
NAMES = {  # parts of parameter names: in the file, and here
    "token_embd": "embedding",
    "output_norm": "norm",
    "blk": "blocks",
    "attn_norm": "norm_1",
    "attn_q": "attention.W_q",
    "attn_k": "attention.W_k",
    "attn_v": "attention.W_v",
    "attn_output": "attention.W_o",
    "ffn_norm": "norm_2",
    "ffn_gate": "mlp.W_gate",
    "ffn_up": "mlp.W_up",
    "ffn_down": "mlp.W_down",
}


class GroupedAttention(nn.Module):
    """Causal self-attention in which several query heads share one KV head.

    Ainslie et al., "GQA: training generalized multi-query transformer models", 2023.

    Parameters
    ----------
    layer : int
        The index of the block, under which the cache stores its keys and values.
    d_model, num_heads, num_kv_heads : int
        num_kv_heads divides num_heads, which divides d_model.
    """

    def __init__(self, layer, d_model, num_heads, num_kv_heads):
        super().__init__()
        self.layer, self.num_heads, self.num_kv_heads = layer, num_heads, num_kv_heads
        d_kv = d_model // num_heads * num_kv_heads
        self.W_q = nn.Linear(d_model, d_model, bias=False)
        self.W_k = nn.Linear(d_model, d_kv, bias=False)
        self.W_v = nn.Linear(d_model, d_kv, bias=False)
        self.W_o = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, positions, cache, attend=attention, rotate=ROTARY, on_heads=None):
        """Return (B, L, d_model) for x (B, L, d_model) at positions (L,).

        The other parameters are those of `LanguageModel.forward`.
        """
        q = split_heads(self.W_q(x), self.num_heads)  # (B, H, L, d_k)
        k = split_heads(self.W_k(x), self.num_kv_heads)  # (B, H_kv, L, d_k)
        v = split_heads(self.W_v(x), self.num_kv_heads)  # (B, H_kv, L, d_k)
        q, k = rotate(q, positions), rotate(k, positions)
        if self.layer in cache:
            past_k, past_v = cache[self.layer]
            k, v = torch.cat([past_k, k], dim=-2), torch.cat([past_v, v], dim=-2)
        cache[self.layer] = k, v  # (B, H_kv, S, d_k)
        group = self.num_heads // self.num_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)  # (B, H, S, ..)
        mask = causal_mask(q.shape[-2], k.shape[-2], align="lower_right")  # (L, S)
        heads, weights = attend(q, k, v, mask)  # (B, H, L, d_k)
        if on_heads is not None:
            heads = on_heads(self.layer, heads, weights)
        return self.W_o(merge_heads(heads))


class SwiGLU(nn.Module):
    """The MLP of a block: W_down(silu(W_gate x) · W_up x). Shazeer, 2020."""

    def __init__(self, d_model, d_hidden):
        super().__init__()
        self.W_gate = nn.Linear(d_model, d_hidden, bias=False)
        self.W_up = nn.Linear(d_model, d_hidden, bias=False)
        self.W_down = nn.Linear(d_hidden, d_model, bias=False)

    def forward(self, x):
        """Return (..., d_model) for x (..., d_model)."""
        hidden = F.silu(self.W_gate(x)) * self.W_up(x)  # (..., d_hidden)
        return self.W_down(hidden)


class Block(nn.Module):
    """A pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, layer, d_model, num_heads, num_kv_heads, d_hidden):
        super().__init__()
        self.norm_1 = nn.RMSNorm(d_model, EPS)  # weight · x / √(mean of x² + ε)
        self.attention = GroupedAttention(layer, d_model, num_heads, num_kv_heads)
        self.norm_2 = nn.RMSNorm(d_model, EPS)
        self.mlp = SwiGLU(d_model, d_hidden)

    def forward(self, x, positions, cache, **options):
        """Return (B, L, d_model) for x (B, L, d_model) at positions (L,).

        The other parameters are those of `LanguageModel.forward`.
        """
        x = x + self.attention(self.norm_1(x), positions, cache, **options)
        return x + self.mlp(self.norm_2(x))


class LanguageModel(nn.Module):
    """A decoder-only transformer with tied embeddings: tokens in, logits of the next token out.

    Parameters
    ----------
    num_layers, V, d_model, num_heads, num_kv_heads, d_hidden : int
        The values for SmolLM2-135M are in `SMOLLM2`.
    """

    def __init__(self, num_layers, V, d_model, num_heads, num_kv_heads, d_hidden):
        super().__init__()
        sizes = d_model, num_heads, num_kv_heads, d_hidden
        # Initialized as nn.Embedding does it, but without importing PyTorch's compiler in `load`
        self.embedding = nn.Embedding.from_pretrained(torch.randn(V, d_model), freeze=False)
        self.blocks = nn.ModuleList(Block(layer, *sizes) for layer in range(num_layers))
        self.norm = nn.RMSNorm(d_model, EPS)

    def forward(self, tokens, cache=None, **options):
        """Return the logits of the next token at every position.

        Parameters
        ----------
        tokens : torch.Tensor of int, (B, L)
        cache : dict, optional
            The KV cache. Pass an empty dict first. It is updated in place, and for each layer it
            holds the keys and values (B, H_kv, S, d_k) of all tokens so far. ``tokens`` continue
            them. The caches of `course_utils.cache` can be passed instead.
        attend : callable, optional
            (q, k, v, mask) -> (output, anything). By default `attention.attention`.
        rotate : callable, optional
            (x, positions) -> x. By default `attention.rotary` with the model's base.
        on_heads : callable, optional
            (layer, heads, weights) -> heads. Called in each layer with the head outputs
            (B, H, L, d_k) and the second result of ``attend``. Its result replaces the outputs.

        Returns
        -------
        torch.Tensor of float32, (B, L, V)
        """
        return self.read_out(self.stream(tokens, cache, **options))

    def stream(self, tokens, cache=None, **options):
        """Return the residual stream after the last block, (B, L, d_model).

        The parameters are those of `forward`.
        """
        cache = {} if cache is None else cache
        start = _num_tokens(cache)
        positions = torch.arange(start, start + tokens.shape[-1])  # (L,)
        x = self.embedding(tokens)  # (B, L, d_model)
        for block in self.blocks:
            x = block(x, positions, cache, **options)
        return x

    def read_out(self, x):
        """Return the logits (..., V) of a residual stream x (..., d_model)."""
        return self.norm(x) @ self.embedding.weight.T


def _num_tokens(cache):
    """Return how many tokens a cache has received, which may be more than it keeps."""
    if hasattr(cache, "num_tokens"):
        return cache.num_tokens
    return cache[0][0].shape[-2] if cache else 0


class QuickReader(gguf.GGUFReader):
    """gguf's reader on a plain array. Slicing a memmap some 500,000 times would be far slower."""

    @property
    def data(self):
        return self._data

    @data.setter
    def data(self, memmap):
        self._data = np.asarray(memmap)  # a view: still read from disk on demand


def load():
    """Read SmolLM2-135M-Instruct from its file.

    Returns
    -------
    model : LanguageModel
        With the weights of the file, dequantized from 4 bits to float32. They do not require
        gradients.
    tokenizer : tokenizers.Tokenizer

    Raises
    ------
    ModelMissing
        If the file is missing or damaged.
    """
    file = QuickReader(model_file())
    with torch.device("meta"):  # allocate nothing: all weights come from the file
        model = LanguageModel(**SMOLLM2)
    weights = {}
    for tensor in file.tensors:
        name = ".".join(NAMES.get(part, part) for part in tensor.name.split("."))
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        # float32 tensors are read-only views of the file: copy them
        weights[name] = torch.from_numpy(np.require(values, requirements="W"))
    model.load_state_dict(weights, assign=True)
    return model.requires_grad_(False), _tokenizer(file.fields)


def _tokenizer(fields):
    """Return the byte-level BPE tokenizer that the file describes."""
    names = ["tokens", "token_type", "merges"]
    words, kinds, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in names)
    ids = {word: n for n, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(ids, [tuple(pair.split(" ")) for pair in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [kind == gguf.TokenType.CONTROL for kind in kinds]
    tokenizer.add_special_tokens(list(itertools.compress(words, control)))
    return tokenizer
