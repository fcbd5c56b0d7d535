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
     "Your layers are multiplied in the wrong order. The first layer acts first, so put later "
     "layers on the left.",
     ("(layer + identity) / 2 @ rolled", "rolled @ ((layer + identity) / 2)")),
    ("no residual",
     "Your rollout leaves out the residual connection. Use half of the weights plus half of the "
     "identity in each layer.",
     ("(layer + identity) / 2", "layer")),
    ("residual not halved",
     "Your rows sum to more than 1, because you do not halve the sum of weights and identity. Use "
     "half of the weights plus half of the identity in each layer.",
     (" / 2", "")),
    ("weights halved alone",
     "You halve the weights but not the identity. Halve both, so that rows sum to 1.",
     ("(layer + identity) / 2", "(layer / 2 + identity)")),
    ("identity halved alone",
     "You halve the identity but not the weights. Halve both, so that rows sum to 1.",
     ("(layer + identity) / 2", "(layer + identity / 2)")),
    ("identity as one more head",
     "Your identity counts as one more head, with a share of 1 / (H + 1). Average the heads "
     "first, then use half of the weights plus half of the identity in each layer.",
     ("mean", "sum"), ("(layer + identity) / 2", "(layer + identity) / (weights.shape[1] + 1)")),
    ("head 0 only",
     "You use only head 0 of each layer. Average all heads of a layer.",
     ("weights.mean(dim=1)", "weights[:, 0]")),
    ("last layer plain",
     "Your rollout leaves out the residual connection of the last layer. Use half of the weights "
     "plus half of the identity in each layer.",
     ("in layers", "in layers[:-1]"), ("return rolled", "return layers[-1] @ rolled")),
    ("heads for layers",
     "You average over dimension 0, the layers. The heads are dimension 1, so average over dim=1.",
     ("dim=1", "dim=0")),
    ("heads averaged last",
     "You follow each head through the layers and average at the end. Average the heads of each "
     "layer first.",
     ("weights.mean(dim=1)", "weights"), ("return rolled", "return rolled.mean(dim=0)")),
    ("one residual",
     "You add the identity only once, at the end. Use half of the weights plus half of the "
     "identity in each layer.",
     ("(layer + identity) / 2", "layer"), ("return rolled", "return (rolled + identity) / 2")),
    ("heads summed",
     "You sum the weights over the heads. Average them, so that rows sum to 1.",
     ("mean", "sum")),
    ("strongest head",
     "You take the maximum over the heads. Take the mean over the heads.",
     ("mean", "amax")),
    ("strongest head, normalized later",
     "You take the maximum over the heads, add the identity, and divide each row by its sum. "
     "Average the heads, and use half of the weights plus half of the identity in each layer.",
     ("mean", "amax"),
     ("(layer + identity) / 2 @",
      "(x := layer + identity) / x.sum(dim=-1, keepdim=True) @")),
    ("strongest head, normalized first",
     "You take the maximum over the heads and divide each row by its sum. Average the heads "
     "instead.",
     ("weights.mean(dim=1)", "(x := weights.amax(dim=1)) / x.sum(dim=-1, keepdim=True)")),
    ("last layer only",
     "You use only the last layer. Multiply all layers.",
     (" @ rolled", "")),
    ("first layer only",
     "You use only the first layer. Multiply all layers.",
     ("in layers", "in layers[:1]")),
    ("first layer twice",
     "Your result contains the first layer twice. Start with the identity, or continue with the "
     "second layer.",
     ("rolled = identity", "rolled = (layers[0] + identity) / 2")),
    ("first layer plain",
     "Your product starts with the weights of the first layer alone. This layer has a residual "
     "connection too. Use half of the weights plus half of the identity in each layer.",
     ("rolled = identity", "rolled = layers[0]"), ("in layers", "in layers[1:]")),
    ("input handed on",
     "You add the identity after the multiplication. A residual connection passes on what has "
     "arrived so far. Take half of the weights plus half of the identity first, and multiply the "
     "product so far by that.",
     ("(layer + identity) / 2 @ rolled", "(layer @ rolled + identity) / 2")),
    ("ones for the identity",
     "You add 1 to every entry. The identity has ones only on its diagonal, so use torch.eye.",
     ("layer + identity", "layer + 1")),
    ("uniform for the identity",
     "You add 1 / L to every entry. The identity has ones only on its diagonal, so use torch.eye.",
     ("layer + identity", "layer + 1 / len(layer)")),
    ("residual of a tenth",
     "Your residual connection has a share of 0.1. Use half of the weights plus half of the "
     "identity in each layer.",
     ("(layer + identity) / 2", "(0.9 * layer + 0.1 * identity)")),
    ("identity added to the result",
     "Your rollout leaves out the residual connection of the first layer, and you add half of the "
     "identity at the end. Use half of the weights plus half of the identity in each layer.",
     ("rolled = identity", "rolled = layers[0]"), ("in layers", "in layers[1:]"),
     ("return rolled", "return (rolled + identity) / 2")),
    ("identity in the first layer alone",
     "Your rollout uses the residual connection only in the first layer. Use half of the weights "
     "plus half of the identity in each layer.",
     ("rolled = identity", "rolled = (layers[0] + identity) / 2"), ("in layers", "in layers[1:]"),
     ("(layer + identity) / 2 @", "layer @")),
    ("strongest head, first layer plain",
     "You take the maximum over the heads, and you leave out the residual connection of the first "
     "layer. Average the heads, and use half of the weights plus half of the identity in each "
     "layer.",
     ("mean", "amax"), ("rolled = identity", "rolled = layers[0]"),
     ("in layers", "in layers[1:]")),
    ("first layer missed",
     "You leave out the first layer. Multiply all layers.",
     ("in layers", "in layers[1:]")),
    ("last layer missed",
     "You leave out the last layer. Multiply all layers.",
     ("in layers", "in layers[:-1]")),
    ("layers averaged",
     "You average the layers. They act one after the other, so multiply them.",
     "(weights.mean(dim=(0, 1)) + torch.eye(weights.shape[-1])) / 2"),
    ("power of the average",
     "You average the layers and multiply this average by itself. The layers differ, so multiply "
     "the layers themselves.",
     "torch.linalg.matrix_power("
     "(weights.mean(dim=(0, 1)) + torch.eye(weights.shape[-1])) / 2, len(weights))"),
    ("entry by entry",
     "Your layers are multiplied entry by entry. Use the matrix product @.",
     ("rolled = identity", "rolled = torch.ones_like(identity)"), ("@", "*")),
    ("entry by entry from the identity",
     "Your layers are multiplied entry by entry, which leaves only the diagonal. Use the matrix "
     "product @.",
     ("@", "*")),
    ("rollout transposed",
     "Your result is transposed. Entry (i, j) is for output i and input j, so each row must sum "
     "to 1.",
     ("return rolled", "return rolled.T")),
]  # fmt: skip

exercise = Exercise(
    "8.4", rollout, inputs, MISTAKES, names="L L", also_right=[by_multi_dot, from_the_top]
)
