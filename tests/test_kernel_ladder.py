"""The ladder of kernels: every rung right, compiled as it claims, and counted as it runs.

On a CUDA device the rungs are compiled; without one they run in Triton's interpreter.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from course_utils.attention import attention
from rounding import assert_within, attention_errors

pytest.importorskip(
    "course_utils.kernels", reason="Triton exists for Linux only", exc_type=ImportError
)
import gpu_attention as bench  # noqa: E402
import kernel_ladder as ladder  # noqa: E402
from course_utils import kernel_tiles, kernels  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Compiled, the plain rung rounds float32 to TF32; the interpreter gets bfloat16 wrong.
DTYPES = [torch.float16, torch.float32 if kernels.INTERPRETED else torch.bfloat16]
RUNGS = {rung.name: number for number, rung in enumerate(ladder.RUNGS)}


def cut(monkeypatch, small, large):
    """Set the block sizes of the first rungs, and of the last."""
    small, large = (kernel_tiles.Tiles(*blocks, 4, 3) for blocks in (small, large))
    monkeypatch.setattr(ladder, "SMALL", small)
    monkeypatch.setitem(kernel_tiles.FLOAT32, 16, large)
    for row in kernel_tiles.TILES.values():
        monkeypatch.setitem(row, 16, kernel_tiles.Cuts(large, large, large))


def assert_right(name, q, k, v, is_causal):
    """Assert that a rung's output is attention's in float64, within what rounding may cost."""
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=DEVICE)
    mask = mask.tril() if is_causal else mask
    right = attention(q.double(), k.double(), v.double(), mask)[0]
    _, tiles = ladder.plan(RUNGS[name], q.shape[-1])
    kept = None if q.dtype == torch.float32 else q.dtype
    error, _ = attention_errors(q, k, v, mask, (tiles.block_q, tiles.block_k), kept)
    out = ladder.attend(RUNGS[name], q, k, v, is_causal)
    assert out.dtype == q.dtype
    assert_within(out, right, error)


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("B, N, is_causal", [(2, 1, True), (2, 75, False), (1, 130, True)])
def test_every_rung_is_attention(name, B, N, is_causal, dtype, monkeypatch):
    # Blocks of both shapes; at 130 the last rungs' are whole, diagonal, ragged and empty.
    cut(monkeypatch, (32, 64), (64, 32))
    rng = torch.Generator().manual_seed(N)
    q, k, v = torch.randn(3, B, 2, N, 16, generator=rng).to(DEVICE, dtype)
    assert_right(name, q, k, v, is_causal)


@pytest.mark.parametrize("name", RUNGS)
def test_far_scores_neither_overflow_nor_vanish(name):
    rng = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 130, 16, generator=rng).to(DEVICE, DTYPES[0])
    q, k = q.abs() * 20, k + torch.linspace(-40, 40, 130)[:, None].to(k)  # m rises on and on
    assert_right(name, q, k, v, is_causal=False)


def test_each_rung_adds_one_switch_and_flash_attention_has_all_but_the_last():
    added = [rung.switch for rung in ladder.RUNGS[1:]]
    assert len(set(added)) == len(added) and all(added)
    assert set(added) == {*ladder.SWITCHES, "TILES", "DESCRIPTORS"} and added[-1] == "PERSISTENT"
    switches, tiles = ladder.plan(RUNGS["descriptors"], 64)
    assert [name for name in switches if not switches[name]] == ["PERSISTENT"]
    assert tiles == kernel_tiles.cuts((9, 0))[64].forward
    _, tiles = ladder.plan(RUNGS["descriptors"], 128, (8, 0))
    assert tiles == kernel_tiles.cuts((8, 0))[128].forward != kernel_tiles.cuts((9, 0))[128].forward
    assert not any(ladder.plan(0, 64)[0].values()) and ladder.plan(0, 64)[1] == ladder.SMALL


@pytest.mark.parametrize("is_causal", [False, True])
def test_counts_of_the_plain_and_of_the_last_rung(is_causal):
    case = bench.Case("bfloat16", 64, is_causal, N=1024, B=2, H=3)
    plain, last = ladder.count(0, case), ladder.count(RUNGS["descriptors"], case)
    scores = 2 * 3 * 1024**2
    assert plain["powers"] == plain["masked_scores"] == scores
    assert plain["flop"] == bench.flops(case._replace(is_causal=False), backward=False)
    assert plain["loaded_bytes"] == 2 * 2 * (2 * 3 * 1024 * 64) * (1024 // 64)  # K, V; blocks of q
    # 8 blocks of 128 queries see 2, 4, … 16 blocks of 64 keys; the last two lie on the diagonal
    tiles, masked = (72, 16) if is_causal else (8 * 16, 0)
    assert last["powers"] == 2 * 3 * tiles * 128 * 64
    assert last["masked_scores"] == 2 * 3 * masked * 128 * 64
    assert last["loaded_bytes"] == 2 * 2 * (2 * 3 * 64 * 64) * tiles


def test_waiting_is_what_is_left_when_each_processor_takes_the_next_program():
    assert ladder.waiting([3, 2, 1], among=3) == pytest.approx(1 - 6 / 9)
    assert ladder.waiting([1, 1, 1, 3], among=2) == pytest.approx(1 - 6 / 8)  # 1 1, then 1 3
    assert ladder.waiting([3, 1, 1, 1], among=2) == 0
    # Longest first over all heads of a sequence; that of each head by itself does not help.
    case = bench.Case("bfloat16", 128, True, N=4096, B=4, H=16)
    before, after = (ladder.count(RUNGS[name], case) for name in ("larger tiles", "descriptors"))
    assert after["waiting"] < 0.01 < 0.05 < before["waiting"]


@pytest.mark.skipif(not kernels.INTERPRETED, reason="watches the interpreter")
@pytest.mark.parametrize("number", set(range(len(RUNGS))) - {RUNGS["descriptors"]})
@pytest.mark.parametrize("is_causal", [False, True])
def test_counts_are_what_the_interpreter_does(number, is_causal, monkeypatch):
    cut(monkeypatch, (16, 32), (32, 16))
    done = {"flop": 0, "powers": 0, "masked_scores": 0}

    def watch(name, amount, of):
        def watched(*args, **words):
            done[name] += amount(*args)
            return of(*args, **words)

        return watched

    builder = kernels.triton.runtime.interpreter.InterpreterBuilder
    products = watch(
        "flop", lambda _, a, b, *__: 2 * a.data.size * b.data.shape[1], builder.create_dot
    )
    monkeypatch.setattr(builder, "create_dot", products)
    for of, name in [
        ("create_exp", "powers"),
        ("create_exp2", "powers"),
        ("create_select", "masked_scores"),
    ]:
        matrices = watch(
            name, lambda _, x, *__: x.data.size * (x.data.ndim == 2), getattr(builder, of)
        )
        monkeypatch.setattr(builder, of, matrices)
    q, k, v = torch.randn(3, 1, 2, 75, 16)
    ladder.attend(number, q, k, v, is_causal)
    counted = ladder.count(number, bench.Case("float32", 16, is_causal, 75, 1, 2))
    assert done == {name: counted[name] for name in done}


def test_each_contender_is_compared_with_float64_or_says_why_not(monkeypatch):
    def wrong(*_, **__):
        raise ladder.TritonError("out of resource: shared memory")

    monkeypatch.setattr(kernels, "flash_attention", wrong)
    case = bench.Case("float16", 16, True, 40, 1, 1)
    errors = ladder.check(case, DEVICE)
    assert list(errors) == [*RUNGS, "SDPA flash", "SDPA efficient", "SDPA cuDNN"]
    assert errors.pop("descriptors") == {"skipped": "TritonError: out of resource: shared memory"}
    assert all(errors[name]["output"] > 0 for name in {*RUNGS, "SDPA flash"} - {"descriptors"})


def test_an_entry_holds_what_was_predicted_and_every_repeat(monkeypatch):
    case = bench.Case("float16", 16, False, 40, 1, 2)

    def milliseconds(work):
        work()
        return [2.0, 1.0, 3.0]

    monkeypatch.setattr(bench, "milliseconds", milliseconds)
    errors = dict.fromkeys([*RUNGS, *bench.BACKENDS], {"skipped": "wrong"})
    errors["plain"] = errors["SDPA flash"] = {"output": 1e-3}
    entries = {entry["contender"]: entry for entry in ladder.entries(case, errors, DEVICE)}
    first = json.loads(json.dumps(entries["plain"]))
    assert first["forward"]["milliseconds"] == [2, 1, 3] and first["rung"] == 0
    assert first["forward"]["flops"] == bench.flops(case, backward=False)
    assert first["counted"] == ladder.count(0, case) and first["prediction"]
    assert "forward" in entries["SDPA flash"] and "rung" not in entries["SDPA flash"]
    assert "forward" not in entries["exp2"] and "wrong" in ladder.tell(entries["exp2"])
    assert f"{first['forward']['flops'] / 2e9:.1f} TFLOP/s" in ladder.tell(first)


def test_where_the_kernels_do_not_run_the_backends_are_compared(monkeypatch):
    monkeypatch.setattr(kernels, "why_not", lambda device: "too old")
    errors = ladder.check(bench.Case("float16", 16, True, 40, 1, 1), DEVICE)
    assert all(errors[name] == {"skipped": "too old"} for name in RUNGS)
    assert errors["SDPA flash"]["output"] > 0


def test_what_a_gpu_has_no_room_for_is_not_timed_and_says_so(monkeypatch):
    def milliseconds(work):
        raise ladder.TritonError("out of resource: shared memory")

    monkeypatch.setattr(bench, "milliseconds", milliseconds)
    case = bench.Case("float16", 16, False, 40, 1, 2)
    errors = dict.fromkeys([*RUNGS, *bench.BACKENDS], {"output": 1e-3})
    for entry in ladder.entries(case, errors, DEVICE):
        assert "not timed: TritonError: out of resource" in ladder.tell(entry)


def test_every_case_is_one_of_the_other_benchmark():
    assert set(ladder.cases()) <= set(bench.cases()) and len(ladder.cases()) == 8


def test_without_a_gpu_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs a GPU"):
        ladder.main(tmp_path / "x.json")
    assert not list(tmp_path.iterdir())


def compile_for_hopper():
    """Check in the compiled code what the rungs say of it, and what is counted there."""
    import kernel_instructions as instructions

    compiled = {
        name: instructions.compile_rung(number, 64, is_causal=True)[0]
        for name, number in RUNGS.items()
    }
    assert all(each.metadata.shared <= 227 * 1024 for each in compiled.values())  # multiprocessor
    ptx = {name: each.asm["ptx"] for name, each in compiled.items()}
    both = ("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "tf32.tf32")
    assert [product in ptx["plain"] for product in both] == [True, True]
    assert [product in ptx["16-bit P"] for product in both] == [True, False]
    # two loops have a product each of Q and K, the first without a mask
    assert ptx["two stages"].count(both[0]) == 2 * ptx["16-bit P"].count(both[0])
    assert ptx["two stages"].count("selp.f32") == ptx["16-bit P"].count("selp.f32")
    # e^x is 2^(x · log₂e), the factor written in hexadecimal; of exp2, one is left: in the scale
    assert ptx["two stages"].count("0f3FB8AA3B") > 64 and ptx["exp2"].count("0f3FB8AA3B") == 1
    assert "cp.async.bulk.tensor" in ptx["descriptors"] and "atom" in ptx["persistent"]
    stored = json.loads(instructions.FILE.read_text())["entries"]
    assert len(stored) == len(instructions.cases()) * len(RUNGS)
    # Compiling takes long: of the configurations, the one that is compiled already.
    of_it = [each for each in stored if each["D"] == 64 and each["is_causal"]]
    case = next(case for case in instructions.cases() if case.D == 64 and case.is_causal)
    assert of_it == list(instructions.entries([case]))
    print("compiled")


def test_the_rungs_compile_for_hopper_as_they_say_and_as_counted(tmp_path):
    here = Path(__file__).parent
    path = os.pathsep.join(map(str, [here, here.parent, here.parent / "benchmarks"]))
    env = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": path}
    code = "import test_kernel_ladder; test_kernel_ladder.compile_for_hopper()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True
    )
    assert done.stdout.strip() == "compiled", done.stderr
