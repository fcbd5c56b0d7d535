"""The explorer of lesson 00: one word asks all others, and attention weighs what they offer."""

import ipywidgets as widgets
import torch
from matplotlib.figure import Figure

from course_utils.explorers.base import Explorer, Number

WORDS = "The hen never crossed the road because it was".split()
# Typed by hand: (it lives, it has a width). What does not stand here offers neither.
KEYS = {"hen": (1, 0), "road": (0, 1)}
# What "it" asks for when the sentence ends so. A hen may be old, and so may a road.
QUERIES = {"tired": (1, 0), "wide": (0, 1), "old": (1, 1)}


def sentence_explorer():
    """Change the last word of a sentence, and how sharply "it" asks; watch where it looks.

    Returns
    -------
    Explorer
        With controls ``last`` (a word) and ``sharpness`` (a factor of the query).
    """
    k = torch.tensor([KEYS.get(word, (0, 0)) for word in [*WORDS, "last"]]).float()  # (S, 2)
    figure = Figure(figsize=(6.8, 2.5), dpi=80, layout="tight")
    ax = figure.add_subplot()
    bars = ax.bar(range(len(k)), 1.0).patches
    ax.set(ylim=(0, 1.15), yticks=[0, 0.5, 1], ylabel="weight of each word")
    ax.set_xticks(range(len(k)), [*WORDS, ""])
    asking = {"color": "C1", "fontweight": "bold"}
    ax.get_xticklabels()[WORDS.index("it")].set(**asking)
    ending = ax.text(len(WORDS), -0.055, "", ha="center", va="top", **asking)
    numbers = [ax.text(j, 0, "", ha="center", fontsize=8) for j in range(len(k))]

    def update(last, sharpness):
        q = sharpness * torch.tensor(QUERIES[last]).float()  # (2,)
        weights = (k @ q).softmax(dim=-1)  # (S,)
        for bar, number, weight in zip(bars, numbers, weights.tolist(), strict=True):
            bar.set_height(weight)
            number.set(text=f"{weight:.2f}", y=weight + 0.03)
        ending.set_text(last)
        return f"“it was {last}”: {_told([*WORDS, last], weights)}"

    controls = {
        "last": widgets.Dropdown(description="last word", options=list(QUERIES)),
        "sharpness": Number("how sharply “it” asks", 3.0, 0, 8, 0.5),
    }
    return Explorer(figure, [*bars, ending, *numbers], controls, update)


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
