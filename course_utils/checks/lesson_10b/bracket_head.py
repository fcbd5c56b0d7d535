"""10b.7: the head that finds the open bracket, chosen on some texts, defended on others."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_10b.brackets import brackets, last_opener


def bracket_head(model, to_choose, held_out):
    def measured(tokens, heads):
        at = last_opener(tokens)  # (B, L)
        asks = at >= 0  # (B, L)
        place = at.clamp(min=0)

        def accuracy(removed):
            said = model(tokens, removed)[0].argmax(dim=-1)  # (B, L)
            return (said == tokens.gather(1, place))[asks].float().mean().item()

        weights = model(tokens)[1]  # (layers, B, H, L, L)
        found = {}
        for layer, head in heads:
            there = weights[layer, :, head].gather(-1, place[..., None])[..., 0]  # (B, L)
            cost = accuracy([]) - accuracy([(layer, head)])
            found[layer, head] = there[asks].mean().item(), cost
        return found

    shape = model(to_choose[:1])[1].shape  # (layers, 1, H, L, L)
    heads = [(layer, h) for layer in range(shape[0]) for h in range(shape[2])]
    kept = {head: score for head, (score, cost) in measured(to_choose, heads).items() if cost > 0.1}
    best = max(kept, key=kept.get)
    score, cost = measured(held_out, [best])[best]
    return torch.tensor([*best, score, cost])  # (4,)


def inputs():
    return [brackets(seed) for seed in (3, 5, 8, 13, 21)]


NEEDED = "if cost > 0.1}"
REPORT = "measured(held_out, [best])[best]"
MISTAKES = [
    ("by looks alone",
     "the head that looks best is named, without which nothing is lost: nobody reads it; keep "
     "those that cost more than 0.1 first", (NEEDED, "}")),
    ("by cost alone",
     "the head that costs most is named; without it everything falls, but it does not look at "
     "brackets: of those that cost more than 0.1 the best look counts",
     ("head: score for", "head: cost for")),
    ("reported on what chose it",
     "score and cost are of the texts it was chosen by; report those of the others",
     (REPORT, "measured(to_choose, [best])[best]")),
    ("reported on all",
     "score and cost are of all texts together; those it was chosen by flatter it, leave them out",
     (REPORT, "measured(torch.cat([to_choose, held_out[:, : to_choose.shape[1]]]), [best])[best]")),
    ("first opener", "that looks for the first bracket; asked is the last one opened so far",
     ("at = last_opener(tokens)", "at = torch.where((tokens < 3).cumsum(-1) > 0, "
      "(tokens < 3).int().argmax(-1)[:, None], -1)")),
    ("queries before any", "queries before the first bracket count; they have nowhere to look",
     ("asks = at >= 0", "asks = at >= -1")),
    ("what is left", "that is the accuracy left without it; asked is what is lost",
     ("accuracy([]) - accuracy([(layer, head)])", "accuracy([(layer, head)])"),
     (NEEDED, "if accuracy_lost(model, to_choose, head) > 0.1}")),
    ("negative cost", "the cost has the wrong sign: accuracy with it, less that without it",
     ("*best, score, cost", "*best, score, -cost")),
    ("score and cost exchanged", "right, but score and cost have changed places",
     ("*best, score, cost", "*best, cost, score")),
    ("head before layer", "first the head, then the layer: turn them round",
     ("*best, score", "*best[::-1], score")),
    ("how often strongest",
     "how often the bracket has the largest weight of a row; asked is the mean weight",
     ("there = weights[layer, :, head].gather(-1, place[..., None])[..., 0]",
      "there = (weights[layer, :, head].argmax(-1) == place).float()")),
]  # fmt: skip


def accuracy_lost(model, tokens, head):
    at = last_opener(tokens)
    asks, right = at >= 0, tokens.gather(1, at.clamp(min=0))
    with_it, without = (
        (model(tokens, removed)[0].argmax(dim=-1) == right)[asks].float().mean()
        for removed in ([], [head])
    )
    return with_it - without


exercise = Exercise("10b.7", bracket_head, inputs, MISTAKES)
