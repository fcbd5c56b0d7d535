"""10b.7: the head that finds the last bracket, chosen on some texts and tested on others."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_10b._brackets import brackets, last_opener


def bracket_head(model, to_choose, held_out):
    def measured(tokens, heads):
        at = last_opener(tokens)  # (B, L)
        asks = at >= 0  # (B, L)
        position = at.clamp(min=0)

        def accuracy(removed):
            predicted = model(tokens, removed)[0].argmax(dim=-1)  # (B, L)
            return (predicted == tokens.gather(1, position))[asks].float().mean().item()

        weights = model(tokens)[1]  # (layers, B, H, L, L)
        looks_and_costs = {}
        for layer, head in heads:
            of_head = weights[layer, :, head]  # (B, L, L)
            weight = of_head.gather(-1, position[..., None])[..., 0]  # (B, L)
            cost = accuracy([]) - accuracy([(layer, head)])
            looks_and_costs[layer, head] = weight[asks].mean().item(), cost
        return looks_and_costs

    shape = model(to_choose[:1])[1].shape  # (layers, 1, H, L, L)
    heads = [(layer, h) for layer in range(shape[0]) for h in range(shape[2])]
    needed = {head: look for head, (look, cost) in measured(to_choose, heads).items() if cost > 0.1}
    best = max(needed, key=needed.get)
    look, cost = measured(held_out, [best])[best]
    return torch.tensor([*best, look, cost])  # (4,)


def by_loops(model, to_choose, held_out):
    def look(tokens, layer, head, removed):
        logits, weights = model(tokens, removed)
        total, score, right = 0, 0.0, 0
        of_texts = logits.argmax(dim=-1).tolist(), weights[layer, :, head].tolist()
        for text, predicted, rows in zip(tokens.tolist(), *of_texts, strict=True):
            at = None
            for i, token in enumerate(text):
                at = i if token < 3 else at
                if at is not None:
                    total += 1
                    score += rows[i][at]
                    right += predicted[i] == text[at]
        return score / total, right / total

    def measured(tokens, layer, head):
        score, with_it = look(tokens, layer, head, [])
        return score, with_it - look(tokens, layer, head, [(layer, head)])[1]

    layers, _, H, _, _ = model(to_choose)[1].shape
    every = {(a, h): measured(to_choose, a, h) for a in range(layers) for h in range(H)}
    needed = [head for head, (_, cost) in every.items() if cost > 0.1]
    best = max(needed, key=lambda head: every[head][0])
    return torch.tensor([*best, *measured(held_out, *best)])


def inputs():
    return [*(brackets(seed) for seed in (3, 5, 32)), *(brackets(n, shared=True) for n in (13, 34))]


NEEDED = "if cost > 0.1}"
CHOICE = "measured(to_choose, heads)"
REPORT = "measured(held_out, [best])[best]"
AT, ASKS = "at = last_opener(tokens)", "asks = at >= 0"
RIGHT = "(predicted == tokens.gather(1, position))[asks].float().mean().item()"
LOOK = "weight[asks].mean().item()"
WEIGHT = "weight = of_head.gather(-1, position[..., None])[..., 0]"
LOST = "accuracy([]) - accuracy([(layer, head)])"
BEFORE_IN_LOOK = (
    "Your cost is right, but your look counts queries before the first bracket. Leave these "
    "queries out."
)
MISTAKES = [
    ("by looks alone",
     "Your head has the best look, but without it the model loses almost nothing. First keep only "
     "the heads that cost more than 0.1.",
     (NEEDED, "}")),
    ("any cost",
     "Your head costs something, but not more than 0.1. Keep only the heads that cost more than "
     "0.1.",
     (NEEDED, "if cost > 0}")),
    ("chosen by the others",
     "Your head is chosen on held_out, which should test it. Choose it on to_choose.",
     (CHOICE, "measured(held_out, heads)")),
    ("by cost alone",
     "Your head is the one that costs most, but it does not attend to brackets. Among the heads "
     "that cost more than 0.1, choose the one with the best look.",
     ("head: look for", "head: cost for")),
    ("reported on what chose it",
     "Your look and cost come from the texts that chose the head. Report them on held_out.",
     (REPORT, "measured(to_choose, [best])[best]")),
    ("reported on all",
     "Your look and cost come from all texts together. Those that chose the head flatter it, so "
     "use only held_out.",
     (REPORT, "measured(torch.cat([to_choose, held_out[:, : to_choose.shape[1]]]), [best])[best]")),
    ("first opener",
     "Your look and your accuracy use the first bracket of a text. Use the last one up to the "
     "query.",
     (AT, "at = torch.where((tokens < 3).cumsum(-1) > 0, "
      "(tokens < 3).int().argmax(-1)[:, None], -1)")),
    ("first opener in the look",
     "Your cost is right, but your look is the weight on the first bracket of the text. Use the "
     "last one up to the query.",
     (WEIGHT, "weight = of_head.gather(-1, (tokens < 3).int().argmax(-1)[:, None, None].expand("
      "*at.shape, 1))[..., 0]")),
    ("any opener in the look",
     "Your cost is right, but your look is the weight on all brackets together. Use only the last "
     "one up to the query.",
     (WEIGHT, "weight = (of_head * (tokens < 3)[:, None]).sum(dim=-1)")),
    ("queries before any",
     "Your look and your cost count queries before the first bracket. Leave these queries out of "
     "both.",
     (ASKS, "asks = at >= -1")),
    ("queries before any, in the look",
     BEFORE_IN_LOOK,
     (LOOK, "weight.mean().item()")),
    ("queries before any with 0, in the look",
     BEFORE_IN_LOOK,
     (LOOK, "(weight * asks).mean().item()")),
    ("queries before any, in the cost",
     "Your look is right, but your cost counts queries before the first bracket. Leave these "
     "queries out of both accuracies.",
     (RIGHT, "((predicted == tokens.gather(1, position)) & asks).float().mean().item()")),
    ("own token left out",
     "Your look and your cost leave out the query's own token. If the query is a bracket, it is "
     "the one opened last.",
     (AT, "at = F.pad(last_opener(tokens)[:, :-1], (1, 0), value=-1)")),
    ("own token left out of the look",
     "Your cost is right, but your look leaves out the query's own token. If the query is a "
     "bracket, it is the one opened last.",
     (LOOK, "look_before(of_head, at)")),
    ("words alone",
     "Your result leaves out the queries that are brackets. Count all queries from the first "
     "bracket on.",
     (ASKS, "asks = (at >= 0) & (tokens >= 3)")),
    ("words alone in the look",
     "Your cost is right, but your look leaves out the queries that are brackets. Count all "
     "queries from the first bracket on.",
     (LOOK, "weight[asks & (tokens >= 3)].mean().item()")),
    ("mean of the texts' means",
     "Your look and your cost are averaged for each text first. All queries count alike, so "
     "average over all of them at once.",
     (RIGHT, "text_by_text(predicted == tokens.gather(1, position), asks)"),
     (LOOK, "text_by_text(weight, asks)")),
    ("look text by text",
     "Your cost is right, but your look is averaged for each text first. All queries count alike, "
     "so average over all of them at once.",
     (LOOK, "text_by_text(weight, asks)")),
    ("cost text by text",
     "Your look is right, but your accuracies are averaged for each text first. All queries count "
     "alike, so average over all of them at once.",
     (RIGHT, "text_by_text(predicted == tokens.gather(1, position), asks)")),
    ("relative cost",
     "Your cost is a share of the model's accuracy. Return the difference of the two accuracies.",
     (LOST, "1 - accuracy([(layer, head)]) / accuracy([])")),
    ("what is left",
     "Your last entry is the accuracy without the head. Return how much accuracy is lost.",
     (LOST, "accuracy([(layer, head)])"),
     (NEEDED, "if accuracy_lost(model, to_choose, head) > 0.1}")),
    ("negative cost",
     "Your cost has the wrong sign. It is the accuracy of the model minus its accuracy without "
     "the head.",
     ("*best, look, cost", "*best, look, -cost")),
    ("look and cost exchanged",
     "Your look and your cost are swapped. Return the look first.",
     ("*best, look, cost", "*best, cost, look")),
    ("head before layer",
     "Your head comes before its layer. Return the layer first.",
     ("*best, look", "*best[::-1], look")),
    ("how often strongest",
     "Your look is how often the bracket has the largest weight of a row. Return its mean weight.",
     (WEIGHT, "weight = (of_head.argmax(-1) == position).float()")),
]  # fmt: skip


def text_by_text(numbers, asks):
    return ((numbers * asks).sum(dim=-1) / asks.sum(dim=-1)).nanmean().item()


def look_before(of_head, at):
    """Return the mean weight on the last opener before the query's own token."""
    at = F.pad(at[:, :-1], (1, 0), value=-1)  # (B, L)
    weight = of_head.gather(-1, at.clamp(min=0)[..., None])[..., 0]
    return weight[at >= 0].mean().item()


def accuracy_lost(model, tokens, head):
    at = last_opener(tokens)
    asks, right = at >= 0, tokens.gather(1, at.clamp(min=0))
    with_it, without = (
        (model(tokens, removed)[0].argmax(dim=-1) == right)[asks].float().mean()
        for removed in ([], [head])
    )
    return with_it - without


exercise = Exercise("10b.7", bracket_head, inputs, MISTAKES, also_right=[by_loops])
