"""The explorer of lesson 02: how wide vectors saturate softmax."""

import torch

from course_utils.explorers.browser_explorer import BrowserExplorer, check, number

D_K_STEP, WIDEST = 4, 512  # of the slider of d_k; any whole number between may be typed


def scaling_explorer():
    """Widen q and k, with or without division by √d_k; watch the weights of 8 keys saturate.

    The query and the keys are drawn once, 512 random numbers each, and the first d_k are used.

    Returns
    -------
    BrowserExplorer
        With controls ``d_k`` and ``scaled``.
    """
    # a seed with which two keys nearly tie around d_k = 64 and one has all the weight from 128 on
    rng = torch.Generator().manual_seed(31)
    q, k = torch.randn(WIDEST, generator=rng), torch.randn(8, WIDEST, generator=rng)
    products = (k.double() * q).cumsum(dim=-1).T  # (WIDEST, S): of the first 1, 2, … numbers
    controls = {
        "d_k": number("d_k", D_K_STEP, D_K_STEP, WIDEST, D_K_STEP),
        "scaled": check("divide by √d_k", False),
    }
    given = {"products": products.round(decimals=6).tolist(), "step": D_K_STEP}
    return BrowserExplorer("scaling", controls, needs=["softmax"], **given)
