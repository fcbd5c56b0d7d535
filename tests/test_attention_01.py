"""Lesson 01: scores and self-attention against PyTorch's functions, and by laws, in float64."""

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
from rounding import assert_same, normal

ORACLES = {
    dot_product_scores: lambda q, k: torch.einsum("...ld,...sd->...ls", q, k),
    cosine_similarity: lambda q, k: F.cosine_similarity(
        q[..., :, None, :], k[..., None, :, :], dim=-1
    ),
    euclidean_distance: torch.cdist,
}


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("ours", ORACLES, ids=lambda f: f.__name__)
def test_scores_and_their_gradients_are_pytorchs(ours, lead):
    assert_same(ours, ORACLES[ours], normal(*lead, 5, 4), normal(*lead, 7, 4, seed=1))


def test_a_vector_is_at_distance_0_from_itself_and_its_gradient_is_finite():
    x = F.normalize(normal(71, 8, dtype=torch.float32), dim=-1).requires_grad_()
    distances = euclidean_distance(x, x)
    assert distances.diagonal().eq(0).all()
    assert torch.autograd.grad(distances.sum(), x)[0].isfinite().all()


def test_cosine_ignores_length_and_is_zero_for_a_zero_vector():
    q, k = normal(5, 4), normal(7, 4, seed=1)
    k[2] = 0
    torch.testing.assert_close(cosine_similarity(3 * q, 0.1 * k), cosine_similarity(q, k))
    assert (cosine_similarity(q, k)[:, 2] == 0).all()


def test_additive_score_is_bahdanaus_formula_pair_by_pair():
    score = AdditiveScore(3, 4, 6).double()
    q, k = normal(2, 5, 3), normal(2, 7, 4, seed=1)
    W_q, W_k, w = score.W_q.weight, score.W_k.weight, score.w.weight[0]
    pairs = [w @ torch.tanh(W_q @ q[b, i] + W_k @ k[b, j])
             for b in range(2) for i in range(5) for j in range(7)]  # fmt: skip
    torch.testing.assert_close(score(q, k), torch.stack(pairs).view(2, 5, 7))


@pytest.mark.parametrize(
    "widths, parameters", [((6,), 4 * 36), ((6, 4), 4 * 24), ((6, 4, 3), 2 * 24 + 2 * 18)]
)
def test_self_attention_is_sdpa_between_projections(widths, parameters):
    layer = SelfAttention(*widths).double()

    def by_sdpa(x):
        context = F.scaled_dot_product_attention(layer.W_q(x), layer.W_k(x), layer.W_v(x))
        return layer.W_o(context)

    x = normal(2, 5, 6)
    assert_same(lambda x: layer(x)[0], by_sdpa, x)
    assert_same(lambda x: layer.W_o(layer(x)[1] @ layer.W_v(x)), by_sdpa, x)  # by its weights
    assert sum(p.numel() for p in layer.parameters()) == parameters
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(layer(x[:, order])[0], layer(x)[0][:, order])
