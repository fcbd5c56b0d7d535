"""The explorer of lesson 07: heads and loss, live during a training and step by step after it."""

import math

import torch
from traitlets import Any

from course_utils.explorers.browser_explorer import (
    PREVIEWS,
    BrowserExplorer,
    colors_of,
    descriptions,
    number,
)
from course_utils.figures import SEQUENTIAL
from course_utils.shapes import expects

MOST_STEPS = 10**9  # more than any training has; the slider ends at the last picture


@expects(
    tokens="whole L",
    num_layers="int from 1",
    num_heads="int from 1",
    steps="int from 1",
    every="int from 1",
)
def training_explorer(tokens, *, num_layers, num_heads, steps, every=10):
    """Watch heads during a training, and then go back and forth through it.

    Display it, then train, and call ``add(loss, weights)`` at every step. The picture is updated
    at every ``every``-th step. Afterwards the slider moves through the training. You can display
    the explorer again in another cell.

    Parameters
    ----------
    tokens : torch.Tensor of int, or sequence of int, (L,)
        The sequence whose attention weights are drawn.
    num_layers, num_heads : int
    steps : int
        The number of training steps.
    every : int
        The number of steps between two pictures.

    Returns
    -------
    TrainingExplorer
        Its control ``step`` goes up to the last picture so far. A click on the loss curve moves it
        as well.

    Raises
    ------
    TypeError, ValueError
        If tokens are not integers in one dimension, or one of the other numbers is less than 1.
    """
    return TrainingExplorer(torch.as_tensor(tokens), (num_layers, num_heads), steps, every)


class TrainingExplorer(BrowserExplorer):
    """What `training_explorer` returns: an explorer that receives its data while it is shown."""

    # All the data so far, for a page that is opened later. Each step sends only new data.
    known = Any().tag(sync=True, to_json=lambda _, explorer: explorer._news(explorer.snapshots, 0))

    def __init__(self, tokens, heads, steps, every):
        self._shape = (*heads, len(tokens), len(tokens))
        self._steps, self._every = steps, every
        self.losses, self.snapshots = [], {}  # a loss for each step; (layers, H, L, L) by step
        self._sent = 0  # number of losses sent
        controls = {"step": number("step", 0, 0, MOST_STEPS, every)}
        given = {"tokens": tokens.tolist(), "layers": heads[0], "heads": heads[1]}
        given |= {"steps": steps, "every": every, "colors": colors_of(SEQUENTIAL)}
        data = f"{heads[0]} layers of {heads[1]} heads over {len(tokens)} tokens"
        super().__init__("training", controls, data=data, needs=["grid"], **given)

    def add(self, loss, weights):
        """Add the next step. The first one is step 0.

        Parameters
        ----------
        loss : float
        weights : callable
            Returns the weights of all heads on the tokens, (num_layers, num_heads, L, L). It is
            called only at steps that are drawn.

        Raises
        ------
        ValueError
            If the weights have another shape.
        """
        step = len(self.losses)
        self.losses.append(loss)
        if step % self._every == 0:
            drawn = weights()
            if drawn.shape != self._shape:
                raise ValueError(f"weights must have shape {self._shape}, got {tuple(drawn.shape)}")
            self.snapshots[step] = drawn.detach().clone()
            self._send_news([step])
            self.values = {"step": step}
        elif step == self._steps - 1:
            self._send_news([])

    def _send_news(self, pictures):
        self.send(self._news(pictures, self._sent))
        self._sent = len(self.losses)

    def _news(self, pictures, first):
        """Return the pictures of some steps, and the losses from ``first`` on, for JSON."""
        losses = [float(loss) for loss in self.losses[first:]]
        return {
            "losses": [loss if math.isfinite(loss) else None for loss in losses],
            "pictures": [{"step": at, "weights": self._thousandths(at)} for at in pictures],
        }

    def _thousandths(self, step):
        """Return the weights of a step, rounded; -1 for NaN."""
        weights = self.snapshots[step].float().clamp(0, 1)
        return (1000 * weights).round().nan_to_num(-1).int().tolist()

    def _preview(self):
        """Return the stored picture if it shows the same step of a training with the same loss."""
        step = self.values["step"]
        if step not in self.snapshots:
            return None
        words = descriptions()[self.name]["words"]
        same = words.startswith(f"step {step}: loss {self.losses[step]:.2f};")
        return (PREVIEWS / f"{self.name}.png").read_bytes() if same else None
