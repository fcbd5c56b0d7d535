"""A small language model and its tokenizer, for tests and for notebooks under test."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from course_utils.language_model import LanguageModel

TEXT = "the cat saw the dog, the cat"


def tiny_language_model(num_layers=3, num_heads=4, num_kv_heads=2, d_k=4):
    """Return a model with random weights, and a tokenizer of bytes that knows TEXT's words."""
    letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for word in [*(f"Ġ{word}" for word in "the cat saw dog".split()), "the"]:
        merges += [(word[:n], word[n]) for n in range(1, len(word))]
    merges = [*dict.fromkeys(merges)]
    vocabulary = [*letters, *("".join(pair) for pair in merges)]
    words = {word: n for n, word in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.BPE(words, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(False)
    tokenizer.decoder = decoders.ByteLevel()
    torch.manual_seed(0)
    sizes = {"V": len(words), "d_model": num_heads * d_k, "d_hidden": 12}
    model = LanguageModel(num_layers, num_heads=num_heads, num_kv_heads=num_kv_heads, **sizes)
    model.norm.weight.data.uniform_(0.5, 1.5)  # as trained ones are not 1 either
    for block in model.blocks:
        block.attention.W_o.weight.data *= 8  # so that each head matters
        block.attention.W_q.weight.data *= 3  # and looks at few tokens
    return model, tokenizer
