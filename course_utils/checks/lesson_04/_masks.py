"""Hints for masks that are right except for their kind, shared by lesson 04's exercises."""

import torch

INVERTED = "Your mask is inverted. Invert it, so that True means 'may attend'."
NOT_BOOLEAN = (
    "The pattern is right, but your mask holds numbers. Return a boolean tensor, for example "
    "from a comparison."
)
ADDED = (
    "Your result is a float mask of 0 and −inf, to be added to scores. Return a boolean mask, "
    "True = may attend."
)


def other_kinds(right):
    """Return rows of MISTAKES for an exercise whose answer is a mask."""

    def float_mask(*args):
        mask = right(*args)
        return torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)

    return [
        ("inverted", INVERTED, lambda *args: ~right(*args)),
        ("not boolean", NOT_BOOLEAN, lambda *args: right(*args).float()),
        ("added to scores", ADDED, float_mask),
    ]
