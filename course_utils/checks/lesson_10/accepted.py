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
WRONG_BEFORE = (
    "You also count correct tokens after a wrong one. But these follow a token that the model "
    "would not have generated. "
)
MISTAKES = [
    ("own token left out", "Your result ends with the last correct token of the guess. The logits "
     "already show "
     "the model's own next token. Append it.", (END, "best[: right.sum()]")),
    ("goes on after a wrong one", WRONG_BEFORE + "Stop at the first wrong token.",
     (RIGHT, "(best[:-1] == guess).long()")),
    ("right guesses after a wrong one, and the last",
     WRONG_BEFORE + "Stop at the first wrong token, and put the model's own token there.",
     (END, "torch.cat([guess[best[:-1] == guess], best[-1:]])")),
    ("wrong token kept", "You keep the first wrong token of the guess. Replace it with the model's "
     "own token.", (END, "torch.cat([guess, best[-1:]])[: right.sum() + 1]")),
    ("wrong token kept, and another after it", "You keep the first wrong token of the guess, and a "
     "token that follows it. Replace the wrong token with the model's own token, and stop there.",
     (END, "torch.cat([guess[: right.sum() + 1], best[right.sum() + 1 : right.sum() + 2]])")),
    ("all of the model's tokens", "You return all n + 1 tokens of the model. Those after the first "
     "wrong token follow one that the model would not have generated. Leave them out.",
     (END, "best")),
    ("all but the last", "You return the first n tokens of the model. If a token of the guess "
     "is wrong, stop with the model's own token there. If all are correct, also return the last "
     "one of the model's.",
     (END, "best[:-1]")),
    ("the guess itself", "Your result is the whole guess, whether it is correct or not. Keep only "
     "the tokens before the first wrong one. After k correct ones, append the model's token of "
     "row k.",
     (END, "guess")),
    ("right part of the guess and no more after a wrong one",
     "If a token of the guess is wrong, your result ends before it. The logits show which token "
     "the model generates there instead. Append this token.",
     (END, "best if right.all() else best[: right.sum()]")),
    ("nothing after a whole right guess", "If the whole guess is correct, your result ends with "
     "it. The last row of the logits gives one more token. Append it.",
     (END, "best[:-1][: right.sum() + 1]")),
    ("a row late", "You compare guess[i] with row i + 1, which has already read guess[i]. Row i "
     "predicts guess[i], so compare guess[0] with row 0.",
     (RIGHT, RIGHT.replace("best[:-1]", "best[1:]"))),
    ("nothing wrong, found at 0", "If the whole guess is correct, your result is only one token. "
     "If you use argmax to find the first wrong token, note that it returns 0 when there is none. "
     "In this case, return all n + 1 tokens.",
     (END, "best[: (best[:-1] != guess).long().argmax() + 1]")),
    ("nothing wrong, not found", "If the whole guess is correct, your code raises an error, "
     "because it looks for a wrong token and there is none. In this case, return all n + 1 tokens.",
     (END, "best[: (best[:-1] != guess).nonzero()[0] + 1]")),
    ("a row further",
     "If a token of the guess is wrong, your last token comes from one row too far, "
     "which has read the wrong token. After k correct ones, take the token from row k.",
     (END, "torch.cat([guess[: right.sum()], "
           "best[(right.sum() + 1).clamp(max=len(guess)), None]])")),
    ("all or nothing", "If one token of the guess is wrong, you drop even the correct tokens "
     "before it. Keep the tokens before the first wrong one.",
     (RIGHT, RIGHT + " * (best[:-1] == guess).all()")),
    ("counted", "You return how many tokens are accepted. Return the tokens themselves: the "
     "correct ones of the guess, and then the model's own.",
     (END, "right.sum() + 1")),
    ("only the next", "Your result is only the model's own next token. Put the correct tokens "
     "of the guess before it.", (END, "best[right.sum()][None]")),
    ("whole guess and the last", "Your result contains the whole guess, even if a part of it is "
     "wrong. Keep only the tokens before the first wrong one. After k correct ones, append the "
     "model's token of row k.",
     (END, "torch.cat([guess, best[-1:]])")),
    ("right guesses and the last", "Your last token comes from the last row, which has read the "
     "whole guess. After k correct tokens, take the token from row k.",
     (END, "torch.cat([guess[: right.sum()], best[-1:]])")),
    ("one too many", "If a guess is wrong, your result has one token too many. The last token "
     "comes from a row that has read the wrong token. Leave this one out.",
     (END, "best[: right.sum() + 2]")),
    ("from the wrong guess on",
     "Your result leaves out the correct tokens of the guess and has all "
     "tokens after them. Return the correct ones, and then only the model's own token.",
     (END, "best[right.sum() :]")),
    ("last token from row 0", "Your last token comes from row 0. After k correct tokens, take the "
     "token from row k.", (END, "torch.cat([guess[: right.sum()], best[:1]])")),
    ("wrong guesses skipped", WRONG_BEFORE + "Stop at the first wrong token. After k correct "
     "ones, take the last token from row k.",
     (END, "torch.cat([(kept := guess[best[:-1] == guess]), best[len(kept)][None]])")),
    ("among the two best", "You accept a guess that is one of the two most probable tokens. "
     "Greedy decoding takes only the most probable one. Compare the guess with argmax.",
     (RIGHT, "(logits[:-1].topk(2).indices == guess[:, None]).any(1).long().cumprod(dim=0)"),
     (END, "torch.cat([guess[: right.sum()], best[right.sum()][None]])")),
    ("probable guesses", "You accept a token if its probability is at least 0.5. Greedy decoding "
     "takes the most probable token, whatever its probability is. Compare the guess with argmax.",
     (RIGHT, "(logits[:-1].softmax(-1).gather(1, guess[:, None])[:, 0] >= 0.5).long().cumprod(0)"),
     (END, "torch.cat([guess[: right.sum()], best[right.sum()][None]])")),
    ("argmax over the rows", "Your argmax runs over the rows. Each row is a prediction of its own. "
     "Use dim=-1.", ("argmax(dim=-1)", "argmax(dim=0)"), ("best[:-1]", "best[: len(guess)]")),
    ("least probable", "You take the least probable token of each row. Take the most probable one.",
     ("argmax", "argmin")),
    ("up to the last correct guess", "You go on to the last correct guess, even if a wrong one "
     "comes before it. But those after a wrong token follow one that the model would not "
     "have generated. Stop at the first wrong token.",
     (RIGHT, "(best[:-1] == guess).long().flip(0).cummax(0).values")),
]  # fmt: skip

exercise = Exercise("10.7", accepted, inputs, MISTAKES, names="m", also_right=[by_loop, by_padding])
