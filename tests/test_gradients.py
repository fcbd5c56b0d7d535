"""Gradients are judged where they matter: none, a wrong one, NaN behind right numbers."""

import pytest
import torch
from torch import nn

from course_utils import check
from course_utils.checks import exercise as exercises
from course_utils.checks import judge
from course_utils.checks.exercise import EXERCISES, Exercise
from course_utils.checks.submission_layer import layer_outputs


def shares(x, y):
    return x.exp() / x.exp().sum(dim=-1, keepdim=True) * y


def inputs():
    rng = torch.Generator().manual_seed(0)
    return [(torch.randn(2, 3, generator=rng), torch.randn(2, 3, generator=rng)) for _ in range(2)]


@pytest.fixture(params=[True, False], ids=["differentiable", "numbers only"])
def asked(request, monkeypatch):
    """Make an exercise in which gradients are asked, or not; return which."""
    monkeypatch.setattr(exercises, "EXERCISES", {})
    monkeypatch.setattr(judge, "EXERCISES", exercises.EXERCISES)
    Exercise("9.9", shares, inputs, [], differentiable=request.param)
    return request.param


def test_a_gradient_that_is_zero_everywhere_need_not_come(monkeypatch):
    monkeypatch.setattr(exercises, "EXERCISES", {})
    monkeypatch.setattr(judge, "EXERCISES", exercises.EXERCISES)
    single = torch.tensor([[0.5], [2.0]])  # its share is 1, whatever it is
    Exercise("9.9", shares, lambda: [*inputs(), (single, single)], [], differentiable=True)
    verdict = check(lambda x, y: y.clone() if x.shape[-1] == 1 else shares(x, y), "shares")
    assert verdict.message == "✅ 9.9 shares: correct"


def in_no_grad(x, y):
    with torch.no_grad():
        return shares(x, y)


CUT = [
    lambda x, y: shares(x, y).detach(),
    lambda x, y: shares(x.data, y.data),
    in_no_grad,
    lambda x, y: torch.from_numpy(shares(torch.from_numpy(x.numpy()), y).numpy()),
    lambda x, y: torch.tensor(shares(x, y).tolist()),
]


@pytest.mark.parametrize("answer", CUT)
def test_an_answer_without_gradients_is_wrong_or_told_so(asked, answer):
    verdict = check(answer, "shares")
    if asked:
        assert (verdict.status, verdict.mistake) == ("wrong", "wrong gradients")
        assert "no gradient gets through" in verdict.message
    else:
        assert verdict.status == "correct"
        assert verdict.message.endswith("; no gradient gets through it, which this exercise does "
                                        "not ask for")  # fmt: skip


WRONG = [
    (lambda x, y: shares(x.detach(), y), "no gradient reaches x"),
    (lambda x, y: shares(x, y.detach()), "no gradient reaches y"),
    (
        lambda x, y: x.exp() / x.exp().sum(dim=-1, keepdim=True).detach() * y,
        "the gradient of x is another (expected ",
    ),
    (
        lambda x, y: torch.where(x < 9, shares(x, y), (x - x).sqrt()),
        "the gradient of x is NaN",
    ),
]


@pytest.mark.parametrize("answer, words", WRONG)
def test_a_wrong_gradient_is_told_by_the_name_of_its_input(asked, answer, words):
    verdict = check(answer, "shares")
    assert (verdict.status == "wrong") == asked
    assert (words in verdict.message) == asked


def test_right_gradients_are_nothing_to_talk_about(asked):
    assert check(lambda x, y: x.softmax(-1) * y, "shares").message == "✅ 9.9 shares: correct"
    assert check(lambda x, y: x.log_softmax(-1).exp() * y, "shares").status == "correct"


def test_an_error_in_the_gradient_alone_is_the_answers(asked):
    def overwrites(x, y):
        powers = x.exp()
        result = powers / powers.sum(dim=-1, keepdim=True) * y
        powers.mul_(2)  # autograd needs it
        return result

    verdict = check(overwrites, "shares")
    assert verdict.status == ("wrong" if asked else "correct")
    assert ("writes into a tensor whose old values" in verdict.message) == asked


ASKING = """
soft_lookup project_qkv SelfAttention as_dot_products scaled_scores cosine_attention
attention_by_distance softmax logsumexp online_update merge attention decode shared_prefix_attention
split_heads merge_heads MultiHeadAttention grouped_attention MultiHeadSelfAttention tile_update
flash_forward flash_causal attend_in_parts as_sdpa
"""


@pytest.mark.parametrize("name", ASKING.split())
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

    def forward(self, x):
        weights = (self.W_q(x) @ self.W_k(x).mT).softmax(dim=-1)
        return self.W_o(weights @ self.W_v(x))


class Detached(Layer):
    def forward(self, x):
        weights = (self.W_q(x) @ self.W_k(x).mT).softmax(dim=-1)
        return self.W_o(weights.detach() @ self.W_v(x))


class OfData(Layer):
    def forward(self, x):
        weights = (self.W_q(x) @ (x @ self.W_k.weight.data.mT).mT).softmax(dim=-1)
        return self.W_o(weights @ self.W_v(x))


class InPlace(Layer):
    def forward(self, x):
        weights = (self.W_q(x) @ self.W_k(x).mT).softmax(dim=-1)
        mixed = weights @ self.W_v(x)
        weights.zero_()  # autograd needs it
        return self.W_o(mixed)


class Frozen(Layer):
    def __init__(self, width):
        super().__init__(width)
        self.W_v.requires_grad_(False)


@pytest.fixture
def layer(monkeypatch):
    monkeypatch.setattr(exercises, "EXERCISES", {})
    monkeypatch.setattr(judge, "EXERCISES", exercises.EXERCISES)
    rng = torch.Generator().manual_seed(0)
    heads = {name: torch.randn(1, 4, 4, generator=rng) for name in ("W_q", "W_k", "W_v", "W_o")}

    def run(answer, width, heads, given):
        return layer_outputs(answer(width), heads, *given)

    given = [(4, heads, (torch.randn(2, L, 4, generator=rng),)) for L in (3, 5)]
    Exercise("9.9", Layer, lambda: given, [], run=run, differentiable=True)


@pytest.mark.parametrize(
    "answer, words",
    [
        (Detached, "no gradient reaches W_q.weight, W_k.weight, which cannot learn"),
        (OfData, "no gradient reaches W_k.weight, which cannot learn"),
        (Frozen, "no gradient reaches W_v.weight, which cannot learn"),
        (InPlace, "it writes into a tensor whose old values they still need"),
    ],
)
def test_a_layer_that_cannot_learn_is_told_which_part(layer, answer, words):
    verdict = check(answer, "Layer")
    assert verdict.status == "wrong" and words in verdict.message
    assert check(Layer).message == "✅ 9.9 Layer: correct"
