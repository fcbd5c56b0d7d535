"""Kernels of learners: interpreted with or without a GPU, within their tensors' memory."""

import os
import subprocess
import sys
import types

import pytest
import torch

from course_utils import check
from course_utils.attention import attention, causal_mask, sliding_window_mask
from course_utils.checks import judge
from course_utils.checks.exercise import EXERCISES
from course_utils.checks.submission_kernel import OutOfBounds, launch, launches, tl, triton

InterpretedFunction = pytest.importorskip("triton.runtime.interpreter").InterpretedFunction
FACTOR = 2


@triton.jit
def doubled(x_ptr, out_ptr, n, shift, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i + shift, mask=i < n), mask=i < n)


@triton.jit
def total(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.sum(x, axis=0) + x.max(0) + tl.cdiv(BLOCK, 3))


@triton.jit
def multiple_of_the_sum(x):
    return FACTOR * tl.sum(x, axis=0)


@triton.jit
def twice_the_multiple(x):
    return 2 * multiple_of_the_sum(x)


@triton.jit
def with_a_helpers_helper(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, FACTOR * twice_the_multiple(tl.load(x_ptr + tl.arange(0, BLOCK))))


@triton.jit
def adds(x_ptr, shift):
    tl.atomic_add(x_ptr + shift, 1.0)


@triton.jit
def swaps(x_ptr, shift):
    tl.atomic_cas(x_ptr + shift, 0, 1)


@triton.jit
def unfinished(x_ptr):
    raise NotImplementedError("your turn")


@triton.jit
def calls_unfinished(x_ptr):
    unfinished(x_ptr)


holder = types.SimpleNamespace(unfinished=InterpretedFunction(unfinished.fn))


@triton.jit
def calls_unfinished_of_a_holder(x_ptr):
    holder.unfinished(x_ptr)


def test_a_kernel_is_interpreted_and_its_reads_are_counted_by_program():
    x, out = torch.arange(6.0), torch.zeros(6)
    with launches() as recorded:
        work = launch(doubled, (2,), x, out, 6, 0, BLOCK=4)
    assert out.equal(2 * x)
    assert work.read == {("x_ptr", (0, 0, 0)): 4, ("x_ptr", (1, 0, 0)): 2}
    assert recorded == [work]


def test_a_kernel_may_call_functions_and_sees_the_present_value_of_a_global(monkeypatch):
    x, out = torch.arange(4.0), torch.zeros(1)
    for factor in (2, 5):
        monkeypatch.setattr(sys.modules[__name__], "FACTOR", factor)
        launch(with_a_helpers_helper, (1,), x, out, BLOCK=4)
        assert out.item() == 2 * factor**2 * 6


def test_what_a_launch_changes_is_restored(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    holders = tl, tl.core, tl.math, tl.standard, tl.tensor, sys.modules[__name__]
    before = [dict(vars(holder)) for holder in holders]
    out = torch.zeros(1)
    launch(total, (1,), torch.arange(4.0), out, BLOCK=4)  # tl.sum, max and cdiv are in Triton
    assert out.item() == 6 + 3 + 2
    for holder, names in zip(holders, before, strict=True):
        assert all(vars(holder)[name] is value for name, value in names.items())
    assert "TRITON_INTERPRET" not in os.environ


def zeros(n, dtype=torch.float32):
    return torch.zeros(12, dtype=dtype)[:n].clone()


@pytest.mark.parametrize(
    "kernel, arguments, words",
    [
        (
            doubled,
            (zeros(4), zeros(4), 4, 1),
            "it reads beyond the last number of x_ptr, by up to 1",
        ),
        (doubled, (zeros(4), zeros(4), 4, -3), "before the first number of x_ptr, by up to 3"),
        (doubled, (zeros(4), zeros(4), 4, 10**9), "it reads beyond"),
        (doubled, (zeros(8), zeros(2), 8, 0), "it writes beyond the last number of out_ptr, by up"),
        (adds, (zeros(4), 4), "it writes beyond the last number of x_ptr, by up to 1"),
        (
            swaps,
            (zeros(4, torch.int32), 4),
            "it writes beyond the last number of x_ptr, by up to 1",
        ),
    ],
)
def test_an_address_outside_the_tensors_stops_the_kernel_before_it_is_used(
    kernel, arguments, words
):
    block = {"BLOCK": 8} if kernel is doubled else {}
    with pytest.raises(OutOfBounds, match=words):
        launch(kernel, (1,), *arguments, **block)
    assert not any(each.any() for each in arguments if isinstance(each, torch.Tensor))


@pytest.mark.parametrize("kernel", [adds, swaps])
def test_an_atomic_write_within_the_tensor_is_done(kernel):
    x = zeros(4, torch.float32 if kernel is adds else torch.int32)
    launch(kernel, (1,), x, 3)
    assert x.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("kernel", [unfinished, calls_unfinished, calls_unfinished_of_a_holder])
def test_an_error_in_a_kernel_is_the_learners_as_it_was_raised(kernel):
    with pytest.raises(NotImplementedError, match="your turn") as raised:
        launch(kernel, (1,), torch.zeros(1))
    assert raised.value.tag_learner_errors


def test_a_kernel_with_other_arguments_is_wrong(monkeypatch):
    monkeypatch.setattr(EXERCISES["windowed_kernel"], "mistakes", [])  # which take long
    assert check(unfinished, "windowed_kernel").status == "wrong"


# The references against the course's own attention


def windowed(q, k, v, window):
    return attention(q, k, v, sliding_window_mask(len(q), window) & causal_mask(len(q)))[0]


def decoding(q, k, v, *_):
    k, v = (x.repeat_interleave(q.shape[-2] // x.shape[-3], -3) for x in (k, v))
    return attention(q[..., None, :], k, v)[0][..., 0, :]


@pytest.mark.parametrize(
    "name, right, tolerance",
    [
        ("windowed_kernel", windowed, 1e-5),
        ("grouped_kernel", decoding, 1e-4),  # e^x in float32 is off by more the larger x is
        ("split_decode", decoding, 1e-4),
        ("half_kernel", lambda q, k, v: attention(q, k, v)[0], 2**-9),
        ("lazy_rescale", lambda q, k, v, *_: attention(q, k, v)[0], 1e-5),
    ],
)
def test_the_references_are_the_courses_attention(name, right, tolerance):
    exercise = EXERCISES[name]
    for args, result in zip(exercise.inputs(), judge.expected(exercise), strict=True):
        q, k, v, *rest = args
        out = result[0] if isinstance(result, tuple) else result
        assert (out - right(q.double(), k.double(), v.double(), *rest)).abs().max() < (
            tolerance * v.abs().max()
        )


def test_the_log_sum_exps_of_the_half_reference_are_those_of_the_scores():
    exercise = EXERCISES["half_kernel"]
    for (q, k, _), (_, lse) in zip(exercise.inputs(), judge.expected(exercise), strict=True):
        scores = q.double() @ k.double().mT / q.shape[-1] ** 0.5
        assert (lse - scores.logsumexp(-1)).abs().max() < 2**-20 * scores.abs().max().clamp(min=1)


def test_no_decision_of_the_lazy_reference_is_a_matter_of_rounding():
    exercise = EXERCISES["lazy_rescale"]
    for q, k, v, block, tau in exercise.inputs():
        rescales = [exercise.reference(q, k, v, block, tau + off)[2] for off in (-1e-3, 0, 1e-3)]
        assert not tau or rescales[0].equal(rescales[1]) and rescales[1].equal(rescales[2])


def test_the_cubic_is_off_by_less_than_a_ten_thousandth():
    y, error = EXERCISES["exp2_polynomial"].reference(torch.linspace(-20, 0, 100_000))
    assert 8e-5 < error < 9e-5


# Where there is no Triton, or it was imported to compile

WITHOUT = """
import sys
sys.modules["triton"] = None
from course_utils import check
from course_utils.checks.submission_kernel import tl, triton
@triton.jit
def windowed_kernel(q_ptr, D: tl.constexpr):
    raise NotImplementedError("your turn")
print(check(windowed_kernel))
def exp2_polynomial(x):
    raise NotImplementedError("your turn")
print(check(exp2_polynomial))
"""
COMPILED = """
import os
os.environ["TRITON_INTERPRET"] = "0"
from course_utils import check
from course_utils.checks.exercise import EXERCISES
print(check(EXERCISES["windowed_kernel"].reference))
"""


@pytest.mark.parametrize(
    "program, starts",
    [
        (WITHOUT, ["⚠️ 6b.1 windowed_kernel: this exercise needs Triton", "⏳ 6b.5"]),
        (COMPILED, ["✅ 6b.1 windowed_kernel: correct"]),  # as with TRITON_INTERPRET=1
    ],
    ids=["without Triton", "compiled"],
)
def test_a_kernel_is_judged_alike_in_any_kernel_of_jupyter(program, starts):
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    lines = run.stdout.splitlines()
    assert len(lines) == len(starts) and all(map(str.startswith, lines, starts)), run.stderr
