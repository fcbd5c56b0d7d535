"""7.5: the accuracy of next-token predictions, counted only after repeated tokens."""

import torch

from course_utils.checks.exercise import Exercise


def repeated_accuracy(logits, tokens):
    right = logits[:, :-1].argmax(dim=-1) == tokens[:, 1:]  # (B, L - 1)
    same = tokens[:, :, None] == tokens[:, None, :]  # (B, L, L)
    seen = same.tril(-1).any(dim=-1)  # (B, L)
    return right[seen[:, :-1]].float().mean()


def by_loops(logits, tokens):
    right = []
    for guesses, row in zip(logits.argmax(-1).tolist(), tokens.tolist(), strict=True):
        for i in range(len(row) - 1):
            if row[i] in row[:i]:
                right.append(guesses[i] == row[i + 1])
    return sum(right) / len(right)


def in_tensors(logits, tokens):
    seen = (tokens[:, :, None] == tokens[:, None]).tril(-1).any(-1)[:, :-1]
    hits = logits.max(-1).indices[:, :-1].eq(tokens[:, 1:])
    return (hits * seen).sum() / seen.sum()


def inputs():
    rng = torch.Generator().manual_seed(26)

    def predictions(B, L, V, periodic=False):
        tokens = torch.randint(V, (B, L), generator=rng)
        if periodic:
            period = torch.randint(3, L - 2, (B, 1), generator=rng)
            tokens = tokens.gather(1, torch.arange(L) % period)
        logits = torch.randn(B, L, V, generator=rng)
        # Many predictions are right, and some repeat the current token, so that a missing shift
        # still gets some right.
        luck = 5 * torch.rand(B, L - 1, 1, generator=rng)
        logits[:, :-1].scatter_add_(2, tokens[:, 1:, None], luck)
        return logits.scatter_add(2, tokens[..., None], torch.ones(B, L, 1)), tokens

    logits, tokens = predictions(3, 10, 6)
    turned = logits.mT.contiguous().mT, tokens.T.contiguous().T  # not contiguous
    shapes = [(5, 14, 12), (2, 11, 6), (4, 50, 20), (1, 9, 4)]
    rest = [predictions(*shape) for shape in shapes]
    return [predictions(3, 9, 10, True), predictions(5, 14, 12, True), *rest, turned]


RIGHT = "logits[:, :-1].argmax(dim=-1) == tokens[:, 1:]"
MISTAKES = [
    ("not shifted",
     "You compare the logits at position i with token i. They predict token i + 1, so compare them "
     "with token i + 1.",
     (RIGHT, "logits.argmax(dim=-1) == tokens"), ("seen[:, :-1]", "seen")),
    ("not shifted, and all counted",
     "You compare the logits at position i with token i, and count all positions. The logits at "
     "position i predict token i + 1, so compare them with token i + 1. Count this prediction "
     "only if token i has occurred before.",
     "(logits.argmax(dim=-1) == tokens).float().mean()"),
    ("last logits kept",
     "Your logits have one position more than the tokens that you compare them with. Nothing "
     "follows the last token, so leave out its logits: `logits[:, :-1]`.",
     (RIGHT, "logits.argmax(dim=-1) == tokens[:, 1:]")),
    ("first token kept",
     "Your tokens have one position more than the logits that you compare them with. Nothing "
     "predicts the first token, so leave it out: `tokens[:, 1:]`.",
     (RIGHT, "logits[:, :-1].argmax(dim=-1) == tokens")),
    ("last position kept in the mask",
     "Your mask has one position more than your predictions. Nothing follows the last token, so "
     "leave out the last position of the mask as well: `[:, :-1]`.",
     ("seen[:, :-1]", "seen")),
    ("largest over positions",
     "You compare token numbers with positions, because your `argmax` is over the positions. At "
     "each position, the predicted token is the one with the largest logit. Use dim=-1.",
     (RIGHT, "logits[:, :-1].argmax(dim=1) == tokens[:, 1:]")),
    ("largest of all",
     "Your `argmax` is one number for all logits. At each position, the predicted token "
     "is the one with the largest logit. Use dim=-1.",
     (RIGHT, "logits[:, :-1].argmax() == tokens[:, 1:]")),
    ("either token seen",
     "You count a prediction if token i or token i + 1 has occurred before. Count it only if token "
     "i has.",
     ("seen[:, :-1]", "seen[:, :-1] | seen[:, 1:]")),
    ("last prediction left out",
     "You leave out the last prediction, the one for the last token. Count it if the "
     "second-to-last token has occurred before.",
     ("right[seen[:, :-1]]", "right[:, :-1][seen[:, :-2]]")),
    ("share of the right ones",
     "Of all correct predictions, you return the share made at repeated tokens. Instead, divide by "
     "the number of *all* predictions made at repeated tokens.",
     ("right[seen[:, :-1]].float().mean()", "right[seen[:, :-1]].sum() / right.sum()")),
    ("share of repeated tokens",
     "Your result is the share of predictions that count. Return the share of these that are "
     "right.",
     ("right[seen[:, :-1]]", "seen[:, :-1]")),
    ("seen later",
     "You also count predictions at tokens that occur again only *later*. Count a prediction "
     "only if token i has occurred before.",
     ("same.tril(-1)", "(same & ~torch.eye(tokens.shape[1], dtype=torch.bool))")),
    ("seen only later",
     "You count a prediction if token i occurs again *later*. Count it if token i has occurred "
     "before.", ("any(dim=-1)", "any(dim=1)")),
    ("all predictions",
     "You count all predictions. Leave out those at tokens that have not occurred before, "
     "because nobody can know what follows them.",
     ("[seen[:, :-1]]", "")),
    ("next token seen",
     "You count a prediction if token i + 1 has occurred before. Count it if token i has.",
     ("seen[:, :-1]", "seen[:, 1:]")),
    ("next token seen, without the first",
     "You count a prediction if token i + 1 has occurred before, and you ignore the first token. "
     "Count it if token i has occurred before. Search the whole text, and then leave out the last "
     "position.",
     ("tokens[:, :, None] == tokens[:, None, :]", "tokens[:, 1:, None] == tokens[:, None, 1:]"),
     ("seen[:, :-1]", "seen")),
    ("both tokens seen",
     "You also require that token i + 1 has occurred before. It is enough if token i has.",
     ("seen[:, :-1]", "seen[:, :-1] & seen[:, 1:]")),
    ("pair seen",
     "You count a prediction only if tokens i and i + 1 have occurred before as a pair. It is "
     "enough if token i has occurred before.",
     ("seen[:, :-1]", "(same[:, :-1, :-1] & same[:, 1:, 1:]).tril(-1).any(dim=-1)")),
    ("seen in another sequence",
     "You also count predictions at tokens that have occurred only in another sequence. Search "
     "each sequence separately.",
     ("same.tril(-1).any(dim=-1)",
      "same.tril(-1).any(dim=-1) | torch.stack([torch.isin(row, tokens[:b]) for b, row in "
      "enumerate(tokens)])")),
    ("first prediction left out",
     "You leave out the logits at position 0 and compare the logits at position i with token i. "
     "These logits predict token i + 1. Leave out the logits at the last position instead.",
     (RIGHT, "logits[:, 1:].argmax(dim=-1) == tokens[:, 1:]")),
    ("neighbors not compared",
     "You miss an occurrence directly before the token. In 5 5, the second 5 has occurred before. "
     "Include the first diagonal below the main one, for example with `.tril(-1)`.",
     (".tril(-1)", ".tril(-2)")),
    ("last token counted",
     "Your divisor includes the last token. Its prediction cannot be compared with anything, so "
     "leave it out of the divisor too.",
     ("right[seen[:, :-1]].float().mean()", "(right & seen[:, :-1]).sum() / seen.sum()")),
    ("first position is none",
     "You ignore occurrences at position 0, which is a valid position. If you use "
     "`previous_occurrence`, the mask is `previous_occurrence(tokens) >= 0`.",
     ("same.tril(-1).any(dim=-1)", "(same.tril(-1) * torch.arange(same.shape[-1])).amax(-1) > 0")),
    ("shifted backwards",
     "You compare the logits at position i with token i − 1. Compare them with token i + 1, "
     "which they predict.",
     (RIGHT, "logits[:, 1:].argmax(dim=-1) == tokens[:, :-1]"), ("seen[:, :-1]", "seen[:, 1:]")),
    ("divided by all",
     "You divide by the number of all predictions. Divide by the number of those that count.",
     ("right[seen[:, :-1]]", "(right & seen[:, :-1])")),
    ("new ones taken for right",
     "You count predictions at tokens that have not occurred before as right. Do not count them "
     "at all.",
     ("right[seen[:, :-1]]", "(right | ~seen[:, :-1])")),
    ("right ones of all",
     "You count the correct predictions at all tokens, but your divisor leaves out tokens that "
     "have not occurred before. Leave these tokens out of both.",
     ("right[seen[:, :-1]].float().mean()", "right.sum() / seen[:, :-1].sum()")),
    ("sequences kept apart",
     "You return one number per sequence. Return one number for all sequences together.",
     ("right[seen[:, :-1]].float().mean()",
      "(right & seen[:, :-1]).sum(dim=-1) / seen[:, :-1].sum(dim=-1)")),
    ("averaged by sequence",
     "You take one accuracy per sequence, and then their mean. Take one mean over the counted "
     "predictions of all sequences.",
     ("right[seen[:, :-1]].float()",
      "((right & seen[:, :-1]).sum(dim=-1) / seen[:, :-1].sum(dim=-1))")),
    ("positions as a mask",
     "You leave out only tokens whose last earlier occurrence is at position 0. If you use the "
     "result of `previous_occurrence` as a mask, −1 counts as true and 0 as false. Use "
     "`previous_occurrence(tokens) >= 0` as the mask.",
     ("same.tril(-1).any(dim=-1)",
      "torch.where(same.tril(-1), torch.arange(same.shape[-1]), -1).amax(dim=-1).bool()")),
    ("first sequence only",
     "You use only the first sequence. Count the predictions of all sequences.",
     ("right[seen[:, :-1]]", "right[:1][seen[:1, :-1]]")),
    ("new tokens counted",
     "You count the predictions at tokens that have *not* occurred before. Count the others "
     "instead.",
     ("[seen[:, :-1]]", "[~seen[:, :-1]]")),
    ("error",
     "Your result is the share of wrong predictions. Return the share of right ones.",
     (".float().mean()", ".logical_not().float().mean()")),
    ("counted not shared",
     "Your result is the number of right predictions. Return their share.",
     (".float().mean()", ".sum()")),
    ("counted in floats",
     "Your result is the number of right predictions. Return their share.",
     (".float().mean()", ".float().sum()")),
    ("among two",
     "You count a prediction as right if the token has one of the two largest logits. It must have "
     "the largest.",
     (RIGHT, "(logits[:, :-1].topk(2).indices == tokens[:, 1:, None]).any(dim=-1)")),
    ("probability",
     "Your result is the mean probability of the right token. Return the share of predictions in "
     "which the right token has the largest logit.",
     (RIGHT, "logits[:, :-1].softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]")),
    ("percent",
     "Your result is in percent. Return a number from 0 to 1.",
     (".mean()", ".mean() * 100")),
]  # fmt: skip

exercise = Exercise("7.5", repeated_accuracy, inputs, MISTAKES, also_right=[by_loops, in_tensors])
