"""10.7: which tokens of a guess the model would have chosen itself, and the one after them."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise


def accepted(guess, logits):
    best = logits.argmax(dim=-1)  # (n + 1,)
    right = (best[:-1] == guess).long().cumprod(dim=0)  # (n,), 0 from the first wrong one on
    return best[: right.sum() + 1]


def by_loop(guess, logits):
    written = []
    for i in range(len(guess) + 1):
        written.append(logits[i].argmax())
        if i == len(guess) or written[-1] != guess[i]:
            break
    return torch.stack(written)


def by_padding(guess, logits):
    best = logits.max(dim=1).indices
    same = F.pad((best[:-1] == guess).int(), (1, 0), value=1).cummin(0).values
    return best[same.bool()]


def inputs():
    rng = torch.Generator().manual_seed(107)

    def probe(right, V=6):
        """Return a guess that is right where ``right`` is 1, and the logits."""
        logits = torch.randn(len(right) + 1, V, generator=rng)
        best = logits.argmax(dim=-1)
        off = 1 - torch.tensor(right)
        return (best[:-1] + off) % V, logits

    return [
        probe([1, 1, 0, 1]),
        probe([1, 1, 1]),
        probe([0, 1, 1, 1]),
        probe([0, 0]),
        probe([1]),
        probe([0]),
        probe([1, 0, 1, 0, 1, 1], V=9),
        probe([1, 1, 1, 1, 0], V=4),
    ]


RIGHT = "(best[:-1] == guess).long().cumprod(dim=0)"
END = "best[: right.sum() + 1]"
MISTAKES = [
    ("own token left out", "Your result ends with the last right guess. The logits already contain "
     "the model's own next token. Append it.", (END, "best[: right.sum()]")),
    ("goes on after a wrong one", "Your result counts right guesses after a wrong one. They follow "
     "a token that is not in the text. Stop at the first wrong guess.",
     (RIGHT, "(best[:-1] == guess).long()")),
    ("right guesses after a wrong one, and the last",
     "Your result counts right guesses after a wrong one. They follow a token that is not in the "
     "text. Stop at the first wrong guess.",
     (END, "torch.cat([guess[best[:-1] == guess], best[-1:]])")),
    ("wrong token kept", "Your result keeps the first wrong token of the guess. Replace it with "
     "the model's own token.", (END, "torch.cat([guess, best[-1:]])[: right.sum() + 1]")),
    ("all of the model's tokens", "Your result has all tokens of the model. Those after the first "
     "wrong guess follow a token that is not in the text. Leave them out.", (END, "best")),
    ("all but the last", "Your result has all tokens of the model but the last. Those after the "
     "first wrong guess follow a token that is not in the text. Leave them out.",
     (END, "best[:-1]")),
    ("the guess itself", "Your result is the guess, right or wrong. Keep it up to its first "
     "wrong token, and put the model's own token there.",
     (END, "guess")),
    ("right part of the guess and no more after a wrong one",
     "Your result has no token in place of the first wrong guess. The model's own token is known "
     "there. Append it.", (END, "best if right.all() else best[: right.sum()]")),
    ("nothing after a whole right guess", "If the whole guess is right, your result ends with it. "
     "The last row of the logits gives one more token. Append it.",
     (END, "best[:-1][: right.sum() + 1]")),
    ("a row late", "Your result compares guess[i] with row i + 1, which comes after it. Row i "
     "predicts it. Compare guess[0] with row 0.",
     (RIGHT, RIGHT.replace("best[:-1]", "best[1:]"))),
    ("nothing wrong, found at 0", "If the whole guess is right, your result is one token. If you "
     "use argmax to find the first wrong guess, note that it returns 0 when there is none.",
     (END, "best[: (best[:-1] != guess).long().argmax() + 1]")),
    ("a row further", "Your last token comes from one row too far, which has read the wrong guess. "
     "Take it from the row after the last right guess.",
     (END, "torch.cat([guess[: right.sum()], "
           "best[(right.sum() + 1).clamp(max=len(guess)), None]])")),
    ("all or nothing", "If one token of the guess is wrong, your result drops all of them. Keep "
     "the ones before the first wrong token.", (RIGHT, RIGHT + " * (best[:-1] == guess).all()")),
    ("counted", "Your result is a number of tokens. Return the tokens themselves.",
     (END, "right.sum() + 1")),
    ("only the next", "Your result is only the model's own next token. Put the right guesses "
     "before it.", (END, "best[right.sum()][None]")),
    ("whole guess and the last", "Your result keeps guesses that the model would not have written. "
     "Keep the guess only up to the first token that differs from the largest logit.",
     (END, "torch.cat([guess, best[-1:]])")),
    ("right guesses and the last", "Your last token comes from the last row, which has read the "
     "whole guess. Take it from the row after the last right guess.",
     (END, "torch.cat([guess[: right.sum()], best[-1:]])")),
    ("one too many", "Your result has one token too many. Its last token follows one that is not "
     "in the text. Leave it out.", (END, "best[: right.sum() + 2]")),
]  # fmt: skip

exercise = Exercise("10.7", accepted, inputs, MISTAKES, names="m", also_right=[by_loop, by_padding])
