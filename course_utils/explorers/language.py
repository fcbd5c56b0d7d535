"""The explorer of lesson 10b: the next token of a language model, with some heads ablated."""

import functools
import re
from collections import namedtuple

import ipywidgets as widgets
import torch

from course_utils.attention import induction_score, previous_token_score
from course_utils.explorers.kernel_explorer import Explorer, Number
from course_utils.explorers.language_figure import MOST_TOKENS, WORDS, LanguageFigure
from course_utils.figures import first_largest, printable
from course_utils.views import unique_labels

MOST_NAMED = 10  # heads listed in one sentence
FEW = 3  # heads; without many of them, any model predicts something else
CLEAR = 0.05  # smallest rise of a probability that is worth a remark
ADDED = "part of the top logit"
SCORES = {  # of weights (1, heads, L, L) and tokens (1, L)
    "weight on the first token": lambda weights, _: weights[0, :, 1:, 0].mean(dim=-1),
    "previous-token score": lambda weights, _: previous_token_score(weights),
    "induction score": induction_score,
}

# For the last token: probabilities (V,), head outputs (layers, H, d_k) and stream (d_model,).
# For all tokens: weights (layers, H, L, L).
Result = namedtuple("Result", "probabilities heads stream weights")


def language_explorer(model, tokenizer, text="The capital of France is"):
    """Type a text, see the most likely next tokens and all heads, and ablate heads.

    The output of an ablated head is set to zero, so it adds nothing to the stream.

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
        With controls ``text``, ``layer`` and ``head`` (of the selected head, from 0), ``knock``
        (whether that head is ablated), ``out`` (all heads that are: "18.6, 17.4" means head 6
        of layer 18 and head 4 of layer 17) and ``shade`` (what the map of all heads shows). A
        click on the map selects a head.

    Raises
    ------
    TypeError
        If model is not a `LanguageModel`, or text not a str.
    """
    size, run, quoted = prepare(model, tokenizer, text)
    view = LanguageFigure(size)

    def update(text, layer, head, knock, out, shade):
        ids, ablated = tokenizer.encode(printable(text)).ids, _parse_heads(out, size)
        if not ids:
            view.clear()
            return "there is no text yet: type one, then press Enter"
        read = tuple(ids[:MOST_TOKENS])
        before, after = run(read, ()), run(read, tuple(ablated))
        name = f"{layer}.{head}"
        both = torch.stack([before.probabilities, after.probabilities])  # (2, V)
        top, now = both.argmax(dim=-1).tolist()
        values, usual = (_values(shade, model, result, read, top) for result in (after, before))
        limit = usual.abs().max().item() if shade == ADDED else None
        view.draw_heads(values.numpy(), shade, limit, (layer, head), ablated)
        likely = both.amax(dim=0).topk(min(WORDS, both.shape[-1])).indices
        view.draw_words([quoted(word) for word in likely], both[:, likely].tolist())
        tokens, weights = [quoted(token) for token in read], after.weights[layer, head].numpy()
        view.draw_weights(weights, tokens, f"weights of head {name}")

        cut_off = f"the model reads the first {MOST_TOKENS} of {len(ids)} tokens; "
        words, probabilities = (quoted(top), quoted(now)), both[:, [top, now]].tolist()
        key = first_largest(weights[-1])
        tokens = unique_labels(tokens)
        return (
            f"{cut_off if len(ids) > MOST_TOKENS else ''}"
            f"{_describe_change(words, probabilities, ablated, size)}; "
            f"from {tokens[-1]}, head {name}{' (ablated)' if (layer, head) in ablated else ''} "
            f"attends most to {tokens[key]} ({weights[-1, key]:.2f}); "
            f"{_describe_value(shade, values[layer, head])}"
            f"{_finding(words, probabilities, ablated)}"
        )

    wide = {"style": {"description_width": "initial"}, "layout": {"width": "17em"}}
    once = {"continuous_update": False}  # on Enter, not at each letter
    controls = {
        "text": widgets.Text(text, description="text", **once, **wide),
        "layer": Number("layer", 0, 0, size[0] - 1, 1),
        "head": Number("head", 0, 0, size[1] - 1, 1),
        "knock": widgets.Checkbox(value=False, description="ablate this head", indent=False),
        "out": widgets.Text(description="ablated", placeholder="18.6, 17.4", **once, **wide),
        "shade": widgets.Dropdown(description="map", options=[*SCORES, ADDED], **wide),
    }
    _synchronize(controls, size)

    def on_click(ax, x, y):
        if ax is not view.map:
            return {}
        layer, head = (min(int(i + 0.5), n - 1) for i, n in zip((y, x), size, strict=True))
        return {"layer": layer, "head": head}

    return Explorer(view.figure, view.moving, controls, update, on_click=on_click)


def prepare(model, tokenizer, text):
    """Check the types of model and text; return what an explorer of a language model needs.

    Returns
    -------
    size : (layers, heads)
    run : function
        ``run(tokens, ablated)`` returns a `Result`, and keeps the newest.
    quoted : function
        ``quoted(token)`` is the token in quotes, which make a leading space visible.
    """
    if not hasattr(model, "stream"):
        raise TypeError(f"model must be a LanguageModel, got {type(model).__name__}")
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {type(text).__name__}")
    size = len(model.blocks), model.blocks[0].attention.num_heads
    run = functools.lru_cache(maxsize=32)(functools.partial(_run, model, size))
    return size, run, lambda token: repr(tokenizer.decode([int(token)], skip_special_tokens=False))


def _run(model, size, tokens, ablated):
    """Run the model on tokens with some heads set to zero; return a `Result`."""
    layers, heads = size
    scale = torch.ones(layers, heads)
    for head in ablated:
        scale[head] = 0
    recorded = []

    def on_heads(layer, heads, weights):
        heads = heads * scale[layer, :, None, None]  # (1, H, L, d_k)
        recorded.append((heads[0, :, -1], weights[0]))
        return heads

    with torch.no_grad():
        stream = model.stream(torch.tensor([tokens]), on_heads=on_heads)[0, -1]  # (d_model,)
        probabilities = model.read_out(stream).softmax(dim=-1)  # (V,)
    last, weights = (torch.stack(tensors) for tensors in zip(*recorded, strict=True))
    return Result(probabilities, last, stream, weights)


def _values(shade, model, result, tokens, top):
    """Return the number of each head (layers, H) that the map shows."""
    if shade == ADDED:
        return _added(model, result, top)
    weights = result.weights.flatten(0, 1)[None]  # (1, layers · H, L, L)
    return SCORES[shade](weights, torch.tensor([tokens])).view(result.weights.shape[:2])


def _added(model, result, word):
    """Return what each head adds directly to the logit of a word, (layers, H).

    A head's output reaches the logit through its columns of W_o, the final norm and the word's
    embedding. The norm's divisor is taken as constant, and the effect through later layers is not
    included.
    """
    with torch.no_grad():
        size = result.stream.square().mean().add(model.norm.eps).sqrt()
        direction = model.embedding.weight[word] * model.norm.weight / size  # (d_model,)
        W_o = torch.stack([block.attention.W_o.weight for block in model.blocks])
        per_head = (direction @ W_o).view(result.heads.shape)  # (layers, H, d_k)
        return (per_head * result.heads).sum(dim=-1)


def _parse_heads(text, size):
    """Return the model's heads in a text such as "18.6, 17.4", sorted; ignore all others."""
    heads = {(int(layer), int(head)) for layer, head in re.findall(r"(\d+)\.(\d+)", text)}
    return sorted(head for head in heads if head[0] < size[0] and head[1] < size[1])


def _format_heads(heads):
    """Return heads as a text that `_parse_heads` reads."""
    return ", ".join(f"{layer}.{head}" for layer, head in heads)


def _name_heads(heads):
    """Return the name of one or more heads for use in a sentence."""
    return f"head{'s' if len(heads) > 1 else ''} {_format_heads(heads)}"


def _synchronize(controls, size):
    """Keep the checkbox of the selected head and the list of all heads that are out in step."""
    layer, head = controls["layer"].slider, controls["head"].slider
    knock, out = controls["knock"], controls["out"]

    def update_checkbox(_):
        knock.value = (layer.value, head.value) in _parse_heads(out.value, size)

    def update_list(change):
        selected = {(layer.value, head.value)}
        others = {*_parse_heads(out.value, size)} - selected
        heads = sorted(others | selected if change.new else others)
        if heads != _parse_heads(out.value, size):
            out.value = _format_heads(heads)

    for control in (layer, head, out):
        control.observe(update_checkbox, names="value")
    knock.observe(update_list, names="value")


def _describe_change(words, probabilities, ablated, size):
    """Say which token is most likely with all heads, and which is with some of them ablated.

    ``words`` are these two tokens. ``probabilities`` (2, 2) are theirs, with all heads and without.
    """
    (top, now), ((p, _), (q, p_now)) = words, probabilities
    total = size[0] * size[1]
    if not ablated:
        return f"most likely next token {top} ({p:.2f}), with all {total} heads"
    missing = f"{len(ablated)} of {total} heads"
    if len(ablated) <= MOST_NAMED:
        missing = f"{_name_heads(ablated)} ({len(ablated)} of {total})"
    change = f"without {missing}: {top} {p:.2f} → {q:.2f}, "
    if now == top:
        return f"{change}still most likely"
    return f"{change}now {now} ({p_now:.2f}) is most likely"


def _describe_value(shade, value):
    """Say what the map shows of the selected head."""
    if not value.isfinite():
        return f"the head has no {shade} in this text"
    which = "" if shade == ADDED else "averaged over queries, "
    return f"{which}the head's {shade} is {value:z.2f}"


def _finding(words, probabilities, ablated):
    """Return what is remarkable about a change, or an empty text."""
    (top, now), ((p, _), (q, _)) = words, probabilities
    if 1 <= len(ablated) <= FEW and now != top:
        return f"; found: without {_name_heads(ablated)} the model no longer predicts {top}"
    if len(ablated) == 1 and q < p / 2:
        return f"; found: without this one head {top} is less than half as likely"
    if len(ablated) == 1 and q > p + CLEAR:
        return f"; found: without this one head {top} is more likely than with it"
    return ""
