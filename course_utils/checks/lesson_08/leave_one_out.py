"""8.1: how far a prediction moves if a token is removed, token by token."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def leave_one_out(predict, x):
    whole = predict(x)
    moves = []
    for t in range(len(x)):
        rest = torch.cat([x[:t], x[t + 1 :]])  # (L, d) -> (L - 1, d)
        moves.append(whole - predict(rest))
    return torch.stack(moves).abs()  # (L,)


def by_mask(predict, x):
    everyone = torch.arange(len(x))
    moved = [predict(x) - predict(x[everyone != t]) for t in range(len(x))]
    return torch.tensor([float(each) for each in moved], dtype=x.dtype).abs()


def in_numpy(predict, x):
    gone = [predict(torch.from_numpy(np.delete(x.numpy(), t, axis=0))) for t in range(len(x))]
    return torch.hypot(torch.stack(gone) - predict(x), torch.zeros(()))


def must_be_vectors(x):
    if x.ndim != 2:
        raise ValueError(f"predict takes the vectors (n, d) of one text, got {tuple(x.shape)}")


def pooled(x):
    """Average by weights that the tokens set themselves; the number of tokens counts too."""
    must_be_vectors(x)
    return (x[:, 0].softmax(dim=0) @ x).tanh().sum() + 0.1 * len(x)


def recurrent(x):
    must_be_vectors(x)
    state = x.new_zeros(x.shape[1])
    for token in x:
        state = (0.5 * state + token).tanh()
    return state.sum()


def inputs():
    normal = normals(81)
    single = torch.float32
    twice = normal(5, 3, dtype=single)[[0, 1, 2, 1, 3, 4]]  # removing equal rows would take two
    tables = [normal(L, d, dtype=single) for L, d in [(5, 3), (7, 4), (4, 6), (2, 1)]]
    tables += [twice, normal(3, 12, dtype=single).T]  # not contiguous
    return [(predict, x) for predict in (pooled, recurrent) for x in tables]


MISTAKES = [
    ("sign kept", "right differences, with their signs; how far it moves is their size: abs",
     (".abs()", "")),
    ("difference turned round",
     "after minus before, and with its sign; how far it moves is the size: abs",
     ("whole - predict(rest)", "predict(rest) - whole"), (".abs()", "")),
    ("zeroed instead of removed",
     "the token is set to zero and still stands there, taking weight and a step; remove its row",
     ("torch.cat([x[:t], x[t + 1 :]])", "x * (torch.arange(len(x)) != t)[:, None]")),
    ("only the token kept",
     "that keeps token t alone and removes all others; it is the other way round",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[t : t + 1]")),
    ("the rest cut off too",
     "what follows token t is gone as well: join the tokens before it and those after it",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[:t]")),
    ("the rest cut off, but for t",
     "those are the tokens up to t; remove t alone, and keep what follows it",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[: t + 1]")),
    ("the rest cut off, but for one",
     "what follows token t is gone as well: join the tokens before it and those after it",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[: max(t, 1)]")),
    ("removed for good",
     "removed tokens stay away, and each prediction is compared with the one before: put token t "
     "back before the next, and compare with that of all tokens",
     ("whole - predict(rest)", "predict(x[t:]) - predict(x[t + 1 :])")),
    ("relative", "divided by the prediction itself: the move is asked, not its share of that",
     (".abs()", ".abs() / whole.abs()")),
    ("shares", "divided by their sum: each move is asked, not its share of all",
     ("return torch.stack(moves).abs()", "return (m := torch.stack(moves).abs()) / m.sum()")),
    ("last token left out", "the last token's entry is missing: one for each of the L tokens",
     ("in range(len(x))", "in range(len(x) - 1)")),
    ("last token 0", "the last entry is 0: the last token is to be removed as well",
     ("return torch", "moves[-1] = 0 * moves[-1]; return torch")),
    ("the start cut off too",
     "what stands before token t is gone as well: join the tokens before it and those after it",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[t + 1 :]")),
    ("nothing removed", "nothing moves, for token t is still there: x[t:] starts with it, x[t + "
     "1 :] with the next", ("t + 1 :", "t:")),
    ("two removed", "the token after t is gone as well: what follows t starts at t + 1",
     ("t + 1 :", "t + 2 :")),
    ("equal tokens removed",
     "tokens that equal token t are removed with it; remove one row, by its place",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[(x != x[t]).any(dim=-1)]")),
    ("size of the prediction",
     "that is the size of the prediction without each token; take the difference from the one for "
     "all tokens", ("whole - predict(rest)", "predict(rest)")),
    ("row before removed",
     "entry t is about another token: the row removed for it is t − 1",
     ("torch.cat([x[:t], x[t + 1 :]])",
      "x[[n for n in range(len(x)) if n != (t - 1) % len(x)]]")),
    ("slices one too early", "entry t is about another token: x[:t - 1] and x[t:] leave out row "
     "t − 1, and for t = 0 they hold nearly all rows twice",
     ("x[:t], x[t + 1 :]", "x[: t - 1], x[t:]")),
    ("from the end",
     "tokens are removed from the last to the first; entry t is about token t",
     ("in range(len(x))", "in reversed(range(len(x)))")),
    ("always the first",
     "the first row is removed for each t; remove row t",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[1:]")),
    ("always the last",
     "the last row is removed for each t; remove row t",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[:-1]")),
    ("prediction without the token",
     "that is the prediction without each token; compare it with the one for all tokens",
     ("whole - predict(rest)", "predict(rest)"), (".abs()", "")),
    ("difference squared", "the differences are squared; take their size, abs",
     (".abs()", ".square()")),
    ("neighbour removed", "off by one: entry t is about token t, and the row removed is another",
     ("torch.cat([x[:t], x[t + 1 :]])",
      "x[[n for n in range(len(x)) if n != (t + 1) % len(x)]]")),
    ("one too far", "off by one: the slices keep token t and leave out the next",
     ("x[:t], x[t + 1 :]", "x[: t + 1], x[t + 2 :]")),
]  # fmt: skip

exercise = Exercise(
    "8.1", leave_one_out, inputs, MISTAKES, names="L", also_right=[by_mask, in_numpy]
)
