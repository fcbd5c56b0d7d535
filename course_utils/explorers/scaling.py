"""The explorer of lesson 02: wide vectors saturate softmax."""

import torch

from course_utils.explorers.browser_explorer import BrowserExplorer, check, number

D_K_STEP, WIDEST = 4, 512  # of the slider for d_k; any whole number in between may be typed


def scaling_explorer():
    """Change the width of q and k, and divide by √d_k or not; watch 8 weights saturate.

    The query and the keys are drawn once, with 512 random numbers each. The first d_k of these are
    used.

    Returns
    -------
    BrowserExplorer
        With controls ``d_k`` and ``scaled``.
    """
    # With this seed, two keys nearly tie around d_k = 64, and one has all the weight from 128 on.
    rng = torch.Generator().manual_seed(31)
    q, k = torch.randn(WIDEST, generator=rng), torch.randn(8, WIDEST, generator=rng)
    products = (k.double() * q).cumsum(dim=-1).T  # (WIDEST, S), for d_k = 1, 2, …
    controls = {
        "d_k": number("d_k", D_K_STEP, D_K_STEP, WIDEST, D_K_STEP),
        "scaled": check("divide by √d_k", False),
    }
    given = {"products": products.round(decimals=6).tolist(), "step": D_K_STEP}
    return BrowserExplorer("scaling", controls, needs=["softmax"], **given)
