"""The explorer of lesson 12: how much memory does a cache take?"""

from course_utils.explorers.browser_explorer import BrowserExplorer, choice, number

LATENT = 512 + 64  # numbers per token and layer: DeepSeek-V3's latent and its k_rope
PATTERN = {"window": 1024, "every": 6}  # as in Gemma 3: every sixth layer keeps all tokens

# From the published settings: llama-models/models/sku_list.py, gemma_pytorch/gemma/config.py,
# gpt-oss/gpt_oss/torch/model.py, DeepSeek-V3/inference/configs/config_671B.json, SmolLM2's file.
# In layers with a window, a query sees `window` tokens, including its own. One of `every` layers
# has no window. The two widths are those of a key and a value.
MODELS = {
    "Llama 3.1 8B": {"layers": 32, "heads": 32, "kv_heads": 8, "widths": (128, 128)},
    "Llama 3.1 70B": {"layers": 80, "heads": 64, "kv_heads": 8, "widths": (128, 128)},
    "Gemma 3 27B": {"layers": 62, "heads": 32, "kv_heads": 16, "widths": (128, 128)} | PATTERN,
    "gpt-oss-120b": {"layers": 36, "heads": 64, "kv_heads": 8, "widths": (64, 64)}
    | {"window": 128, "every": 2},
    "DeepSeek-V3": {"layers": 61, "heads": 128, "kv_heads": 128, "widths": (192, 128)}
    | {"latent": LATENT},
    "SmolLM2-135M": {"layers": 30, "heads": 9, "kv_heads": 3, "widths": (64, 64)},
}
KINDS = ["as published", "heads not shared", "one KV head", "a latent", "windows"]
TOKENS = [1024, 8192, 32_768, 131_072]
BITS = [16, 8, 4, 3, 2]


def cache_explorer():
    """Choose a model, texts and a cache, and see how much of an 80 GB GPU the cache takes.

    Each kind of cache but the first changes one thing about the published model. With fewer than 16
    bits, each group of 32 numbers shares a minimum and a scale of 16 bits each.

    Returns
    -------
    BrowserExplorer
        With controls ``model``, ``tokens``, ``texts``, ``kind`` and ``bits``.
    """
    controls = {
        "model": choice("model", "Llama 3.1 70B", MODELS),
        "tokens": choice("tokens in a text", 8192, TOKENS),
        "texts": number("texts", 8, 1, 64, 1),
        "kind": choice("cache", KINDS[0], KINDS),
        "bits": choice("bits", 16, BITS),
    }
    given = {"models": MODELS, "kinds": KINDS, "pattern": PATTERN, "latent": LATENT}
    return BrowserExplorer("cache", controls, **given)
