"""Three static views of attention: all heads as a mosaic, one head as lines, one pair as products.

Jesse Vig's BertViz ("A multiscale visualization of attention in the transformer model", 2019) made
the three scales known. Here each is one SVG, quick enough for an explorer that draws it anew at
every key; a notebook stores it as PNG. No script, nothing fetched, the same for the same data.
"""

import base64
import html
import io
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from course_utils.attention import attention
from course_utils.figures import (
    DIVERGING,
    PER_INCH,
    SEQUENTIAL,
    as_labels,
    display_picture,
    plain,
    printable,
)
from course_utils.shapes import expects

TOKENS = "the dog left the park because it was tired".split()
SHADES = 64  # colours of a mosaic: more cannot be told apart, and would double its bytes
LINE = "#1f77b4"
FONT = 'font-family="sans-serif" font-size="13"'


@dataclass(frozen=True)
class Picture:
    """An SVG that carries its description, for the eye, a screen reader, and nbval.

    Attributes
    ----------
    svg : str
        Begins with ``<svg`` and holds the description as ``<desc>``.
    description : str
        One sentence, computed from the data.
    """

    svg: str
    description: str

    def figure(self):
        """Return the same picture as a figure: a notebook not yet trusted shows no SVG."""
        root = ET.fromstring(self.svg)
        width, height = map(int, root.get("viewBox").split()[2:])
        points = 72 / PER_INCH  # of a pixel
        figure = Figure(figsize=(width / PER_INCH, height / PER_INCH))
        ax = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        ax.axis("off")
        for each in root.iter():
            look = {"alpha": float(each.get("opacity", 1))}
            x, y, wide, tall = (float(each.get(n, 0)) for n in ("x", "y", "width", "height"))
            if each.tag == "path":
                x1, y1, x2, y2 = map(float, re.findall(r"[\d.]+", each.get("d")))
                ax.plot([x1, x2], [y1, y2], color=LINE, linewidth=3 * points, **look)
            elif each.tag == "rect":
                ax.add_patch(Rectangle((x, y), wide, tall, color=each.get("fill"), lw=0, **look))
            elif each.tag == "text":
                align = {"start": "left", "middle": "center", "end": "right"}
                look = {"ha": align[each.get("text-anchor")], "size": 13 * points}
                ax.text(x, y, plain(each.text), **look)
            elif each.tag == "image":
                png = base64.b64decode(each.get("href").partition(",")[2])
                image = Image.open(io.BytesIO(png)).convert("RGB")
                place = {"extent": (x, x + wide, y + tall, y), "aspect": "auto"}
                ax.imshow(image, interpolation="nearest", **place)
        return figure

    def _ipython_display_(self):
        display_picture(self.figure(), self.description)


def example():
    """Return the tokens, queries, keys and weights of 12 layers of 12 heads, all drawn at random.

    Every token has a random vector and every head random W_q and W_k: nothing is trained, and no
    layer feeds the next. What such heads seem to show, they show by chance.

    Returns
    -------
    tokens : list of str, (L,)
    q, k : torch.Tensor, (layers, H, L, d_k)
    weights : torch.Tensor, (layers, H, L, L)
    """
    rng = torch.Generator().manual_seed(8)
    d_model, d_k = 64, 16
    x = torch.randn(len(TOKENS), d_model, generator=rng)  # (L, d_model)
    W_q, W_k = torch.randn(2, 12, 12, d_model, d_k, generator=rng) / d_model**0.5
    q, k = x @ W_q, x @ W_k  # (layers, H, L, d_k)
    return list(TOKENS), q, k, attention(q, k, k)[1]


@expects(weights="layers H L S")
def tile(weights):
    """Lay the heads of all layers side by side in one array, a gap of NaN after each tile.

    Parameters
    ----------
    weights : torch.Tensor, (layers, H, L, S)

    Returns
    -------
    numpy.ndarray, (layers · (L + 1), H · (S + 1))

    Raises
    ------
    TypeError, ValueError
        If weights is not a tensor of the shape above, or holds what is no weight.
    """
    _check_weights(weights)
    layers, heads, L, S = weights.shape
    tiled = np.full((layers, L + 1, heads, S + 1), np.nan)
    tiled[:, :L, :, :S] = weights.detach().cpu().double().transpose(1, 2).numpy()
    return tiled.reshape(layers * (L + 1), heads * (S + 1))


def mosaic(weights):
    """Draw all heads at once: one row a layer, one column a head, each tile one head's weights.

    Colours run from 0 to 1 by the square root of the weight, the same for all heads, so that
    tiles compare and small weights are still told from none.

    Parameters
    ----------
    weights : torch.Tensor, (layers, H, L, S)

    Returns
    -------
    Picture

    Raises
    ------
    TypeError, ValueError
        If weights is not a tensor of the shape above, or holds what is no weight.
    """
    tiled = tile(weights)
    layers, heads, L, S = weights.shape
    scale = max(1, round(64 / max(L, S)))  # screen pixels of a weight: tiles of about 64
    shades = np.nan_to_num(np.sqrt(tiled) * (SHADES - 1), nan=SHADES).round().astype(np.uint8)
    image = Image.fromarray(shades, "P")
    palette = colormaps[SEQUENTIAL].resampled(SHADES)(np.arange(SHADES), bytes=True)[:, :3]
    image.putpalette([*palette.ravel().tolist(), 255, 255, 255])  # the last is the gaps'
    png = io.BytesIO()
    image.save(png, "png", optimize=True)

    left, top = 62, 42
    height, width = (n * scale for n in tiled.shape)
    parts = [
        f'<image x="{left}" y="{top}" width="{width}" height="{height}" '
        'preserveAspectRatio="none" style="image-rendering:pixelated" '
        f'href="data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"/>',
        _text(left + width / 2, 14, "head", "middle"),
    ]
    tall, wide = (L + 1) * scale, (S + 1) * scale
    parts += [_text(left + (h + 0.5) * wide, 34, str(h), "middle") for h in range(heads)]
    parts += [
        _text(left - 6, top + (n + 0.5) * tall + 4, f"layer {n}", "end") for n in range(layers)
    ]
    peaks = weights.amax(dim=-1).mean(dim=-1)  # (layers, H), the average row's largest weight
    sharp, flat = (divmod(int(at), heads) for at in (peaks.argmax(), peaks.argmin()))
    description = (
        f"{layers} layers of {heads} heads, each {L}×{S} weights; largest weight of a row, on "
        f"average: {peaks[sharp]:.2f} in the sharpest head (layer {sharp[0]}, head {sharp[1]}), "
        f"{peaks[flat]:.2f} in the flattest (layer {flat[0]}, head {flat[1]})"
    )
    return _picture(left + width, top + height, parts, "All heads as a mosaic", description)


@expects(weights="L S")
def head_lines(weights, *, queries=None, keys=None, query=None, title="One head as lines"):
    """Draw one head as lines from queries to keys, where a weight is over twice an equal share.

    Parameters
    ----------
    weights : torch.Tensor, (L, S)
    queries, keys : sequence of str, optional
        Tokens; positions if not given.
    query : int, optional
        Draw the lines of this query alone.
    title : str

    Returns
    -------
    Picture
        A line is as opaque as its weight is large, and says both tokens and the weight when
        pointed at.

    Raises
    ------
    TypeError, ValueError
        If weights is not a matrix of weights, tokens do not fit its shape, or there is no such
        query.
    """
    _check_weights(weights)
    L, S = weights.shape
    queries, keys = as_labels(queries, L, "queries"), as_labels(keys, S, "keys")
    _check_place(query, L, "query")
    least = 2 / S
    chosen = range(L) if query is None else [query]
    values = weights.tolist()
    drawn = [(i, j) for i in chosen for j in range(S) if values[i][j] > least]
    x, gap, step, top = 130, 200, 20, 46
    parts = [_text(x, 20, "query", "end"), _text(x + gap, 20, "key", "start")]
    for i, j in drawn:
        told = f"{html.escape(queries[i])} → {html.escape(keys[j])} {values[i][j]:.2f}"
        parts.append(
            f'<path d="M{x + 6} {top - 4 + i * step}L{x + gap - 6} {top - 4 + j * step}" '
            f'opacity="{values[i][j]:.2f}"><title>{told}</title></path>'
        )
    for place, anchor, words in [(x, "end", queries), (x + gap, "start", keys)]:
        parts += [_text(place, top + n * step, word, anchor) for n, word in enumerate(words)]
    strongest = max(((values[i][j], -i, -j) for i in chosen for j in range(S)), default=None)
    description = f"{len(drawn)} of {len(chosen) * S} weights are over {least:.2f} and drawn"
    if strongest:
        value, i, j = strongest
        description += f"; the largest is {queries[-i]}→{keys[-j]} {value:.2f}"
    height = top + step * max(L, S)
    return _picture(2 * x + gap, height, parts, title, description)


@expects(q="L d_k", k="S d_k", weights="L S", mask="bool L S")
def pair_products(q, k, weights, query, key, *, queries=None, keys=None, mask=None):
    """Draw where one weight comes from: q, k, their products, the sum, and softmax over the keys.

    Parameters
    ----------
    q : torch.Tensor, (L, d_k)
    k : torch.Tensor, (S, d_k)
    weights : torch.Tensor, (L, S)
        The weights that a model or a picture shows for this head.
    query, key : int
        The pair.
    queries, keys : sequence of str, optional
        Tokens; positions if not given.
    mask : torch.Tensor of bool, broadcastable to (L, S), optional
        True = may attend.

    Returns
    -------
    Picture

    Raises
    ------
    TypeError, ValueError
        If shapes do not fit, or softmax(q · k / √d_k) is *not* the weight shown: then this q and k
        are not those of the picture.
    """
    (L, S), d_k = weights.shape, q.shape[-1]
    queries, keys = as_labels(queries, L, "queries"), as_labels(keys, S, "keys")
    _check_place(query, L, "query")
    _check_place(key, S, "key")
    q, k, weights = q.detach().double(), k.detach().double(), weights.detach().double()
    row = attention(q, k, k, mask)[1][query]  # (S,)
    if not torch.allclose(row, weights[query], atol=1e-3):
        worst = int((row - weights[query]).abs().argmax())
        raise ValueError(
            f"weights must be softmax(q · k / √d_k): for query {query} and key {worst} that is "
            f"{row[worst]:.3f}, got {weights[query, worst]:.3f}; are q, k or mask of another head?"
        )
    products = q[query] * k[key]  # (d_k,)
    cell, left, top = max(6, min(26, 420 // d_k)), 90, 30
    strips = {"q": q[query], "k": k[key], "q × k": products}
    parts = []
    for n, (name, values) in enumerate(strips.items()):
        y, largest = top + 26 * n, values.abs().max().clamp(min=1e-9)
        parts.append(_text(left - 8, y + 15, name, "end"))
        for c, value in enumerate(values.tolist()):
            colour = colormaps[DIVERGING](0.5 + 0.5 * value / largest.item(), bytes=True)[:3]
            parts.append(
                f'<rect x="{left + c * cell}" y="{y}" width="{cell}" height="22" '
                f'fill="#{bytes(colour).hex()}"><title>{value:.2f}</title></rect>'
            )
    total, score = products.sum().item(), products.sum().item() / d_k**0.5
    value = weights[query, key].item()
    sums = f"sum {total:.2f}, divided by √{d_k}: {score:.2f}; softmax over {S} keys: {value:.2f}"
    parts.append(_text(left, top + 100, sums, "start"))
    base = top + 170
    wide = max(8, min(40, 420 // S))
    for j, weight in enumerate(weights[query].tolist()):
        tall, x = round(56 * weight, 1), left + j * wide
        told = f"{html.escape(keys[j])} {weight:.2f}"
        chosen = "1" if j == key else "0.3"
        parts.append(
            f'<rect x="{x}" y="{base - tall:.1f}" width="{wide - 2}" height="{tall}" '
            f'fill="{LINE}" opacity="{chosen}"><title>{told}</title></rect>'
        )
    parts.append(f'<rect x="{left}" y="{base}" width="{S * wide}" height="1" fill="#888"/>')
    parts.append(_text(left + (key + 0.5) * wide, base + 16, keys[key], "middle"))
    parts.append(_text(left - 8, base - 20, "weights", "end"))
    pushing = int(products.abs().argmax())
    description = (
        f"{queries[query]}→{keys[key]}: {d_k} products, the largest in size number {pushing} with "
        f"{products[pushing]:.2f}; {sums}, as shown"
    )
    across = left + max(d_k * cell, S * wide, 400) + 10
    return _picture(across, base + 26, parts, "One pair as products", description)


def _picture(width, height, parts, title, description):
    """Put parts into one SVG that names and describes itself and shrinks with the page."""
    width, height = round(width), round(height)
    title = printable(title)
    named = html.escape(f"{title}: {description}")
    svg = (
        f'<svg role="img" aria-label="{named}" viewBox="0 0 {width} {height}" width="{width}" '
        f'style="max-width:100%;height:auto;background:white" {FONT} stroke="none">'
        f"<title>{html.escape(title)}</title><desc>{html.escape(description)}</desc>"
        f'<g stroke="{LINE}" stroke-width="3" fill="none">'
        + "".join(part for part in parts if part.startswith("<path"))
        + "</g>"
        + "".join(part for part in parts if not part.startswith("<path"))
        + "</svg>"
    )
    return Picture(svg, description)


def _text(x, y, text, anchor):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _check_weights(weights):
    if not weights.is_floating_point():
        raise TypeError(f"weights must be floating point, got {weights.dtype}")
    if weights.numel() == 0 or not (weights >= 0).all() or not (weights <= 1.001).all():
        raise ValueError("weights must be from 0 to 1, and at least one; are these scores?")


def _check_place(place, n, name):
    if place is not None and (isinstance(place, bool) or not isinstance(place, Integral)):
        raise TypeError(f"{name} must be an int, got {type(place).__name__}")
    if place is not None and not 0 <= place < n:
        raise ValueError(f"{name} must be from 0 to {n - 1}, got {place}")
