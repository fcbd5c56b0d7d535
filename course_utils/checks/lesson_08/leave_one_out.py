"""8.1: how far a prediction moves if a token is removed, token by token."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def leave_one_out(predict, x):
    with_all = predict(x)
    moves = []
    for t in range(len(x)):
        rest = torch.cat([x[:t], x[t + 1 :]])  # (L, d) -> (L - 1, d)
        moves.append(with_all - predict(rest))
    return torch.stack(moves).abs()  # (L,)


def by_mask(predict, x):
    positions = torch.arange(len(x))
    moved = [predict(x) - predict(x[positions != t]) for t in range(len(x))]
    return torch.tensor([float(each) for each in moved], dtype=x.dtype).abs()


def in_numpy(predict, x):
    without = [predict(torch.from_numpy(np.delete(x.numpy(), t, axis=0))) for t in range(len(x))]
    return torch.hypot(torch.stack(without) - predict(x), torch.zeros(()))


def must_be_vectors(x):
    if x.ndim != 2:
        raise ValueError(f"predict takes the vectors (n, d) of one text, got {tuple(x.shape)}")


def pooled(x):
    """Average with weights computed from the tokens, and add a part for their number."""
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
    repeated = normal(5, 3, dtype=single)[[0, 1, 2, 1, 3, 4]]  # has two pairs of equal rows
    tables = [normal(L, d, dtype=single) for L, d in [(5, 3), (7, 4), (4, 6), (2, 1)]]
    tables += [repeated, normal(3, 12, dtype=single).T]  # not contiguous
    return [(predict, x) for predict in (pooled, recurrent) for x in tables]


MISTAKES = [
    ("sign kept",
     "Your differences are right, but they keep their signs. Take the absolute values, for "
     "example with `abs`.",
     (".abs()", "")),
    ("difference reversed",
     "Your result is the new prediction minus the old one, with its sign. Take the absolute "
     "value.",
     ("with_all - predict(rest)", "predict(rest) - with_all"), (".abs()", "")),
    ("zeroed instead of removed",
     "Your result is what you get by setting token t to zero. A token of zeros still takes part "
     "in the prediction. Remove row t.",
     ("torch.cat([x[:t], x[t + 1 :]])", "x * (torch.arange(len(x)) != t)[:, None]")),
    ("only the token kept",
     "You keep token t alone and remove all others. Remove only token t.",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[t : t + 1]")),
    ("the rest cut off too",
     "You also remove the tokens after token t. Join the tokens before token t and those after it.",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[:t]")),
    ("the rest cut off, but for t",
     "You keep the tokens up to t and remove the others. Remove only token t.",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[: t + 1]")),
    ("the rest cut off, but for one",
     "You also remove the tokens after token t. Join the tokens before token t and those after it.",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[: max(t, 1)]")),
    ("removed for good",
     "In your result, removed tokens stay removed, and each prediction is compared with the "
     "previous one. Remove only token t, and compare with the prediction for all tokens.",
     ("with_all - predict(rest)", "predict(x[t:]) - predict(x[t + 1 :])")),
    ("relative",
     "Your changes are divided by the prediction. Return the absolute changes themselves.",
     (".abs()", ".abs() / with_all.abs()")),
    ("shares",
     "Your changes are divided by their sum. Return the changes themselves.",
     ("return torch.stack(moves).abs()", "return (m := torch.stack(moves).abs()) / m.sum()")),
    ("last token left out",
     "The entry of the last token is missing. Return one entry for each of the L tokens.",
     ("in range(len(x))", "in range(len(x) - 1)")),
    ("last token 0",
     "Your entry for the last token is 0, as if this token had not been removed. Remove the "
     "last token as well.",
     ("return torch", "moves[-1] = 0 * moves[-1]; return torch")),
    ("the start cut off too",
     "You also remove the tokens before token t. Join the tokens before token t and those after "
     "it.",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[t + 1 :]")),
    ("nothing removed",
     "Your result is 0 for every token, as if none had been removed. If you join two slices, "
     "the second must start at t + 1.",
     ("t + 1 :", "t:")),
    ("two removed",
     "You also remove the token after t. If you join two slices, the second must start at t + 1.",
     ("t + 1 :", "t + 2 :")),
    ("equal tokens removed",
     "You also remove other tokens that are equal to token t. Remove only row t.",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[(x != x[t]).any(dim=-1)]")),
    ("size of the prediction",
     "Your result is the absolute value of the prediction without each token. Subtract the "
     "prediction for all tokens before you take the absolute value.",
     ("with_all - predict(rest)", "predict(rest)")),
    ("row before removed",
     "Your entry t belongs to another token, because row t − 1 was removed. Remove row t.",
     ("torch.cat([x[:t], x[t + 1 :]])",
      "x[[n for n in range(len(x)) if n != (t - 1) % len(x)]]")),
    ("slices one too early",
     "Your entry t belongs to another token. If you join x[:t − 1] and x[t:], row t − 1 is "
     "missing. Join x[:t] and x[t + 1:].",
     ("x[:t], x[t + 1 :]", "x[: t - 1], x[t:]")),
    ("from the end",
     "Your entries are in reverse order. Entry t must belong to token t.",
     ("in range(len(x))", "in reversed(range(len(x)))")),
    ("always the first",
     "You remove the first row for every t. Remove row t.",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[1:]")),
    ("always the last",
     "You remove the last row for every t. Remove row t.",
     ("torch.cat([x[:t], x[t + 1 :]])", "x[:-1]")),
    ("prediction without the token",
     "Your result is the prediction without each token. Return its absolute difference from the "
     "prediction for all tokens.",
     ("with_all - predict(rest)", "predict(rest)"), (".abs()", "")),
    ("difference squared",
     "Your differences are squared. Take their absolute values instead.",
     (".abs()", ".square()")),
    ("neighbor removed",
     "Your entry t belongs to another token, because row t + 1 was removed. Remove row t.",
     ("torch.cat([x[:t], x[t + 1 :]])",
      "x[[n for n in range(len(x)) if n != (t + 1) % len(x)]]")),
    ("one too far",
     "You keep token t and remove the next one. If you join two slices, use x[:t] and x[t + 1:].",
     ("x[:t], x[t + 1 :]", "x[: t + 1], x[t + 2 :]")),
    ("replaced by the mean",
     "Your result is what you get by replacing token t with the mean of all tokens. This mean "
     "still takes part in the prediction. Remove row t.",
     ("torch.cat([x[:t], x[t + 1 :]])",
      "torch.where(torch.arange(len(x))[:, None] == t, x.mean(dim=0), x)")),
    ("replaced by the mean of the others",
     "Your result is what you get by replacing token t with the mean of the other tokens. This "
     "mean still takes part in the prediction. Remove row t.",
     ("torch.cat([x[:t], x[t + 1 :]])", "torch.where(torch.arange(len(x))[:, None] == t, "
      "(x.sum(dim=0) - x[t]) / (len(x) - 1), x)")),
    ("column removed",
     "You remove column t, which is one entry of every vector. Tokens are rows. Remove row t.",
     ("torch.cat([x[:t], x[t + 1 :]])", "torch.cat([x[:, :t], x[:, t + 1 :]], dim=1)")),
    ("columns counted",
     "Your result has one entry for each of the d columns. Tokens are rows. Return one entry for "
     "each of the L rows.",
     ("in range(len(x))", "in range(x.shape[1])")),
    ("columns removed and counted",
     "Your result has one entry for each of the d columns, with this column removed. Tokens are "
     "rows. Remove row t, and return one entry for each of the L rows.",
     ("in range(len(x))", "in range(x.shape[1])"),
     ("torch.cat([x[:t], x[t + 1 :]])", "torch.cat([x[:, :t], x[:, t + 1 :]], dim=1)")),
    ("pairs removed",
     "Your result has one entry for each pair of neighbors, with both tokens removed. Remove only "
     "token t, and return one entry for each of the L tokens.",
     ("in range(len(x))", "in range(len(x) - 1)"), ("t + 1 :", "t + 2 :")),
    ("prediction for the token alone",
     "Your result is the absolute value of the prediction for token t alone. Remove only token t, "
     "and return the absolute difference from the prediction for all tokens.",
     ("with_all - predict(rest)", "predict(x[t : t + 1])")),
    ("length of the gradient",
     "Your result is the length of the gradient with respect to each token. A gradient tells how "
     "the prediction reacts to a tiny change of a token. Remove row t instead.",
     "torch.func.grad(predict)(x).norm(dim=-1)"),
    ("gradient times input",
     "Your result is the gradient times the token. A gradient tells how the prediction reacts to "
     "a tiny change of a token. Remove row t instead.",
     "(torch.func.grad(predict)(x) * x).sum(dim=-1).abs()"),
    ("sizes compared",
     "Your result compares the absolute values of the two predictions. If they have different "
     "signs, the change is larger. Subtract first, then take the absolute value.",
     ("with_all - predict(rest)", "with_all.abs() - predict(rest).abs()")),
    ("others in another order",
     "Your result is what you get if the tokens after t come before the others. The order can "
     "matter to `predict`. Join x[:t] and x[t + 1:] in this order.",
     ("x[:t], x[t + 1 :]", "x[t + 1 :], x[:t]")),
    ("token doubled",
     "Your token t occurs twice. Remove it: join x[:t] and x[t + 1:].",
     ("x[:t], x[t + 1 :]", "x[: t + 1], x[t:]")),
    ("compared with zeros",
     "You compare each prediction with the prediction for a text of zeros. Compare with the "
     "prediction for all tokens.",
     ("with_all = predict(x)", "with_all = predict(0 * x)")),
    ("changes added",
     "Your result is the sum of all changes. Return one change for each of the L tokens.",
     ("return torch.stack(moves).abs()", "return torch.stack(moves).abs().sum()")),
    ("changes averaged",
     "Your result is the mean of all changes. Return one change for each of the L tokens.",
     ("return torch.stack(moves).abs()", "return torch.stack(moves).abs().mean()")),
    ("predictions added",
     "Your result is the absolute value of the sum of the two predictions. Return the absolute "
     "value of their difference.",
     ("with_all - predict(rest)", "with_all + predict(rest)")),
]  # fmt: skip

exercise = Exercise(
    "8.1", leave_one_out, inputs, MISTAKES, names="L", also_right=[by_mask, in_numpy]
)
