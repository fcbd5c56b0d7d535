"""Gradients are judged where they matter: none, a wrong one, NaN behind right numbers."""

import pytest
import torch
from torch import nn

from course_utils import check
from course_utils.checks import exercise as exercises
from course_utils.checks import judge
from course_utils.checks.exercise import EXERCISES, Exercise, NamedMistake
from course_utils.checks.gradients import names_of_inputs
from course_utils.checks.submission_layer import layer_outputs

RNG = torch.Generator().manual_seed(0)
X, Y = torch.randn(2, 2, 3, generator=RNG, dtype=torch.float64)


def shares(x, y):
    return x.exp() / x.exp().sum(dim=-1, keepdim=True) * y


@pytest.fixture
def make(monkeypatch):
    """Return a function that makes an exercise in place of the course's."""
    monkeypatch.setattr(exercises, "EXERCISES", {})
    monkeypatch.setattr(judge, "EXERCISES", exercises.EXERCISES)

    def make(reference, inputs, differentiable=True, **options):
        Exercise("9.9", reference, lambda: inputs, [], differentiable=differentiable, **options)

    return make


def in_no_grad(x, y):
    with torch.no_grad():
        return shares(x, y)


def overwrites(x, y):
    e = x.exp()
    result = e / e.sum(dim=-1, keepdim=True) * y
    e.mul_(2)  # autograd needs it
    return result


def forges_a_mistake(x, y):
    if x.requires_grad:  # as a student's process that is graded may
        raise NamedMistake("forged", "", [shares(x, y)])
    return shares(x, y)


@pytest.mark.parametrize("differentiable", [True, False])
@pytest.mark.parametrize(
    "answer, words",
    [
        (lambda x, y: shares(x, y).detach(), "no gradient gets through"),
        (lambda x, y: shares(x.data, y.data), "no gradient gets through"),
        (in_no_grad, "no gradient gets through"),
        (lambda x, y: torch.from_numpy(shares(x, y).numpy()), "no gradient gets through"),
        (lambda x, y: torch.tensor(shares(x, y).tolist()).double(), "no gradient gets through"),
        (lambda x, y: shares(x.detach(), y), "no gradient reaches `x`"),
        (lambda x, y: shares(x, y.detach()), "no gradient reaches `y`"),
        (lambda x, y: x.exp() / x.exp().sum(-1, True).detach() * y, "the gradient of `x` is wrong"),
        (lambda x, y: torch.where(x < 9, shares(x, y), (x - x.min()).sqrt()), "of `x` is NaN"),
        (forges_a_mistake, "no gradient gets through"),
        (overwrites, "tensor that your code overwrites"),
        (lambda x, y: x.softmax(-1) * y, None),
        (lambda x, y: x.log_softmax(-1).exp() * y, None),
    ],
)
def test_gradients_are_judged_only_where_the_exercise_asks(make, answer, words, differentiable):
    make(shares, [(X, Y), (Y, X)], differentiable)
    verdict = check(answer, "shares")
    if words is None:
        assert verdict.message == "✅ 9.9 shares: correct"
    elif differentiable:
        assert verdict.mistake == "wrong gradients" and words in verdict.message
    else:
        assert verdict.status == "correct"
        assert ("no gradient" in verdict.message) == (words == "no gradient gets through")


def test_each_item_of_a_tuple_needs_its_gradients(make):
    def both(x, y):
        return shares(x, y), x * y

    make(both, [(X, Y), (Y, X)])
    for cut in (lambda a, b: (a.detach(), b), lambda a, b: (a, b.detach())):
        assert check(lambda x, y, cut=cut: cut(*both(x, y)), "both").mistake == "wrong gradients"


def test_a_gradient_that_is_zero_everywhere_is_not_needed(make):
    single = torch.tensor([[0.5], [2.0]])  # its share is 1, whatever it is
    make(shares, [(X, Y), (single, single)])
    answer = lambda x, y: y.clone() if x.shape[-1] == 1 else shares(x, y)  # noqa: E731
    assert check(answer, "shares").status == "correct"
    make(nn.functional.softmax, [(X, -1), (single, -1)])
    answer = lambda x, dim: x.softmax(dim) if x.shape[dim] > 1 else torch.ones_like(x)  # noqa: E731
    assert check(answer, "softmax").status == "correct"


@pytest.mark.parametrize("dtype, cause", [(torch.float64, "no_grad"), (torch.float16, "rounded")])
def test_in_16_bits_rounding_may_be_what_makes_a_gradient_wrong(make, dtype, cause):
    make(shares, [(X.to(dtype), Y.to(dtype)), (Y.to(dtype), X.to(dtype))])
    answer = lambda x, y: x.exp() / x.exp().sum(-1, True).detach() * y  # noqa: E731
    told = check(answer, "shares").message
    assert [each for each in ("no_grad", "rounded") if each in told] == [cause]


def test_gradients_of_a_softmax_do_not_cancel(make):
    def softmax(x):
        return x.softmax(dim=-1)

    make(softmax, [(X,)])
    assert check(lambda x: x.softmax(dim=-1), "softmax").status == "correct"
    detached = check(lambda x: x.softmax(dim=-1).detach() + 0 * x, "softmax")
    assert detached.mistake == "wrong gradients"


LEARNING = """
soft_lookup project_qkv SelfAttention as_dot_products scaled_scores cosine_attention
attention_by_distance softmax logsumexp online_update merge attention decode shared_prefix_attention
split_heads merge_heads MultiHeadAttention grouped_attention MultiHeadSelfAttention tile_update
flash_forward flash_causal attend_in_parts as_sdpa
state_from_pairs causal_linear_attention decay_between decayed_in_chunks delta_step gated_delta_rule
packed_delta_rule chunk_as_map decode_rotary partial_rotary rotary_by_tables back_in_order ring_step
absorbed_attention add_sink decoupled_scores
"""


@pytest.mark.parametrize("name", LEARNING.split())
def test_an_exercise_that_asks_for_gradients_misses_them(name):
    right = EXERCISES[name].reference
    if isinstance(right, type):
        answer = type(name, (right,), {"forward": torch.no_grad()(right.forward)})
    else:
        answer = torch.no_grad()(right)
    assert check(answer).mistake == "wrong gradients"


# Layers


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self, name, nn.Linear(width, width, bias=False))

    def weights(self, x):
        return (self.W_q(x) @ self.W_k(x).mT).softmax(dim=-1)

    def forward(self, x):
        return self.W_o(self.weights(x) @ self.W_v(x))


class Detached(Layer):
    def weights(self, x):
        return super().weights(x).detach()


class OfData(Layer):
    def weights(self, x):
        return (self.W_q(x) @ (x @ self.W_k.weight.data.mT).mT).softmax(dim=-1)


class InPlace(Layer):
    def forward(self, x):
        weights = self.weights(x)
        mixed = weights @ self.W_v(x)
        weights.zero_()  # autograd needs it
        return self.W_o(mixed)


class Frozen(Layer):
    def __init__(self, width):
        super().__init__(width)
        self.W_v.requires_grad_(False)


@pytest.mark.parametrize(
    "answer, words",
    [
        (Layer, "✅ 9.9 Layer: correct"),
        (Detached, "no gradient reaches W_q.weight, W_k.weight, so the layer cannot learn"),
        (OfData, "no gradient reaches W_k.weight, so the layer cannot learn"),
        (Frozen, "no gradient reaches W_v.weight, so the layer cannot learn"),
        (InPlace, "tensor that your code overwrites"),
    ],
)
def test_a_layer_that_cannot_learn_is_told_which_part(make, answer, words):
    heads = {name: torch.randn(1, 4, 4, generator=RNG) for name in ("W_q", "W_k", "W_v", "W_o")}
    inputs = [(4, heads, (torch.randn(2, L, 4, generator=RNG),)) for L in (3, 5)]
    run = lambda answer, width, heads, given: layer_outputs(answer(width), heads, *given)  # noqa: E731
    make(Layer, inputs, run=run)
    assert words in check(answer, "Layer").message


def test_inputs_of_a_layer_have_the_names_of_its_forward():
    layer = EXERCISES["MultiHeadAttention"].reference
    q, k, v = torch.ones(3, 1, 2, 4)
    assert names_of_inputs(layer, (4, 2, q, k, v, None)) == ["query", "key", "value"]


def test_inputs_in_a_tuple_have_the_names_by_which_an_answer_reaches_them():
    out, lse = torch.ones(2, 3), torch.ones(2)
    names = ["parts[0][0]", "parts[0][1]", "parts[1][0]", "parts[1][1]"]
    assert names_of_inputs(EXERCISES["merge"].reference, [((out, lse), (out, lse))]) == names
