"""Lesson 05's shared pieces: layers with random weights, and whether they stay as they are."""

from torch import nn


def draw(layer, rng=None):
    """Draw all parameters anew, biases too, which may be 0 in a new layer."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5, generator=rng)


def state(layer):
    """Return the numbers of all parameters, and which of them learn."""
    return {
        name: (each.detach().clone().double(), each.requires_grad)
        for name, each in layer.named_parameters()
    }


def is_changed(layer, before):
    """Tell whether a layer's `state` is another than it was."""
    now = state(layer)
    return now.keys() != before.keys() or any(
        learns != before[name][1] or not numbers.equal(before[name][0])
        for name, (numbers, learns) in now.items()
    )
