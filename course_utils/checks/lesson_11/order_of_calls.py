"""11.7: who sends first, so that a ring of blocking calls has no deadlock and is fast."""

import torch

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones

MOST_ROUNDS = 3  # one for even ranks, one for odd ranks, and one more if W is odd


def order_of_calls(rank, ranks):
    send, receive = ("send", (rank + 1) % ranks), ("recv", (rank - 1) % ranks)
    return [send, receive] if rank % 2 == 0 else [receive, send]


def odd_ranks_send_first(rank, ranks):
    calls = [("recv", (rank + ranks - 1) % ranks), ("send", (rank + 1) % ranks)]
    return calls[::-1] if rank % 2 else calls


def even_ranks_send_first(rank, ranks):
    calls = ("send", (rank + 1) % ranks), ("recv", (rank - 1) % ranks)
    return sorted(calls, reverse=rank % 2 == 0)


def inputs():
    return [(4,), (2,), (3,), (8,), (7,)]


def run(answer, ranks):
    """Let the ranks communicate; return 1 if all finish in three rounds, else name the mistake."""
    plans = [plan(call_with_clones(answer, rank, ranks)[0], rank, ranks) for rank in range(ranks)]
    left, rounds = [list(calls) for calls in plans], 0
    while any(left):
        waiting = {rank: calls[0] for rank, calls in enumerate(left) if calls}
        met = [rank for rank, (call, other) in waiting.items()
               if call == "send" and waiting.get(other) == ("recv", rank)]  # fmt: skip
        if not met:
            raise NamedMistake("deadlock", deadlock(waiting, ranks))
        for rank in met:
            left[(rank + 1) % ranks].pop(0)
            left[rank].pop(0)
        rounds += 1
    if rounds > MOST_ROUNDS:
        raise NamedMistake("one after another", ONE_BY_ONE)
    return [torch.ones(())]


def plan(result, rank, ranks):
    try:
        calls = [(str(call), int(other)) for call, other in result]
    except (TypeError, ValueError):
        raise NamedMistake("no list of calls", NO_LIST) from None
    wanted = {("send", (rank + 1) % ranks), ("recv", (rank - 1) % ranks)}
    if not {call for call, _ in calls} <= {"send", "recv"}:
        raise NamedMistake("wrong name", WRONG_NAME)
    if len(calls) == 2 and {call for call, _ in calls} == {"send", "recv"} and {*calls} != wanted:
        raise NamedMistake("wrong neighbor", WRONG_NEIGHBOR)
    if len(calls) != 2 or {*calls} != wanted:
        raise NamedMistake("not one of each", ONE_OF_EACH)
    return calls


NO_LIST = (
    "Your result is not a list of two calls with their partners. Return, for example, "
    '[("send", 1), ("recv", 3)].'
)
WRONG_NAME = (
    'Your result has a call that is neither "send" nor "recv". Name the two calls "send" and '
    '"recv".'
)
WRONG_NEIGHBOR = (
    "Your result has the wrong neighbors. Rank r sends to rank r + 1 and receives from rank r − 1, "
    "modulo W."
)
ONE_OF_EACH = (
    "Your result is not one call of each kind. Each rank sends once, to rank r + 1, and receives "
    "once, from rank r − 1."
)
ALL_SEND = (
    "All ranks send first. Each one waits until the next rank receives, but none gets that far. "
    "Let some ranks receive first."
)
ALL_RECEIVE = (
    "All ranks receive first. Each one waits until the previous rank sends, but none gets that "
    "far. Let some ranks send first."
)
SOME_WAIT = (
    "Some ranks wait for each other forever. Choose the order so that in as many pairs of "
    "neighbors as possible, one rank sends first and the other receives first."
)
ONE_BY_ONE = (
    "Your order has no deadlock, but it takes more than three rounds, because the ranks "
    "communicate one after another. Let about half of the ranks receive first, so that many pairs "
    "communicate in the same round, for any W."
)


def deadlock(waiting, ranks):
    calls = [call for call, _ in waiting.values()]
    hint = SOME_WAIT
    if len(calls) == ranks and len(set(calls)) == 1:
        hint = ALL_SEND if calls[0] == "send" else ALL_RECEIVE
    return f"With W = {ranks}, {hint[0].lower()}{hint[1:]}"


ORDER = "[send, receive] if rank % 2 == 0 else [receive, send]"
MISTAKES = [
    ("all send first", ALL_SEND, (ORDER, "[send, receive]")),
    ("all receive first", ALL_RECEIVE, (ORDER, "[receive, send]")),
    ("one receives first", ONE_BY_ONE,
     (ORDER, "[receive, send] if rank == 0 else [send, receive]")),
    ("neighbors swapped", WRONG_NEIGHBOR,
     ('("send", (rank + 1) % ranks), ("recv", (rank - 1) % ranks)',
      '("send", (rank - 1) % ranks), ("recv", (rank + 1) % ranks)')),
    ("another name", WRONG_NAME, ('"recv"', '"receive"')),
    ("sends alone", ONE_OF_EACH, (ORDER, "[send]")),
    ("by name only", NO_LIST, (ORDER, '["send", "recv"]')),
]  # fmt: skip

exercise = Exercise(
    "11.7", order_of_calls, inputs, MISTAKES, run=run,
    also_right=[odd_ranks_send_first, even_ranks_send_first],
)  # fmt: skip
