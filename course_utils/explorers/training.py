"""The explorer of lesson 07: heads and loss, live while a model learns, and step by step after."""

import numpy as np
import torch
from matplotlib.figure import Figure

from course_utils.attention import induction_score, previous_token_score
from course_utils.explorers.base import Explorer, Number
from course_utils.figures import SEQUENTIAL
from course_utils.shapes import expects


@expects(
    tokens="whole L",
    num_layers="int from 1",
    num_heads="int from 1",
    steps="int from 1",
    every="int from 1",
)
def training_explorer(tokens, *, num_layers, num_heads, steps, every=10):
    """Watch heads while they are trained, then go back and forth through the training.

    Show it, then train, calling ``add(loss, weights)`` at every step: the picture is drawn anew at
    every ``every``-th. Afterwards the slider goes through what was added. It may be shown a second
    time elsewhere.

    Parameters
    ----------
    tokens : torch.Tensor of int, or sequence of int, (L,)
        The sequence whose weights are shown.
    num_layers, num_heads : int
    steps : int
        How many there will be.
    every : int
        How many steps lie between two pictures.

    Returns
    -------
    TrainingExplorer
        With the control ``step``.

    Raises
    ------
    TypeError, ValueError
        If tokens are not whole numbers in one dimension, or a number is not one from 1.
    """
    tokens = torch.as_tensor(tokens)
    L = len(tokens)
    figure = Figure(figsize=(2.2 * num_heads + 3.8, 2.5 * num_layers), dpi=80)
    grid = figure.add_gridspec(num_layers, num_heads + 1, width_ratios=[1] * num_heads + [1.5])
    images = []
    for layer in range(num_layers):
        for head in range(num_heads):
            ax = figure.add_subplot(grid[layer, head])
            images.append(ax.imshow(np.zeros((L, L)), cmap=SEQUENTIAL, vmin=0, vmax=1))
            ax.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=10)
            ax.set(xlabel="keys" if layer == num_layers - 1 else None)
            ax.set(ylabel="queries" if head == 0 else None)
    ax = figure.add_subplot(grid[:, num_heads])
    ax.set(xlim=(0, steps), ylim=(0, 4), xlabel="step", title="loss")
    ax.grid(alpha=0.3)
    (curve,) = ax.plot([], [], color="C0", linewidth=1)
    cursor = ax.axvline(0, color="C1")
    figure.tight_layout()
    heads = num_layers, num_heads
    return TrainingExplorer(tokens, heads, figure, images, curve, cursor, steps, every)


class TrainingExplorer(Explorer):
    """What `training_explorer` returns: an explorer that is given its data while it is shown."""

    def __init__(self, tokens, heads, figure, images, curve, cursor, steps, every):
        self._tokens, self._heads, self._every = tokens, heads, every
        self._images, self._curve, self._cursor = images, curve, cursor
        self.losses, self.snapshots = [], {}  # one a step; (layers, H, L, L) by step
        controls = {"step": Number("step", 0, 0, steps, every)}
        super().__init__(figure, [*images, curve, cursor], controls, self._draw)

    def add(self, loss, weights):
        """Take in the next step; the first is step 0.

        Parameters
        ----------
        loss : float
        weights : callable
            Returns the weights of all heads on the tokens, (num_layers, num_heads, L, L). Called
            only at the steps that are drawn.

        Raises
        ------
        ValueError
            If the weights have another shape.
        """
        step = len(self.losses)
        self.losses.append(loss)
        if step % self._every:
            return
        shown, expected = weights(), (*self._heads, len(self._tokens), len(self._tokens))
        if shown.shape != expected:
            raise ValueError(f"weights must have shape {expected}, got {tuple(shown.shape)}")
        self.snapshots[step] = shown.detach().clone()
        slider = self.controls["step"].slider
        if slider.value == step:  # the first: the slider stands there already
            self._refresh()
        slider.value = step

    def _draw(self, step):
        if not self.snapshots:
            return "step 0: nothing learned yet"
        at = max(known for known in self.snapshots if known <= max(step, min(self.snapshots)))
        weights = self.snapshots[at]  # (layers, H, L, L)
        for image, head in zip(self._images, weights.flatten(0, 1), strict=True):
            image.set_data(head.numpy())
        self._curve.set_data(range(len(self.losses)), self.losses)
        self._cursor.set_xdata([at, at])
        told = []
        for layer, heads in enumerate(weights, start=1):
            before = previous_token_score(heads[None])  # (H,)
            after = induction_score(heads[None], self._tokens[None])  # (H,)
            for head, scores in enumerate(zip(before, after, strict=True), start=1):
                told.append("layer {} head {}: {:.2f}, {:.2f}".format(layer, head, *scores))
        return (
            f"step {at}: loss {self.losses[at]:.2f}; previous-token score, induction score of "
            + "; ".join(told)
        )
