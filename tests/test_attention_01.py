"""What lesson 01 builds, against PyTorch's own functions and by laws.

All in float64, where 100 roundings of terms that sum to 100 cost 1e-12, and are allowed 1e-7.
"""

import pytest
import torch
import torch.nn.functional as F

from course_utils.attention import (
    AdditiveScore,
    SelfAttention,
    cosine_similarity,
    dot_product_scores,
    euclidean_distance,
)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(params=[(), (2,), (2, 3)], ids=str)
def qk(request):
    return normal(*request.param, 5, 4), normal(*request.param, 7, 4, seed=1)


def test_dot_products_are_sums_over_the_width(qk):
    q, k = qk
    torch.testing.assert_close(dot_product_scores(q, k), torch.einsum("...ld,...sd->...ls", q, k))


def test_cosine_is_that_of_torch(qk):
    q, k = qk
    expected = F.cosine_similarity(q[..., :, None, :], k[..., None, :, :], dim=-1)
    torch.testing.assert_close(cosine_similarity(q, k), expected)


def test_cosine_ignores_length_and_is_zero_for_a_zero_vector():
    q, k = normal(5, 4), normal(7, 4, seed=1)
    k[2] = 0
    torch.testing.assert_close(cosine_similarity(3 * q, 0.1 * k), cosine_similarity(q, k))
    assert (cosine_similarity(q, k)[:, 2] == 0).all()


def test_distance_is_that_of_torch(qk):
    torch.testing.assert_close(euclidean_distance(*qk), torch.cdist(*qk))


def test_the_identity_between_distance_and_dot_product():
    q, k = normal(5, 4), normal(7, 4, seed=1)
    squares = q.square().sum(-1)[:, None] + k.square().sum(-1) - 2 * dot_product_scores(q, k)
    torch.testing.assert_close(euclidean_distance(q, k).square(), squares)


@pytest.mark.parametrize("measure", [dot_product_scores, cosine_similarity, euclidean_distance])
def test_permuting_keys_permutes_columns(measure):
    q, k = normal(5, 4), normal(7, 4, seed=1)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    torch.testing.assert_close(measure(q, k[order]), measure(q, k)[:, order])


def test_additive_score_is_bahdanaus_formula_pair_by_pair():
    score = AdditiveScore(3, 4, 6).double()
    q, k = normal(2, 5, 3), normal(2, 7, 4, seed=1)
    scores = score(q, k)
    assert scores.shape == (2, 5, 7)
    W_q, W_k, w = score.W_q.weight, score.W_k.weight, score.w.weight[0]
    expected = w @ torch.tanh(W_q @ q[1, 3] + W_k @ k[1, 6])
    torch.testing.assert_close(scores[1, 3, 6], expected)


@pytest.mark.parametrize("widths", [(6, None, None), (6, 4, None), (6, 4, 3)], ids=str)
def test_self_attention_is_sdpa_between_projections(widths):
    layer = SelfAttention(*widths).double()
    x = normal(2, 5, 6)
    output, weights = layer(x)
    q, k, v = layer.W_q(x), layer.W_k(x), layer.W_v(x)
    torch.testing.assert_close(output, layer.W_o(F.scaled_dot_product_attention(q, k, v)))
    torch.testing.assert_close(output, layer.W_o(weights @ v))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5, dtype=torch.float64))


def test_self_attention_default_widths_and_parameter_count():
    def count(*widths):
        return sum(p.numel() for p in SelfAttention(*widths).parameters())

    assert count(6) == 4 * 6 * 6
    assert count(6, 4) == 4 * 6 * 4
    assert count(6, 4, 3) == 2 * 6 * 4 + 2 * 6 * 3


def test_self_attention_has_the_right_gradients():
    layer = SelfAttention(4, 3, 2).double()
    assert torch.autograd.gradcheck(lambda x: layer(x)[0], normal(5, 4).requires_grad_())


def test_shuffling_the_tokens_shuffles_the_outputs():
    layer, x = SelfAttention(6, 4, 3).double(), normal(5, 6)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(layer(x[order])[0], layer(x)[0][order])
