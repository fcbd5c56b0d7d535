"""The explorer of lesson 08: from all heads to one head to one query."""

import base64

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.ticker import MaxNLocator

from course_utils.attention import attention
from course_utils.explorers.browser_explorer import BrowserExplorer, check, colours_of, number
from course_utils.explorers.kernel_explorer import cut
from course_utils.figures import DIVERGING, SEQUENTIAL, as_labels, first_largest
from course_utils.shapes import expects
from course_utils.views import GAP, example, told_apart

THE_LESSONS = 11, 0, 6, 1  # layer, head, query and key that lesson 08 draws: it looks at dog
MOST = 2**15 - 1  # the largest number of sixteen bits
# Twelve, as the example has heads: the ten of a colour map, and two more.
HEAD_COLOURS = [*map(to_hex, colormaps["tab10"].colors), "#5254a3", "#8ca252"]


@expects(q="layers H L d_k", k="layers H L d_k", weights="layers H L L")
def views_explorer(tokens=None, q=None, k=None, weights=None):
    """Move between three views of attention: all heads, one as lines, one query as products.

    Parameters
    ----------
    tokens : sequence of str, (L,), optional
        The four belong together; `course_utils.views.example` if not given.
    q, k : torch.Tensor, (layers, H, L, d_k)
    weights : torch.Tensor, (layers, H, L, L)

    Returns
    -------
    BrowserExplorer
        With controls ``layer``, ``head``, ``query`` and ``key`` (positions of tokens), ``several``
        (lines of all heads of the layer, each in the colour of its number) and ``hide`` (lines
        without key 0). A press chooses a head among the tiles, a query or a key among the tokens.
        It opens on the largest weight of what is given, or on the head that the lesson draws.

    Raises
    ------
    TypeError, ValueError
        If only some of the four are given, one is not of the shape above, there are not L tokens,
        or softmax(q · k / √d_k) is not the weight.
    """
    given = [each is not None for each in (tokens, q, k, weights)]
    if not any(given):
        tokens, q, k, weights = example()
    elif not all(given):
        raise ValueError("tokens, q, k and weights belong together: give all four, or none")
    q, k, weights = (each.detach().cpu().double() for each in (q, k, weights))
    if not torch.allclose(attention(q, k, k)[1], weights, atol=1e-3):
        raise ValueError("weights must be softmax(q · k / √d_k); are q and k of another model?")
    layers, heads, L, d_k = q.shape
    opens = weights.clone()
    opens[..., 0] /= 2  # all the weight on the first key may be put aside there: it tells little
    start = np.unravel_index(int(opens.argmax()), opens.shape) if any(given) else THE_LESSONS
    start = tuple(map(int, start))
    tokens = told_apart(as_labels(tokens, L, "tokens"))
    # sixteen bits hold what is told and seen of a number, in fewer letters than its digits are
    unit = max(q.abs().max(), k.abs().max()).item() / MOST or 1.0
    q, k = (each.div(unit).round() for each in (q, k))
    packed = {name: _packed(each) for name, each in {"q": q, "k": k}.items()}
    q, k = q * unit, k * unit
    scores = q @ k.mT / d_k**0.5  # (layers, H, L, L)
    weights = scores.softmax(dim=-1)
    looks = first_largest(weights.numpy())  # (layers, H, L), keys
    reach = 1.05 * scores.abs().max().clamp(min=1e-9).item()

    def say(layer, head, query, key, several, hide):
        told = [
            f"{h} at {tokens[j]} {weights[layer, h, query, j]:.2f}"
            for h, j in enumerate(looks[layer, :, query])
        ]
        told = ", ".join(told if several else told[head : head + 1])
        text = f"layer {layer}, {tokens[query]} looks most in head {told}"
        weight = weights[layer, head, query]  # (L,)
        if hide:
            text += f"; key 0 left out of the lines, its weight {weight[0]:.2f}"
        score = scores[layer, head, query, key].item()
        text += (
            f"; {tokens[query]}→{tokens[key]}: {d_k} products sum to {score * d_k**0.5:z.2f}, "
            f"divided by √{d_k}: {score:z.2f}; softmax over {L} keys: {weight[key]:.2f}"
        )
        if key == looks[layer, head, query] and (query, key) != start[2:]:  # not what it opens on
            text += f"; found: {tokens[query]} looks at {tokens[key]} more than at any other token"
        return text

    # numbers and no menus: their sliders move by arrow keys in JupyterLab too
    opened = zip(("layer", "head", "query", "key"), start, weights.shape, strict=True)
    controls = {name: number(name, at, 0, size - 1, 1) for name, at, size in opened} | {
        "several": check("all heads of the layer", False),
        "hide": check("lines without key 0", False),
    }
    data = packed | {"unit": unit, "shape": list(q.shape), "looks": looks.tolist()}
    data |= {"tokens": tokens, "labels": cut(tokens), "opened": start[2:], "gap": GAP}
    data |= {"shades": colours_of(SEQUENTIAL), "diverging": colours_of(DIVERGING)}
    data |= {"head_colours": [HEAD_COLOURS[h % len(HEAD_COLOURS)] for h in range(heads)]}
    data |= {"reach": reach, "score_ticks": _ticks(reach, -reach)}
    data |= {"feature_ticks": _ticks(d_k - 1, 0, integer=True)}
    return BrowserExplorer("views", controls, say, needs=["softmax", "grid"], **data)


def _packed(numbers):
    """Return whole numbers, of sixteen bits at most, as text."""
    return base64.b64encode(numbers.numpy().astype("<i2").tobytes()).decode()


def _ticks(high, low, **wanted):
    """Return a few round numbers from low to high."""
    places = MaxNLocator(4, **wanted).tick_values(low, high)
    return [float(f"{place:.6g}") for place in places if low <= place <= high]
