"""Kernels of learners: interpreted with or without a GPU, and kept within their tensors' memory."""

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


@triton.jit
def doubled(x_ptr, out_ptr, n, shift, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i + shift, mask=i < n), mask=i < n)


@triton.jit
def total(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.sum(x, axis=0) + x.max(0) + tl.cdiv(BLOCK, 3))


@triton.jit
def twice_the_sum(x):
    return FACTOR * tl.sum(x, axis=0)


FACTOR = 2


@triton.jit
def four_times_the_sum(x):
    return 2 * twice_the_sum(x)


@triton.jit
def with_a_helper(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, FACTOR * twice_the_sum(tl.load(x_ptr + tl.arange(0, BLOCK))))


@triton.jit
def with_a_helpers_helper(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, four_times_the_sum(tl.load(x_ptr + tl.arange(0, BLOCK))))


@triton.jit
def unfinished(x_ptr):
    raise NotImplementedError("your turn")


@triton.jit
def with_an_unfinished_helper(x_ptr):
    unfinished(x_ptr)


holder = types.SimpleNamespace(unfinished=InterpretedFunction(unfinished.fn))


@triton.jit
def with_an_unfinished_helper_of_a_holder(x_ptr):
    holder.unfinished(x_ptr)


def test_a_kernel_is_interpreted_and_its_reads_are_counted_program_by_program():
    x, out = torch.arange(6.0), torch.zeros(6)
    with launches() as seen:
        work = launch(doubled, (2,), x, out, 6, 0, BLOCK=4)
    assert out.equal(2 * x)
    assert work.read == {("x_ptr", (0, 0, 0)): 4, ("x_ptr", (1, 0, 0)): 2}
    assert seen == [work]


def test_what_triton_writes_in_triton_is_interpreted_too_and_then_as_it_was():
    holders = tl, tl.core, tl.math, tl.standard, tl.tensor
    before = [dict(vars(holder)) for holder in holders]
    x, out = torch.arange(4.0), torch.zeros(1)
    launch(total, (1,), x, out, BLOCK=4)
    assert out.item() == 6 + 3 + 2
    for holder, names in zip(holders, before, strict=True):
        assert all(vars(holder)[name] is value for name, value in names.items())


def test_a_kernel_may_call_another_function_and_sees_what_a_global_name_holds_by_now(monkeypatch):
    x, out = torch.arange(4.0), torch.zeros(1)
    for factor in (2, 5):
        monkeypatch.setattr(sys.modules[__name__], "FACTOR", factor)
        launch(with_a_helper, (1,), x, out, BLOCK=4)
        assert out.item() == factor**2 * 6
        launch(with_a_helpers_helper, (1,), x, out, BLOCK=4)
        assert out.item() == 2 * factor * 6


@pytest.mark.parametrize(
    "shift, words",
    [
        (1, "it reads beyond the last number of x_ptr, by up to 1"),
        (-3, "it reads before the first number of x_ptr, by up to 3"),
        (10**9, "it reads beyond"),
    ],
)
def test_an_address_outside_of_the_tensors_stops_the_kernel_and_names_the_pointer(shift, words):
    x, out = torch.zeros(4), torch.zeros(4)
    with pytest.raises(OutOfBounds, match=words):
        launch(doubled, (1,), x, out, 4, shift, BLOCK=4)


def test_writing_outside_is_stopped_before_it_happens():
    x, memory = torch.ones(8), torch.zeros(12)
    out = memory[:2].clone()
    with pytest.raises(
        OutOfBounds, match="it writes beyond the last number of out_ptr, by up to 6"
    ):
        launch(doubled, (1,), x, out, 8, 0, BLOCK=8)
    assert out.equal(torch.zeros(2))


def test_an_error_in_a_kernel_is_its_own_and_a_stub_is_known(monkeypatch):
    monkeypatch.setattr(EXERCISES["windowed_kernel"], "mistakes", [])  # which take long
    with pytest.raises(NotImplementedError, match="your turn") as raised:
        launch(unfinished, (1,), torch.zeros(1))
    assert raised.value.owned
    assert check(unfinished, "windowed_kernel").status == "wrong"  # it takes other arguments


def test_an_error_in_a_function_that_a_kernel_calls_is_told_as_it_was_raised():
    for kernel in (with_an_unfinished_helper, with_an_unfinished_helper_of_a_holder):
        with pytest.raises(NotImplementedError, match="your turn"):
            launch(kernel, (1,), torch.zeros(1))


def test_the_globals_of_a_kernel_stay_as_they_are():
    before = dict(globals())
    launch(doubled, (1,), torch.zeros(4), torch.zeros(4), 4, 0, BLOCK=4)
    assert globals() == before


# The references against the course's own attention


def test_the_windowed_reference_is_attention_under_both_masks():
    exercise = EXERCISES["windowed_kernel"]
    for (q, k, v, window), out in zip(exercise.inputs(), judge.expected(exercise), strict=True):
        mask = sliding_window_mask(len(q), window) & causal_mask(len(q))
        right, _ = attention(q.double(), k.double(), v.double(), mask)
        assert (out - right).abs().max() < 1e-5 * v.abs().max()


@pytest.mark.parametrize("name", ["grouped_kernel", "split_decode"])
def test_the_references_for_decoding_are_attention_with_repeated_heads(name):
    exercise = EXERCISES[name]
    for (q, k, v, *_), out in zip(exercise.inputs(), judge.expected(exercise), strict=True):
        k, v = (x.repeat_interleave(q.shape[-2] // x.shape[-3], -3).double() for x in (k, v))
        right, _ = attention(q.double()[..., None, :], k, v)
        # e^x in float32 is off by as many roundings as x is large
        assert (out - right[..., 0, :]).abs().max() < 1e-4 * v.abs().max()


def test_the_half_reference_is_attention_but_for_the_rounding_to_16_bits():
    exercise = EXERCISES["half_kernel"]
    for (q, k, v), (out, lse) in zip(exercise.inputs(), judge.expected(exercise), strict=True):
        right, _ = attention(q.double(), k.double(), v.double())
        assert (out - right).abs().max() < 2**-9 * v.abs().max()
        scores = q.double() @ k.double().mT / q.shape[-1] ** 0.5
        assert (lse - scores.logsumexp(-1)).abs().max() < 2**-20 * scores.abs().max().clamp(min=1)


def test_the_lazy_reference_is_exact_and_no_decision_is_a_matter_of_rounding():
    exercise = EXERCISES["lazy_rescale"]
    for args, (out, _, _) in zip(exercise.inputs(), judge.expected(exercise), strict=True):
        q, k, v, block, tau = args
        right, _ = attention(q.double(), k.double(), v.double())
        assert (out - right).abs().max() < 1e-5 * v.abs().max()
        if tau:
            for off in (-1e-3, 1e-3):
                again = exercise.reference(q, k, v, block, tau + off)[2]
                assert again.equal(exercise.reference(*args)[2])


def test_the_cubic_is_off_by_less_than_a_ten_thousandth():
    y, error = EXERCISES["exp2_polynomial"].reference(torch.linspace(-20, 0, 100_000))
    assert 8e-5 < error < 9e-5


# Where there is no Triton, or it was imported to compile

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


def test_without_triton_a_check_says_so_and_the_rest_goes_on():
    run = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    first, second = run.stdout.splitlines()
    assert first.startswith("⚠️ 6b.1 windowed_kernel: Triton is not installed here")
    assert second == "⏳ 6b.5 exp2_polynomial: not attempted yet"


@pytest.mark.parametrize("interpret", ["0", "1"])
def test_a_kernel_made_to_be_compiled_or_interpreted_is_judged_alike(interpret):
    program = (
        f"import os; os.environ['TRITON_INTERPRET'] = '{interpret}'\n"
        "from answers.lesson_06b import RIGHT\n"
        "from course_utils import check\n"
        "for answer in RIGHT['windowed_kernel'][:1]: print(check(answer, 'windowed_kernel'))"
    )
    folder = __file__.rpartition("/")[0]
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=folder
    )
    assert run.stdout == "✅ 6b.1 windowed_kernel: correct\n", run.stderr


@triton.jit
def adds(x_ptr, shift):
    tl.atomic_add(x_ptr + shift, 1.0)


@triton.jit
def swaps(x_ptr, shift):
    tl.atomic_cas(x_ptr + shift, 0, 1)


@pytest.mark.parametrize("kernel, dtype", [(adds, torch.float32), (swaps, torch.int32)])
def test_an_atomic_write_stays_within_the_tensors_too(kernel, dtype):
    x = torch.zeros(4, dtype=dtype)
    launch(kernel, (1,), x, 3)
    assert x.tolist() == [0, 0, 0, 1]
    with pytest.raises(OutOfBounds, match="it writes beyond the last number of x_ptr, by up to 1"):
        launch(kernel, (1,), x, 4)


def test_what_a_launch_sets_is_put_back(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    launch(adds, (1,), torch.zeros(4), 3)
    assert "TRITON_INTERPRET" not in os.environ
