"""The explorer of lesson 07: heads and loss, live while a model learns, and step by step after."""

import numpy as np
import torch
from matplotlib.figure import Figure

from course_utils.attention import induction_score, previous_token_score
from course_utils.explorers.base import Explorer, Number
from course_utils.figures import SEQUENTIAL
from course_utils.shapes import expects

LEAST_RISE = 0.2  # of a score in the whole training: below it no head has learned what it tells


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
        With the control ``step``, up to the last picture there is. A press on the loss goes there.

    Raises
    ------
    TypeError, ValueError
        If tokens are not whole numbers in one dimension, or a number is not one from 1.
    """
    tokens = torch.as_tensor(tokens)
    L = len(tokens)
    figure = Figure(figsize=(2 * num_heads + 3, 2.3 * num_layers), dpi=80, layout="constrained")
    grid = figure.add_gridspec(num_layers, num_heads + 1, width_ratios=[1] * num_heads + [1.3])
    images = []
    for layer in range(num_layers):
        for head in range(num_heads):
            ax = figure.add_subplot(grid[layer, head])
            images.append(ax.imshow(np.zeros((L, L)), cmap=SEQUENTIAL, vmin=0, vmax=1))
            ax.set_title(f"layer {layer}, head {head}", fontsize=10)
            ax.set(xlabel="keys" if layer == num_layers - 1 else None)
            ax.set(ylabel="queries" if head == 0 else None)
            # one scale for all: numbers within the grid would stand in the titles' way
            ax.tick_params(labelbottom=layer == num_layers - 1, labelleft=head == 0)
    ax = figure.add_subplot(grid[:, num_heads])
    ax.set(xlim=(0, steps), ylim=(0, 4), xlabel="step", ylabel="loss")
    ax.grid(alpha=0.3)
    (curve,) = ax.plot([], [], color="C0", linewidth=1)
    cursor = ax.axvline(0, color="C1")
    heads = num_layers, num_heads
    return TrainingExplorer(tokens, heads, figure, images, curve, cursor, steps, every)


class TrainingExplorer(Explorer):
    """What `training_explorer` returns: an explorer that is given its data while it is shown."""

    def __init__(self, tokens, heads, figure, images, curve, cursor, steps, every):
        self._tokens, self._heads, self._every = tokens, heads, every
        self._images, self._curve, self._cursor = images, curve, cursor
        self.losses, self.snapshots = [], {}  # one a step; (layers, H, L, L) by step
        self._scores = {}  # previous-token and induction scores, (2, layers, H) by step
        controls = {"step": Number("step", 0, 0, every, every)}
        super().__init__(figure, [*images, curve, cursor], controls, self._draw, press=self._at)

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
        shown = shown.detach().clone()
        self.snapshots[step] = shown
        before = [previous_token_score(heads[None]) for heads in shown]  # of (H,)
        after = [induction_score(heads[None], self._tokens[None]) for heads in shown]
        self._scores[step] = torch.stack([torch.stack(before), torch.stack(after)])
        slider, box = self.controls["step"].slider, self.controls["step"].box
        if slider.value == step:  # the first: the slider stands there already
            self._refresh()
        slider.max = box.max = max(step, self._every)
        slider.value = step

    def _at(self, ax, x, y):
        """Return the step of a press on the loss."""
        return {"step": round(x / self._every) * self._every} if ax is self._curve.axes else {}

    def _draw(self, step):
        if not self.snapshots:
            return "step 0: nothing learned yet"
        at = max(known for known in self.snapshots if known <= max(step, min(self.snapshots)))
        weights, scores = self.snapshots[at], self._scores[at]  # (layers, H, L, L), (2, layers, H)
        for image, head in zip(self._images, weights.flatten(0, 1), strict=True):
            image.set_data(head.numpy())
        self._curve.set_data(range(len(self.losses)), self.losses)
        self._cursor.set_xdata([at, at])
        told = [
            "{}: {:.2f}, {:.2f}".format(_name(layer, head), *scores[:, layer, head])
            for layer, head in np.ndindex(self._heads)
        ]
        return (
            f"step {at}: loss {self.losses[at]:.2f}; previous-token score, induction score of "
            + "; ".join(told)
            + self._found(at)
        )

    def _found(self, at):
        """Return that both kinds of heads rise here, if they do; at the end nobody looked."""
        steps = list(self._scores)
        if at == steps[-1]:
            return ""
        scores = torch.stack(list(self._scores.values()))  # (pictures, 2, layers, H)
        half_way, told = [], []
        for kind, name in enumerate(["previous-token", "induction"]):
            layer, head = divmod(int(scores[-1, kind].argmax()), self._heads[1])
            rise = scores[:, kind, layer, head] - scores[0, kind, layer, head]  # (pictures,)
            if not rise[-1] >= LEAST_RISE:  # there is no score where no token repeats
                return ""
            half_way.append(steps[int((rise >= rise[-1] / 2).int().argmax())])
            told.append(f"{name} score of {_name(layer, head)} at step {half_way[-1]}")
        if min(half_way) <= at <= max(half_way):
            return "; found: half way up are the " + " and the ".join(told)
        return ""


def _name(layer, head):
    return f"layer {layer} head {head}"
