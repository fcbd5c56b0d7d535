"""Measure the three views of attention, and BertViz's if it is installed: bytes and requests.

Each page is opened in a real browser. Requests to other hosts are counted and refused.
Usage: python benchmarks/views_size.py
"""

import base64
import importlib.util
import io
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from course_utils.figures import DENSITY, PER_INCH  # noqa: E402
from course_utils.views import head_lines, mosaic, query_products  # noqa: E402
from tools import jupyterlab_server

SIZES = [(6, 12, 20, 20), (12, 12, 64, 64)]  # layers, heads, L, S


def ours(q, k, weights):
    """Return our three views as HTML, under BertViz's names for them."""
    views = {
        "all heads": mosaic(weights),
        "one head": head_lines(weights[0, 0]),
        "one query": query_products(q[0, 0], k[0, 0], weights[0, 0], 0),
    }
    return {name: f'<img src="data:image/png;base64,{png(ax)}">' for name, ax in views.items()}


def png(ax):
    """Return the figure of an Axes as a notebook stores it."""
    picture = io.BytesIO()
    ax.figure.savefig(picture, dpi=DENSITY * PER_INCH, bbox_inches="tight")
    plt.close(ax.figure)
    return base64.b64encode(picture.getvalue()).decode()


def bertviz(q, k, weights):
    """Return BertViz's model and head view as HTML; its neuron view needs its own model."""
    from bertviz import head_view, model_view

    arguments = list(weights[:, None]), [str(i) for i in range(weights.shape[-1])]
    views = {"all heads": model_view, "one head": head_view}
    return {name: view(*arguments, html_action="return").data for name, view in views.items()}


def requests(chromium, folder, content):
    """Open a page, and return the addresses on other hosts that it requests."""
    path = Path(folder) / "page.html"
    path.write_text(f'<!doctype html><meta charset="utf-8"><body>{content}', encoding="utf-8")
    page, requested = chromium.new_page(), []

    def refuse(route):
        requested.append(route.request.url)
        route.abort()

    page.route(lambda address: address.startswith("http"), refuse)
    page.goto(path.as_uri(), wait_until="load")
    page.wait_for_timeout(1000)
    page.close()
    return requested


def main():
    peers = {"ours": ours}
    if importlib.util.find_spec("bertviz"):
        peers["BertViz"] = bertviz
    with jupyterlab_server.browser() as chromium, tempfile.TemporaryDirectory() as folder:
        if chromium is None:
            sys.exit("no Chromium was found; install one, or run: playwright install chromium")
        for size in SIZES:
            torch.manual_seed(0)
            layers, heads, L, _ = size
            q, k = torch.randn(2, layers, heads, L, 64)
            weights = (q @ k.mT / 8).softmax(dim=-1)
            print("×".join(map(str, size)))
            for name, make in peers.items():
                views = make(q, k, weights)
                requested = requests(chromium, folder, "".join(views.values()))
                bytes_of = {view: len(html.encode()) for view, html in views.items()}
                sizes = ", ".join(f"{view} {n:,}" for view, n in bytes_of.items())
                total = sum(bytes_of.values())
                print(f"  {name}: {sizes}; together {total:,} bytes, {len(requested)} requests")


if __name__ == "__main__":
    main()
