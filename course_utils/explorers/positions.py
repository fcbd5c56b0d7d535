"""The explorer of lesson 09: two tokens on a line, their clock hands, and their dot product."""

from course_utils.explorers.browser_explorer import BrowserExplorer, choice, number

LAST = 31  # the last position
CONTENT = [1, 1, 1, 1, 0, 0, 0, 0]  # (d_k,)
PAIRS = {"halves": (4, 1), "interleaved": (1, 2)}  # steps within a pair, and to the next one


def positions_explorer():
    """Move a query and a key along a line; watch their clock hands and their dot product.

    Query and key have the same eight entries, 1 1 1 1 0 0 0 0, so without rotation their dot
    product is 4. Both can be dragged along the line.

    Returns
    -------
    BrowserExplorer
        With controls ``i`` and ``j`` (positions of query and key), ``power`` (the base is 10 to
        this power) and ``layout`` ("halves" or "interleaved").
    """
    controls = {
        "i": number("position of q", 12, 0, LAST, 1),
        "j": number("position of k", 9, 0, LAST, 1),
        "power": number("base: 10 to the power", 4, 1, 6, 1),
        "layout": choice("pairs are", "halves", PAIRS),
    }
    return BrowserExplorer("positions", controls, content=CONTENT, last=LAST, pairs=PAIRS)
