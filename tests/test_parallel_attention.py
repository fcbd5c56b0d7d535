"""The benchmark of attention over processes runs under torchrun, and counts what a step takes."""

import re
import subprocess
import sys

import pytest

import parallel_attention
from course_utils.checks.lesson_11.bytes_sent import bytes_sent
from parallel_attention import D, H


def test_each_way_is_right_before_it_is_timed_and_its_bytes_are_those_of_a_training_step():
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launch, "--nproc-per-node", "2", parallel_attention.__file__, "64"]
    done = subprocess.run(command, capture_output=True, text=True)
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


@pytest.mark.parametrize("ranks, tokens", [(2, 63), (2, 62), (3, 66)])
def test_what_cannot_be_cut_is_said_before_ranks_wait_for_each_other(ranks, tokens, monkeypatch):
    for name, value in [("WORLD_SIZE", ranks), ("LOCAL_RANK", 0)]:
        monkeypatch.setenv(name, str(value))
    with pytest.raises(ValueError, match=f"8, and 2W the {tokens} tokens; got W = {ranks}"):
        parallel_attention.main(tokens)
