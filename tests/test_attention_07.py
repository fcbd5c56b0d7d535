"""Lesson 07: scores of heads against loops and hand-made heads; the lesson's training loop."""

import pytest
import torch
from torch import nn

from course_utils.attention import follows_same_token, induction_score, previous_token_score
from induction_seeds import LESSON, definitions
from rounding import assert_same


def heads(B, H, L, seed=0):
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(B, H, L, L, generator=rng, dtype=torch.float64)
    return scores.masked_fill(torch.ones(L, L).triu(1) > 0, -torch.inf).softmax(dim=-1)


def test_previous_token_score_is_the_mean_weight_on_the_previous_token():
    def by_loops(weights):
        loops = [weights[b, :, i, i - 1] for b in range(3) for i in range(1, 5)]
        return torch.stack(loops).mean(dim=0)

    assert_same(previous_token_score, by_loops, heads(3, 2, 5))


@pytest.mark.parametrize("tokens", [[3, 1, 2, 3, 1, 2, 3], [5, 5, 5, 5], [1, 2, 3], [0, 0, 1, 0]])
def test_follows_same_token_entry_by_entry(tokens):
    n = range(len(tokens))
    right = [[1 <= j <= i and tokens[j - 1] == tokens[i] for j in n] for i in n]
    assert follows_same_token(tokens).tolist() == right
    assert follows_same_token(torch.tensor([[tokens] * 3] * 2)).tolist() == [[right] * 3] * 2


def test_induction_score_is_the_mean_over_queries_that_have_an_earlier_occurrence():
    rng = torch.Generator().manual_seed(1)
    tokens = torch.randint(4, (3, 9), generator=rng)

    def by_loops(weights):
        on_targets = []
        for b in range(3):
            for i in range(9):
                keys = [j + 1 for j in range(i) if tokens[b, j] == tokens[b, i]]
                if keys:
                    on_targets.append(weights[b, :, i, keys].sum(dim=-1))
        assert 5 < len(on_targets) < 27
        return torch.stack(on_targets).mean(dim=0)

    assert_same(lambda weights: induction_score(weights, tokens), by_loops, heads(3, 2, 9))
    assert induction_score(heads(1, 2, 5), torch.arange(5)[None]).isnan().all()


# The lesson's own code


@pytest.fixture(scope="module")
def lesson():
    """Return what the lesson's cells define. On one thread, training is deterministic."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield definitions(LESSON)
    torch.set_num_threads(threads)


def parameters(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def test_an_interrupted_training_leaves_the_model_as_it_was_and_can_be_continued(lesson, capsys):
    def trained(steps, stop=None):
        def watch(loss):
            seen.append(loss)
            if len(seen) == stop:
                raise KeyboardInterrupt

        seen = []
        torch.manual_seed(0)
        model = lesson["AttentionOnly"](num_layers=2)
        lesson["fit"](model, lesson["draw_repeats"], steps, watch)
        return model, seen

    stopped, seen = trained(steps=100, stop=3)
    assert len(seen) == 3 and "stopped" in capsys.readouterr().out
    assert torch.equal(parameters(stopped), parameters(trained(steps=3)[0]))
    lesson["fit"](stopped, lesson["draw_repeats"], 1)
    assert parameters(stopped).isfinite().all()
    assert torch.is_grad_enabled()


def test_an_ablated_head_has_no_effect_and_the_model_itself_is_unchanged(lesson):
    torch.manual_seed(0)
    model = lesson["AttentionOnly"](num_layers=2)
    before = parameters(model).clone()
    tokens = torch.randint(32, (2, 48))
    cut = lesson["ablate"](model, [(0, 1), (1, 0)])
    assert torch.equal(parameters(model), before)
    whole = cut(tokens)[0]
    with torch.no_grad():
        cut.layers[0].W_v.weight[32:] += 1  # head 1 of layer 0
        cut.layers[1].W_v.weight[:32] += 1  # head 0 of layer 1
    torch.testing.assert_close(cut(tokens)[0], whole)
    with torch.no_grad():
        cut.layers[0].W_v.weight[:32] += 1
    assert (cut(tokens)[0] - whole).abs().max() > 0.1
