"""Compare lesson 10's `built` with transformers, on small Llama and Qwen2 models.

The weights are random, and both kinds have an output matrix of their own. Qwen2 also has biases.
Prints, for each seed, the largest difference of the logits and the largest logit. Needs
transformers, which the course itself does not use: pip install transformers.
Usage: .venv/bin/python benchmarks/other_checkpoints.py [SEEDS]

Five seeds, on one CPU, with transformers 5.24:
    Llama    differences up to 9.5e-07, logits up to 0.60
    Qwen2    differences up to 1.6e-06, logits up to 0.50
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from induction_seeds import definitions

LESSON = Path(__file__).parents[1] / "notebooks" / "10_a_real_model.ipynb"
KINDS = {"Llama": (LlamaConfig, LlamaForCausalLM), "Qwen2": (Qwen2Config, Qwen2ForCausalLM)}
SIZES = dict(vocab_size=50, hidden_size=48, intermediate_size=64, num_hidden_layers=2)
HEADS = dict(num_attention_heads=6, num_key_value_heads=2)
ROPE = {"rope_type": "default", "rope_theta": 500_000.0}
SETTINGS = SimpleNamespace(layers=2, H=6, H_kv=2, base=500_000, interleaved=False, eps=1e-6)
NAMES = {  # names of tensors: in transformers, and in the lesson
    "model.embed_tokens": "embedding",
    "model.norm": "norm",
    "lm_head": "output",
    "model.layers": "blocks",
    "input_layernorm": "norm_1",
    "post_attention_layernorm": "norm_2",
    **{f"self_attn.{role}_proj": f"attention.W_{role}" for role in "qkvo"},
    **{f"mlp.{part}_proj": f"mlp.W_{part}" for part in ("gate", "up", "down")},
}


def renamed(tensors):
    """Return the tensors of a model of transformers under the names of the lesson."""
    W = {}
    for name, tensor in tensors.items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        if name.endswith(".bias"):
            name = name.replace("W_", "b_")
        W[name.removesuffix(".weight").removesuffix(".bias")] = tensor
    return W


@torch.no_grad()
def main(seeds=5):
    lesson = definitions(LESSON, W=None, SMOLLM2=None)  # defaults of `built`
    built, tokens = lesson["built"], torch.arange(50)[None]  # (1, L)
    for kind, (config, model_class) in KINDS.items():
        for seed in range(seeds):
            torch.manual_seed(seed)
            options = {"rms_norm_eps": SETTINGS.eps, "tie_word_embeddings": False}
            model = model_class(config(**SIZES, **HEADS, rope_parameters=ROPE, **options)).eval()
            for name, tensor in model.named_parameters():
                if "proj" in name:
                    tensor.normal_(0, 0.3)
            expected = model(tokens).logits  # (1, L, V)
            logits = built(tokens, W=renamed(model.state_dict()), s=SETTINGS)
            error = (logits - expected).abs().max()
            print(f"{kind} seed {seed}: difference {error:.1e}, largest {expected.abs().max():.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
