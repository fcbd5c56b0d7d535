"""The language model against a forward pass in NumPy, in float64, and by laws."""

import gguf
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from course_utils.attention import attention, rotary
from course_utils.language_model import LanguageModel, load
from course_utils.model_file import model_file
from course_utils.tiled import tiled_attention
from stored_notebooks import LESSONS, code, read

TEXT = "The capital of France is"
SMALL = dict(num_layers=3, V=40, d_model=24, num_heads=6, num_kv_heads=2, d_hidden=20)


@pytest.fixture(scope="module")
def loaded():
    return load()


@pytest.fixture
def small():
    """A model of three layers with random weights, and tokens for it, in float64."""
    torch.manual_seed(0)
    model = LanguageModel(**SMALL).double().requires_grad_(False)
    return model, torch.randint(SMALL["V"], (2, 11))


def next_logits(tokens):
    """Return the logits after the last of these tokens, computed from the file in NumPy."""
    weights = {
        t.name: gguf.dequantize(t.data, t.tensor_type)
        for t in gguf.GGUFReader(model_file()).tensors
    }
    x = weights["token_embd.weight"][tokens].astype(np.float64)

    def norm(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weights[name + "_norm.weight"]

    def rotated(vector, position):
        i = np.arange(32)
        z = (vector[0::2] + 1j * vector[1::2]) * np.exp(1j * position * 100_000.0 ** (-i / 32))
        return np.stack([z.real, z.imag], -1).ravel()

    for layer in range(30):

        def weight(name, layer=layer):
            return weights[f"blk.{layer}.{name}.weight"].astype(np.float64)

        normed = norm(x, f"blk.{layer}.attn")
        q, k, v = (normed @ weight(f"attn_{name}").T for name in "qkv")
        heads = np.zeros_like(x)
        for head in range(9):
            own, shared = (slice(64 * n, 64 * n + 64) for n in (head, head // 3))
            keys = [rotated(row, position) for position, row in enumerate(k[:, shared])]
            for position, row in enumerate(q[:, own]):
                scores = np.array(keys[: position + 1]) @ rotated(row, position) / 8
                p = np.exp(scores - scores.max())
                heads[position, own] = p / p.sum() @ v[: position + 1, shared]
        x = x + heads @ weight("attn_output").T
        normed = norm(x, f"blk.{layer}.ffn")
        gate = normed @ weight("ffn_gate").T
        hidden = gate / (1 + np.exp(-gate)) * (normed @ weight("ffn_up").T)
        x = x + hidden @ weight("ffn_down").T
    return norm(x[-1], "output") @ weights["token_embd.weight"].T.astype(np.float64)


@pytest.mark.slow
def test_logits_are_those_of_a_forward_in_numpy(loaded):
    model, tokenizer = loaded
    tokens = tokenizer.encode(TEXT).ids
    expected = next_logits(tokens)
    model.double()
    try:
        got = model(torch.tensor([tokens]))[0, -1].numpy()
    finally:
        model.float()
    # 30 layers of sums of up to 1,536 terms: far less than 1e-9 of the largest in float64
    assert abs(got - expected).max() < 1e-9 * abs(expected).max()


def test_the_capital_of_france(loaded):
    model, tokenizer = loaded
    chances = model(torch.tensor([tokenizer.encode(TEXT).ids]))[0, -1].softmax(dim=-1)
    assert tokenizer.decode([chances.argmax()]) == " Paris"
    assert chances.max() > 0.5
    kinds = {(each.dtype, each.requires_grad) for each in model.parameters()}
    assert kinds == {(torch.float32, False)}


@pytest.mark.parametrize(
    "text", ["  two  spaces\n\ttab", "naïve Ωμέγα 東京 🙂", "12345 + 67", "it's, isn't it?", ""]
)
def test_a_text_comes_back_from_its_tokens(loaded, text):
    assert loaded[1].decode(loaded[1].encode(text).ids) == text


def test_tokens_are_those_the_model_was_trained_on(loaded):
    tokenizer = loaded[1]
    assert tokenizer.encode(TEXT).ids == [504, 3575, 282, 4649, 314]
    assert [tokenizer.decode([each]) for each in tokenizer.encode("1234").ids] == list("1234")
    start, *_, end = tokenizer.encode("<|im_start|>user<|im_end|>").ids
    assert (start, end) == (1, 2)


def test_a_new_model_can_learn_in_every_parameter():
    model, tokens = LanguageModel(**SMALL), torch.arange(11)[None]
    F.cross_entropy(model(tokens)[0, :-1], tokens[0, 1:]).backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


@pytest.mark.parametrize("pieces", [[11], [1] * 11, [4, 1, 6], [10, 1]])
def test_with_a_cache_the_logits_are_those_without(small, pieces):
    model, tokens = small
    cache = {}
    got = torch.cat([model(piece, cache) for piece in tokens.split(pieces, dim=1)], dim=1)
    torch.testing.assert_close(got, model(tokens))
    assert [keys.shape for keys, _ in cache.values()] == 3 * [(2, 2, 11, 4)]
    assert [values.shape for _, values in cache.values()] == 3 * [(2, 2, 11, 4)]


@pytest.mark.parametrize(
    "attend",
    [tiled_attention, lambda q, k, v, mask: (F.scaled_dot_product_attention(q, k, v, mask), None)],
)
def test_any_right_attention_gives_the_same_logits(small, attend):
    model, tokens = small
    torch.testing.assert_close(model(tokens, attend=attend), model(tokens))


@pytest.mark.parametrize(
    "options",
    [
        {"attend": lambda q, k, v, mask: attention(q, k, v, mask, scale=1)},
        {"attend": lambda q, k, v, mask: attention(q, k, v)},
        {"rotate": lambda x, positions: rotary(x, positions, base=100_000)},
        {"rotate": lambda x, positions: x},
    ],
)
def test_a_wrong_attention_or_rotation_does_not(small, options):
    model, tokens = small
    assert (model(tokens, **options) - model(tokens)).abs().max() > 1e-3


def test_on_heads_sees_every_layer_in_order_and_what_it_returns_goes_on(small):
    model, tokens = small
    seen = []

    def without_1_4(layer, heads, weights):
        seen.append((layer, heads.shape, weights.shape))
        mask = torch.ones(6, 1, 1)
        mask[4] = layer != 1
        return heads * mask

    got = model(tokens, on_heads=without_1_4)
    assert seen == [(layer, (2, 6, 11, 4), (2, 6, 11, 11)) for layer in range(3)]
    model.blocks[1].attention.W_o.weight[:, 16:20] = 0  # the columns of head 4
    torch.testing.assert_close(got, model(tokens))
    torch.testing.assert_close(model.read_out(model.stream(tokens)), model(tokens))


def test_a_low_temperature_of_lesson_10_gives_the_likeliest_token():
    (lesson,) = (path for path in LESSONS if path.name.startswith("10_"))
    (cell,) = (cell for cell in code(read(lesson)) if "def sample(" in cell.source)
    scope = {"torch": torch, "encode": str, "decode": lambda tokens: str(tokens.item())}
    scope["model"] = lambda new, cache: torch.tensor([[[1.0, 3.0, 2.0]]])
    exec(cell.source.split("\n\n\n")[0], scope)
    assert scope["sample"]("", 20, T=0.01) == 20 * "1" != scope["sample"]("", 20, T=9)
