"""The explorer of lesson 09: two tokens on a line, their clock hands, the product of the two."""

import torch

from course_utils.attention import rotary
from course_utils.explorers.browser_explorer import BrowserExplorer, choice, number

LAST = 31  # the last place
CONTENT = torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0]).double()  # (d_k,)
CLOCKS = len(CONTENT) // 2
MEET = 20  # degrees
PAIRS = {"halves": (4, 1), "interleaved": (1, 2)}  # steps within a pair, and to the next one


def positions_explorer():
    """Move a query and a key along a line; watch their hands turn, and their product.

    Query and key have the same eight numbers, 1 1 1 1 0 0 0 0, so without turning their product
    is 4. Both can be dragged along the line.

    Returns
    -------
    BrowserExplorer
        With controls ``i`` and ``j`` (places of query and key), ``power`` (the base is 10 to this
        power) and ``layout`` ("halves" or "interleaved").
    """
    controls = {
        "i": number("place of q", 12, 0, LAST, 1),
        "j": number("place of k", 9, 0, LAST, 1),
        "power": number("base: 10 to the power", 4, 1, 6, 1),
        "layout": choice("pairs are", "halves", PAIRS),
    }
    given = {"content": CONTENT.tolist(), "last": LAST, "meet": MEET, "pairs": PAIRS}
    return BrowserExplorer("positions", controls, _say, **given)


def _say(i, j, power, layout):
    base = 10**power
    both = CONTENT.expand(2, -1)  # (2, d_k)
    q, k = rotary(both, torch.tensor([i, j]), base, layout == "interleaved")  # (d_k,) each
    told = f"query at {i}, key at {j}, {i - j} before it: product {q @ k:z.2f}"
    return f"{told}, base {base:,}, {layout}{_found(i - j, base, layout)}"


def _found(distance, base, layout):
    speeds = base ** (-torch.arange(CLOCKS) / CLOCKS)  # (CLOCKS,), radians a place
    apart = distance * speeds[0] * 180 / torch.pi
    apart = (apart + 180) % 360 - 180  # degrees from -180 to 180
    if layout == "interleaved":
        return "; these numbers were meant for halves: two clocks have no hands"
    if distance and apart.abs() < MEET:
        return f"; found: at distance {distance} the hands of clock 0 meet again"
    if LAST * speeds[-1] > torch.pi:
        return "; found: even the slowest clock goes round by half within the line"
    return ""
