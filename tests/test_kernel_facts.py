"""What lesson 06b shows of the kernels is what stands in their source and was counted."""

import json

import pytest

from course_utils.kernel_facts import kernel_counts, kernel_source, measured_rates


def test_source_is_that_of_one_function_and_needs_no_triton():
    source = kernel_source("_addresses")
    assert source.startswith("def _addresses(") and "row_stride" in source
    assert "\ndef " not in source and "@triton" not in source
    with pytest.raises(ValueError, match="one of _load, .*, got 'load'"):
        kernel_source("load")


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("is_causal", [True, False])
def test_counts_are_those_of_eight_versions_and_only_half_is_needed_until_tiles_are_skipped(
    d, is_causal
):
    versions = kernel_counts(d, is_causal)
    assert [version["name"] for version in versions][:3] == ["plain", "16-bit P", "skip"]
    assert len(versions) == 8 and versions[-1]["name"] == "descriptors"
    computed = [version["computed"] for version in versions]
    assert computed[:2] == [1 + is_causal] * 2 and max(computed[2:]) < 1.02
    assert [version["tf32"] for version in versions] == [True] + [False] * 7


def test_measured_rates_are_those_of_the_file_and_nothing_without_one(tmp_path):
    assert measured_rates(64, True, tmp_path) == (None, {})
    case = {"N": 16384, "D": 64, "is_causal": True, "flops": {"forward": 4e12}}
    entries = [
        case | {"contender": "plain", "forward": [20.0, 10.0, 10.0]},  # milliseconds
        case | {"contender": "skip", "errors failed": "wrong"},
        case | {"contender": "exp2", "N": 4096, "forward": [1.0]},
    ]
    report = {"device": "NVIDIA H100", "entries": entries}
    (tmp_path / "gpu_ladder.json").write_text(json.dumps(report))
    assert measured_rates(64, True, tmp_path) == ("NVIDIA H100", {"plain": 400.0})
