"""The explorer of lesson 00: one word asks all others, and attention weighs what they offer."""

import torch

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
    return BrowserExplorer("sentence", controls, _say, needs=["softmax"], **given)


def _say(last, sharpness):
    k = torch.tensor([KEYS.get(word, (0, 0)) for word in [*WORDS, last]]).float()  # (S, 2)
    q = sharpness * torch.tensor(QUERIES[last]).float()  # (2,)
    weights = (k @ q).softmax(dim=-1)  # (S,)
    return f"“it was {last}”: {_told([*WORDS, last], weights)}"


def _told(words, weights):
    """Say at which words "it" looks most; what offers nothing weighs the same everywhere."""
    largest, least = weights.max(), weights.min()
    pairs = zip(words, weights, strict=True)
    most = [word for word, weight in pairs if weight > largest - 1e-6]
    if len(most) == len(words):
        return f"it asks for nothing, and every word weighs {largest:.2f}"
    undecided = "undecided, " if len(most) > 1 else ""
    named = " and ".join(f"{word} {largest:.2f}" for word in most)
    return f"{undecided}it looks most at {named}; each other word {least:.2f}"
