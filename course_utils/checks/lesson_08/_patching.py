"""8.8's model: a small transformer without MLPs, whose head outputs can be replaced.

It completes sequences that repeat a pattern. `train_on_repeats` trains one in about 15 seconds.
"""

import itertools
import sys

import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

from course_utils.attention import attention, causal_mask, split_heads

LONGEST = 24  # tokens in a sequence


class RepeatModel(nn.Module):
    """Attention layers with residual connections; positions are added to queries and keys only.

    Parameters
    ----------
    V, d_model, num_layers, num_heads : int
    """

    def __init__(self, V=24, d_model=64, num_layers=2, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.embed = nn.Embedding(V, d_model)
        self.position = nn.Embedding(LONGEST, d_model)
        widths = [(d_model, d_model)] * num_layers
        self.W_q, self.W_k, self.W_v, self.W_o = (
            nn.ModuleList([nn.Linear(*each, bias=False) for each in widths]) for _ in range(4)
        )
        self.unembed = nn.Linear(d_model, V)

    def at_every_position(self, tokens, patches=None):
        """Return logits (B, L, V) and head outputs (layers, B, H, L, d_v) for tokens (B, L)."""
        patches, outputs = patches or {}, []
        x = self.embed(tokens)  # (B, L, d_model)
        for layer in range(len(self.W_q)):
            placed = x + self.position.weight[: tokens.shape[1]]
            inputs = self.W_q[layer](placed), self.W_k[layer](placed), self.W_v[layer](x)
            q, k, v = (split_heads(each, self.num_heads) for each in inputs)  # (B, H, L, d_v)
            heads = list(attention(q, k, v, causal_mask(tokens.shape[1]))[0].unbind(dim=1))
            for head in range(self.num_heads):
                heads[head] = patches.get((layer, head), heads[head])  # (B, L, d_v)
            x = x + self.W_o[layer](torch.cat(heads, dim=-1))
            outputs.append(torch.stack(heads, dim=1))
        return self.unembed(x), torch.stack(outputs)

    def forward(self, tokens, patches=None):
        """Return the next token's logits (B, V) and head outputs (layers, B, H, L, d_v).

        Parameters
        ----------
        tokens : torch.Tensor of int, (B, L)
        patches : dict of (layer, head) to torch.Tensor (B, L, d_v), optional
            Head outputs to use in place of the model's own. Layers and heads count from 0.

        Raises
        ------
        ValueError
            If a key is not a (layer, head) of the model, or an output does not have its shape.
        """
        shape = *tokens.shape, self.embed.embedding_dim // self.num_heads
        heads = [*itertools.product(range(len(self.W_q)), range(self.num_heads))]
        for head, output in (patches or {}).items():
            if head not in heads:
                raise ValueError(f"patches has the key {head}; keys are (0, 0) to {heads[-1]}")
            if tuple(output.shape) != shape:
                raise ValueError(
                    f"the output of a head must have shape (B, L, d_v) = {shape}, got "
                    f"{tuple(output.shape)}"
                )
        logits, outputs = self.at_every_position(tokens, patches)
        return logits[:, -1], outputs


def sample_repeats(B, V, rng=None):
    """Return tokens (B, LONGEST), each row a pattern of 5 to 12 different tokens, repeated."""
    pattern = torch.rand(B, V, generator=rng).argsort(dim=-1)  # (B, V)
    periods = torch.randint(5, 13, (B, 1), generator=rng)
    return pattern.gather(1, torch.arange(LONGEST) % periods)


def prompt_pairs(B, seed, V=24):
    """Return clean and corrupted prompts (B, 12), and what comes next in each of them (B,).

    A clean prompt is a pattern of 8 tokens and its first 4 again. In the corrupted prompt, two
    tokens of the pattern are exchanged, so that the last token is followed by another one.
    """
    rng = torch.Generator().manual_seed(seed)
    pattern = torch.rand(B, V, generator=rng).argsort(dim=-1)[:, :8]  # (B, 8)
    exchanged = pattern[:, [0, 1, 2, 6, 4, 5, 3, 7]]
    clean, corrupted = (torch.cat([each, pattern[:, :4]], dim=1) for each in (pattern, exchanged))
    return clean, corrupted, pattern[:, 4], pattern[:, 7]


def train_on_repeats(seed=0, steps=500):
    """Return a `RepeatModel` trained to predict the next token of a sequence that repeats."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = RepeatModel()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
        for _ in tqdm(range(steps), file=sys.stdout, bar_format="{l_bar}{bar}| {remaining} left"):
            tokens = sample_repeats(32, model.embed.num_embeddings)  # (B, L)
            logits, _ = model.at_every_position(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.requires_grad_(False)
