"""Kernels of learners: interpreted with or without a GPU, within their tensors' memory."""

import os
import subprocess
import sys

import pytest
import torch

from course_utils import check
from course_utils.attention import attention, causal_mask, sliding_window_mask
from course_utils.checks.errors import explained
from course_utils.checks.exercise import EXERCISES
from course_utils.checks.known_results import expected
from course_utils.checks.submission_kernel import OutOfBounds, launch, launches, tl, triton

pytest.importorskip("triton")
FACTOR = 2
LANGUAGE = [tl, tl.core, tl.math, tl.standard, tl.tensor]


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
def adds(_, x_ptr, shift):
    tl.atomic_add(x_ptr + shift, 1.0)


@triton.jit
def swaps(_, x_ptr, shift):
    tl.atomic_cas(x_ptr + shift, 0, 1)


@triton.jit
def unfinished(x_ptr):
    raise NotImplementedError("your turn")


@triton.jit
def first(out_ptr):
    return tl.load(out_ptr)


@triton.jit
def reads_by_a_helper(x_ptr, out_ptr):
    tl.store(out_ptr, first(x_ptr))


@triton.jit
def calls_unfinished(x_ptr):
    unfinished(x_ptr)


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
    names, language = dict(globals()), [dict(vars(part)) for part in LANGUAGE]
    out = torch.zeros(1)
    launch(total, (1,), torch.arange(4.0), out, BLOCK=4)  # tl.sum, max and cdiv are in Triton
    assert out.item() == 6 + 3 + 2
    for part, before in zip(LANGUAGE, language, strict=True):
        assert all(vars(part)[name] is value for name, value in before.items())
    assert globals() == names and "TRITON_INTERPRET" not in os.environ


def zeros(n, dtype=torch.float32):
    return torch.zeros(12, dtype=dtype)[:n].clone()


@pytest.mark.parametrize(
    "kernel, arguments, words",
    [
        (doubled, (torch.ones(4), zeros(4), 4, 1), "reads beyond the last entry of x_ptr, by"),
        (doubled, (torch.ones(4), zeros(4), 4, -3), "before the first entry of x_ptr, by up to 3"),
        (doubled, (torch.ones(8), zeros(2), 8, 0), "writes beyond the last entry of out_ptr"),
        (adds, (0, zeros(4), 4), "writes beyond the last entry of x_ptr, by up to 1"),
        (swaps, (0, zeros(4, torch.int32), 4), "writes beyond the last entry of x_ptr"),
    ],
)
def test_an_address_outside_the_tensors_stops_the_kernel_at_once(kernel, arguments, words):
    block = {"BLOCK": 8} if kernel is doubled else {}
    with pytest.raises(OutOfBounds, match=words):
        launch(kernel, (1,), *arguments, **block)
    assert not arguments[1].any()


def test_what_lies_beyond_a_tensor_is_outside_even_if_another_tensor_lies_there():
    memory = bytearray(32)
    x, out = (torch.frombuffer(memory, dtype=torch.float32, count=4, offset=at) for at in (0, 16))
    with pytest.raises(OutOfBounds, match="reads beyond the last entry of x_ptr, by up to 4"):
        launch(doubled, (1,), x, out, 4, 4, BLOCK=4)


def test_a_class_is_no_kernel():
    class windowed_kernel:
        pass

    verdict = check(windowed_kernel)
    assert verdict.status == "wrong" and "Define it with `def`" in verdict.message


def test_a_helpers_parameter_may_have_the_name_of_another_tensor():
    x, out = torch.ones(4), zeros(4)
    launch(reads_by_a_helper, (1,), x, out)
    assert out.sum() == 1


@pytest.mark.parametrize("kernel", [unfinished, calls_unfinished])
def test_an_error_in_a_kernel_is_the_learners_as_it_was_raised(kernel):
    with pytest.raises(NotImplementedError, match="your turn") as raised:
        launch(kernel, (1,), torch.zeros(1))
    assert raised.value.is_learners


@triton.jit
def misuses_dot(x_ptr, way: tl.constexpr):
    i = tl.arange(0, 16)
    x = tl.load(x_ptr + 16 * i[:, None] + i)
    if way == "same dtype":
        tl.dot(x, x.to(tl.float16))
    if way == "tl.trans":
        tl.dot(x, tl.load(x_ptr + 16 * tl.arange(0, 32)[:, None] + i))
    if way == "accumulator":
        tl.dot(x, x, acc=tl.zeros((16, 16), tl.float16))


@pytest.mark.parametrize("words", ["same dtype", "tl.trans", "accumulator"])
def test_an_error_of_tritons_gets_its_likely_cause(words):
    with pytest.raises(AssertionError) as raised:
        launch(misuses_dot, (1,), torch.zeros(512), way=words)
    assert words in explained(raised.value).split("Your code raised ")[0]


@pytest.mark.parametrize("interpret", ["0", "1"])
def test_a_kernel_made_to_be_compiled_or_interpreted_is_judged_alike(interpret, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", interpret)
    reference = EXERCISES["windowed_kernel"].reference
    kernel = triton.jit(getattr(reference, "fn", reference))
    assert check(kernel, "windowed_kernel").status == "correct"


# The references against the course's own attention


def windowed(q, k, v, window):
    return attention(q, k, v, sliding_window_mask(len(q), window) & causal_mask(len(q)))[0]


def decoding(q, k, v, *_):
    k, v = (x.repeat_interleave(q.shape[-2] // x.shape[-3], -3) for x in (k, v))
    return attention(q[..., None, :], k, v)[0][..., 0, :]


def plain(q, k, v, *_):
    return attention(q, k, v)[0]


@pytest.mark.parametrize(
    "name, right, tolerance",
    [
        ("windowed_kernel", windowed, 1e-5),
        ("grouped_kernel", decoding, 1e-4),  # e^x in float32 is off by more the larger x is
        ("split_decode", decoding, 1e-4),
        ("half_kernel", plain, 2**-9),
        ("lazy_rescale", plain, 1e-5),
    ],
)
def test_the_references_are_the_courses_attention(name, right, tolerance):
    exercise = EXERCISES[name]
    for (q, k, v, *rest), result in zip(exercise.inputs(), expected(exercise), strict=True):
        out = result[0] if isinstance(result, tuple) else result
        off = (out - right(q.double(), k.double(), v.double(), *rest)).abs().max()
        assert off < tolerance * v.abs().max()
        if name == "half_kernel":  # for each block of 16 keys, a sum is rounded
            scores = q.double() @ k.double().mT / q.shape[-1] ** 0.5
            off = (result[1] - scores.logsumexp(-1)).abs().max()
            assert off < 2**-24 * (16 * scores.abs().max().clamp(min=1) + len(k) / 16)


def test_the_cubic_is_off_by_less_than_a_ten_thousandth():
    y, error = EXERCISES["exp2_polynomial"].reference(torch.linspace(-20, 0, 100_000))
    assert 8e-5 < error < 9e-5


WITHOUT = """
import sys
sys.modules["triton"] = None
from course_utils import check
from course_utils.checks import judge_process
from course_utils.checks.submission_kernel import tl, triton
judge_process.in_process = True
@triton.jit
def windowed_kernel(q_ptr, D: tl.constexpr):
    raise NotImplementedError("your turn")
print(check(windowed_kernel))
def exp2_polynomial(x):
    raise NotImplementedError("your turn")
print(check(exp2_polynomial))
"""


def test_without_triton_a_check_says_so_and_the_rest_works():
    run = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    first, second = run.stdout.splitlines()
    assert first.startswith("⚠️ 6b.1 windowed_kernel: This exercise needs Triton")
    assert second.startswith("⏳ 6b.5 exp2_polynomial")
