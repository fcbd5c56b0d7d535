"""The explorer of lesson 00: the attention weights of one query over the words of a sentence."""

from course_utils.explorers.browser_explorer import BrowserExplorer, choice, number

WORDS = "The hen stayed off the road because it was".split()
# Typed by hand: (is it alive, can it be wide). The key of every other word is (0, 0).
KEYS = {"hen": (1, 0), "road": (0, 1)}
# What "it" looks for with each last word. Both a hen and a road can be old.
QUERIES = {"tired": (1, 0), "wide": (0, 1), "old": (1, 1)}


def sentence_explorer():
    """Change the last word of a sentence and the sharpness of its query, and watch the weights.

    Returns
    -------
    BrowserExplorer
        With controls ``last`` (a word) and ``sharpness`` (a factor of the query).
    """
    controls = {
        "last": choice("last word", "tired", QUERIES),
        "sharpness": number("sharpness", 3.0, 0, 8, 0.5),
    }
    given = {"words": WORDS, "keys": KEYS, "queries": QUERIES}
    return BrowserExplorer("sentence", controls, needs=["softmax"], **given)
