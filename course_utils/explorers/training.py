"""The explorer of lesson 07: heads and loss, live while a model learns, and step by step after."""

import io
import math

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from traitlets import Any

from course_utils.attention import induction_score, previous_token_score
from course_utils.explorers.browser_explorer import (
    STILL_DENSITY,
    BrowserExplorer,
    colours_of,
    number,
)
from course_utils.figures import PER_INCH, SEQUENTIAL
from course_utils.shapes import expects

MOST_STEPS = 10**9  # beyond any training's; the slider ends at the last picture
LEAST_RISE = 0.2  # of a score in the whole training: below it no head has learned that pattern


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
        With the control ``step``, up to the last picture there is. A click on the loss goes there.

    Raises
    ------
    TypeError, ValueError
        If tokens are not whole numbers in one dimension, or a number is not one from 1.
    """
    return TrainingExplorer(torch.as_tensor(tokens), (num_layers, num_heads), steps, every)


class TrainingExplorer(BrowserExplorer):
    """What `training_explorer` returns: an explorer that is given its data while it is shown.

    Its scores need the course's functions, so its words come from here.
    """

    # All there is, for a page that is opened later. Of changes only what is new is sent.
    known = Any().tag(sync=True, to_json=lambda _, explorer: explorer._news(explorer.snapshots, 0))

    def __init__(self, tokens, heads, steps, every):
        self._tokens, self._heads, self._steps, self._every = tokens, heads, steps, every
        self.losses, self.snapshots = [], {}  # one a step; (layers, H, L, L) by step
        self._scores = {}  # previous-token and induction scores, (2, layers, H) by step
        self._sent = 0  # losses
        controls = {"step": number("step", 0, 0, MOST_STEPS, every)}
        given = {"length": len(tokens), "layers": heads[0], "heads": heads[1]}
        given |= {"steps": steps, "every": every, "colours": colours_of(SEQUENTIAL)}
        super().__init__("training", controls, needs=["grid"], **given)

    @property
    def state(self):
        """The words of the step that is chosen."""
        if not self.snapshots:
            return "step 0: nothing learned yet"
        at = self._last_picture()
        steps, text = self._rise()
        return self._words(at) + (text if at in steps else "")

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
        if step % self._every == 0:
            self._record(step, weights())
            self._send_news([step])
            self.values = {"step": step}
        elif step == self._steps - 1:
            self._send_news([])

    def _record(self, step, weights):
        expected = (*self._heads, len(self._tokens), len(self._tokens))
        if weights.shape != expected:
            raise ValueError(f"weights must have shape {expected}, got {tuple(weights.shape)}")
        weights = weights.detach().clone()
        previous = [previous_token_score(heads[None]) for heads in weights]  # of (H,)
        induction = [induction_score(heads[None], self._tokens[None]) for heads in weights]
        self._scores[step] = torch.stack([torch.stack(previous), torch.stack(induction)])
        self.snapshots[step] = weights

    def _send_news(self, pictures):
        self.send(self._news(pictures, self._sent))
        self._sent = len(self.losses)

    def _news(self, pictures, first):
        """Return pictures by their steps, and losses from the first to send, as JSON can hold."""
        at, text = self._rise()
        losses = [float(loss) for loss in self.losses[first:]]
        return {
            "losses": [loss if math.isfinite(loss) else None for loss in losses],
            "pictures": [
                {"step": step, "words": self._words(step), "weights": self._thousandths(step)}
                for step in pictures
            ],
            "rise": {"at": at, "text": text},
        }

    def _thousandths(self, step):
        """Return the weights of a step, rounded; -1 for NaN."""
        weights = self.snapshots[step].float().clamp(0, 1)
        return (1000 * weights).round().nan_to_num(-1).int().tolist()

    def _last_picture(self):
        """Return the last step with a picture, of those up to the step that is chosen."""
        return max(step for step in self.snapshots if step <= self.values["step"])

    def _words(self, at):
        scores = self._scores[at]  # (2, layers, H)
        of_heads = [
            "{}: {:.2f}, {:.2f}".format(_name(layer, head), *scores[:, layer, head])
            for layer, head in np.ndindex(self._heads)
        ]
        return (
            f"step {at}: loss {self.losses[at]:.2f}; previous-token score, induction score of "
            + "; ".join(of_heads)
        )

    def _rise(self):
        """Return the steps at which both kinds of heads rise, and the words that say so there.

        There are none if they do not rise, and never the last: one must go back to find them.
        """
        steps = list(self._scores)
        if not steps:
            return [], ""
        scores = torch.stack(list(self._scores.values()))  # (pictures, 2, layers, H)
        half_way, parts = [], []
        for kind, name in enumerate(["previous-token", "induction"]):
            layer, head = divmod(int(scores[-1, kind].argmax()), self._heads[1])
            rise = scores[:, kind, layer, head] - scores[0, kind, layer, head]  # (pictures,)
            if not rise[-1] >= LEAST_RISE:  # there is no score where no token repeats
                return [], ""
            half_way.append(steps[int((rise >= rise[-1] / 2).int().argmax())])
            parts.append(f"{name} score of {_name(layer, head)} at step {half_way[-1]}")
        between = [step for step in steps[:-1] if min(half_way) <= step <= max(half_way)]
        return between, "; found: half way up are the " + " and the ".join(parts)

    def _preview(self):
        # no stored picture could be of this training
        figure = self._figure()
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=PER_INCH * STILL_DENSITY)
        with Image.open(file) as drawn:
            shades = [min(255, round(shade / 8) * 8) for shade in range(256)]
            few = drawn.convert("RGB").point(shades * 3)  # a third of the bytes less
        file = io.BytesIO()
        few.save(file, "png", optimize=True)
        return file.getvalue()

    def _figure(self):
        """Draw heads and loss of the step that is chosen."""
        (layers, heads), L = self._heads, len(self._tokens)
        figure = Figure(figsize=(2 * heads + 3, 2.3 * layers), layout="constrained")
        grid = figure.add_gridspec(layers, heads + 1, width_ratios=[1] * heads + [1.3])
        at = self._last_picture() if self.snapshots else 0
        weights = self.snapshots.get(at, torch.full((layers, heads, L, L), torch.nan))
        for layer, head in np.ndindex(self._heads):
            ax = figure.add_subplot(grid[layer, head])
            ax.imshow(weights[layer, head].numpy(force=True), cmap=SEQUENTIAL, vmin=0, vmax=1)
            ax.set_title(f"layer {layer}, head {head}", fontsize=10)
            ax.set(xlabel="keys" if layer == layers - 1 else None)
            ax.set(ylabel="queries" if head == 0 else None)
            # one scale for all: numbers within the grid would overlap the titles
            ax.tick_params(labelbottom=layer == layers - 1, labelleft=head == 0)
        ax = figure.add_subplot(grid[:, heads])
        ax.set(xlim=(0, self._steps), ylim=(0, 4), xlabel="step", ylabel="loss")
        ax.grid(alpha=0.3)
        ax.plot(self.losses, color="C0", linewidth=1)
        ax.axvline(at, color="C1")
        return figure


def _name(layer, head):
    return f"layer {layer} head {head}"
