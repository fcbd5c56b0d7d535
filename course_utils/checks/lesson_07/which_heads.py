"""7.8: which heads of a model are at work, told by what they look at and what is lost without."""

import torch

from course_utils.attention import induction_score, previous_token_score
from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_07.repeated_accuracy import repeated_accuracy
from course_utils.checks.lesson_07.suspects import suspect


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


def inputs():
    return [suspect(seed) for seed in (60, 61, 62, 63, 64, 65, 73)]


def without_looking(model, tokens):
    """Call every head that is missed alone one of the kinds, by its layer."""
    _, weights = model(tokens)
    kinds = torch.zeros(weights.shape[0], weights.shape[2], dtype=torch.long)
    for layer, head in (kinds == 0).nonzero().tolist():
        logits, _ = model(tokens, [(layer, head)])
        if repeated_accuracy(logits, tokens) < 0.5:
            kinds[layer, head] = 2 if layer == len(weights) - 1 else 1
    return kinds


OTHERS = "[other for other in alike if other != head]"
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
     "nothing is found: with every other head removed no head does anything; induction needs one "
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

exercise = Exercise("7.8", which_heads, inputs, MISTAKES, names="layers H")
