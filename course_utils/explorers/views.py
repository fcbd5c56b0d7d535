"""The explorer of lesson 08: all heads, one head, one query."""

import base64

import numpy as np
import torch
from matplotlib.ticker import MaxNLocator

from course_utils.attention import attention
from course_utils.explorers.browser_explorer import BrowserExplorer, check, colors_of, number
from course_utils.explorers.kernel_explorer import cut
from course_utils.figures import DIVERGING, SEQUENTIAL, as_labels
from course_utils.shapes import expects
from course_utils.views import GAP, example, unique_labels

IN_THE_LESSON = 11, 0, 6, 1  # layer, head, query and key that lesson 08 draws: "it" to "dog"
LARGEST = 2**15 - 1  # of a 16-bit integer
# One for each head of the example. Each has a contrast of 3 with light and dark pages, which half
# of Matplotlib's have not.
HEAD_COLORS = [
    "#1f77b4", "#e06c00", "#2ca02c", "#d62728", "#9467bd", "#a1665a", "#d65fb2", "#7f7f7f",
    "#8f901a", "#1297a5", "#6d70d6", "#6b8e3d",
]  # fmt: skip


@expects(q="layers H L d_k", k="layers H L d_k", weights="layers H L L")
def views_explorer(tokens=None, q=None, k=None, weights=None):
    """Move between three views of attention: all heads, one head, and one query.

    Parameters
    ----------
    tokens : sequence of str, (L,), optional
        Give all four, or none for `course_utils.views.example`.
    q, k : torch.Tensor, (layers, H, L, d_k)
    weights : torch.Tensor, (layers, H, L, L)

    Returns
    -------
    BrowserExplorer
        Its controls are ``layer``, ``head``, ``query`` and ``key`` (positions of tokens),
        ``several`` (lines of all heads of the layer, each in the color of its number) and ``hide``
        (lines without key 0). Click a tile to choose its head, or a token to choose a query or a
        key. It opens on the largest weight, or on the head that the lesson draws.

    Raises
    ------
    TypeError, ValueError
        If only some of the four are given, a shape is wrong, there are not L tokens, or the
        weights are not softmax(q · k / √d_k).
    """
    present = [argument is not None for argument in (tokens, q, k, weights)]
    if not any(present):
        tokens, q, k, weights = example()
    elif not all(present):
        raise ValueError("tokens, q, k and weights belong together: give all four, or none")
    q, k, weights = (tensor.detach().cpu().double() for tensor in (q, k, weights))
    if not torch.allclose(attention(q, k, k)[1], weights, atol=1e-3):
        raise ValueError("weights must be softmax(q · k / √d_k); are q and k of another model?")
    layers, heads, L, d_k = q.shape
    opens = weights.clone()
    opens[..., 0] /= 2  # weight on the first key often means nothing
    start = np.unravel_index(int(opens.argmax()), opens.shape) if any(present) else IN_THE_LESSON
    start = tuple(map(int, start))
    tokens = unique_labels(as_labels(tokens, L, "tokens"))
    # 16-bit integers are precise enough to draw and shorter than digits
    unit = max(q.abs().max(), k.abs().max()).item() / LARGEST or 1.0
    q, k = (tensor.div(unit).round() for tensor in (q, k))
    packed = {"q": _packed(q), "k": _packed(k)}
    q, k = q * unit, k * unit
    scores = q @ k.mT / d_k**0.5  # (layers, H, L, L)
    reach = 1.05 * scores.abs().max().clamp(min=1e-9).item()

    # numbers instead of menus: arrow keys move their sliders in JupyterLab too
    opened = zip(("layer", "head", "query", "key"), start, weights.shape, strict=True)
    controls = {name: number(name, at, 0, size - 1, 1) for name, at, size in opened} | {
        "several": check("all heads of the layer", False),
        "hide": check("lines without key 0", False),
    }
    given = packed | {"unit": unit, "shape": list(q.shape)}
    given |= {"tokens": tokens, "labels": cut(tokens), "opened": start[2:], "gap": GAP}
    given |= {"shades": colors_of(SEQUENTIAL), "diverging": colors_of(DIVERGING)}
    given |= {"head_colors": [HEAD_COLORS[h % len(HEAD_COLORS)] for h in range(heads)]}
    given |= {"reach": reach, "score_ticks": _ticks(reach, -reach)}
    given |= {"feature_ticks": _ticks(d_k - 1, 0, integer=True)}
    data = f"{layers} layers of {heads} heads over {L} tokens" if any(present) else ""
    return BrowserExplorer("views", controls, data=data, needs=["softmax", "grid"], **given)


def _packed(numbers):
    """Return 16-bit integers as text."""
    return base64.b64encode(numbers.numpy().astype("<i2").tobytes()).decode()


def _ticks(high, low, **wanted):
    """Return a few round numbers from low to high."""
    ticks = MaxNLocator(4, **wanted).tick_values(low, high)
    return [float(f"{tick:.6g}") for tick in ticks if low <= tick <= high]
