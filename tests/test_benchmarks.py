"""Each benchmark runs, and what it measures is right; what of it needs no GPU."""

import itertools
import json
import re
import subprocess
import sys

import pytest
import torch

from course_utils.attention import attention
from course_utils.checks.lesson_11.bytes_sent import bytes_sent
from rounding import assert_within, attention_errors, normal
from sampling import EVERY_CASE
from stored_notebooks import ROOT
from test_kernels import DEVICE, run

pytest.importorskip(
    "course_utils.kernels", reason="Triton exists for Linux only", exc_type=ImportError
)
import gpu  # noqa: E402
import gpu_attention  # noqa: E402
import gpu_correctness  # noqa: E402
import gpu_decoding  # noqa: E402
import kernel_ladder as ladder  # noqa: E402
import parallel_attention  # noqa: E402
import timing  # noqa: E402
import tune_kernels  # noqa: E402
from course_utils import kernel_tiles, kernels  # noqa: E402

# Compiled, the plain rung rounds float32 to TF32; the interpreter gets bfloat16 wrong.
DTYPES = [torch.float16, torch.float32 if kernels.INTERPRETED else torch.bfloat16]


@pytest.mark.parametrize("number", range(len(ladder.RUNGS)), ids=lambda n: ladder.RUNGS[n].name)
@pytest.mark.parametrize("dtype, N, is_causal", [(DTYPES[0], 75, False), (DTYPES[1], 130, True)])
def test_every_rung_of_the_ladder_is_attention(number, dtype, N, is_causal, monkeypatch):
    # At 130 the last rungs' blocks are whole, diagonal, ragged and empty.
    small, large = kernel_tiles.Tiles(32, 64, 4, 3), kernel_tiles.Tiles(64, 32, 4, 3)
    monkeypatch.setattr(ladder, "SMALL", small)
    monkeypatch.setitem(kernel_tiles.FLOAT32, 16, large)
    for row in kernel_tiles.TILES.values():
        monkeypatch.setitem(row, 16, kernel_tiles.Cuts(large, large, large))
    q, k, v = normal(3, 1, 2, N, 16, dtype=dtype).to(DEVICE)
    q, k = q.abs() * 20, k + torch.linspace(-40, 40, N)[:, None].to(k)  # the maximum keeps rising
    mask = torch.ones(N, N, dtype=torch.bool, device=DEVICE)
    mask = mask.tril() if is_causal else mask
    _, tiles = ladder.plan(number, 16)
    rounded_to = None if dtype == torch.float32 else dtype
    error, _ = attention_errors(q, k, v, mask, (tiles.block_q, tiles.block_k), rounded_to)
    right = attention(q.double(), k.double(), v.double(), mask)[0]
    assert_within(ladder.attend(number, q, k, v, is_causal), right, error)


def print_counted():
    """Print the stored entries of one configuration, and the first two counted anew, as JSON.

    With EVERY_CASE=1, all are counted anew.
    """
    import kernel_instructions as instructions

    case = next(case for case in instructions.cases() if case.D == 64 and case.is_causal)
    stored = json.loads(instructions.FILE.read_text())["entries"]
    stored = [each for each in stored if (each["D"], each["is_causal"]) == (64, True)]
    counted = itertools.islice(instructions.entries([case]), None if EVERY_CASE else 2)
    print(json.dumps([stored, list(counted)]))


@pytest.mark.slow
def test_the_instructions_that_lesson_06b_shows_are_those_of_the_compiled_kernels(tmp_path):
    code = "import test_benchmarks; test_benchmarks.print_counted()"
    stored, counted = json.loads(run(code, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path)))
    assert counted and counted == stored[: len(counted)], (
        "run benchmarks/kernel_instructions.py, then refresh lesson 06b"
    )


def print_fits():
    """Print what two kernels need, stored and compiled anew, as JSON. With EVERY_CASE=1, all."""
    import kernel_fit

    stored = json.loads(kernel_fit.FILE.read_text())["compiled"]
    cases = list(kernel_fit.cases())
    some = cases if EVERY_CASE else [cases[0], cases[-1]]
    found = dict(kernel_fit.entries(some))
    print(json.dumps([{case: stored[case] for case in found}, found, len(stored) - len(cases)]))


@pytest.mark.slow
def test_what_the_explorer_of_lesson_06b_says_of_a_kernel_is_true_of_the_compiled_one(tmp_path):
    code = "import test_benchmarks; test_benchmarks.print_fits()"
    stored, found, surplus = json.loads(
        run(code, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path))
    )
    assert found and stored == found and not surplus, (
        "run benchmarks/kernel_fit.py, then tools.render_previews"
    )


def test_tiles_of_queries_keys_and_values_are_in_shared_memory_stage_by_stage():
    stored = json.loads((ROOT / "course_utils/data/kernel_fit.json").read_text())["compiled"]
    for case, (shared, *_) in stored.items():
        gpu, *sizes = case.split(",")
        d, block_q, block_k, stages = map(int, sizes)
        rows = block_q + 2 * block_k * (stages if gpu == "H100" else stages - 1)
        weights = block_q * block_k * 2 / 1024  # they may pass through shared memory too
        assert 0 <= shared - rows * d * 2 / 1024 <= max(weights, 1), case


@pytest.fixture
def small(monkeypatch):
    """Configurations that the CPU can measure in place of a GPU."""
    case = timing.Case("float16", 16, True, 40, 1, 2)
    monkeypatch.setattr(timing, "WARM_UP", 0)
    monkeypatch.setattr(timing, "SECONDS", 0)
    monkeypatch.setattr(gpu_attention, "cases", lambda: [case])
    monkeypatch.setattr(ladder, "cases", lambda: [case])
    layouts = [gpu_correctness.in_one_piece, gpu_correctness.rows_of_odd_length]
    monkeypatch.setattr(gpu_correctness, "cases", lambda: [(case, 1, each) for each in layouts])
    decoding = [("float16", 16, 2, 48, paged) for paged in (False, True)]
    monkeypatch.setattr(gpu_correctness, "decoding_cases", lambda: decoding)
    monkeypatch.setattr(gpu_decoding, "cases", lambda: [(1, 32)])
    monkeypatch.setattr(gpu_decoding, "DTYPE", torch.float16)
    return monkeypatch


def measured(folder, part):
    """Measure a part on the CPU, and return the entries of its file."""
    gpu.main([part, "--out", str(folder)], device="cpu")
    return json.loads((folder / f"gpu_{part}.json").read_text())["entries"]


@pytest.mark.slow
def test_what_a_gpu_would_be_asked_is_measured_on_the_cpu(small, tmp_path):
    assert not any("errors failed" in entry for entry in measured(tmp_path, "correctness"))
    table = {entry["contender"]: entry for entry in measured(tmp_path, "table")}
    for name in ("naive", "tiled", "Triton", "SDPA math", "SDPA flash"):
        assert {"errors", "full size", "forward", "backward"} <= set(table[name])
    assert "errors failed" in table["SDPA cuDNN"]  # a CPU has none
    rungs = [entry for entry in measured(tmp_path, "ladder") if "rung" in entry]
    assert len(rungs) == len(ladder.RUNGS) and all("forward" in entry for entry in rungs)
    assert all("milliseconds" in entry for entry in measured(tmp_path, "decoding"))


def test_what_fails_is_an_entry_and_what_was_measured_before_is_kept(small, tmp_path):
    wrong = lambda q, k, v: q + k + v  # noqa: E731
    small.setattr(gpu_attention, "sdpa", lambda backend, is_causal: wrong)
    small.setattr(gpu_attention, "triton", lambda is_causal: out_of_memory_backward)
    table = {entry["contender"]: entry for entry in measured(tmp_path, "table")}
    assert "forward" in table["naive"] and "backward" in table["naive"]
    assert "forward" in table["Triton"] and "OutOfMemory" in table["Triton"]["backward failed"]
    assert "wrong: output" in table["SDPA math"]["errors failed"]
    cases = gpu_attention.cases() + [None]  # the second one stops the run
    small.setattr(gpu_attention, "cases", lambda: cases)
    with pytest.raises(AttributeError):
        measured(tmp_path, "table")
    assert len(json.loads((tmp_path / "gpu_table.json").read_text())["entries"]) == len(table)


def out_of_memory_backward(q, k, v):
    """Attention whose backward pass fails at full size."""
    out = attention(q, k, v, torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril())[0]
    return OutOfMemory.apply(out)


class OutOfMemory(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        OutOfMemory.calls += 1
        if OutOfMemory.calls > 1:  # the first one is checked
            raise torch.OutOfMemoryError("CUDA out of memory")
        return gradient


@pytest.mark.slow
def test_attention_kernels_and_benchmarks_need_no_jupyter(tmp_path):
    blocked = "IPython ipywidgets anywidget matplotlib seaborn gguf platformdirs cloudpickle"
    code = f"""
import sys
for name in {blocked.split()}:
    sys.modules[name] = None
from course_utils import attention, decoding, kernels, tiled
sys.path.insert(0, "benchmarks")
import gpu, tune_kernels
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=gpu.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_tuning_lists_the_fastest_tiles_first_and_leaves_the_table_as_it_was(monkeypatch):
    slow, fast = (kernel_tiles.Tiles(16, 16 * n, 4, 2) for n in (1, 2))
    monkeypatch.setattr(tune_kernels, "candidates", lambda kernel: [slow, fast])
    monkeypatch.setattr(tune_kernels, "CASES", [(True, 32)])
    monkeypatch.setattr(timing, "case", lambda *_: timing.Case("float16", 16, True, 32, 1, 1))
    row = kernel_tiles.cuts(kernels.capability(torch.device(DEVICE)))
    before = row[16]

    def milliseconds(work, device):
        work()
        return [64 / row[16].backward_kv.block_k]

    monkeypatch.setattr(timing, "milliseconds", milliseconds)
    timed, failed = tune_kernels.tune("backward_kv", 16, DEVICE)
    assert [tiles for _, tiles in timed] == [before.backward_kv, fast, slow] and not failed
    assert row[16] == before


@pytest.mark.slow
def test_attention_on_several_ranks_is_right_and_its_bytes_are_those_of_a_training_step():
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launch, "--nproc-per-node", "2", parallel_attention.__file__, "64"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    errors = re.findall(r"^\S.*? +largest error (\S+)", done.stdout, re.M)
    assert len(errors) == 4
    assert max(map(float, errors)) < 1e-5  # float32, causal rows of up to 256 keys
    sent = re.findall(r"ms .*, +([\d,]+) bytes", done.stdout)
    H, D = parallel_attention.H, parallel_attention.D
    heads, all_to_all, ring = bytes_sent(64, 2, H, H, D, 4)
    check = 16  # an all-reduce of two int64 compares how many tokens the ranks hold
    by_tokens = [each + check for each in (all_to_all, ring, ring)]
    assert [int(n.replace(",", "")) for n in sent] == [*by_tokens, heads]
