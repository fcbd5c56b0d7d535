"""Tuning the kernels: what of it needs no GPU."""

import pytest
import torch

pytest.importorskip(
    "course_utils.kernels", reason="Triton exists for Linux only", exc_type=ImportError
)
import gpu_attention as bench  # noqa: E402
import tune_kernels as tuning  # noqa: E402
from course_utils import kernel_tiles, kernels  # noqa: E402


@pytest.mark.parametrize("kernel", tuning.KERNELS)
def test_candidates_are_legal_and_hold_what_ships_on_hopper(kernel):
    tiles = tuning.candidates(kernel)
    assert len(set(tiles)) == len(tiles) <= 30
    shipped = kernel_tiles.cuts((9, 0))
    assert {getattr(shipped[D], kernel) for D in tuning.WIDTHS} <= set(tiles)
    own = [each.block_k if kernel == "backward_kv" else each.block_q for each in tiles]
    assert all(rows >= 16 * each.num_warps for rows, each in zip(own, tiles, strict=True))


@pytest.mark.parametrize("kernel", tuning.KERNELS)
def test_the_fastest_come_first_and_the_table_is_as_before(kernel, monkeypatch):
    slow, fast, wrong = (kernel_tiles.Tiles(16, 16 * n, 4, 2) for n in (1, 2, 4))
    monkeypatch.setattr(tuning, "candidates", lambda kernel: [slow, wrong, fast])
    monkeypatch.setattr(tuning, "CASES", [(True, 32), (False, 32)])
    monkeypatch.setattr(bench, "TOKENS", 32)
    monkeypatch.setattr(bench, "WIDTH", 16)
    monkeypatch.setitem(bench.DTYPES, "bfloat16", torch.float16)  # the interpreter's
    device = "cuda" if torch.cuda.is_available() else "cpu"
    row = kernel_tiles.cuts(kernels.capability(torch.device(device)))
    before = row[16]

    def milliseconds(run):
        tiles = getattr(row[16], kernel)
        if tiles == wrong:
            raise tuning.TritonError("out of resource: shared memory")
        run()
        return [3.0 * 16 / tiles.block_k, 100, 0]

    monkeypatch.setattr(bench, "milliseconds", milliseconds)
    timed, failed = tuning.tune(kernel, 16, device)
    first = getattr(before, kernel)
    assert timed == sorted([(2 * 48 / first.block_k, first), (3.0, fast), (6.0, slow)])
    assert failed == [("TritonError: out of resource: shared memory", wrong)]
    assert row[16] == before


def test_where_the_kernels_do_not_run_nothing_is_tuned(monkeypatch):
    monkeypatch.setattr(bench, "machine", dict)
    monkeypatch.setattr(kernels, "why_not", lambda device: "too old")
    with pytest.raises(SystemExit, match="nothing to tune: too old"):
        tuning.main()


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs a GPU"):
        tuning.main()
