"""11.1: the order in which a rank sees the blocks of a ring with any stride."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_11._whole_numbers import in_a_tensor


def blocks_received(rank, ranks, hop):
    steps = torch.arange(ranks)  # (W,)
    return (rank - hop * steps) % ranks  # (W,)


def by_simulating(rank, ranks, hop):
    held, seen = list(range(ranks)), []
    for _ in range(ranks):
        seen.append(held[rank])
        held = [held[(r - hop) % ranks] for r in range(ranks)]
    return torch.tensor(seen)


def in_a_list(rank, ranks, hop):
    return [(rank - step * hop) % ranks for step in range(ranks)]


def inputs():
    return [(1, 4, 1), (0, 5, 2), (3, 8, 3), (2, 7, -1), (4, 5, -2), (0, 1, 1), (6, 9, 11)]


SEEN = "(rank - hop * steps) % ranks"
MISTAKES = [
    ("forward",
     "Your result has the blocks of the ranks ahead. A rank receives from behind, so its second "
     "block is that of rank − hop (modulo W).",
     (SEEN, "(rank + hop * steps) % ranks")),
    ("sign of the hop lost",
     "Your result is right for a positive hop. With a negative hop, the ring runs the other way, "
     "so keep the sign.",
     (SEEN, "(rank - abs(hop) * steps) % ranks")),
    ("neighbors",
     "Your result is right for hop = 1. Here, each rank sends to the rank that is `hop` further "
     "on, so go back by `hop` in each step.",
     (SEEN, "(rank - steps) % ranks")),
    ("neighbors, forward",
     "You ignore hop and go forward. Blocks come from the rank that is `hop` behind, so go back by "
     "`hop` in each step.",
     (SEEN, "(rank + steps) % ranks")),
    ("absolute value",
     "Right where rank − hop · step is not negative. Below 0, your result counts up again, as the "
     "absolute value does. Take the negative number itself modulo W.",
     (SEEN, "(rank - hop * steps).abs() % ranks")),
    ("power of the hop",
     "You go back by hop^step. Each step adds one hop, so go back by hop · step.",
     (SEEN, "(rank - hop**steps) % ranks")),
    ("square of the step",
     "You go back by hop · step². Each step adds one hop, so go back by hop · step.",
     (SEEN, "(rank - hop * steps**2) % ranks")),
    ("hops that grow",
     "Your hops grow from step to step: by hop, then by 2 · hop, and so on. Go back by `hop` in "
     "each step.",
     (SEEN, "(rank - (hop * steps).cumsum(0)) % ranks")),
    ("rank ignored",
     "Your result is that of rank 0, whatever `rank` is. Start from the given rank.",
     (SEEN, "(-hop * steps) % ranks")),
    ("one rank too low",
     "Every block in your result belongs to the rank before the correct one. The first block must "
     "be the rank's own.",
     (SEEN, "(rank - 1 - hop * steps) % ranks")),
    ("one rank too high",
     "Every block in your result belongs to the rank after the correct one. The first block must "
     "be the rank's own.",
     (SEEN, "(rank + 1 - hop * steps) % ranks")),
    ("steps by rank",
     "Your result says at which step the block of each rank arrives. Return the opposite: whose "
     "block arrives at each step.",
     (SEEN, "((rank - hop * steps) % ranks).argsort()")),
    ("own block left out",
     "Your result starts with the first block that arrives and ends with the rank's own. The "
     "rank sees its own block first, at step 0.",
     ("torch.arange(ranks)", "torch.arange(1, ranks + 1)")),
    ("own block not counted",
     "Your result misses the rank's own block. That block comes first, at step 0.",
     ("torch.arange(ranks)", "torch.arange(1, ranks)")),
    ("not modulo W",
     "Your result has numbers below 0 or above W − 1. The ring is closed, so take them modulo W.",
     (SEEN, "rank - hop * steps")),
    ("sign kept",
     "Your result has numbers below 0. If you use `torch.fmod` or `math.fmod`, the result keeps "
     "the sign of the first number, so use `%` instead.",
     (SEEN, "torch.fmod(rank - hop * steps, ranks)")),
    ("hop taken once",
     "You go back by `hop` once, and then rank by rank. Go back by `hop` in every step.",
     (SEEN, "(rank - hop - steps) % ranks")),
    ("rank subtracted",
     "Your result starts with −rank modulo W. Subtract step · hop from the rank, not the rank "
     "from step · hop.",
     (SEEN, "(hop * steps - rank) % ranks")),
    ("last first",
     "Your result has the right blocks in reverse order. A rank's own block comes first.",
     (SEEN, "((rank - hop * steps) % ranks).flip(0)")),
    ("own block twice",
     "Your result has one block too many. At step W, the rank's own block is back, so stop at "
     "step W − 1.",
     ("torch.arange(ranks)", "torch.arange(ranks + 1)")),
    ("last one left out",
     "Your result misses the last block. With its own block, a rank sees W blocks in W steps.",
     ("torch.arange(ranks)", "torch.arange(ranks - 1)")),
    ("sorted",
     "Your result has the right ranks, sorted by number. Return them in the order in which their "
     "blocks arrive.",
     (SEEN, "((rank - hop * steps) % ranks).sort().values")),
]  # fmt: skip

exercise = Exercise(
    "11.1", blocks_received, inputs, MISTAKES, names="W", run=in_a_tensor,
    also_right=[by_simulating, in_a_list],
)  # fmt: skip
