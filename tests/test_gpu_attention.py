"""The benchmark of attention on a GPU: what of it needs no GPU."""

import json
import runpy
import types
from pathlib import Path

import pytest
import torch

from course_utils import attention

pytest.importorskip(
    "course_utils.kernels", reason="Triton exists for Linux only", exc_type=ImportError
)
from triton.runtime.errors import OutOfResources  # noqa: E402

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu_attention.py"
bench = types.SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def test_every_case_holds_the_same_number_of_tokens_and_the_same_width():
    cases = bench.cases()
    assert len(set(cases)) == len(cases) == 2 * 2 * 2 * 6
    assert {case.B * case.N for case in cases} == {16384}
    assert {case.H * case.D for case in cases} == {2048}


def test_flops_by_counting_the_products():
    # N² scores of D multiply-adds each, and as many for the values, in B · H heads
    case = bench.Case("float16", D=64, is_causal=False, N=10, B=3, H=5)
    assert bench.flops(case, backward=False) == 3 * 5 * (100 * 64 * 2 + 100 * 64 * 2)
    assert bench.flops(case._replace(is_causal=True), False) == bench.flops(case, False) / 2
    assert bench.flops(case, backward=True) == 2.5 * bench.flops(case, backward=False)


def test_each_contender_is_compared_with_float64_or_says_why_not(monkeypatch):
    def wrong(q, k, v, is_causal):
        return attention.attention(q, k, v)[0] * 1.2, None

    monkeypatch.setattr(attention, "tiled_attention", wrong, raising=False)
    errors = bench.check(bench.Case("float16", 16, True, 40, 1, 1), "cpu")
    assert set(errors) == {"naive", "tiled", "Triton", *bench.BACKENDS}
    for name in ("naive", "Triton", "SDPA math", "SDPA flash"):
        assert set(errors[name]) == {"output", "d_q", "d_k", "d_v"}
        assert all(error > 0 for error in errors[name].values())
    assert errors["tiled"]["skipped"].startswith("wrong: output errs by")
    assert "skipped" in errors["SDPA cuDNN"]  # a CPU has none
    json.dumps(errors)


def test_where_the_kernels_do_not_run_the_others_are_compared(monkeypatch):
    monkeypatch.setattr("course_utils.kernels.why_not", lambda device: "too old")
    errors = bench.check(bench.Case("float16", 16, True, 40, 1, 1), "cpu")
    assert errors["Triton"] == {"skipped": "too old"}
    assert all("output" in errors[name] for name in ("naive", "tiled", "SDPA math", "SDPA flash"))


def test_what_a_gpu_has_no_room_for_is_not_timed_and_says_so(monkeypatch):
    def measure(run, inputs, d_out):
        raise OutOfResources(required=100, limit=64, name="shared memory")

    case = bench.Case("float16", 16, False, 40, 1, 2)
    monkeypatch.setattr("course_utils.kernels.flash_attention", lambda *_, **__: measure(0, 0, 0))
    assert bench.check(case, "cpu")["Triton"]["skipped"].startswith("OutOfResources: out of")
    monkeypatch.setitem(bench.entries.__globals__, "measure", measure)
    errors = dict.fromkeys(["naive", "tiled", "Triton", *bench.BACKENDS], {"output": 1e-3})
    for entry in bench.entries(case, errors, "cpu"):
        assert "shared memory, Required: 100" in bench.tell(entry)


@pytest.mark.parametrize("hip", [None, "6.3"])
def test_the_report_names_the_gpu(hip, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)  # asks every GPU, of none
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: types.SimpleNamespace(stdout="580.1\n"))
    report = bench.machine()
    assert report["device"] == "Some GPU" and report["compute_capability"] == "7.5"
    assert report.get("hip") == hip and report.get("driver") == (None if hip else "580.1")


def test_an_entry_holds_its_case_errors_and_every_repeat(monkeypatch):
    case = bench.Case("float16", 16, False, 40, 1, 2)

    def milliseconds(work):
        work()
        return [2.0, 1.0, 3.0]

    monkeypatch.setitem(bench.entries.__globals__, "milliseconds", milliseconds)
    errors = dict.fromkeys(["naive", "tiled", "Triton", *bench.BACKENDS], {"skipped": "wrong"})
    errors["naive"] = {"output": 1e-3}
    first, *others = bench.entries(case, errors, "cpu")
    assert json.loads(json.dumps(first))["backward"]["milliseconds"] == [2, 1, 3]
    assert first["forward"]["flops"] == bench.flops(case, backward=False)
    assert "forward" not in others[0] and "wrong" in bench.tell(others[0])


def test_without_a_gpu_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs a GPU"):
        bench.main(tmp_path / "x.json")
    assert not list(tmp_path.iterdir())
