"""11.7: who sends first, so that a ring of blocking calls neither stands still nor goes slowly."""

import torch

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones

MOST = 3  # rounds: a rank, its neighbour, and with an odd number of ranks one more


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
    """Let the ranks meet; return 1 if all are done in time, else complain."""
    plans = [plan(call_with_clones(answer, rank, ranks)[0], rank, ranks) for rank in range(ranks)]
    left, rounds = [list(calls) for calls in plans], 0
    while any(left):
        waiting = {rank: calls[0] for rank, calls in enumerate(left) if calls}
        met = [rank for rank, (call, other) in waiting.items()
               if call == "send" and waiting.get(other) == ("recv", rank)]  # fmt: skip
        if not met:
            raise NamedMistake("stands still", stuck(waiting, ranks))
        for rank in met:
            left[(rank + 1) % ranks].pop(0)
            left[rank].pop(0)
        rounds += 1
    if rounds > MOST:
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
        raise NamedMistake("wrong neighbour", WRONG_NEIGHBOUR)
    if len(calls) != 2 or {*calls} != wanted:
        raise NamedMistake("not one of each", ONE_OF_EACH)
    return calls


NO_LIST = 'return a list of two pairs, such as [("send", 1), ("recv", 3)]'
WRONG_NAME = 'write the two calls as "send" and "recv"'
WRONG_NEIGHBOUR = "wrong neighbour: rank r sends to r + 1 and receives from r − 1, modulo W"
ONE_OF_EACH = "each rank sends once, to rank + 1, and receives once, from rank − 1"
ALL_SEND = (
    "all ranks send first: each waits until its neighbour receives, which none gets to do; "
    "somebody must receive first"
)
ALL_RECEIVE = (
    "all ranks receive first: each waits until its neighbour sends, which none gets to do; "
    "somebody must send first"
)
SOME_WAIT = (
    "some ranks wait for each other for ever: of two neighbours, who sends and who receives?"
)
ONE_BY_ONE = (
    "no deadlock, but ranks wait for one another in a row, which takes over three rounds; let many "
    "pairs meet at once, so that three are enough for any W"
)


def stuck(waiting, ranks):
    calls = [call for call, _ in waiting.values()]
    if len(calls) == ranks and len(set(calls)) == 1:
        return f"with W = {ranks} " + (ALL_SEND if calls[0] == "send" else ALL_RECEIVE)
    return f"with W = {ranks} {SOME_WAIT}"


ORDER = "[send, receive] if rank % 2 == 0 else [receive, send]"
MISTAKES = [
    ("all send first", ALL_SEND, (ORDER, "[send, receive]")),
    ("all receive first", ALL_RECEIVE, (ORDER, "[receive, send]")),
    ("one receives first", ONE_BY_ONE,
     (ORDER, "[receive, send] if rank == 0 else [send, receive]")),
    ("neighbours swapped", WRONG_NEIGHBOUR,
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
