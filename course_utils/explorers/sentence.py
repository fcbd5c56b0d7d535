"""The explorer of lesson 00: one word asks all others, and attention weighs what they offer."""

from course_utils.explorers.browser_explorer import BrowserExplorer, choice, number

WORDS = "The hen never crossed the road because it was".split()
# Typed by hand: (it lives, it has a width). What does not stand here offers neither.
KEYS = {"hen": (1, 0), "road": (0, 1)}
# What "it" asks for when the sentence ends so. A hen may be old, and so may a road.
QUERIES = {"tired": (1, 0), "wide": (0, 1), "old": (1, 1)}


def sentence_explorer():
    """Change the last word of a sentence, and how sharply "it" asks; watch where it looks.

    Returns
    -------
    BrowserExplorer
        With controls ``last`` (a word) and ``sharpness`` (a factor of the query).
    """
    controls = {
        "last": choice("last word", "tired", QUERIES),
        "sharpness": number("how sharply “it” asks", 3.0, 0, 8, 0.5),
    }
    given = {"words": WORDS, "keys": KEYS, "queries": QUERIES}
    return BrowserExplorer("sentence", controls, needs=["softmax"], **given)
