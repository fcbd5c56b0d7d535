"""10.7: which tokens of a guess a model writes itself, and the one after them."""

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
        """Return a guess that is right where told, and the logits."""
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
    ("own token left out", "the model's own token after the last right one is left out; its "
     "logits are there, it costs nothing", (END, "best[: right.sum()]")),
    ("goes on after a wrong one", "right guesses after a wrong one are counted: they follow a "
     "token that is not in the text", (RIGHT, "(best[:-1] == guess).long()")),
    ("wrong token kept", "the guess's first wrong token is kept; in its place comes the model's",
     (END, "torch.cat([guess, best[-1:]])[: right.sum() + 1]")),
    ("all of the model's tokens", "all of the model's tokens are returned; those after the first "
     "wrong guess follow a token that is not in the text", (END, "best")),
    ("all but the last", "all of the model's tokens are returned but the last; those after the "
     "first wrong guess follow a token that is not in the text", (END, "best[:-1]")),
    ("the guess itself", "the whole guess is returned, right or wrong", (END, "guess")),
    ("right part of the guess and no more after a wrong one",
     "after a wrong guess the model's own token is left out: that one is sure",
     (END, "best if right.all() else best[: right.sum()]")),
    ("nothing after a whole right guess", "if all of the guess is right, the model's next token "
     "comes for nothing: logits has one row more", (END, "best[:-1][: right.sum() + 1]")),
    ("a place late", "row i of the logits is compared with the token before it: row 0 tells what "
     "comes in place of guess[0]", (RIGHT, RIGHT.replace("best[:-1]", "best[1:]"))),
    ("nothing wrong, found at 0", "of a guess that is all right the first token alone comes back: "
     "argmax of nothing but False is 0, as if the first were wrong",
     (END, "best[: (best[:-1] != guess).long().argmax() + 1]")),
    ("a row further", "in place of the first wrong token comes what the next row says, which "
     "stands behind the wrong token; take the row behind the last right one",
     (END, "torch.cat([guess[: right.sum()], "
           "best[(right.sum() + 1).clamp(max=len(guess)), None]])")),
    ("all or nothing", "a guess that is wrong somewhere is thrown away whole; keep what stands "
     "before the first wrong token", (RIGHT, RIGHT + " * (best[:-1] == guess).all()")),
    ("counted", "that is a number of tokens; return the tokens themselves",
     (END, "right.sum() + 1")),
    ("only the next", "that is the model's own token alone; before it come the right ones",
     (END, "best[right.sum()][None]")),
    ("whole guess and the last", "Your result keeps guesses that the model would not have written. "
     "Keep the guess up to its first wrong token, where it differs from the largest logit.",
     (END, "torch.cat([guess, best[-1:]])")),
    ("right guesses and the last", "after the right guesses comes what the last row says, which "
     "stands behind the whole guess; take the row behind the last right one",
     (END, "torch.cat([guess[: right.sum()], best[-1:]])")),
    ("one too many", "one token too many: the last follows a token that is not in the text",
     (END, "best[: right.sum() + 2]")),
]  # fmt: skip

exercise = Exercise("10.7", accepted, inputs, MISTAKES, names="m", also_right=[by_loop, by_padding])
