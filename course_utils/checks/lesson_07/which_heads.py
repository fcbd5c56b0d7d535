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
    _, weights = model(tokens)  # (layers, B, H, L, L)
    before = torch.stack([previous_token_score(layer) for layer in weights])  # (layers, H)
    after = torch.stack([induction_score(layer, tokens) for layer in weights])  # (layers, H)
    kinds = torch.zeros(before.shape, dtype=torch.long)
    for kind, scores in enumerate((before, after), start=1):
        alike = [tuple(head) for head in (scores > 0.5).nonzero().tolist()]
        for head in alike:
            logits, _ = model(tokens, [other for other in alike if other != head])
            if repeated_accuracy(logits, tokens) > 0.5:  # it can do the work alone
                kinds[head] = kind
    return kinds


def by_every_set(model, tokens):
    """Of heads that look alike try all sets: one at work makes some set too large."""
    seen = model(tokens)[1]
    kinds = np.zeros((len(seen), seen.shape[2]), dtype=int)
    for kind in (1, 2):
        looks = [
            previous_token_score(each) if kind == 1 else induction_score(each, tokens)
            for each in seen
        ]
        alike = [tuple(head) for head in (torch.stack(looks) > 0.4).nonzero().tolist()]
        fine = []
        for gone in range(2 ** len(alike)):
            removed = [head for n, head in enumerate(alike) if gone >> n & 1]
            fine.append(repeated_accuracy(model(tokens, removed)[0], tokens) > 0.5)
        for n, head in enumerate(alike):
            if any(fine[gone] and not fine[gone | 1 << n] for gone in range(len(fine))):
                kinds[head] = kind
    return torch.from_numpy(kinds)


def inputs():
    # texts so short, and so unlike, that it shows what is counted; one whose induction head scores
    # 0.74 only; then what else may come
    texts = [suspect(119, L=16, shortest=12), suspect(303)]
    return [*texts, *(suspect(s, L=24) for s in (61, 62, 65, 67))]


def most_right(model, tokens, removed):
    return repeated_accuracy(model(tokens, removed)[0], tokens) > 0.5


def looks(model, tokens):
    """Return the kinds (layers, H) by looks alone."""
    _, weights = model(tokens)
    before = torch.stack([previous_token_score(layer) for layer in weights])
    after = torch.stack([induction_score(layer, tokens) for layer in weights])
    return (before > 0.5) + 2 * (after > 0.5)


def without_looking(model, tokens):
    """Call every head that is missed alone one of the kinds, by its layer."""
    kinds = torch.zeros_like(looks(model, tokens))
    for layer, head in (kinds == 0).nonzero().tolist():
        if not most_right(model, tokens, [(layer, head)]):
            kinds[layer, head] = 2 if layer == len(kinds) - 1 else 1
    return kinds


def with_few_others(model, tokens, others):
    """Remove with a head at most so many others that look like it."""
    kinds = looks(model, tokens)
    found = torch.zeros_like(kinds)
    for head in kinds.nonzero().tolist():
        alike = (kinds == kinds[tuple(head)]).nonzero().tolist()
        for gone in itertools.combinations([each for each in alike if each != head], others):
            if most_right(model, tokens, gone) and not most_right(model, tokens, [*gone, head]):
                found[tuple(head)] = kinds[tuple(head)]
    return found


def greedy(model, tokens, step=1):
    """Remove for good whatever is not missed; what is left is at work."""
    kinds, gone = looks(model, tokens), []
    for head in kinds.nonzero().tolist()[::step]:
        if most_right(model, tokens, [*gone, head]):
            gone.append(head)
            kinds[tuple(head)] = 0
    return kinds


OTHERS = "[other for other in alike if other != head]"
RIGHT = "repeated_accuracy(logits, tokens)"
HITS = "logits[:, :-1].argmax(-1) == tokens[:, 1:]"
HELPERS = "(kinds == 0) & (without_looking(model, tokens) > 0)"
NO_KIND = (
    "a head at work gets a kind, though neither score is above 0.5: it helps with something else, "
    "and is 0"
)
MISTAKES = [
    ("by looks alone",
     "of the heads that look alike all are named; some of these look the part, but nobody uses "
     "what they write: remove heads, and see what is lost",
     (f"{OTHERS})", "[])")),
    ("one at a time",
     "heads that share their work are missing: where two do the same, either can go alone and "
     "nothing is lost; take away the others of its look as well",
     (OTHERS, "[head]"), ("> 0.5:  #", "< 0.5:  #")),
    ("without looking",
     "told by knock-outs alone: those miss heads that share their work, and find heads that are "
     "needed for something else; look as well", without_looking),
    ("the idle ones", "the other way round: of the heads that look alike those are named that idle",
     ("> 0.5:  #", "< 0.5:  #")),
    ("only one left of all",
     "nothing is found: if all other heads are removed, no head does anything; induction needs one "
     "of each kind, so remove only heads that look alike",
     (OTHERS, "[(i, j) for i in range(len(weights)) for j in range(weights.shape[2]) "
              "if (i, j) != head]")),
    ("strongest look only",
     "only the highest score of each kind is taken up; there may be several, and the highest may "
     "idle", ("(scores > 0.5)", "(scores == scores.max())")),
    ("kinds swapped", "1 and 2 are swapped: 1 is a previous-token head, 2 an induction head",
     ("kinds[head] = kind", "kinds[head] = 3 - kind")),
    ("counted from 0", "one too small: 0 is for idle heads, 1 a previous-token head, 2 induction",
     ("start=1", "start=0")),
    ("always the first model",
     "it looks at suspect(seed=0), whatever model it is given; ask `model` and `tokens`",
     ("    _, weights", "    model, tokens = suspect(seed=0)\n    _, weights")),
    ("first text only",
     "counted in the first text only; a head may be missed there, and not in the others: use all",
     ("    _, weights", "    tokens = tokens[:1]\n    _, weights")),
    ("all tokens",
     "too few answers count as right, even with all heads: after a new token nobody can know, so "
     "count as in 7.5, and most is more than half", (RIGHT, f"({HITS}).float().mean()")),
    ("7.5's bug",
     "counted as by the code with the bug in 7.5",
     (RIGHT, f"({HITS})[previous_occurrence(tokens)[:, 1:] >= 0].float().mean()")),
    ("any drop",
     "a head without which somewhat fewer answers are right is named; at work is one without which "
     "they are no longer most, that is, half or less, counted as in 7.5",
     ("> 0.5:  #", "> repeated_accuracy(model(tokens, alike)[0], tokens) + 0.1:  #")),
    ("one other at a time",
     "where three share their work, or four, they are missing; one other head removed is too few",
     functools.partial(with_few_others, others=1)),
    ("two others at a time",
     "where four heads share their work they are missing; two others removed are too few",
     functools.partial(with_few_others, others=2)),
    ("greedy",
     "of heads that share their work only one is named, the last; what has been removed must come "
     "back before the next head is tried", greedy),
    ("greedy, backwards",
     "of heads that share their work only one is named, the first; what has been removed must come "
     "back before the next head is tried", functools.partial(greedy, step=-1)),
    ("within a layer",
     "heads that do the same may stand in different layers; remove the others of all layers",
     (OTHERS, "[other for other in alike if other != head and other[0] == head[0]]")),
    ("two layers only",
     "there may be three layers; what stands in the third is not looked at",
     ("    for kind,", "    before[2:] = after[2:] = 0\n    for kind,")),
    ("kind by layer",
     "the kind is told by the layer; a previous-token head may stand in layer 1 as well",
     ("= kind", "= 1 + (head[0] > 0)")),
    ("another limit",
     "a head at work that scores 0.74 is left out; above 0.5 is enough",
     ("(scores > 0.5)", "(scores > 0.75)")),
    ("all at work are 1", NO_KIND,
     ("    return kinds", f"    kinds[{HELPERS}] = 1\n    return kinds")),
    ("larger score", NO_KIND,
     ("    return kinds", f"    kinds = kinds + ({HELPERS}) * (1 + (after > before).long())\n"
                         "    return kinds")),
    ("yes or no", "that tells which heads are at work, but not of which kind each is",
     ("= kind", "= 1")),
    ("heads before layers",
     "right, but returned as (H, layers)", ("return kinds", "return kinds.T")),
    ("first layer only",
     "previous-token heads are sought in layer 0 only; of three layers the middle one may have "
     "some, too", ("    for kind,", "    before[1:] = 0\n    for kind,")),
    ("last layer named",
     "a previous-token head of the last layer is named; its note comes too late to be read",
     ("    return kinds", "    kinds[-1][before[-1] > 0.5] = 1\n    return kinds")),
]  # fmt: skip

exercise = Exercise(
    "7.8", which_heads, inputs, MISTAKES, names="layers H", also_right=[by_every_set]
)
