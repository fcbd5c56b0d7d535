"""The explorer of lesson 10: the next token after your own text, and where one head looks."""

import ipywidgets as widgets
import numpy as np
import torch
from matplotlib.figure import Figure

from course_utils.explorers.kernel_explorer import Explorer, Number, cut
from course_utils.explorers.language import prepare
from course_utils.explorers.language_figure import MOST_TOKENS, WORDS
from course_utils.figures import first_largest, printable
from course_utils.views import unique_labels

SURE = 0.95  # a probability that is worth a remark


def next_token_explorer(model, tokenizer, text="The capital of France is"):
    """Type a text, see the most probable next tokens, and where a head looks from the last token.

    Parameters
    ----------
    model : language_model.LanguageModel
    tokenizer : tokenizers.Tokenizer
        `language_model.load` returns both.
    text : str
        The model reads its first 24 tokens.

    Returns
    -------
    Explorer
        With controls ``text``, ``temperature``, ``layer`` and ``head`` (both from 0).

    Raises
    ------
    TypeError
        If model is not a `LanguageModel`, or text not a str.
    """
    size, run, quoted = prepare(model, tokenizer, text)
    view = NextTokenFigure()

    def update(text, temperature, layer, head):
        ids = tokenizer.encode(printable(text)).ids
        if not ids:
            view.draw_words([], [])
            view.draw_weights([], [])
            return "there is no text yet: type one, then press Enter"
        result = run(tuple(ids[:MOST_TOKENS]), ())
        p = (result.probabilities.log() / temperature).softmax(dim=-1)  # (V,)
        top = p.topk(min(WORDS, len(p)))
        words = [quoted(token) for token in top.indices]
        weights = result.weights[layer, head, -1].numpy()  # (L,)
        tokens = [quoted(token) for token in ids[:MOST_TOKENS]]
        view.draw_words(words, top.values.tolist())
        view.draw_weights(tokens, weights)
        tokens, key = unique_labels(tokens), first_largest(weights)
        bits = torch.special.entr(p).sum().item() / np.log(2)
        cut_off = f"the model reads the first {MOST_TOKENS} of {len(ids)} tokens; "
        found = f"; found: the model is nearly sure of {words[0]}" if top.values[0] > SURE else ""
        return (
            f"{cut_off if len(ids) > MOST_TOKENS else ''}"
            f"at temperature {temperature:g} the next token is {words[0]} with probability "
            f"{top.values[0]:.2f}, and the entropy is {bits:.1f} bits; "
            f"in layer {layer}, head {head}, the token {tokens[-1]} attends most to {tokens[key]}, "
            f"with weight {weights[key]:.2f}{found}"
        )

    controls = {
        "text": widgets.Text(
            text,
            description="text",
            continuous_update=False,  # on Enter, not at each letter
            style={"description_width": "initial"},
            layout={"width": "17em"},
        ),
        "temperature": Number("temperature", 1.0, 0.1, 2.0, 0.1),
        "layer": Number("layer", 0, 0, size[0] - 1, 1),
        "head": Number("head", 0, 0, size[1] - 1, 1),
    }
    return Explorer(view.figure, view.moving, controls, update)


class NextTokenFigure:
    """Bars of the most probable next tokens, and of the weights from the last token."""

    def __init__(self):
        self.figure = Figure(figsize=(7, 5.6), dpi=80)
        words = self.figure.add_axes((0.25, 0.56, 0.72, 0.38))
        weights = self.figure.add_axes((0.1, 0.2, 0.87, 0.23))
        rows, columns = np.arange(WORDS), np.arange(MOST_TOKENS)
        self.words = words.barh(rows, 0, height=0.8, color="C0").patches
        words.set(xlim=(0, 1.12), ylim=(WORDS - 0.4, -0.6), xticks=(0, 0.5, 1), yticks=[])
        words.set_title("probability of the next token")
        small = {"fontsize": 10, "va": "center_baseline"}
        self.labels = [words.text(-0.015, row, "", ha="right", **small) for row in rows]
        self.numbers = [words.text(0, row, "", **small) for row in rows]
        self.weights = weights.bar(columns, 0, width=0.8, color="C1").patches
        weights.set(xlim=(-0.6, MOST_TOKENS - 0.4), ylim=(0, 1), xticks=[], yticks=(0, 0.5, 1))
        weights.set_title("attention weights from the last token")
        self.tokens = [
            weights.text(n, -0.06, "", ha="center", va="top", rotation=90, fontsize=10)
            for n in columns
        ]
        self.moving = [
            *(*self.words, *self.labels, *self.numbers),
            *(*self.weights, *self.tokens),
        ]

    def draw_words(self, words, probabilities):
        """Draw the most probable next tokens."""
        probabilities = [*probabilities, *[0] * (WORDS - len(words))]
        words = [*cut(words, 14), *[""] * (WORDS - len(words))]
        for row, (word, p) in enumerate(zip(words, probabilities, strict=True)):
            self.words[row].set_width(p)
            self.labels[row].set_text(word)
            self.numbers[row].set(x=p + 0.015, text=f"{p:.2f}" if word else "")

    def draw_weights(self, tokens, weights):
        """Draw the weights (L,) from the last token to all tokens."""
        weights = [*weights, *[0] * (MOST_TOKENS - len(tokens))]
        labels = [*cut(tokens, 12), *[""] * (MOST_TOKENS - len(tokens))]
        for n, (label, weight) in enumerate(zip(labels, weights, strict=True)):
            self.weights[n].set_height(weight)
            self.tokens[n].set_text(label)
