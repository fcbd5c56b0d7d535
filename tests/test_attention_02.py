"""What lesson 02 builds, against PyTorch's own functions and by laws.

All in float64, where 100 roundings of terms that sum to 100 cost 1e-12, and are allowed 1e-7.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from course_utils.attention import attention, entropy


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(params=[(), (2,), (2, 3)], ids=str)
def qkv(request):
    lead = request.param
    return normal(*lead, 5, 4), normal(*lead, 7, 4, seed=1), normal(*lead, 7, 3, seed=2)


@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
def test_attention_is_sdpa(qkv, scale):
    output, weights = attention(*qkv, scale=scale)
    torch.testing.assert_close(output, F.scaled_dot_product_attention(*qkv, scale=scale))
    torch.testing.assert_close(output, weights @ qkv[2])
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (7,)], ids=str)
def test_masked_attention_is_sdpa_and_gives_no_weight_to_what_is_masked(qkv, shape):
    mask = normal(*shape, seed=3) > 0
    mask[..., 2] = True  # every query may see something
    output, weights = attention(*qkv, mask=mask)
    expected = F.scaled_dot_product_attention(*qkv, attn_mask=mask.expand(5, 7))
    torch.testing.assert_close(output, expected)
    assert (weights.masked_select(~mask) == 0).all()


def test_a_mask_of_each_batch_item_broadcasts_over_heads():
    q, k, v = normal(2, 3, 5, 4), normal(2, 3, 7, 4, seed=1), normal(2, 3, 7, 4, seed=2)
    mask = torch.arange(7) < torch.tensor([4, 7])[:, None, None, None]  # (B, 1, 1, S)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(attention(q, k, v, mask)[0], expected)


def test_default_scale_is_one_over_root_d_k_whatever_d_v():
    q, k, v = normal(5, 16), normal(7, 16, seed=1), normal(7, 2, seed=2)
    torch.testing.assert_close(attention(q, k, v), attention(q, k, v, scale=0.25))


def test_scaled_weights_have_the_same_entropy_at_every_width():
    def mean_entropy(d_k, scale):
        q, k = normal(400, 1, d_k), normal(400, 16, d_k, seed=1)
        return entropy(attention(q, k, k, scale=scale)[1]).mean().item()

    scaled = [mean_entropy(d_k, None) for d_k in (16, 64, 256)]
    unscaled = [mean_entropy(d_k, 1.0) for d_k in (16, 64, 256)]
    assert max(scaled) - min(scaled) < 0.1
    assert unscaled[0] - unscaled[-1] > 0.5


def test_attention_has_the_right_gradients():
    q, k, v = normal(3, 4), normal(5, 4, seed=1), normal(5, 2, seed=2)
    inputs = [t.requires_grad_() for t in (q, k, v)]
    assert torch.autograd.gradcheck(attention, inputs)


def test_permuting_keys_with_their_values_changes_no_output():
    q, k, v = normal(5, 4), normal(7, 4, seed=1), normal(7, 3, seed=2)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    torch.testing.assert_close(attention(q, k[order], v[order])[0], attention(q, k, v)[0])


@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 3, 5, 7)], ids=str)
def test_entropy_is_that_of_torch_distributions(shape):
    p = normal(*shape).softmax(dim=-1)
    torch.testing.assert_close(entropy(p), torch.distributions.Categorical(p).entropy())


def test_entropy_of_equal_shares_is_the_logarithm_of_their_number():
    for n in (1, 2, 5):
        p = F.pad(torch.full((n,), 1 / n, dtype=torch.float64), (0, 3))  # the rest has weight 0
        torch.testing.assert_close(entropy(p).item(), math.log(n))


def test_entropy_of_certainty_is_zero_without_a_minus_sign():
    assert f"{entropy(torch.tensor([0.0, 1.0, 0.0])).item()}" == "0.0"


def test_entropy_does_not_depend_on_the_order_and_adds_for_independent_choices():
    p, other = normal(7).softmax(-1), normal(4, seed=1).softmax(-1)
    torch.testing.assert_close(entropy(p.flip(0)), entropy(p))
    torch.testing.assert_close(entropy(p.outer(other).flatten()), entropy(p) + entropy(other))


@pytest.mark.parametrize(
    "change, error, names",
    [
        ({"q": [1.0]}, TypeError, ["q", "list"]),
        ({"k": torch.zeros(7, 3)}, ValueError, ["k", "(7, 3)", "d_k = 4"]),
        ({"v": torch.zeros(6, 3)}, ValueError, ["v", "(6, 3)", "S = 7"]),
        ({"q": torch.zeros(4)}, ValueError, ["q", "(4,)"]),
        ({"mask": torch.ones(5, 7)}, TypeError, ["mask", "boolean", "torch.float32"]),
        ({"mask": True}, TypeError, ["mask", "boolean", "bool"]),
        (
            {"mask": torch.ones(7, 5).bool()},
            ValueError,
            ["mask", "broadcast", "L = 5, S = 7", "(7, 5)"],
        ),
        ({"mask": torch.ones(6).bool()}, ValueError, ["mask", "S = 7", "(6,)"]),
    ],
)
def test_bad_input_is_named(change, error, names):
    given = {"q": torch.zeros(5, 4), "k": torch.zeros(7, 4), "v": torch.zeros(7, 3)} | change
    with pytest.raises(error) as raised:
        attention(**given)
    assert all(name in str(raised.value) for name in names), raised.value


def test_entropy_wants_a_tensor():
    with pytest.raises(TypeError, match="weights must be a torch.Tensor"):
        entropy([0.5, 0.5])
