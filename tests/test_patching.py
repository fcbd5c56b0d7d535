"""The model of exercise 8.8, whose head outputs can be replaced."""

import pytest
import torch

from course_utils.checks.lesson_08._patching import RepeatModel, prompt_pairs

MODEL = RepeatModel().requires_grad_(False)
CLEAN, CORRUPTED, RIGHT, WRONG = prompt_pairs(3, seed=1)


def test_a_patched_head_counts_where_it_is_and_in_later_layers():
    logits, heads = MODEL(CLEAN)  # (B, V), (layers, B, H, L, d_v)
    own = MODEL(CLEAN, {(0, 1): heads[0, :, 1]})
    torch.testing.assert_close(own, (logits, heads))
    every = {(layer, h): heads[layer, :, h] for layer in range(2) for h in range(4)}
    patched, outputs = MODEL(CORRUPTED, every)
    torch.testing.assert_close(patched, logits)  # the last token is the same
    torch.testing.assert_close(outputs, heads)
    one = MODEL(CORRUPTED, {(0, 1): heads[0, :, 1]})[1]
    assert not torch.equal(one[1], MODEL(CORRUPTED)[1][1])


def test_a_pair_of_prompts_differs_in_two_exchanged_tokens_and_so_in_what_comes_next():
    differ = (CLEAN != CORRUPTED).nonzero()[:, 1].view(3, -1)
    assert differ.tolist() == [[3, 6]] * 3
    for prompt, answer in ((CLEAN, RIGHT), (CORRUPTED, WRONG)):
        before = prompt[:, :8] == prompt[:, -1:]  # (B, 8), where the last token was before
        assert torch.equal(prompt[:, 1:9][before], answer)


@pytest.mark.parametrize(
    "patches, message",
    [({(2, 0): torch.zeros(3, 12, 16)}, r"key \(2, 0\); keys are \(0, 0\) to \(1, 3\)"),
     ({(0, 0): torch.zeros(3, 16)}, r"shape \(B, L, d_v\) = \(3, 12, 16\), got \(3, 16\)")],
)  # fmt: skip
def test_patches_that_do_not_fit_are_named(patches, message):
    with pytest.raises(ValueError, match=message):
        MODEL(CLEAN, patches)
