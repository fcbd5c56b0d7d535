"""A real language model around the course's own attention: SmolLM2-135M-Instruct.

Allal et al., "SmolLM2: when smol goes big", 2025; the architecture is Llama's (Touvron et al.,
2023). Letters as in the lessons; H_kv is the number of key heads, V the size of the vocabulary.
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
EPS = 1e-5  # of every norm
ROTARY = partial(rotary, base=100_000, interleaved=True)  # as the model was trained
NAMES = {  # what the file calls the parts of the model, and what they are called here
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
    """Causal self-attention in which several query heads share one head of keys and values.

    Ainslie et al., "GQA: training generalized multi-query transformer models", 2023.

    Parameters
    ----------
    layer : int
        Which block this is, counted from 0.
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

    def forward(self, x, positions, cache, attend=attention, turn=ROTARY, on_heads=None):
        """Return (B, L, d_model) for x (B, L, d_model) at these places; see `LanguageModel`."""
        q = split_heads(self.W_q(x), self.num_heads)  # (B, H, L, d_k)
        k = split_heads(self.W_k(x), self.num_kv_heads)  # (B, H_kv, L, d_k)
        v = split_heads(self.W_v(x), self.num_kv_heads)  # (B, H_kv, L, d_k)
        q, k = turn(q, positions), turn(k, positions)
        if self.layer in cache:
            before_k, before_v = cache[self.layer]
            k, v = torch.cat([before_k, k], dim=-2), torch.cat([before_v, v], dim=-2)
        cache[self.layer] = k, v  # (B, H_kv, S, d_k)
        group = self.num_heads // self.num_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)  # (B, H, S, ..)
        mask = causal_mask(q.shape[-2], k.shape[-2], align="lower_right")  # (L, S)
        heads, weights = attend(q, k, v, mask)  # (B, H, L, d_k)
        if on_heads is not None:
            heads = on_heads(self.layer, heads, weights)
        return self.W_o(merge_heads(heads))


class SwiGLU(nn.Module):
    """What each token does by itself: W_down(silu(W_gate x) · W_up x). Shazeer, 2020."""

    def __init__(self, d_model, d_hidden):
        super().__init__()
        self.W_gate = nn.Linear(d_model, d_hidden, bias=False)
        self.W_up = nn.Linear(d_model, d_hidden, bias=False)
        self.W_down = nn.Linear(d_hidden, d_model, bias=False)

    def forward(self, x):
        """Return (..., d_model) for x (..., d_model)."""
        return self.W_down(F.silu(self.W_gate(x)) * self.W_up(x))  # (..., d_hidden) in between


class Block(nn.Module):
    """Attention, then a step of each token by itself; both read a norm of x, and add to x."""

    def __init__(self, layer, d_model, num_heads, num_kv_heads, d_hidden):
        super().__init__()
        self.norm_1 = nn.RMSNorm(d_model, EPS)  # x / √(mean of x² + ε), times a weight an entry
        self.attention = GroupedAttention(layer, d_model, num_heads, num_kv_heads)
        self.norm_2 = nn.RMSNorm(d_model, EPS)
        self.mlp = SwiGLU(d_model, d_hidden)

    def forward(self, x, positions, cache, **how):
        """Return (B, L, d_model) for x (B, L, d_model) at these places; see `LanguageModel`."""
        x = x + self.attention(self.norm_1(x), positions, cache, **how)
        return x + self.mlp(self.norm_2(x))


class LanguageModel(nn.Module):
    """Tokens in, logits of the next token out: embedding, blocks, norm, embedding again.

    Parameters
    ----------
    num_layers, V, d_model, num_heads, num_kv_heads, d_hidden : int
        `SMOLLM2` has those of SmolLM2-135M.
    """

    def __init__(self, num_layers, V, d_model, num_heads, num_kv_heads, d_hidden):
        super().__init__()
        sizes = d_model, num_heads, num_kv_heads, d_hidden
        # the numbers nn.Embedding would draw; if it draws them, `load` imports PyTorch's compiler
        self.embedding = nn.Embedding.from_pretrained(torch.randn(V, d_model), freeze=False)
        self.blocks = nn.ModuleList(Block(layer, *sizes) for layer in range(num_layers))
        self.norm = nn.RMSNorm(d_model, EPS)

    def forward(self, tokens, cache=None, **how):
        """Return the logits of what follows each token.

        Parameters
        ----------
        tokens : torch.Tensor of int, (B, L)
        cache : dict, optional
            Empty before the first tokens; afterwards it holds, for each layer, keys and values of
            all tokens so far, (B, H_kv, S, d_k) each. Given again, tokens follow those.
        attend : callable, optional
            (q, k, v, mask) -> (output, anything): `attention.attention` unless given.
        turn : callable, optional
            (x, positions) -> x: `attention.rotary` as the model was trained, unless given.
        on_heads : callable, optional
            (layer, heads, weights) -> heads, called in each layer with the outputs of its heads
            (B, H, L, d_k) and with what ``attend`` returned beside them. What it returns is used.

        Returns
        -------
        torch.Tensor of float32, (B, L, V)
        """
        return self.read_out(self.stream(tokens, cache, **how))

    def stream(self, tokens, cache=None, **how):
        """Return what the blocks hand on at the end, (B, L, d_model); arguments as of `forward`."""
        cache = {} if cache is None else cache
        start = cache[0][0].shape[-2] if cache else 0
        positions = torch.arange(start, start + tokens.shape[-1])  # (L,)
        x = self.embedding(tokens)  # (B, L, d_model)
        for block in self.blocks:
            x = block(x, positions, cache, **how)
        return x

    def read_out(self, x):
        """Return the logits (..., V) that a stream x (..., d_model) stands for."""
        return self.norm(x) @ self.embedding.weight.T


class QuickReader(gguf.GGUFReader):
    """gguf's reader of a file, on a plain array: a slice of a memmap takes far longer.

    It takes some 500,000 slices to read the vocabulary.
    """

    @property
    def data(self):
        return self._data

    @data.setter
    def data(self, memmap):
        self._data = np.asarray(memmap)  # the same bytes, read from the disk when needed


def load():
    """Read SmolLM2-135M-Instruct from its file.

    Returns
    -------
    model : LanguageModel
        Its weights are those of the file, in 4 bits each there, as float32. They take no gradient.
    tokenizer : tokenizers.Tokenizer

    Raises
    ------
    ModelMissing
        If the file is not there, or is damaged.
    """
    file = QuickReader(model_file())
    with torch.device("meta"):  # no numbers yet: all of them come from the file
        model = LanguageModel(**SMOLLM2)
    weights = {}
    for tensor in file.tensors:
        name = ".".join(NAMES.get(part, part) for part in tensor.name.split("."))
        numbers = gguf.dequantize(tensor.data, tensor.tensor_type)
        # those in float32 already are still the file's own, not to be written on: copied
        weights[name] = torch.from_numpy(np.require(numbers, requirements="W"))
    model.load_state_dict(weights, assign=True)
    return model.requires_grad_(False), _tokenizer(file.fields)


def _tokenizer(fields):
    """Return the tokenizer that the file describes: bytes, joined pair by pair as often seen."""
    names = ["tokens", "token_type", "merges"]
    words, kinds, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in names)
    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(numbers, [tuple(pair.split(" ")) for pair in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [kind == gguf.TokenType.CONTROL for kind in kinds]
    tokenizer.add_special_tokens(list(itertools.compress(words, control)))
    return tokenizer
