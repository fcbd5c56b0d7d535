"""1.6: vectors for which dot product, cosine and distance choose three different keys."""

import numpy as np
import torch

from course_utils.checks.compare import read
from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.lesson_01._measures import MEASURES


def disagreement():
    q = torch.tensor([1.0, 0.0])
    keys = torch.tensor([[9.0, 9.0], [3.0, 0.1], [1.0, 0.5]])  # longest, best direction, closest
    return q, keys


def tensor_of(given):
    """Return a tensor, an array, or a list of numbers or rows as one tensor; None for the rest."""
    if not isinstance(given, list | tuple):
        return read(given)
    try:
        return torch.stack([torch.as_tensor(row, dtype=torch.float64) for row in given])
    except (TypeError, ValueError, RuntimeError):
        return None


def winners(answer):
    """Return which pairs of measures choose the same key, or raise NamedMistake.

    The pairs are dot and cosine, cosine and distance, dot and distance.
    """
    made = answer()
    if not (isinstance(made, tuple | list) and len(made) == 2):
        raise NamedMistake("not a pair", "Return two tensors: the query q and the three keys.")
    q, keys = map(tensor_of, made)
    if q is None or keys is None:
        raise NamedMistake(
            "not tensors",
            "Your q and keys are not both tensors. Make each with torch.tensor([...]).",
        )
    if q.shape != (2,) or keys.shape != (3, 2):
        got = f"{tuple(q.shape)} and {tuple(keys.shape)}"
        raise NamedMistake(
            "wrong shapes", f"Your q and keys have shapes {got}. Make them (2,) and (3, 2)."
        )
    if not (q.isfinite().all() and keys.isfinite().all()):
        raise NamedMistake("not finite", "Your vectors hold NaN or infinity. Use finite numbers.")
    if (q == 0).all() or (keys == 0).all(dim=-1).any():
        raise NamedMistake(
            "a zero vector",
            "One of your vectors is zero, so it has no direction and no cosine. Choose another.",
        )
    q, keys = (
        q / q.abs().max(),
        keys / q.abs().max(),
    )  # so that the size of the numbers does not matter
    longest = keys.norm(dim=-1).max()
    near = torch.stack([measure(q[None], keys)[0] for measure in MEASURES.values()])  # (3, 3)
    best, second = near.topk(2, dim=-1).values.T
    # A learner may compute in float32, which rounds sums of two by up to 3 · 2**-24 < 2e-7.
    if (best - second < 1e-6 * torch.stack([longest, torch.ones(()), 1 + longest])).any():
        raise NamedMistake(
            "a tie",
            "By one of the measures, two keys are equally near, so this measure chooses neither. "
            "Move one of the two keys.",
        )
    dot, cosine, distance = near.argmax(dim=-1).tolist()
    return [torch.tensor([dot == cosine, cosine == distance, dot == distance])]


MISTAKES = [
    ("all three agree",
     "All three measures choose the same key. Each must choose a different one. Make one key "
     "very long, at about 45° to q (for the dot product). Point a much shorter one almost in the "
     "direction of q (for the cosine). Of the three tips, put that of the third closest to the "
     "tip of q, at a larger angle than the second (for the distance).",
     ("[9.0, 9.0], [3.0, 0.1], [1.0, 0.5]", "[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]")),
    ("dot and cosine agree",
     "Dot product and cosine choose the same key. Take the key that no measure chooses. Give it "
     "a larger angle with q than the key that cosine chooses, but less than 90°. Make it long "
     "enough to have the largest dot product.",
     ("[9.0, 9.0], [3.0, 0.1]", "[9.0, 0.1], [-1.0, 1.0]")),
    ("dot and distance agree",
     "Dot product and distance choose the same key. Take the key that no measure chooses. Give "
     "it a larger angle with q than the key that cosine chooses, but less than 90°. Make it long "
     "enough to have the largest dot product.",
     ("[9.0, 9.0], [3.0, 0.1], [1.0, 0.5]", "[1.0, 0.3], [0.1, 0.0], [-1.0, 1.0]")),
    ("cosine and distance agree",
     "Cosine and distance choose the same key. Make this key much shorter, but keep its "
     "direction. Then move the third key, which no measure chooses yet. Its tip should be close "
     "to the tip of q, but its angle to q should be larger than that of the shortened key.",
     ("[3.0, 0.1], [1.0, 0.5]", "[1.0, 0.1], [-1.0, 1.0]")),
]  # fmt: skip

exercise = Exercise(
    "1.6", disagreement, lambda: [()], MISTAKES, run=winners,
    also_right=[lambda: [torch.tensor([1, 1]), torch.tensor([[30, 1], [5, 5], [1, 2]])],
                lambda: ([1.0, 0.0], [[9.0, 9.0], [3.0, 0.1], [1.0, 0.5]]),
                lambda: (np.array([1e-4, 0]), 1e-4 * np.array([[9, 9], [3, 0.1], [1, 0.5]]))],
)  # fmt: skip
