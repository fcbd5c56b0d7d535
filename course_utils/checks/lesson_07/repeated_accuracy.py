"""7.5: how often the next token is predicted right, where it can be known."""

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
        # many predictions are right, and some repeat the present token, so that a missing shift
        # scores something
        luck = 5 * torch.rand(B, L - 1, 1, generator=rng)
        logits[:, :-1].scatter_add_(2, tokens[:, 1:, None], luck)
        return logits.scatter_add(2, tokens[..., None], torch.ones(B, L, 1)), tokens

    logits, tokens = predictions(3, 10, 6)
    turned = logits.mT.contiguous().mT, tokens.T.contiguous().T  # not contiguous
    shapes = [(5, 14, 12), (2, 11, 6), (4, 50, 20), (1, 9, 4)]
    rest = [predictions(*shape) for shape in shapes]
    return [predictions(3, 9, 8, True), predictions(5, 14, 12, True), *rest, turned]


RIGHT = "logits[:, :-1].argmax(dim=-1) == tokens[:, 1:]"
MISTAKES = [
    ("not shifted",
     "predictions are compared with the tokens at their own place; those at i predict token i + 1",
     (RIGHT, "logits.argmax(dim=-1) == tokens"), ("seen[:, :-1]", "seen")),
    ("not shifted, and all counted",
     "predictions are compared with the tokens at their own place, and all count; those at i "
     "predict token i + 1, and only those from a repeated token count",
     "(logits.argmax(dim=-1) == tokens).float().mean()"),
    ("seen later", "a token that only returns later counts as seen; seen means before",
     ("same.tril(-1)", "(same & ~torch.eye(tokens.shape[1], dtype=torch.bool))")),
    ("all predictions",
     "every prediction counts there; those after a new token nobody can get right",
     ("[seen[:, :-1]]", "")),
    ("next token seen",
     "the *next* token has been seen there; what matters is whether the present one has, from "
     "which the prediction is made", ("seen[:, :-1]", "seen[:, 1:]")),
    ("next token seen, without the first",
     "the *next* token has been seen there, and the first one is forgotten: find occurrences in "
     "the whole text, then leave out its last place",
     ("tokens[:, :, None] == tokens[:, None, :]", "tokens[:, 1:, None] == tokens[:, None, 1:]"),
     ("seen[:, :-1]", "seen")),
    ("both tokens seen",
     "counted only where the next token has been seen too; whether the present one has is enough",
     ("seen[:, :-1]", "seen[:, :-1] & seen[:, 1:]")),
    ("pair seen",
     "counted only where the present token and the next have stood side by side before; whether "
     "the present one has been seen is enough",
     ("seen[:, :-1]", "(same[:, :-1, :-1] & same[:, 1:, 1:]).tril(-1).any(dim=-1)")),
    ("seen in another sequence",
     "what occurred in another sequence counts as well: each sequence has a past of its own",
     ("same.tril(-1).any(dim=-1)",
      "same.tril(-1).any(dim=-1) | torch.stack([torch.isin(row, tokens[:b]) for b, row in "
      "enumerate(tokens)])")),
    ("first prediction left out",
     "logits[:, 1:] leaves out the first prediction and keeps the last: logits[:, i] predict token "
     "i + 1, so the last one goes",
     (RIGHT, "logits[:, 1:].argmax(dim=-1) == tokens[:, 1:]")),
    ("neighbours not compared",
     "the token right before is not looked at: in 5 5 the second 5 has occurred before; .tril(-1)",
     (".tril(-1)", ".tril(-2)")),
    ("last token counted",
     "the last token is in the divisor, but no prediction from it can be checked: leave it out "
     "there too",
     ("right[seen[:, :-1]].float().mean()", "(right & seen[:, :-1]).sum() / seen.sum()")),
    ("first position is none", "position 0 is an occurrence too: >= 0, not > 0; none is -1",
     ("same.tril(-1).any(dim=-1)", "(same.tril(-1) * torch.arange(same.shape[-1])).amax(-1) > 0")),
    ("shifted backwards", "shifted the wrong way: predictions at i are compared with token i - 1",
     (RIGHT, "logits[:, 1:].argmax(dim=-1) == tokens[:, :-1]"), ("seen[:, :-1]", "seen[:, 1:]")),
    ("divided by all",
     "wrong ones are divided away: divide by how many predictions count, not by how many there are",
     ("right[seen[:, :-1]]", "(right & seen[:, :-1])")),
    ("new ones taken for right",
     "predictions from new tokens count as right; they must not count at all",
     ("right[seen[:, :-1]]", "(right | ~seen[:, :-1])")),
    ("right ones of all",
     "right ones from new tokens are counted too, but not in the divisor: leave them out of both",
     ("right[seen[:, :-1]].float().mean()", "right.sum() / seen[:, :-1].sum()")),
    ("sequences kept apart",
     "one number for each sequence, (B,): asked is the share among those of all together",
     ("right[seen[:, :-1]].float().mean()",
      "(right & seen[:, :-1]).sum(dim=-1) / seen[:, :-1].sum(dim=-1)")),
    ("averaged by sequence",
     "averaged within each sequence first; sequences with few repeated tokens then weigh too much",
     ("right[seen[:, :-1]].float()",
      "((right & seen[:, :-1]).sum(dim=-1) / seen[:, :-1].sum(dim=-1))")),
    ("positions as a mask",
     "positions are taken for a mask: every one but 0 is true, −1 too; compare them, >= 0",
     ("same.tril(-1).any(dim=-1)",
      "torch.where(same.tril(-1), torch.arange(same.shape[-1]), -1).amax(dim=-1).bool()")),
    ("new tokens counted", "the other way round: counted are predictions from tokens that are new",
     ("[seen[:, :-1]]", "[~seen[:, :-1]]")),
    ("error", "that is the share of wrong ones, 1 less the accuracy",
     (".float().mean()", ".logical_not().float().mean()")),
    ("counted not shared", "that is the number of right ones; the accuracy is their share",
     (".float().mean()", ".sum()")),
    ("percent", "that is in percent; the share itself is asked, from 0 to 1",
     (".mean()", ".mean() * 100")),
]  # fmt: skip

exercise = Exercise("7.5", repeated_accuracy, inputs, MISTAKES, also_right=[by_loops, in_tensors])
