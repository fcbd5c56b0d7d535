"""11.1: whose blocks a rank sees, one after another, in a ring with any stride."""

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
    ("forwards", "blocks come from behind: what rank r holds after a step was on rank r − hop",
     (SEEN, "(rank + hop * steps) % ranks")),
    ("sign of the hop lost", "right for a hop above 0; with a negative one the ring "
     "runs the other way",
     (SEEN, "(rank - abs(hop) * steps) % ranks")),
    ("neighbours", "right for hop = 1; here each sends to the rank that lies `hop` further",
     (SEEN, "(rank - steps) % ranks")),
    ("neighbours, forwards",
     "the hop is left out, and blocks come from behind: first r, then r − hop",
     (SEEN, "(rank + steps) % ranks")),
    ("own block left out", "it begins with what arrives first; before that a rank sees its own",
     ("torch.arange(ranks)", "torch.arange(1, ranks + 1)")),
    ("own block not counted", "a block is missing: the own one comes first, at step 0",
     ("torch.arange(ranks)", "torch.arange(1, ranks)")),
    ("not round", "numbers below 0 or above W − 1: the ring closes, so take them modulo W",
     (SEEN, "rank - hop * steps")),
    ("sign kept", "numbers below 0: torch.fmod keeps the sign; % and torch.remainder do not",
     (SEEN, "torch.fmod(rank - hop * steps, ranks)")),
    ("hop taken once", "the hop is taken once, and then it goes rank by rank; each step is a hop",
     (SEEN, "(rank - hop - steps) % ranks")),
    ("rank taken away", "it begins with −rank modulo W; the hops are taken away from the rank, not "
     "the rank from them", (SEEN, "(hop * steps - rank) % ranks")),
    ("last first", "right blocks, but the last one comes first",
     (SEEN, "((rank - hop * steps) % ranks).flip(0)")),
    ("own block twice", "one block too many: at step W the own one is back; the last step is W − 1",
     ("torch.arange(ranks)", "torch.arange(ranks + 1)")),
    ("last one left out", "one block too few: with the own one there are W to see",
     ("torch.arange(ranks)", "torch.arange(ranks - 1)")),
    ("sorted", "right ranks, in order of their numbers; asked is the order in which they come",
     (SEEN, "((rank - hop * steps) % ranks).sort().values")),
]  # fmt: skip

exercise = Exercise(
    "11.1", blocks_received, inputs, MISTAKES, names="W", run=in_a_tensor,
    also_right=[by_simulating, in_a_list],
)  # fmt: skip
