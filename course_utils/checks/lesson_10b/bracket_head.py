"""10b.7: the head that finds the last bracket, chosen on some texts and tested on others."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_10b._brackets import brackets, last_opener


def bracket_head(model, to_choose, held_out):
    def measure(tokens, heads):
        at = last_opener(tokens)  # (B, L)
        counted = at >= 0  # (B, L)
        position = at.clamp(min=0)

        def accuracy(removed):
            predicted = model(tokens, removed)[0].argmax(dim=-1)  # (B, L)
            return (predicted == tokens.gather(1, position))[counted].float().mean().item()

        weights = model(tokens)[1]  # (layers, B, H, L, L)
        of_model, results = accuracy([]), {}
        for layer, head in heads:
            of_head = weights[layer, :, head]  # (B, L, L)
            weight = of_head.gather(-1, position[..., None])[..., 0]  # (B, L)
            cost = of_model - accuracy([(layer, head)])
            results[layer, head] = weight[counted].mean().item(), cost
        return results

    shape = model(to_choose[:1])[1].shape  # (layers, 1, H, L, L)
    heads = [(layer, h) for layer in range(shape[0]) for h in range(shape[2])]
    measured = measure(to_choose, heads)
    needed = {head: weight for head, (weight, cost) in measured.items() if cost > 0.1}
    best = max(needed, key=needed.get)
    weight, cost = measure(held_out, [best])[best]
    return torch.tensor([*best, weight, cost])  # (4,)


def by_loops(model, to_choose, held_out):
    def attend_and_answer(tokens, layer, head, removed):
        logits, weights = model(tokens, removed)
        total, weight, right = 0, 0.0, 0
        of_texts = logits.argmax(dim=-1).tolist(), weights[layer, :, head].tolist()
        for text, predicted, rows in zip(tokens.tolist(), *of_texts, strict=True):
            at = None
            for i, token in enumerate(text):
                at = i if token < 3 else at
                if at is not None:
                    total += 1
                    weight += rows[i][at]
                    right += predicted[i] == text[at]
        return weight / total, right / total

    def measure(tokens, layer, head):
        weight, with_it = attend_and_answer(tokens, layer, head, [])
        return weight, with_it - attend_and_answer(tokens, layer, head, [(layer, head)])[1]

    layers, _, H, _, _ = model(to_choose)[1].shape
    every = {(a, h): measure(to_choose, a, h) for a in range(layers) for h in range(H)}
    needed = [head for head, (_, cost) in every.items() if cost > 0.1]
    best = max(needed, key=lambda head: every[head][0])
    return torch.tensor([*best, *measure(held_out, *best)])


def inputs():
    return [*(brackets(seed) for seed in (3, 5, 32)), *(brackets(n, shared=True) for n in (13, 34))]


NEEDED = "if cost > 0.1}"
CHOICE = "measure(to_choose, heads)"
REPORT = "measure(held_out, [best])[best]"
AT, COUNTED = "at = last_opener(tokens)", "counted = at >= 0"
RIGHT = "(predicted == tokens.gather(1, position))[counted].float().mean().item()"
MEAN_WEIGHT = "weight[counted].mean().item()"
WEIGHT = "weight = of_head.gather(-1, position[..., None])[..., 0]"
LOST = "of_model - accuracy([(layer, head)])"
OPENERS = "at = torch.where(tokens {}, torch.arange(tokens.shape[-1]), -1).cummax(dim=-1).values"
BY_TEXT = "text_by_text({}, counted{})"
RIGHT_OF_TEXT = "predicted == tokens.gather(1, position)"
ALL_AT_ONCE = "All queries count equally, so average over all of them at once."
OF_BOTH = "Your bracket weight and your cost are averaged for each text first. " + ALL_AT_ONCE
FROM_THE_FIRST = "Count all queries from the first bracket on."
MISTAKES = [
    ("by weight alone",
     "Your head has the highest bracket weight, but without it the model loses almost nothing. "
     "First keep only the heads that cost more than 0.1.",
     (NEEDED, "}")),
    ("any cost",
     "Your head costs something, but not more than 0.1. Keep only the heads that cost more than "
     "0.1.",
     (NEEDED, "if cost > 0}")),
    ("chosen by the others",
     "Your head is the one that you get by choosing on `held_out`. These texts are meant to test "
     "the head, so choose it on `to_choose`.",
     (CHOICE, "measure(held_out, heads)")),
    ("by cost alone",
     "Your head is the one with the largest cost. Among the heads that cost more than 0.1, "
     "choose the one with the highest bracket weight.",
     ("head: weight for", "head: cost for")),
    ("by the product",
     "Your head is the one with the largest product of bracket weight and cost. Among the heads "
     "that cost more than 0.1, compare only the bracket weights.",
     ("head: weight for", "head: weight * cost for")),
    ("reported on what chose it",
     "Your bracket weight and your cost come from `to_choose`, the texts that the head was "
     "chosen on. Report both on `held_out`.",
     (REPORT, "measure(to_choose, [best])[best]")),
    ("weight of what chose it",
     "Your cost is right, but your bracket weight comes from `to_choose`, the texts that the head"
     " was chosen on. Report the bracket weight on `held_out`.",
     (REPORT, "measured[best][0], measure(held_out, [best])[best][1]")),
    ("cost of what chose it",
     "Your bracket weight is right, but your cost comes from `to_choose`, the texts that the head"
     " was chosen on. Report the cost on `held_out`.",
     (REPORT, "measure(held_out, [best])[best][0], measured[best][1]")),
    ("reported on all",
     "Your bracket weight and your cost come from all texts together. The head was chosen on "
     "some of them, so report both only on `held_out`.",
     (REPORT, "measure(torch.cat([to_choose, held_out[:, : to_choose.shape[1]]]), [best])[best]")),
    ("first opener",
     "Your bracket weight and your accuracies use the first bracket of each text. Use the last "
     "one up to the query.",
     (AT, "at = torch.where((tokens < 3).cumsum(-1) > 0, "
      "(tokens < 3).int().argmax(-1)[:, None], -1)")),
    ("first opener in the weight",
     "Your cost is right, but your bracket weight is the weight on the first bracket of the "
     "text. Use the last one up to the query.",
     (WEIGHT, "weight = of_head.gather(-1, (tokens < 3).int().argmax(-1)[:, None, None].expand("
      "*at.shape, 1))[..., 0]")),
    ("any opener in the weight",
     "Your cost is right, but your bracket weight is the weight on all brackets together. Use "
     "only the last one up to the query.",
     (WEIGHT, "weight = (of_head * (tokens < 3)[:, None]).sum(dim=-1)")),
    ("token 3 as an opener",
     "You count token 3 as an opening bracket. Only tokens 0, 1 and 2 are opening brackets.",
     (AT, OPENERS.format("<= 3"))),
    ("token 2 as a word",
     "You count token 2 as a word. Tokens 0, 1 and 2 are opening brackets.",
     (AT, OPENERS.format("< 2"))),
    ("queries before any",
     "Your bracket weight and your cost count queries before the first bracket. Leave these "
     "queries out of both.",
     (COUNTED, "counted = at >= -1")),
    ("queries before any, in the weight",
     "Your cost is right, but your bracket weight counts queries before the first bracket. Leave"
     " these queries out.",
     (MEAN_WEIGHT, "weight.mean().item()")),
    ("queries before any with 0, in the weight",
     "Your cost is right, but in your bracket weight, each query before the first bracket counts"
     " as 0. Take the mean over the other queries only.",
     (MEAN_WEIGHT, "(weight * counted).mean().item()")),
    ("queries before any, in the cost",
     "Your bracket weight is right, but in your accuracies, each query before the first bracket "
     "counts as wrong. Take the mean over the other queries only.",
     (RIGHT, "((predicted == tokens.gather(1, position)) & counted).float().mean().item()")),
    ("own token left out",
     "Your bracket weight and your cost leave out the query's own token. If the query is a "
     "bracket, that bracket is the one opened last.",
     (AT, "at = F.pad(last_opener(tokens)[:, :-1], (1, 0), value=-1)")),
    ("own token left out of the weight",
     "Your cost is right, but for the bracket weight you look only before the query. If the "
     "query itself is an opening bracket, it is the last one opened, so take the weight on its "
     "own token.",
     (MEAN_WEIGHT, "weight_before(of_head, at)")),
    ("openers with 0 in the weight",
     "Your cost is right, but in your bracket weight, each query that is a bracket counts as 0. "
     "For such a query, use the weight on its own token.",
     (MEAN_WEIGHT, "(weight * (tokens >= 3))[counted].mean().item()")),
    ("words alone",
     "Your result leaves out the queries that are brackets. " + FROM_THE_FIRST,
     (COUNTED, "counted = (at >= 0) & (tokens >= 3)")),
    ("words alone in the weight",
     "Your cost is right, but your bracket weight leaves out the queries that are brackets. "
     + FROM_THE_FIRST,
     (MEAN_WEIGHT, "weight[counted & (tokens >= 3)].mean().item()")),
    ("words alone in the cost",
     "Your bracket weight is right, but your accuracies leave out the queries that are brackets."
     " " + FROM_THE_FIRST,
     (RIGHT, RIGHT.replace("[counted]", "[counted & (tokens >= 3)]"))),
    ("last query only",
     "Your result uses only the last query of each text. " + FROM_THE_FIRST,
     (COUNTED, "counted = (at >= 0) & (torch.arange(at.shape[-1]) == at.shape[-1] - 1)")),
    ("mean of the texts' means",
     OF_BOTH,
     (RIGHT, BY_TEXT.format(RIGHT_OF_TEXT, "")), (MEAN_WEIGHT, BY_TEXT.format("weight", ""))),
    ("mean of the texts' means, an empty text as 0",
     OF_BOTH,
     (RIGHT, BY_TEXT.format(RIGHT_OF_TEXT, ", empty=0")),
     (MEAN_WEIGHT, BY_TEXT.format("weight", ", empty=0"))),
    ("weight text by text",
     "Your cost is right, but your bracket weight is averaged for each text first. " + ALL_AT_ONCE,
     (MEAN_WEIGHT, BY_TEXT.format("weight", ""))),
    ("cost text by text",
     "Your bracket weight is right, but your accuracies are averaged for each text first. "
     + ALL_AT_ONCE,
     (RIGHT, BY_TEXT.format(RIGHT_OF_TEXT, ""))),
    ("relative cost",
     "Your cost is a share of the model's accuracy. Return the difference between the two "
     "accuracies.",
     (LOST, "1 - accuracy([(layer, head)]) / of_model")),
    ("cost from 1",
     "Your cost is 1 minus the accuracy without the head. The model itself is not always right, "
     "so subtract from the accuracy of the model instead.",
     (LOST, "1 - accuracy([(layer, head)])")),
    ("changed answers",
     "Your cost is the share of answers that change without the head. Some of these answers were "
     "wrong before, so return the difference between the two accuracies.",
     (LOST, "changed(model, tokens, (layer, head), counted)")),
    ("what is left",
     "Your last entry is the accuracy without the head. Subtract it from the accuracy of the "
     "model.",
     (LOST, "accuracy([(layer, head)])"),
     (NEEDED, "if accuracy_of(model, to_choose) - cost > 0.1}")),
    ("negative cost",
     "Your cost has the wrong sign. Return the accuracy of the model minus its accuracy without "
     "the head.",
     ("*best, weight, cost", "*best, weight, -cost")),
    ("weight and cost exchanged",
     "Your bracket weight and your cost are swapped. Return the bracket weight first.",
     ("*best, weight, cost", "*best, cost, weight")),
    ("head before layer",
     "Your head comes before its layer. Return the layer first.",
     ("*best, weight", "*best[::-1], weight")),
    ("how often strongest",
     "Your bracket weight is how often the bracket has the largest weight in its row. Return the"
     " mean weight on the bracket.",
     (WEIGHT, "weight = (of_head.argmax(-1) == position).float()")),
]  # fmt: skip


def text_by_text(numbers, counted, empty=torch.nan):
    means = (numbers * counted).sum(dim=-1) / counted.sum(dim=-1)  # (B,), NaN without a bracket
    return means.nan_to_num(empty).nanmean().item()


def weight_before(of_head, at):
    """Return the mean weight on the last opener before the query's own token."""
    at = F.pad(at[:, :-1], (1, 0), value=-1)  # (B, L)
    weight = of_head.gather(-1, at.clamp(min=0)[..., None])[..., 0]
    return weight[at >= 0].mean().item()


def accuracy_of(model, tokens):
    at = last_opener(tokens)
    right = model(tokens)[0].argmax(dim=-1) == tokens.gather(1, at.clamp(min=0))  # (B, L)
    return right[at >= 0].float().mean().item()


def changed(model, tokens, head, counted):
    with_it, without = (model(tokens, removed)[0].argmax(dim=-1) for removed in ([], [head]))
    return (with_it != without)[counted].float().mean().item()


exercise = Exercise("10b.7", bracket_head, inputs, MISTAKES, also_right=[by_loops])
