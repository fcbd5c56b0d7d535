"""Tuning the kernels: what of it needs no GPU."""

import pytest
import torch

pytest.importorskip(
    "course_utils.kernels", reason="Triton exists for Linux only", exc_type=ImportError
)
import gpu_attention as bench  # noqa: E402
import tune_kernels as tuning  # noqa: E402
from course_utils import kernels  # noqa: E402


@pytest.mark.parametrize("table", tuning.TABLES)
def test_candidates_are_legal_and_hold_what_ships(table):
    tiles = tuning.candidates(table)
    assert len(set(tiles)) == len(tiles) <= 30
    assert {getattr(kernels, table)[D] for D in tuning.WIDTHS} <= set(tiles)
    own = [each.block_k if table == "BACKWARD_KV" else each.block_q for each in tiles]
    assert all(rows >= 16 * each.num_warps for rows, each in zip(own, tiles, strict=True))


@pytest.mark.parametrize("table", tuning.TABLES)
def test_the_fastest_come_first_and_the_table_is_as_before(table, monkeypatch):
    slow, fast, wrong = (kernels.Tiles(16, 16 * n, 4, 2) for n in (1, 2, 4))
    monkeypatch.setattr(tuning, "candidates", lambda table: [slow, wrong, fast])
    monkeypatch.setattr(tuning, "CASES", [(True, 32), (False, 32)])
    monkeypatch.setattr(bench, "TOKENS", 32)
    monkeypatch.setattr(bench, "WIDTH", 16)
    monkeypatch.setitem(bench.DTYPES, "bfloat16", torch.float16)  # the interpreter's
    sizes, shipped = getattr(kernels, table), getattr(kernels, table)[16]

    def milliseconds(run):
        if sizes[16] == wrong:
            raise tuning.TritonError("out of resource: shared memory")
        run()
        return [3.0 * 16 / sizes[16].block_k, 100, 0]

    monkeypatch.setattr(bench, "milliseconds", milliseconds)
    timed, failed = tuning.tune(table, 16, "cuda" if torch.cuda.is_available() else "cpu")
    assert timed == [(3.0, fast), (6.0, slow)]
    assert failed == [("TritonError: out of resource: shared memory", wrong)]
    assert sizes[16] == shipped


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs an NVIDIA GPU"):
        tuning.main()
