"""The explorer of lesson 10b: what a language model says next, and which heads it needs for it."""

import functools
import re
from collections import namedtuple

import ipywidgets as widgets
import torch

from course_utils.attention import induction_score, previous_token_score
from course_utils.explorers.kernel_explorer import Explorer, Number
from course_utils.explorers.language_figure import MOST_TOKENS, WORDS, LanguageFigure
from course_utils.figures import first_largest, printable
from course_utils.views import told_apart

MOST_NAMED = 10  # heads in one sentence
FEW = 3  # heads: without many, any model says something else
CLEAR = 0.05  # a probability that rises by less has hardly risen
ADDED = "added to the top logit"
SCORES = {  # of weights (1, heads, L, L) and tokens (1, L)
    "weight on the first token": lambda weights, _: weights[0, :, 1:, 0].mean(dim=-1),
    "previous-token score": lambda weights, _: previous_token_score(weights),
    "induction score": induction_score,
}

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
    view = LanguageFigure(size)

    def written(token):
        """Return a token between quotes, so that a space at its beginning is seen."""
        return repr(tokenizer.decode([int(token)], skip_special_tokens=False))

    def update(text, layer, head, knock, out, shade):
        ids, gone = tokenizer.encode(printable(text)).ids, _heads(out, size)
        if not ids:
            view.clear()
            return "there is no text yet: type one, then press Enter"
        read = tuple(ids[:MOST_TOKENS])
        before, after = answer(read, ()), answer(read, tuple(gone))
        name = f"{layer}.{head}"
        both = torch.stack([before.probabilities, after.probabilities])  # (2, V)
        top, now = both.argmax(dim=-1).tolist()
        values, usual = (_values(shade, model, each, read, top) for each in (after, before))
        reach = usual.abs().max().item() if shade == ADDED else None
        view.draw_heads(values.numpy(), shade, reach, (layer, head), gone)
        likely = both.amax(dim=0).topk(min(WORDS, both.shape[-1])).indices
        view.draw_words([written(word) for word in likely], both[:, likely].tolist())
        tokens, weights = [written(token) for token in read], after.weights[layer, head].numpy()
        view.draw_weights(weights, tokens, f"weights of head {name}")

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


def _those(heads):
    """Name heads in a sentence."""
    return f"head{'s' if len(heads) > 1 else ''} {_written(heads)}"


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
    missing = f"{len(gone)} of {number} heads"
    if len(gone) <= MOST_NAMED:
        missing = f"{_those(gone)} ({len(gone)} of {number})"
    told = f"without {missing}: {top} {p:.2f} → {q:.2f}, "
    return told + ("still on top" if now == top else f"on top now {now} {most:.2f}")


def _said(shade, value):
    """Say what the chosen head's shade on the map stands for."""
    return f"{shade} {value:z.2f}" if value.isfinite() else f"{shade} none: nothing to look at"


def _found(words, both, gone):
    """Return what is worth finding in such a change, if there is something."""
    (top, now), ((p, _), (q, _)) = words, both
    if 1 <= len(gone) <= FEW and now != top:
        return f"; found: without {_those(gone)} the model no longer says {top}"
    if len(gone) == 1 and q < p / 2:
        return f"; found: without this one head {top} is less than half as likely"
    if len(gone) == 1 and q > p + CLEAR:
        return f"; found: without this one head {top} is more likely than with it"
    return ""
