"""7.8: which heads of a model are at work, told by what they look at and what is lost without."""

import functools
import itertools

import numpy as np
import torch

from course_utils.attention import induction_score, previous_token_score
from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_07._suspects import suspect
from course_utils.checks.lesson_07.previous_occurrence import previous_occurrence  # noqa: F401
from course_utils.checks.lesson_07.repeated_accuracy import repeated_accuracy


def which_heads(model, tokens):
    def accuracy(removed):
        logits, _ = model(tokens, removed)
        return repeated_accuracy(logits, tokens)

    _, weights = model(tokens)  # (layers, B, H, L, L)
    before = torch.stack([previous_token_score(layer) for layer in weights])  # (layers, H)
    after = torch.stack([induction_score(layer, tokens) for layer in weights])  # (layers, H)
    kinds = torch.zeros(before.shape, dtype=torch.long)
    for kind, scores in enumerate((before, after), start=1):
        alike = [tuple(head) for head in (scores > 0.5).nonzero().tolist()]
        for head in alike:
            others = [other for other in alike if other != head]
            for gone in subsets(others):
                if accuracy(gone) > 0.5 >= accuracy([*gone, head]):
                    kinds[head] = kind
    return kinds


def subsets(heads):
    sizes = range(len(heads) + 1)
    return [list(some) for n in sizes for some in itertools.combinations(heads, n)]


def by_every_set(model, tokens):
    """Try every set of heads that look alike, as the bits of a number."""
    seen = model(tokens)[1]
    kinds = np.zeros((len(seen), seen.shape[2]), dtype=int)
    for kind in (1, 2):
        looks = [
            previous_token_score(each) if kind == 1 else induction_score(each, tokens)
            for each in seen
        ]
        alike = [tuple(head) for head in (torch.stack(looks) > 0.5).nonzero().tolist()]
        fine = []
        for gone in range(2 ** len(alike)):
            removed = [head for n, head in enumerate(alike) if gone >> n & 1]
            fine.append(repeated_accuracy(model(tokens, removed)[0], tokens) > 0.5)
        for n, head in enumerate(alike):
            if any(fine[gone] and not fine[gone | 1 << n] for gone in range(len(fine))):
                kinds[head] = kind
    return torch.from_numpy(kinds)


CLOSE = [  # models that differ only if a limit is not one half, or if other heads are removed
    (74, [["writer", "idle"], ["faint", "idle"]]),  # an induction score below 0.5
    (71, [["writer", "idle"], ["firm", "idle"]]),  # above 0.5
    (91, [["most", "rest", "echo"], ["finder", "mirror", "idle"]]),  # 0.4 or 0.5
    (80, [["most", "rest", "echo"], ["first half", "second half", "mirror"]]),
]


@functools.cache
def inputs():
    # Short, varied texts show which predictions are counted. In 303, the induction head scores only
    # 0.74. In 68, three heads do a third of one job each.
    texts = [suspect(119, L=16, shortest=12), suspect(303), suspect(68)]
    texts += [suspect(seed, L=24, layers=layers) for seed, layers in CLOSE]
    return [*texts, *(suspect(s, L=24) for s in (61, 62, 65, 66, 67))]


def most_right(model, tokens, removed):
    return repeated_accuracy(model(tokens, removed)[0], tokens) > 0.5


def looks(model, tokens):
    """Return the kinds (layers, H) by the scores alone."""
    _, weights = model(tokens)
    before = torch.stack([previous_token_score(layer) for layer in weights])
    after = torch.stack([induction_score(layer, tokens) for layer in weights])
    return (before > 0.5) + 2 * (after > 0.5)


def without_looking(model, tokens):
    """Name each head that is needed when it is removed alone; its layer decides the kind."""
    kinds = torch.zeros_like(looks(model, tokens))
    for layer, head in (kinds == 0).nonzero().tolist():
        if not most_right(model, tokens, [(layer, head)]):
            kinds[layer, head] = 2 if layer == len(kinds) - 1 else 1
    return kinds


def with_few_others(model, tokens, others):
    """Remove with each head at most so many others that look like it."""
    kinds = looks(model, tokens)
    found = torch.zeros_like(kinds)
    for head in kinds.nonzero().tolist():
        alike = (kinds == kinds[tuple(head)]).nonzero().tolist()
        for gone in subsets([other for other in alike if other != head]):
            if len(gone) > others:
                continue
            if most_right(model, tokens, gone) and not most_right(model, tokens, [*gone, head]):
                found[tuple(head)] = kinds[tuple(head)]
    return found


def greedy(model, tokens, step=1):
    """Remove every head that is not needed, for good, and name those that are left."""
    kinds, gone = looks(model, tokens), []
    for head in kinds.nonzero().tolist()[::step]:
        if most_right(model, tokens, [*gone, head]):
            gone.append(head)
            kinds[tuple(head)] = 0
    return kinds


NEEDED = "accuracy(gone) > 0.5 >= accuracy([*gone, head])"
RIGHT = "repeated_accuracy(logits, tokens)"
HITS = "logits[:, :-1].argmax(-1) == tokens[:, 1:]"
HELPERS = "(kinds == 0) & (without_looking(model, tokens) > 0)"
NO_KIND = (
    "You give a kind to a head whose two scores are both below 0.5. It is needed for something "
    "else, so give it 0."
)
GREEDY = (
    "Some heads that share a job are missing. This happens if you remove heads for good as soon as "
    "they are not needed. Put all removed heads back before you try the next one."
)
ONE_LAYER_EACH = (
    "Your previous-token heads are only in layer 0, and your induction heads only in layer 1. "
    "Either may be in another layer. Look at all layers for both."
)
MISTAKES = [
    ("by looks alone",
     "You name every head with a high score, even those whose output nothing reads. To test a "
     "head, remove a set of other heads that look like it, and then the head itself as well. Name "
     "it only if, for some set, most answers are right before the second step but not after it.",
     (NEEDED, "True")),
    ("one at a time",
     "Heads that share a job are missing. If two heads do the same job, you can remove either of "
     "them and nothing is lost. Also remove sets of other heads that look like the one you test.",
     ("subsets(others)", "[[]]")),
    ("without looking",
     "Your result is what you get by removing single heads without looking at their scores. This "
     "misses heads that share a job, and finds heads that do something else. Use the scores as "
     "well.", without_looking),
    ("the idle ones",
     "You name the heads with a high score that are *not* at work. Name those that are.",
     ("return kinds", "return looks(model, tokens) * (kinds == 0)")),
    ("only one left of all",
     "Your result is 0 everywhere. If you remove all other heads, nothing works, because induction "
     "needs one head of each kind. Remove only heads that look like the one you test.",
     ("subsets(others)",
      "[[(i, j) for i in range(len(weights)) for j in range(weights.shape[2])"
      " if (i, j) != head]]")),
    ("alone or not at all",
     "You name only heads that can do the whole job alone, and miss those that do only part of it. "
     "Try every set of other heads that look like the one you test, not only the set of all of "
     "them.",
     ("subsets(others)", "[others]")),
    ("strongest look only",
     "You name only the head with the highest score of each kind. The head with the highest "
     "score may do nothing, and others may work. Test every head with a score above 0.5.",
     ("return kinds", "return kinds * ((before == before.max()) | (after == after.max()))")),
    ("kinds swapped",
     "Your 1 and 2 are swapped. Return 1 for a previous-token head, and 2 for an induction head.",
     ("kinds[head] = kind", "kinds[head] = 3 - kind")),
    ("counted from 0",
     "Your kinds are one too small. Return 1 for a previous-token head, 2 for an induction head, "
     "and 0 for all others.",
     ("start=1", "start=0")),
    ("always the first model",
     "Your result is the one for suspect(seed=0), whichever model you are given. Use the arguments "
     "`model` and `tokens`.",
     ("    _, weights", "    model, tokens = suspect(seed=0)\n    _, weights")),
    ("first text only",
     "Your result is what you get from the first text alone. Use all texts, because a head may be "
     "needed in one text and not in the others.",
     ("    _, weights", "    tokens = tokens[:1]\n    _, weights")),
    ("all tokens",
     "Your result is what you get if all predictions are counted. Nobody can know what follows a "
     "token that has not occurred before, so count only the predictions that 7.5 counts.",
     (RIGHT, f"({HITS}).float().mean()")),
    ("7.5's bug",
     "Your result is what you get from an accuracy with the bug from 7.5. Use your corrected "
     "`repeated_accuracy`.",
     (RIGHT, f"({HITS})[previous_occurrence(tokens)[:, 1:] >= 0].float().mean()")),
    ("drop by half",
     "You name a head only if the accuracy falls by more than one half. Name it if most answers "
     "are right before you remove it, and at most half of them after.",
     (NEEDED, "accuracy(gone) - accuracy([*gone, head]) > 0.5")),
    ("nearly all answers",
     "Your result is what you get if most answers are taken to be more than 90%. Most means more "
     "than half.",
     (NEEDED, "accuracy(gone) > 0.9 >= accuracy([*gone, head])")),
    ("any drop",
     "You name heads without which the accuracy falls only a little. Name a head only if the "
     "accuracy falls to one half or less.", ("> 0.5 >= accuracy", "> 0.1 + accuracy")),
    ("one other at a time",
     "You miss heads that share their job with two or more others. To test a head, try every set "
     "of the other heads that look like it, up to all of them.",
     functools.partial(with_few_others, others=1)),
    ("two others at a time",
     "You miss heads that share their job with three others. To test a head, try every set of the "
     "other heads that look like it, up to all of them.",
     functools.partial(with_few_others, others=2)),
    ("greedy", GREEDY, greedy),
    ("greedy, backwards", GREEDY, functools.partial(greedy, step=-1)),
    ("within a layer",
     "Heads that share a job across layers are missing. Remove heads of other layers, too.",
     ("if other != head", "if other != head and other[0] == head[0]")),
    ("two layers only",
     "Your result is 0 everywhere in layer 2 (the third layer), but a head there is at work. Look "
     "at all layers.",
     ("    for kind,", "    before[2:] = after[2:] = 0\n    for kind,")),
    ("kind by layer",
     "You give 1 to heads in layer 0, and 2 to heads in later layers. A previous-token head may "
     "also be in layer 1, so decide by the scores.",
     ("= kind\n", "= 1 + (head[0] > 0)\n")),
    ("layer by kind", ONE_LAYER_EACH,
     ("for head in alike:", "for head in [each for each in alike if each[0] == kind - 1]:")),
    ("layer by kind, others too", ONE_LAYER_EACH,
     ("in (scores > 0.5).nonzero().tolist()]",
      "in (scores > 0.5).nonzero().tolist() if head[0] == kind - 1]")),
    ("best of each layer",
     "You test the head with the highest score in each layer, and only this one. Test every head "
     "with a score above 0.5, and no other.",
     ("(scores > 0.5)", "(scores == scores.amax(dim=-1, keepdim=True))")),
    ("another limit",
     "A head that is at work, with a score of 0.74, is missing. Any score above 0.5 is enough.",
     ("(scores > 0.5)", "(scores > 0.75)")),
    ("limit of 0.6",
     "A head that is at work, with a score between 0.5 and 0.6, is missing. Any score above 0.5 is "
     "enough.",
     ("(scores > 0.5)", "(scores > 0.6)")),
    ("limit of 0.4",
     "You name a head whose score is below 0.5. Only heads with a score above 0.5 count.",
     ("(scores > 0.5)", "(scores > 0.4)")),
    ("most from 0.4 on",
     "You accept an accuracy below one half as most answers. Most means more than half.",
     (NEEDED, "accuracy(gone) > 0.4 >= accuracy([*gone, head])")),
    ("others of both kinds",
     "While you test a head, you also remove heads of the other kind. Remove only heads that look "
     "like the one you test.",
     ("other for other in alike if other != head",
      "tuple(other) for other in (torch.maximum(before, after) > 0.5).nonzero().tolist() "
      "if tuple(other) != head")),
    ("all at work are 1", NO_KIND,
     ("    return kinds", f"    kinds[{HELPERS}] = 1\n    return kinds")),
    ("larger score", NO_KIND,
     ("    return kinds", f"    kinds = kinds + ({HELPERS}) * (1 + (after > before).long())\n"
                         "    return kinds")),
    ("yes or no",
     "Your result says which heads are at work, but gives all of them a 1. Give 2 to induction "
     "heads.",
     ("= kind\n", "= 1\n")),
    ("heads before layers",
     "Your result is right, but has shape (H, layers). Return (layers, H).",
     ("return kinds", "return kinds.T")),
    ("first layer only",
     "Your result has previous-token heads only in layer 0. They may also be in a middle layer.",
     ("    for kind,", "    before[1:] = 0\n    for kind,")),
    ("last layer named",
     "You name a previous-token head in the last layer. What it writes comes too late for any "
     "induction head to read, so give it 0.",
     ("    return kinds", "    kinds[-1][before[-1] > 0.5] = 1\n    return kinds")),
]  # fmt: skip

exercise = Exercise(
    "7.8", which_heads, inputs, MISTAKES, names="layers H", also_right=[by_every_set]
)
