"""Lesson 13: the three forms against each other and the published formulas; gradients; errors."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from course_utils.linear_attention import (
    decay_matrix,
    linear_attention_chunked,
    linear_attention_masked,
    linear_attention_recurrent,
)

SIZES = [((), 1, 1, 1), ((2,), 13, 4, 3), ((2, 3), 8, 3, 5), ((1, 2), 17, 6, 2)]
CHUNKS = [1, 4, 8, 99]
GATES = list(itertools.product([False, True], repeat=3))  # decay, beta, state


def draw(batch, L, d_k, d_v, dtype=torch.float64, seed=0):
    """Return q, k of norm 1, v, and decay, beta, state by their names."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    q, k, v = normal(*batch, L, d_k), normal(*batch, L, d_k), normal(*batch, L, d_v)
    gates = {
        "decay": 0.2 + 0.8 * normal(*batch, L).sigmoid(),
        "beta": normal(*batch, L).sigmoid(),
        "state": normal(*batch, d_k, d_v),
    }
    qkv = [each.to(dtype) for each in (q, F.normalize(k, dim=-1), v)]
    return qkv, {name: gate.to(dtype) for name, gate in gates.items()}


def some(gates, chosen):
    return {name: gate for (name, gate), take in zip(gates.items(), chosen, strict=True) if take}


def largest(one, other):
    return max((a - b).abs().max().item() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("chosen", GATES, ids=str)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_chunked_equals_recurrent(sizes, chosen, chunk):
    qkv, gates = draw(*sizes)
    gates = some(gates, chosen)
    recurrent = linear_attention_recurrent(*qkv, **gates)
    assert largest(linear_attention_chunked(*qkv, chunk, **gates), recurrent) < 1e-12


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("with_decay", [False, True])
def test_masked_equals_recurrent(sizes, with_decay):
    qkv, gates = draw(*sizes)
    gates = {"decay": gates["decay"]} if with_decay else {}
    out, _ = linear_attention_recurrent(*qkv, **gates)
    assert largest([linear_attention_masked(*qkv, **gates)], [out]) < 1e-12


# The published formulas, written with the state as in the papers: (d_v, d_k), S k for k's value


def published(step, qkv, gates):
    """Return outputs of one head by a step (S, k, v, a, b) -> S of a paper, and the state."""
    (q, k, v), S, outs = qkv, gates["state"].mT, []
    for t in range(len(q)):
        S = step(S, k[t], v[t], gates["decay"][t], gates["beta"][t])
        outs.append(S @ q[t])
    return torch.stack(outs), S.mT


def transition(k, b):
    return torch.eye(len(k), dtype=k.dtype) - b * torch.outer(k, k)


FORMULAS = {
    # Katharopoulos et al., 2020 (arXiv:2006.16236), without feature map and normalizer
    "linear attention": ([], lambda S, k, v, a, b: S + torch.outer(v, k)),
    # RetNet, Sun et al., 2023 (arXiv:2307.08621), the recurrent form; Mamba-2, Dao and Gu, 2024
    # (arXiv:2405.21060), with a number as A_t
    "decay": (["decay"], lambda S, k, v, a, b: a * S + torch.outer(v, k)),
    # DeltaNet: Yang et al., 2024 (arXiv:2406.06484)
    "delta rule": (["beta"], lambda S, k, v, a, b: S @ transition(k, b) + b * torch.outer(v, k)),
    # Gated DeltaNet: Yang et al., 2024 (arXiv:2412.06464)
    "gated delta rule": (
        ["decay", "beta"],
        lambda S, k, v, a, b: S @ (a * transition(k, b)) + b * torch.outer(v, k),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_both_forms_equal_the_published_formula(name):
    used, step = FORMULAS[name]
    qkv, gates = draw((), 11, 4, 3)
    right = published(step, qkv, gates)
    given = {each: gates[each] for each in [*used, "state"]}
    assert largest(linear_attention_recurrent(*qkv, **given), right) < 1e-12
    assert largest(linear_attention_chunked(*qkv, 4, **given), right) < 1e-12


@pytest.mark.parametrize("decay", [1e-30, 0.0])
def test_strong_decays_stay_exact(decay):
    D = decay_matrix(torch.full((40,), decay))
    assert D.diagonal().eq(1).all() and D.triu(1).eq(0).all()
    assert D.diagonal(-1).eq(decay).all() and D.tril(-2).eq(0).all()


def test_a_decay_of_zero_starts_a_new_text():
    qkv, gates = draw((2,), 9, 4, 3)
    gates["decay"][:, 5] = 0
    alone = [each[:, 5:] for each in qkv]
    rest = {name: gates[name][:, 5:] for name in ("decay", "beta")}
    for chunk in (3, 9):
        out, state = linear_attention_chunked(*qkv, chunk, **gates)
        right = linear_attention_recurrent(*alone, **rest)
        assert largest([out[:, 5:], state], right) < 1e-12


@pytest.mark.parametrize("position", range(7))
def test_changing_the_future_changes_nothing(position):
    qkv, gates = draw((2,), 7, 4, 3)
    other, others = draw((2,), 7, 4, 3, seed=1)
    past, later = slice(0, position), slice(position, None)
    mixed = [torch.cat([a[:, past], b[:, later]], dim=1) for a, b in zip(qkv, other, strict=True)]
    now = dict(gates)
    for name in ("decay", "beta"):
        now[name] = torch.cat([gates[name][:, past], others[name][:, later]], dim=1)
    for form in (linear_attention_recurrent, lambda *a, **g: linear_attention_chunked(*a, 3, **g)):
        before, after = form(*qkv, **gates)[0], form(*mixed, **now)[0]
        assert torch.equal(before[:, past], after[:, past])


@pytest.mark.parametrize("chosen", GATES, ids=str)
def test_gradients_of_both_forms(chosen):
    qkv, gates = draw((2,), 5, 3, 2)
    gates = some(gates, chosen)
    given = [each.requires_grad_() for each in (*qkv, *gates.values())]

    def recurrent(q, k, v, *rest):
        return linear_attention_recurrent(q, k, v, **dict(zip(gates, rest, strict=True)))

    def chunked(q, k, v, *rest):
        return linear_attention_chunked(q, k, v, 2, **dict(zip(gates, rest, strict=True)))

    assert torch.autograd.gradcheck(recurrent, given)
    assert torch.autograd.gradcheck(chunked, given)


@pytest.mark.parametrize(
    "form",
    [
        linear_attention_masked,
        linear_attention_recurrent,
        lambda q, k, v, decay: linear_attention_chunked(q, k, v, 4, decay),
    ],
)
def test_gradients_of_a_decay_that_is_0(form):
    qkv, gates = draw((2,), 5, 3, 2)
    gates["decay"][:, 2] = 0
    given = [each.requires_grad_() for each in (*qkv, gates["decay"])]
    out = form(*given)
    slopes = torch.autograd.grad(out[0] if type(out) is tuple else out, given, torch.ones(2, 5, 2))
    assert all(slope.isfinite().all() for slope in slopes)


def test_gradients_of_the_masked_form():
    qkv, gates = draw((2,), 5, 3, 2)
    given = [each.requires_grad_() for each in (*qkv, gates["decay"])]
    assert torch.autograd.gradcheck(linear_attention_masked, given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_is_summed_in_float32(dtype):
    qkv, gates = draw((2, 3), 64, 8, 8, dtype=dtype)
    exact = linear_attention_recurrent(
        *(each.double() for each in qkv), **{name: gate.double() for name, gate in gates.items()}
    )
    for out, state in (
        linear_attention_recurrent(*qkv, **gates),
        linear_attention_chunked(*qkv, 16, **gates),
    ):
        assert out.dtype == dtype and state.dtype == torch.float32
        assert largest([state], [exact[1]]) < 1e-5
        size = exact[0].abs().max()
        assert largest([out], [exact[0]]) < size * (torch.finfo(dtype).eps + 1e-5)
    out = linear_attention_masked(*qkv, gates["decay"])
    exact = linear_attention_masked(*(each.double() for each in (*qkv, gates["decay"])))
    assert out.dtype == dtype
    assert largest([out], [exact]) < exact.abs().max() * (torch.finfo(dtype).eps + 1e-5)


def test_all_is_computed_where_the_inputs_are():
    qkv, gates = draw((2,), 6, 4, 3)
    with torch.device("meta"):  # what is created without naming a device is elsewhere
        outs = [
            linear_attention_masked(*qkv, gates["decay"]),
            *linear_attention_recurrent(*qkv, gates["decay"], gates["beta"]),
            *linear_attention_chunked(*qkv, 4, gates["decay"], gates["beta"]),
        ]
    assert all(out.device == qkv[0].device for out in outs)


def test_no_tokens_leave_the_state_as_it_is():
    qkv, gates = draw((2,), 0, 4, 3)
    for out, state in (
        linear_attention_recurrent(*qkv, state=gates["state"]),
        linear_attention_chunked(*qkv, 4, state=gates["state"]),
    ):
        assert out.shape == (2, 0, 3) and torch.equal(state, gates["state"])
    assert linear_attention_masked(*qkv).shape == (2, 0, 3)


def test_inputs_stay_as_they_are():
    qkv, gates = draw((2,), 6, 4, 3)
    before = [each.clone() for each in (*qkv, *gates.values())]
    linear_attention_masked(*qkv, decay=gates["decay"])
    linear_attention_recurrent(*qkv, **gates)
    linear_attention_chunked(*qkv, 4, **gates)
    assert all(map(torch.equal, before, (*qkv, *gates.values())))


BAD = {
    "k of another width": ({"k": torch.zeros(2, 6, 5)}, ValueError, ["k ", "(2, 6, 5)"]),
    "v of another length": ({"v": torch.zeros(2, 5, 3)}, ValueError, ["v ", "(2, 5, 3)"]),
    "v of another batch": ({"v": torch.zeros(1, 6, 3)}, ValueError, ["v ", "(1, 6, 3)"]),
    "whole numbers": ({"q": torch.zeros(2, 6, 4).long()}, TypeError, ["q ", "int64"]),
    "a list": ({"v": [[1.0]]}, TypeError, ["v ", "list"]),
    "one decay per head": ({"decay": torch.ones(2, 1)}, ValueError, ["decay ", "(2, 1)"]),
    "decay above 1": ({"decay": torch.full((2, 6), 1.5)}, ValueError, ["decay ", "1.5"]),
    "decay below 0": ({"decay": torch.full((2, 6), -0.5)}, ValueError, ["decay ", "-0.5"]),
    "decay NaN": ({"decay": torch.full((2, 6), torch.nan)}, ValueError, ["decay ", "nan"]),
    "beta above 1": ({"beta": torch.full((2, 6), 1.5)}, ValueError, ["beta ", "1.5"]),
    "beta a number": ({"beta": 0.5}, TypeError, ["beta ", "float"]),
    "state transposed": ({"state": torch.zeros(2, 3, 4)}, ValueError, ["state ", "(2, 3, 4)"]),
    "chunk of 0": ({"chunk": 0}, ValueError, ["chunk ", "0"]),
    "chunk of 2.0": ({"chunk": 2.0}, TypeError, ["chunk ", "float"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_with_what_came(name):
    change, kind, words = BAD[name]
    given = {"q": torch.zeros(2, 6, 4), "k": torch.zeros(2, 6, 4), "v": torch.zeros(2, 6, 3)}
    forms = [linear_attention_chunked]
    if "chunk" not in change:
        forms.append(linear_attention_recurrent)
        if not {"beta", "state"} & change.keys():
            forms.append(linear_attention_masked)
    for form in forms:
        extra = {"chunk": 4} if form is linear_attention_chunked else {}
        with pytest.raises(kind) as raised:
            form(**{**given, **extra, **change})
        assert all(word in str(raised.value) for word in words), raised.value
