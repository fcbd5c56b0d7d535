"""What any mask may be besides wrong: a right one of another kind. Lesson 04's shared piece."""

import torch

INVERTED = "it is inverted: True must mean may attend, as in scaled_dot_product_attention"
NOT_BOOLEAN = "right pattern, but numbers: return a boolean tensor, for example by comparing"
ADDED = "that is the mask to add to the scores, 0 and -inf; return a boolean one, True = may attend"


def other_kinds(right):
    """Return the mistakes of kind, rows for any exercise whose answer is a mask."""

    def added(*given):
        mask = right(*given)
        return torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)

    return [
        ("inverted", INVERTED, lambda *given: ~right(*given)),
        ("not boolean", NOT_BOOLEAN, lambda *given: right(*given).float()),
        ("added to scores", ADDED, added),
    ]
