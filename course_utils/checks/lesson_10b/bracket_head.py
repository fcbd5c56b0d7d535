"""10b.7: the head that finds the open bracket, chosen on some texts, defended on others."""

import torch
import torch.nn.functional as F  # noqa: F401 - of one mistake

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_10b._brackets import brackets, last_opener


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


def by_loops(model, to_choose, held_out):
    def look(tokens, layer, head, removed):
        logits, weights = model(tokens, removed)
        total, score, right = 0, 0.0, 0
        of_texts = logits.argmax(dim=-1).tolist(), weights[layer, :, head].tolist()
        for text, said, looks in zip(tokens.tolist(), *of_texts, strict=True):
            at = None
            for i, token in enumerate(text):
                at = i if token < 3 else at
                if at is not None:
                    total += 1
                    score += looks[i][at]
                    right += said[i] == text[at]
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
RIGHT = "(said == tokens.gather(1, place))[asks].float().mean().item()"
LOOK = "there[asks].mean().item()"
MISTAKES = [
    ("by looks alone",
     "the head that looks best is named, without which next to nothing is lost; keep those that "
     "cost more than 0.1 first", (NEEDED, "}")),
    ("any cost", "a head that costs something, but not more than 0.1, is kept",
     (NEEDED, "if cost > 0}")),
    ("chosen by the others",
     "it is chosen on held_out, where it is to be defended: choose on to_choose alone",
     (CHOICE, "measured(held_out, heads)")),
    ("by cost alone",
     "the head that costs most is named; without it everything falls, but it does not look at "
     "brackets: of those that cost more than 0.1 the best look counts",
     ("head: score for", "head: cost for")),
    ("reported on what chose it",
     "look and cost are of the texts it was chosen by; report those of the others",
     (REPORT, "measured(to_choose, [best])[best]")),
    ("reported on all",
     "look and cost are of all texts together; those it was chosen by flatter it, leave them out",
     (REPORT, "measured(torch.cat([to_choose, held_out[:, : to_choose.shape[1]]]), [best])[best]")),
    ("first opener", "that looks for the first bracket; asked is the last one opened so far",
     (AT, "at = torch.where((tokens < 3).cumsum(-1) > 0, "
      "(tokens < 3).int().argmax(-1)[:, None], -1)")),
    ("queries before any", "queries before the first bracket count; they have nowhere to look",
     (ASKS, "asks = at >= -1")),
    ("own token left out", "a query that is a bracket itself has opened last: its own token counts",
     (AT, "at = F.pad(last_opener(tokens)[:, :-1], (1, 0), value=-1)")),
    ("words alone", "queries that are brackets are left out; all from the first one on count",
     (ASKS, "asks = (at >= 0) & (tokens >= 3)")),
    ("mean of the texts' means",
     "each text has a mean of its own, and then all have one; the queries of all count alike",
     (RIGHT, "text_by_text(said == tokens.gather(1, place), asks)"),
     (LOOK, "text_by_text(there, asks)")),
    ("what is left", "that is the accuracy left without it; asked is what is lost",
     ("accuracy([]) - accuracy([(layer, head)])", "accuracy([(layer, head)])"),
     (NEEDED, "if accuracy_lost(model, to_choose, head) > 0.1}")),
    ("negative cost", "the cost has the wrong sign: accuracy with it, less that without it",
     ("*best, score, cost", "*best, score, -cost")),
    ("look and cost exchanged", "right, but look and cost have changed places",
     ("*best, score, cost", "*best, cost, score")),
    ("head before layer", "first the head, then the layer: turn them round",
     ("*best, score", "*best[::-1], score")),
    ("how often strongest",
     "how often the bracket has the largest weight of a row; asked is the mean weight",
     ("there = weights[layer, :, head].gather(-1, place[..., None])[..., 0]",
      "there = (weights[layer, :, head].argmax(-1) == place).float()")),
]  # fmt: skip


def text_by_text(numbers, asks):
    return ((numbers * asks).sum(dim=-1) / asks.sum(dim=-1)).nanmean().item()


def accuracy_lost(model, tokens, head):
    at = last_opener(tokens)
    asks, right = at >= 0, tokens.gather(1, at.clamp(min=0))
    with_it, without = (
        (model(tokens, removed)[0].argmax(dim=-1) == right)[asks].float().mean()
        for removed in ([], [head])
    )
    return with_it - without


exercise = Exercise("10b.7", bracket_head, inputs, MISTAKES, also_right=[by_loops])
