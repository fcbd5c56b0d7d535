"""The benchmark of attention over processes runs under torchrun, and counts what a step takes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from course_utils.checks.lesson_11.bytes_sent import bytes_sent

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "parallel_attention.py"
H, D = 8, 64  # of the benchmark


def run(ranks, tokens):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launch, "--nproc-per-node", str(ranks), str(SCRIPT), str(tokens)]
    return subprocess.run(command, capture_output=True, text=True)


def test_each_way_is_right_before_it_is_timed_and_its_bytes_are_those_of_a_training_step():
    done = run(2, 64)
    assert done.returncode == 0, done.stderr
    errors = dict(re.findall(r"^(\S.*?) +largest error (\S+)", done.stdout, re.M))
    assert errors.keys() == {"exchange", "ring", "ring, zigzag", "heads"}
    assert max(map(float, errors.values())) < 1e-5  # float32, causal rows of up to 256 keys
    sent = {
        name: int(number.replace(",", ""))
        for name, number in re.findall(
            r"^(\S.*?) +[\d.]+ ms .*, +([\d,]+) bytes", done.stdout, re.M
        )
    }
    work = dict(re.findall(r"^(\S.*?) +[\d.]+ ms .*, +([\d.]+) GFLOP", done.stdout, re.M))
    block = 7 * 2 * H * 32**2 * D / 1e9  # two products forward, five backward, of 32 tokens a rank
    assert float(work["ring"]) == pytest.approx(2 * block, abs=1e-3)  # of the last rank
    assert float(work["ring, zigzag"]) == pytest.approx(1.5 * block, abs=1e-3)
    heads, exchange, ring = bytes_sent(64, 2, H, H, D, 4)
    assert sent == {"exchange": exchange, "ring": ring, "ring, zigzag": ring,
                    "heads, W_o too": heads}  # fmt: skip


def test_what_cannot_be_cut_is_said():
    done = run(2, 63)
    assert done.returncode and "2W the 63 tokens; got W = 2" in done.stderr
