"""8.4: attention rollout: how much of each input arrives at each output, through all layers."""

import numpy as np
import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_08._weights import distributions


def rollout(weights):
    layers = weights.mean(dim=1)  # (layers, H, L, L) -> (layers, L, L)
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype)  # (L, L)
    rolled = identity
    for layer in layers:
        rolled = (layer + identity) / 2 @ rolled  # later layers from the left
    return rolled


def by_multi_dot(weights):
    eye = torch.eye(weights.shape[-1]).to(weights)
    layers = [0.5 * (layer.mean(0) + eye) for layer in weights]
    return torch.linalg.multi_dot(layers[::-1]) if len(layers) > 1 else layers[0]


def from_the_top(weights):
    rows = np.eye(weights.shape[-1])
    for layer in reversed(weights.double().numpy()):
        rows = rows @ (layer.mean(axis=0) * 0.5 + np.eye(len(rows)) * 0.5)
    return torch.from_numpy(rows)


def inputs():
    draw = distributions(84)
    causal = draw(3, 2, 4, 4).tril()
    shapes = [(3, 2, 5, 5), (2, 4, 6, 6), (1, 3, 4, 4), (4, 5, 3, 3), (2, 1, 2, 2), (8, 2, 12, 12)]
    return [
        *[(draw(*shape),) for shape in shapes],
        (causal / causal.sum(dim=-1, keepdim=True),),
        (draw(2, 3, 4, 4).transpose(0, 1),),  # not contiguous
    ]


MISTAKES = [
    ("first layer left",
     "the layers are multiplied in the wrong order: the first layer acts first, so the later "
     "stands to the left",
     ("(layer + identity) / 2 @ rolled", "rolled @ ((layer + identity) / 2)")),
    ("no residual", "the residual connection is missing: half of each layer is the identity",
     ("(layer + identity) / 2", "layer")),
    ("residual not halved", "weights plus identity, not halved: rows sum to more than 1",
     (" / 2", "")),
    ("weights halved alone",
     "only the weights are halved: half of the identity, so that rows sum to 1",
     ("(layer + identity) / 2", "(layer / 2 + identity)")),
    ("identity halved alone",
     "only the identity is halved: half of the weights, so that rows sum to 1",
     ("(layer + identity) / 2", "(layer + identity / 2)")),
    ("identity as one more head",
     "the identity counts as one head more, 1 of H + 1: average the heads, then take half of each",
     ("mean", "sum"), ("(layer + identity) / 2", "(layer + identity) / (weights.shape[1] + 1)")),
    ("head 0 only", "only head 0 of each layer: take the mean of its heads",
     ("weights.mean(dim=1)", "weights[:, 0]")),
    ("last layer plain", "the last layer has no identity; it takes its half, too",
     ("in layers", "in layers[:-1]"), ("return rolled", "return layers[-1] @ rolled")),
    ("heads for layers", "averaged over dimension 0, the layers; the heads are dimension 1",
     ("dim=1", "dim=0")),
    ("heads averaged last",
     "each head is followed through the layers by itself; average the heads of a layer first",
     ("weights.mean(dim=1)", "weights"), ("return rolled", "return rolled.mean(dim=0)")),
    ("one residual", "the identity is added once, and not in every layer",
     ("(layer + identity) / 2", "layer"), ("return rolled", "return (rolled + identity) / 2")),
    ("heads summed", "heads are added; take their mean", ("mean", "sum")),
    ("strongest head", "the largest of the heads is taken; take their mean", ("mean", "amax")),
    ("last layer only", "only the last layer: multiply all of them", (" @ rolled", "")),
    ("first layer only", "only the first layer: multiply all of them",
     ("in layers", "in layers[:1]")),
    ("first layer twice",
     "the first layer is there twice: start with the identity, or go on with the second layer",
     ("rolled = identity", "rolled = (layers[0] + identity) / 2")),
    ("first layer plain",
     "the product starts with the weights of the first layer as they are; it takes its half of the "
     "identity, too", ("rolled = identity", "rolled = layers[0]"), ("in layers", "in layers[1:]")),
    ("input handed on",
     "each layer adds the identity to a product; a residual connection hands on what has arrived "
     "so far: (A + I) / 2 times the product",
     ("(layer + identity) / 2 @ rolled", "(layer @ rolled + identity) / 2")),
    ("ones for the identity",
     "1 is added to every entry; the identity has 1 on its diagonal alone, torch.eye",
     ("layer + identity", "layer + 1")),
    ("identity added to the result",
     "the first layer still has no identity, and half of one is added to the product: each layer "
     "takes its own", ("rolled = identity", "rolled = layers[0]"), ("in layers", "in layers[1:]"),
     ("return rolled", "return (rolled + identity) / 2")),
    ("identity in the first layer alone",
     "only the first layer takes its half of the identity: each layer has a residual connection",
     ("rolled = identity", "rolled = (layers[0] + identity) / 2"), ("in layers", "in layers[1:]"),
     ("(layer + identity) / 2 @", "layer @")),
    ("strongest head, first layer plain",
     "the largest of the heads is taken, and the first layer has no identity: their mean, and "
     "(A + I) / 2 for each layer", ("mean", "amax"), ("rolled = identity", "rolled = layers[0]"),
     ("in layers", "in layers[1:]")),
    ("first layer missed", "the first layer is left out: multiply all of them",
     ("in layers", "in layers[1:]")),
    ("last layer missed", "the last layer is left out: multiply all of them",
     ("in layers", "in layers[:-1]")),
    ("layers averaged", "layers are averaged; what passes one after the other is multiplied",
     "(weights.mean(dim=(0, 1)) + torch.eye(weights.shape[-1])) / 2"),
    ("entry by entry", "multiplied entry by entry; use the matrix product @",
     ("rolled = identity", "rolled = torch.ones_like(identity)"), ("@", "*")),
    ("entry by entry from the identity",
     "multiplied entry by entry, which leaves the diagonal alone; use the matrix product @",
     ("@", "*")),
    ("rollout transposed", "it is transposed: rows are outputs, columns inputs, and rows sum to 1",
     ("return rolled", "return rolled.T")),
]  # fmt: skip

exercise = Exercise(
    "8.4", rollout, inputs, MISTAKES, names="L L", also_right=[by_multi_dot, from_the_top]
)
