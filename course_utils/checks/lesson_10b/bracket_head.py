"""10b.7: the head that finds the last bracket, chosen on some texts and tested on others."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_10b._brackets import KINDS, brackets, hard_models, last_opener
from course_utils.checks.shared_hints import COUNTED_FROM_1


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
    shared = [brackets(seed, shared=True) for seed in (13, 34)]
    return [*(brackets(seed) for seed in (3, 32)), *shared, *hard_models()]


NEEDED = "if cost > 0.1}"
WANTED = "{head: weight for head, (weight, cost) in measured.items() if cost > 0.1}"
BEST = "best = max(needed, key=needed.get)"
TOO_CHEAP = (
    "Your head costs something, but not more than 0.1. Keep only the heads that cost more than 0.1."
)
TOO_STRICT = (
    "Another head that costs more than 0.1 has a higher bracket weight than yours. Keep all heads "
    "that cost more than 0.1, and choose the one with the highest bracket weight."
)
CHOICE = "measure(to_choose, heads)"
REPORT = "measure(held_out, [best])[best]"
AT, COUNTED = "at = last_opener(tokens)", "counted = at >= 0"
RIGHT = "(predicted == tokens.gather(1, position))[counted].float().mean().item()"
MEAN_WEIGHT = "weight[counted].mean().item()"
WEIGHT = "weight = of_head.gather(-1, position[..., None])[..., 0]"
OF_HEAD = "of_head = weights[layer, :, head]"
LOST = "of_model - accuracy([(layer, head)])"
OPENERS = "at = torch.where(tokens {}, torch.arange(tokens.shape[-1]), -1).cummax(dim=-1).values"
BY_TEXT = "text_by_text({}, counted{})"
RIGHT_OF_TEXT = "predicted == tokens.gather(1, position)"
ALL_AT_ONCE = "All queries count equally, so average over all of them at once."
OF_BOTH = "Your bracket weight and your cost are averaged within each text first. " + ALL_AT_ONCE
FROM_THE_FIRST = "Count all queries from the first bracket on."
CHANGED = (
    "Your cost is the share of answers that change without the head. Some of these answers were "
    "wrong before, so return the difference between the two accuracies."
)
SURENESS = {
    how: ((RIGHT, f"sureness('{how}', model(tokens, removed)[0], tokens, position, counted)"),)
    for how in ("log", "softmax", "logit")
}
MISTAKES = [
    ("by weight alone",
     "Your head has the highest bracket weight, but it does not cost more than 0.1. First keep only"
     " the heads that cost more than 0.1.",
     (NEEDED, "}")),
    ("any cost", TOO_CHEAP, (NEEDED, "if cost > 0}")),
    ("cost above 0.05", TOO_CHEAP, (NEEDED, "if cost > 0.05}")),
    ("second by weight",
     "Your head has the second-highest bracket weight. But a place in this order says nothing "
     "about the cost. Among the heads that cost more than 0.1, choose the one with the highest "
     "bracket weight.",
     (BEST, "best = sorted(measured, key=lambda head: -measured[head][0])[1]")),
    ("cost either way",
     "Your head costs more than 0.1 only if the sign is ignored: without it, the model is right "
     "more often. Keep only heads whose cost itself is more than 0.1.",
     (NEEDED, "if abs(cost) > 0.1}")),
    ("chosen by the loss",
     "Your head does not cost more than 0.1, but without it the cross-entropy rises by more than "
     "0.1. To choose the head, measure the cost with the accuracy, too.",
     (NEEDED, "if loss_without(model, to_choose, head) > 0.1}")),
    ("cost on the others",
     "Your head costs more than 0.1 on `held_out`, but not on `to_choose`. `held_out` is meant to "
     "test the head, so measure both the cost and the bracket weight on `to_choose` to choose it.",
     (NEEDED, "if measure(held_out, [head])[head][1] > 0.1}")),
    ("chosen by the others, reported on what was to choose",
     "Your two sets of texts are swapped. Choose the head on `to_choose`, and report its bracket "
     "weight and its cost on `held_out`.",
     (CHOICE, "measure(held_out, heads)"), (REPORT, "measure(to_choose, [best])[best]")),
    ("chosen by the others",
     "Your head is the one that you get by choosing on `held_out`. These texts are meant to test "
     "the head, so choose it on `to_choose`.",
     (CHOICE, "measure(held_out, heads)")),
    ("by cost alone",
     "Your head is the one with the largest cost. Among the heads that cost more than 0.1, "
     "choose the one with the highest bracket weight.",
     ("head: weight for", "head: cost for")),
    ("by cost, of heads with a high weight",
     "Your head is the one with the largest cost among the heads with a high bracket weight. Choose"
     " the other way around: the highest bracket weight among the heads that cost more than 0.1.",
     (WANTED, "{head: cost for head, (weight, cost) in measured.items() if weight > 0.5}")),
    ("last layer only",
     "Your head is the best one in the last layer. Compare the heads of all layers.",
     (NEEDED, "if cost > 0.1 and head[0] == shape[0] - 1}")),
    *((f"cost above {least}", TOO_STRICT, (NEEDED, f"if cost > {least}}} or {{heads[0]: 0}}"))
      for least in (0.15, 0.2, 0.3, 0.5)),
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
    ("mean of both sets",
     "Your bracket weight and your cost are averaged over `to_choose` and `held_out`. The head was "
     "chosen on `to_choose`, so report both only on `held_out`.",
     ("    weight, cost = " + REPORT, "    both = measured[best], measure(held_out, [best])[best]\n"
      "    weight, cost = (sum(pair) / 2 for pair in zip(*both, strict=True))")),
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
    ("all openers of its kind in the weight",
     "Your cost is right, but your bracket weight also counts earlier brackets of the same kind. "
     "Use only the last bracket up to the query.",
     (WEIGHT, "same = tokens[:, None] == tokens.gather(1, position)[..., None]\n"
      "            weight = (of_head * same).sum(dim=-1)")),
    ("queries for keys",
     "Your bracket weight is what the bracket puts on the query, not what the query puts on the "
     "bracket. In `weights`, queries come before keys, so take the query's row and the bracket's "
     "column.",
     (OF_HEAD, "of_head = weights[layer, :, head].mT")),
    ("largest weight",
     "Your cost is right, but your bracket weight is the largest weight that any query puts on its "
     "last bracket. Return the mean over the queries.",
     (MEAN_WEIGHT, "weight[counted].max().item()")),
    ("token 3 as an opener",
     "You count token id 3 as an opening bracket. Only the ids 0, 1 and 2 are opening brackets.",
     (AT, OPENERS.format("<= 3"))),
    ("token 2 as a word",
     "You count token id 2 as a word. The ids 0, 1 and 2 are opening brackets.",
     (AT, OPENERS.format("< 2"))),
    ("token 0 as a word",
     "You count token id 0 as a word. The ids 0, 1 and 2 are opening brackets.",
     (AT, OPENERS.format("* (3 - tokens) > 0"))),
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
    ("queries before any with 0",
     "In your bracket weight and your accuracies, each query before the first bracket counts as 0."
     " Take all these means over the other queries only.",
     (RIGHT, "((predicted == tokens.gather(1, position)) & counted).float().mean().item()"),
     (MEAN_WEIGHT, "(weight * counted).mean().item()")),
    ("queries before any, in the first accuracy",
     "Your bracket weight is right, but in the accuracy of the whole model, each query before the "
     "first bracket counts as wrong. Leave these queries out of both accuracies.",
     ("of_model, results = accuracy([])",
      "of_model, results = accuracy([]) * counted.float().mean().item()")),
    ("first query left out",
     "Your bracket weight and your cost leave out the first query of each text. If its token is a "
     "bracket, this query counts, too.",
     (COUNTED, "counted = (at >= 0) & (torch.arange(at.shape[-1]) > 0)")),
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
    ("last query of every text",
     "Your result uses only the last query of each text, even in a text without a bracket. "
     + FROM_THE_FIRST,
     (COUNTED, "counted = (torch.arange(at.shape[-1]) == at.shape[-1] - 1).expand_as(at)")),
    ("from the text's last opener on",
     "Your bracket weight and your cost count only the queries from the text's last bracket on. "
     "Count all queries from the first bracket on, each with the last bracket up to it.",
     (COUNTED, "counted = (at >= 0) & (at == at[:, -1:])")),
    ("mean of the texts' means",
     OF_BOTH,
     (RIGHT, BY_TEXT.format(RIGHT_OF_TEXT, "")), (MEAN_WEIGHT, BY_TEXT.format("weight", ""))),
    ("mean of the texts' means, an empty text as 0",
     OF_BOTH,
     (RIGHT, BY_TEXT.format(RIGHT_OF_TEXT, ", empty=0")),
     (MEAN_WEIGHT, BY_TEXT.format("weight", ", empty=0"))),
    ("weight text by text",
     "Your cost is right, but your bracket weight is averaged within each text first. "
     + ALL_AT_ONCE,
     (MEAN_WEIGHT, BY_TEXT.format("weight", ""))),
    ("cost text by text",
     "Your bracket weight is right, but your accuracies are averaged within each text first. "
     + ALL_AT_ONCE,
     (RIGHT, BY_TEXT.format(RIGHT_OF_TEXT, ""))),
    ("loss in place of accuracy",
     "Your cost is how much the cross-entropy rises without the head. The cost should be the "
     "difference between two accuracies: count how often the largest logit belongs to the right "
     "kind.",
     *SURENESS["log"]),
    ("probability in place of accuracy",
     "Your cost is how much the probability of the right kind falls without the head. The cost "
     "should be the difference between two accuracies: count how often the largest logit belongs "
     "to the right kind.",
     *SURENESS["softmax"]),
    ("logit in place of accuracy",
     "Your cost is how much the logit of the right kind falls without the head. The cost should be "
     "the difference between two accuracies: count how often the largest logit belongs to the "
     "right kind.",
     *SURENESS["logit"]),
    ("whole layer ablated",
     "Your cost is that of ablating the head's whole layer. Ablate only this head.",
     (LOST, "of_model - accuracy([(layer, h) for h in range(weights.shape[2])])")),
    ("only head left",
     "Your cost is that of ablating all heads except this one. Ablate only this head, "
     "`[(layer, head)]`.",
     (LOST, "of_model - accuracy([(a, h) for a in range(len(weights)) "
            "for h in range(weights.shape[2]) if (a, h) != (layer, head)])")),
    ("both heads ablated",
     "Your cost is that of ablating several heads at once. Even if two heads share the work, "
     "return the cost of the chosen head alone.",
     ("    weight, cost = " + REPORT, "    weight, cost = " + REPORT + "\n"
      "    cost = together(model, to_choose, held_out, measured, best)")),
    ("mean of both heads",
     "If two heads share the work, your bracket weight and your cost are averaged over both. "
     "Return those of the chosen head alone.",
     ("    weight, cost = " + REPORT, "    both = [h for h in needed if needed[h] > 0.25]\n"
      "    both = measure(held_out, both).values()\n"
      "    weight, cost = (sum(each) / len(both) for each in zip(*both, strict=True))")),
    ("largest cost of all",
     "Your cost is the largest of all heads. Return the cost of the chosen head.",
     ("    weight, cost = " + REPORT, "    weight, cost = " + REPORT + "\n"
      "    cost = max(cost for _, cost in measure(held_out, heads).values())")),
    ("largest weight of the layer",
     "Your bracket weight is the highest in the head's layer. Return the bracket weight of the "
     "chosen head.",
     ("    weight, cost = " + REPORT, "    weight, cost = " + REPORT + "\n"
      "    same = [head for head in heads if head[0] == best[0]]\n"
      "    weight = max(weight for weight, _ in measure(held_out, same).values())")),
    ("relative cost",
     "Your cost is a share of the model's accuracy. Return the difference between the two "
     "accuracies.",
     (LOST, "1 - accuracy([(layer, head)]) / of_model")),
    ("cost from 1",
     "Your cost is 1 minus the accuracy without the head. The model itself is not always right, "
     "so subtract from the accuracy of the model instead.",
     (LOST, "1 - accuracy([(layer, head)])")),
    ("changed answers",
     CHANGED,
     (LOST, "changed(model, tokens, (layer, head), counted)")),
    ("changed answers, in the report alone",
     CHANGED,
     ("    weight, cost = " + REPORT, "    weight, cost = " + REPORT + "\n"
      "    cost = changed(model, held_out, best, last_opener(held_out) >= 0)")),
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
    ("cost in percent",
     "Your cost is in percent. Return a number from 0 to 1.",
     ("*best, weight, cost", "*best, weight, 100 * cost")),
    ("both in percent",
     "Your bracket weight and your cost are in percent. Return numbers from 0 to 1.",
     ("*best, weight, cost", "*best, 100 * weight, 100 * cost")),
    ("cost as a number of answers",
     "Your cost is a number of right answers. Divide it by the number of queries that count.",
     ("*best, weight, cost",
      "*best, weight, cost * (last_opener(held_out) >= 0).sum().item()")),
    ("cost times all queries",
     "Your cost is multiplied by the total number of queries. Return the difference between the "
     "two accuracies.",
     ("*best, weight, cost", "*best, weight, cost * held_out.numel()")),
    ("counted from 1", COUNTED_FROM_1, ("*best, weight", "best[0] + 1, best[1] + 1, weight")),
    ("layer counted from 1", COUNTED_FROM_1, ("*best, weight", "best[0] + 1, best[1], weight")),
    ("head counted from 1", COUNTED_FROM_1, ("*best, weight", "best[0], best[1] + 1, weight")),
    ("number in place of the layer",
     "Your first entry is the head's number among the heads of all layers. Return its layer there: "
     "divide the number by H, and drop the remainder.",
     ("*best, weight", "best[0] * shape[2] + best[1], best[1], weight")),
    ("how often strongest",
     "Your bracket weight is how often the bracket has the largest weight in its row. Return the"
     " mean weight on the bracket.",
     (WEIGHT, "weight = (of_head.argmax(-1) == position).float()")),
]  # fmt: skip


def text_by_text(numbers, counted, empty=torch.nan):
    means = (numbers * counted).sum(dim=-1) / counted.sum(dim=-1)  # (B,), NaN without a bracket
    return means.nan_to_num(empty).nanmean().item()


def sureness(how, logits, tokens, position, counted):
    """Return the mean log-probability, probability or logit of the right kind."""
    kind = tokens.gather(1, position).clamp(max=KINDS - 1)  # a word is not counted
    values = {"log": logits.log_softmax(-1), "softmax": logits.softmax(-1), "logit": logits}[how]
    return values.gather(-1, kind[..., None])[..., 0][counted].mean().item()


def loss_without(model, tokens, head):
    """Return how much the cross-entropy rises without a head."""
    at = last_opener(tokens)
    args = tokens, at.clamp(min=0), at >= 0
    with_it, without = (sureness("log", model(tokens, r)[0], *args) for r in ([], [head]))
    return with_it - without


def together(model, tokens, others, measured, best):
    """Return the cost of ablating the two best bracket heads of the chosen head's layer."""
    layer = [head for head in measured if head[0] == best[0]]
    two = sorted(layer, key=lambda head: -measured[head][0])[:2]
    return accuracy_of(model, others) - accuracy_of(model, others, two)


def weight_before(of_head, at):
    """Return the mean weight on the last opener before the query's own token."""
    at = F.pad(at[:, :-1], (1, 0), value=-1)  # (B, L)
    weight = of_head.gather(-1, at.clamp(min=0)[..., None])[..., 0]
    return weight[at >= 0].mean().item()


def accuracy_of(model, tokens, removed=()):
    at = last_opener(tokens)
    predicted = model(tokens, removed)[0].argmax(dim=-1)  # (B, L)
    right = predicted == tokens.gather(1, at.clamp(min=0))  # (B, L)
    return right[at >= 0].float().mean().item()


def changed(model, tokens, head, counted):
    with_it, without = (model(tokens, removed)[0].argmax(dim=-1) for removed in ([], [head]))
    return (with_it != without)[counted].float().mean().item()


exercise = Exercise("10b.7", bracket_head, inputs, MISTAKES, also_right=[by_loops])
