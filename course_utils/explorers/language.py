"""The explorer of lesson 10b: what a language model says next, and which heads it needs for it."""

import functools
import re
from collections import namedtuple

import ipywidgets as widgets
import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_utils.attention import induction_score, previous_token_score
from course_utils.explorers.base import Explorer, Number, cut
from course_utils.figures import DIVERGING, SEQUENTIAL, first_largest, printable
from course_utils.views import told_apart

MOST_TOKENS = 24  # with more, small machines take over a second for an answer
WORDS = 10  # whose probabilities are drawn
FEW = 3  # heads: without many, any model says something else
CLEAR = 0.05  # a probability that rises by less has hardly risen
ADDED = "added to the top word's logit"
SCORES = {  # of weights (1, heads, L, L) and tokens (1, L)
    "weight on the first token": lambda weights, _: weights[0, :, 1:, 0].mean(dim=-1),
    "previous-token score": lambda weights, _: previous_token_score(weights),
    "induction score": induction_score,
}
PALE, DARK = "0.78", "C0"  # bars of all heads, and without those that are out

# of the last token: V probabilities, what each head hands on (layers, H, d_k), and the stream
# (d_model,); of all tokens the weights (layers, H, L, L)
Answer = namedtuple("Answer", "probabilities heads stream weights")


def language_explorer(model, tokenizer, text="The capital of France is"):
    """Type a text; see what a language model says next, and all its heads; knock some out.

    A head that is out hands on zeros: nothing of what it has read reaches the stream.

    Parameters
    ----------
    model : language_model.LanguageModel
    tokenizer : tokenizers.Tokenizer
        `language_model.load` returns both.
    text : str
        Its first 24 tokens are read.

    Returns
    -------
    Explorer
        With controls ``text``, ``layer`` and ``head`` (of the chosen head, from 0), ``knock``
        (whether that one is out), ``out`` (all that are, as "18.6, 17.4": head 6 of layer 18,
        head 4 of layer 17) and ``shade`` (what the map of all heads shows). A press on the map
        chooses a head.

    Raises
    ------
    TypeError
        If model is no `LanguageModel`, or text no str.
    """
    if not hasattr(model, "stream"):
        raise TypeError(f"model must be a LanguageModel, got {type(model).__name__}")
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {type(text).__name__}")
    size = len(model.blocks), model.blocks[0].attention.num_heads
    answer = functools.lru_cache(maxsize=32)(functools.partial(_answer, model, size))
    view = _View(size)

    def written(token):
        """Return a token between quotes, so that a space at its beginning is seen."""
        return repr(tokenizer.decode([int(token)], skip_special_tokens=False))

    def update(text, layer, head, knock, out, shade):
        ids, gone = tokenizer.encode(printable(text)).ids, _heads(out, size)
        name = f"{layer}.{head}"
        if not ids:
            view.clear(shade, (layer, head), gone)
            return "there is no text yet: type one, then press Enter"
        read = tuple(ids[:MOST_TOKENS])
        before, after = answer(read, ()), answer(read, tuple(gone))
        both = torch.stack([before.probabilities, after.probabilities])  # (2, V)
        top, now = both.argmax(dim=-1).tolist()
        values, usual = (_values(shade, model, each, read, top) for each in (after, before))
        view.draw_heads(values, usual.abs().max().item(), shade, (layer, head), gone)
        likely = both.amax(dim=0).topk(min(WORDS, both.shape[-1])).indices
        view.draw_words([written(word) for word in likely], both[:, likely].tolist())
        tokens, weights = [written(token) for token in read], after.weights[layer, head].numpy()
        view.draw_weights(weights, tokens, name)

        cut_off = f"of {len(ids)} tokens the first {MOST_TOKENS} are read; "
        words, likelier = (written(top), written(now)), both[:, [top, now]].tolist()
        looks = first_largest(weights[-1])
        tokens = told_apart(tokens)
        return (
            f"{cut_off if len(ids) > MOST_TOKENS else ''}{_change(words, likelier, gone, size)}; "
            f"head {name}{' (out)' if (layer, head) in gone else ''} looks from {tokens[-1]} most "
            f"at {tokens[looks]} {weights[-1, looks]:.2f}; {_said(shade, values[layer, head])}"
            + _found(words, likelier, gone)
        )

    wide = {"style": {"description_width": "initial"}, "layout": {"width": "17em"}}
    once = {"continuous_update": False}  # on Enter: the model answers to no half-typed word
    controls = {
        "text": widgets.Text(text, description="text", **once, **wide),
        "layer": Number("layer", 0, 0, size[0] - 1, 1),
        "head": Number("head", 0, 0, size[1] - 1, 1),
        "knock": widgets.Checkbox(value=False, description="knock this head out", indent=False),
        "out": widgets.Text(description="heads out", placeholder="18.6, 17.4", **once, **wide),
        "shade": widgets.Dropdown(description="map", options=[*SCORES, ADDED], **wide),
    }
    _keep_in_step(controls, size)

    def press(ax, x, y):
        if ax is not view.map:
            return {}
        layer, head = (min(int(at + 0.5), n - 1) for at, n in zip((y, x), size, strict=True))
        return {"layer": layer, "head": head}

    return Explorer(view.figure, view.moving, controls, update, press=press)


class _View:
    """The figure: a map of all heads, bars of the likeliest words, the weights of one head."""

    def __init__(self, size):
        layers, heads = size
        self.figure = Figure(figsize=(7, 6.2), dpi=80)
        place = self.figure.add_axes
        self.map, scale = place((0.08, 0.165, 0.24, 0.785)), place((0.08, 0.075, 0.24, 0.02))
        bars, matrix = place((0.53, 0.61, 0.44, 0.34)), place((0.53, 0.175, 0.44, 0.355))
        cmap = colormaps[SEQUENTIAL].with_extremes(bad="w")
        self.tiles = self.map.imshow(np.zeros(size), cmap=cmap, aspect="auto")
        self.map.set(xlabel="head", ylabel="layer", title="all heads")
        self.map.locator_params(nbins=9, integer=True)
        outline = {"fill": False, "ec": "C3", "lw": 2, "clip_on": False}
        self.frame = self.map.add_patch(Rectangle((0, 0), 1, 1, zorder=3, **outline))
        (self.crosses,) = self.map.plot([], [], "X", mfc="C3", mec="w", ms=8, zorder=4)
        self.map.set(xlim=(-0.5, heads - 0.5), ylim=(layers - 0.5, -0.5))
        self.scale = scale.pcolormesh(np.linspace(0, 1, 257), [0, 1], np.linspace(0, 1, 256)[None])
        scale.set(xticks=[], yticks=[])
        small = {"fontsize": 8, "va": "top"}
        ends = [scale.text(x, -0.2, "", ha=ha, **small) for x, ha in ((0, "left"), (1, "right"))]
        self.ends = [*ends, scale.text(0, -1.5, "", **small)]

        rows = np.arange(WORDS)
        self.before = bars.barh(rows, 0, height=0.85, color=PALE, label="all heads").patches
        self.after = bars.barh(rows, 0, height=0.4, color=DARK, label="without those out").patches
        # room for both numbers beside a bar of 1
        bars.set(xlim=(0, 1.4), ylim=(WORDS - 0.4, -0.6), xticks=(0, 0.5, 1), yticks=[])
        bars.set(title="probability of the next token")
        bars.legend(loc="lower right", fontsize=8)
        small["va"] = "center_baseline"
        self.words = [bars.text(-0.02, row, "", ha="right", **small) for row in rows]
        self.numbers = [bars.text(0, row, "", **small) for row in rows]

        extent = {"extent": (0, 1, 1, 0), "vmin": 0, "vmax": 1}
        self.weights = matrix.imshow(np.zeros((1, 1)), cmap=cmap, aspect="auto", **extent)
        matrix.set(xticks=[], yticks=[])
        matrix.set_xlabel("keys", labelpad=54)
        matrix.set_ylabel("queries", labelpad=54)
        self.title = matrix.text(0.5, -0.03, "", ha="center", va="bottom", fontsize=12)
        every = range(MOST_TOKENS)
        self.queries = [matrix.text(-0.02, 0, "", ha="right", va="center_baseline") for _ in every]
        self.keys = [matrix.text(0, 1.03, "", ha="center", va="top", rotation=90) for _ in every]
        self.moving = [
            *(self.tiles, self.frame, self.crosses, self.scale, *self.ends),
            *(*self.before, *self.after, *self.words, *self.numbers),
            *(self.weights, self.title, *self.queries, *self.keys),
        ]

    def draw_heads(self, values, reach, shade, chosen, gone):
        """Draw values (layers, H), a frame round one head, crosses on others.

        Scores go from 0 to 1, what has a sign as far as ``reach`` to both sides.
        """
        signed = shade == ADDED
        reach = reach if signed else 1
        self.tiles.set_data(values.numpy())
        self.tiles.set_clim(-reach if signed else 0, reach)
        for shown in (self.tiles, self.scale):
            shown.set_cmap(colormaps[DIVERGING if signed else SEQUENTIAL].with_extremes(bad="w"))
        low, high = (f"−{reach:.1f}", f"{reach:.1f}") if signed else "01"
        for text, told in zip(self.ends, (low, high, shade), strict=True):
            text.set_text(told)
        self.frame.set_xy((chosen[1] - 0.5, chosen[0] - 0.5))
        self.crosses.set_data([head for _, head in gone], [layer for layer, _ in gone])

    def draw_words(self, words, both):
        """Draw some words with their probabilities (2, n): of all heads, and without some."""
        words = [*cut(words, 14), *[""] * (WORDS - len(words))]
        before, after = ([*each, *[0] * (WORDS - len(each))] for each in both)
        for row, (word, p, q) in enumerate(zip(words, before, after, strict=True)):
            self.before[row].set_width(p)
            self.after[row].set_width(q)
            self.words[row].set_text(word)
            self.numbers[row].set_x(max(p, q) + 0.02)
            told = f"{p:.2f}" if before == after else f"{p:.2f} → {q:.2f}"
            self.numbers[row].set_text(told if word else "")

    def draw_weights(self, weights, tokens, name):
        """Draw the weights (L, L) of one head, by name, between tokens."""
        self.weights.set_data(weights)
        self.title.set_text(f"weights of head {name}")
        labels = [*cut(tokens, 10), *[""] * (MOST_TOKENS - len(tokens))]
        for n, label in enumerate(labels):
            middle = (n + 0.5) / max(len(tokens), 1)
            for text, move in ((self.queries[n], "set_y"), (self.keys[n], "set_x")):
                text.set(text=label, fontsize=8 if len(tokens) <= 14 else 6.5)
                getattr(text, move)(middle)

    def clear(self, shade, chosen, gone):
        """Draw that there is no text."""
        self.draw_heads(torch.full(self.tiles.get_size(), torch.nan), 0, shade, chosen, gone)
        self.draw_words([], [[], []])
        self.draw_weights(np.full((1, 1), np.nan), [], "{}.{}".format(*chosen))


def _answer(model, size, tokens, gone):
    """Return what the model answers to tokens, some of its heads out, as an `Answer`."""
    layers, heads = size
    keep = torch.ones(layers, heads)
    for head in gone:
        keep[head] = 0
    seen = []

    def on_heads(layer, heads, weights):
        heads = heads * keep[layer, :, None, None]  # (1, H, L, d_k)
        seen.append((heads[0, :, -1], weights[0]))
        return heads

    with torch.no_grad():
        stream = model.stream(torch.tensor([tokens]), on_heads=on_heads)[0, -1]  # (d_model,)
        probabilities = model.read_out(stream).softmax(dim=-1)  # (V,)
    last, weights = (torch.stack(each) for each in zip(*seen, strict=True))
    return Answer(probabilities, last, stream, weights)


def _values(shade, model, answer, tokens, top):
    """Return the number of each head (layers, H) that its shade on the map stands for."""
    if shade == ADDED:
        return _added(model, answer, top)
    weights = answer.weights.flatten(0, 1)[None]  # (1, layers · H, L, L)
    return SCORES[shade](weights, torch.tensor([tokens])).view(answer.weights.shape[:2])


def _added(model, answer, word):
    """Return what each head adds to the logit of a word by itself, (layers, H).

    Its output goes through its columns of W_o into the stream, and the stream through the norm,
    whose divisor is taken as it is, to the word's embedding. What later layers make of it is not
    in it.
    """
    with torch.no_grad():
        size = answer.stream.square().mean().add(model.norm.eps).sqrt()
        towards = model.embedding.weight[word] * model.norm.weight / size  # (d_model,)
        W_o = torch.stack([block.attention.W_o.weight for block in model.blocks])
        asked = (towards @ W_o).view(answer.heads.shape)  # (layers, H, d_k)
        return (asked * answer.heads).sum(dim=-1)


def _heads(text, size):
    """Read heads, as "18.6, 17.4", in their order; what is none of the model's is left out."""
    found = {(int(layer), int(head)) for layer, head in re.findall(r"(\d+)\.(\d+)", text)}
    return sorted(head for head in found if head[0] < size[0] and head[1] < size[1])


def _written(heads):
    """Write heads as `_heads` reads them."""
    return ", ".join(f"{layer}.{head}" for layer, head in heads)


def _keep_in_step(controls, size):
    """Let the box say whether the chosen head is out, and a tick of it put the head out."""
    layer, head = controls["layer"].slider, controls["head"].slider
    knock, out = controls["knock"], controls["out"]

    def follow(_):
        knock.value = (layer.value, head.value) in _heads(out.value, size)

    def take(change):
        others = {*_heads(out.value, size)} - {(layer.value, head.value)}
        wanted = sorted(others | {(layer.value, head.value)} if change.new else others)
        if wanted != _heads(out.value, size):
            out.value = _written(wanted)

    for each in (layer, head, out):
        each.observe(follow, names="value")
    knock.observe(take, names="value")


def _change(words, both, gone, size):
    """Say what is most likely with all heads, and what is without those that are out.

    ``words`` are both, ``both`` their probabilities: with all heads, and without.
    """
    (top, now), ((p, _), (q, most)) = words, both
    number = size[0] * size[1]
    if not gone:
        return f"next comes {top} {p:.2f}, with all {number} heads"
    told = f"without {_written(gone)}, {len(gone)} of {number} heads: {top} {p:.2f} → {q:.2f}, "
    return told + ("still on top" if now == top else f"on top now {now} {most:.2f}")


def _said(shade, value):
    """Say what the chosen head's shade on the map stands for."""
    return f"{shade} {value:z.2f}" if value.isfinite() else f"{shade} none: nothing to look at"


def _found(words, both, gone):
    """Return what is worth finding in such a change, if there is something."""
    (top, now), ((p, _), (q, _)) = words, both
    if 1 <= len(gone) <= FEW and now != top:
        return f"; found: without {_written(gone)} the model no longer says {top}"
    if len(gone) == 1 and q < p / 2:
        return f"; found: without this one head {top} is less than half as likely"
    if len(gone) == 1 and q > p + CLEAR:
        return f"; found: without this one head {top} is more likely than with it"
    return ""
