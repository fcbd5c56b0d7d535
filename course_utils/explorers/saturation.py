"""The explorers of lessons 02 and 03: how softmax saturates, and what breaks it."""

import math

import torch

from course_utils.attention import entropy
from course_utils.explorers.browser_explorer import (
    BrowserExplorer,
    check,
    choice,
    colours_of,
    number,
)
from course_utils.figures import DIVERGING

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
LOGIT_STEP = 0.5
D_K_STEP, WIDEST = 4, 512  # of the slider of d_k; any whole number between may be typed
TEMPERATURES = torch.arange(1, 101).double() / 20  # where the slider can stand


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
    upto = (k.double() * q).cumsum(dim=-1)  # (S, WIDEST), products of the first 1, 2, … numbers
    products = upto.T.round(decimals=6)  # as few digits as are needed

    def scores_of(d_k, scaled):
        scores = products[d_k - 1]  # (S,)
        return scores / d_k**0.5 if scaled else scores

    def say(d_k, scaled):
        scores = scores_of(d_k, scaled)
        weights = scores.softmax(dim=-1)
        largest, told = scores.abs().max(), _saturation(weights, _norm(weights))
        return f"largest score in size {largest:.1f}; {told}{found(d_k, scaled, weights)}"

    def found(d_k, scaled, weights):
        unscaled = scores_of(d_k, False).softmax(dim=-1).max()
        if scaled and d_k in (D_K_STEP, WIDEST):
            told = f"{unscaled:.2f} to {weights.max():.2f}"
            return f"; found: at d_k = {d_k} the division takes the largest weight from {told}"
        narrower = scores_of(max(d_k - D_K_STEP, D_K_STEP), False).softmax(dim=-1).max()
        if not scaled and narrower < 0.99 <= unscaled:
            return f"; found: at d_k = {d_k} one key has {unscaled:.2f} of the weight"
        two = weights.topk(2).values.sum()
        if two >= 0.95 and _norm(weights) >= 0.45:  # two that tie have 0.5
            return f"; found: two keys have {two:.2f} of the weight, and much gradient passes"
        return ""

    controls = {
        "d_k": number("d_k", D_K_STEP, D_K_STEP, WIDEST, D_K_STEP),
        "scaled": check("divide by √d_k", False),
    }
    given = {"products": products.tolist(), "step": D_K_STEP}
    return BrowserExplorer("scaling", controls, say, needs=["softmax"], **given)


def saturation_explorer():
    """Set five logits and how softmax is calculated; watch weights, Jacobian, and what breaks.

    Each logit is multiplied by √d_k, as dot products of width d_k would be, divided by it again
    if scaled, and divided by the temperature. All of it is calculated in the dtype chosen.

    Returns
    -------
    BrowserExplorer
        With controls ``logit_1`` to ``logit_5``, ``temperature``, ``d_k``, ``scaled``, ``dtype``
        (one of `DTYPES`) and ``method`` ("stable", which subtracts the maximum, or "naive").
    """
    controls = {
        f"logit_{j}": number(f"logit {j}", 3 - j, -20, 100, LOGIT_STEP) for j in range(1, 6)
    } | {
        "temperature": number("temperature", 1, 0.05, 5, 0.05),
        "d_k": choice("d_k", 64, [1, 4, 16, 64, 256, 1024, 4096]),
        "scaled": check("divide by √d_k", True),
        "dtype": choice("dtype", "float32", DTYPES),
        "method": choice("softmax", "stable", ["stable", "naive"]),
    }
    given = {"colours": colours_of(DIVERGING), "logit_step": LOGIT_STEP}
    return BrowserExplorer("saturation", controls, _say, needs=["softmax", "grid"], **given)


def _say(temperature, d_k, scaled, dtype, method, **logits):
    untempered = _scores(list(logits.values()), d_k, scaled, dtype)
    scores = untempered / temperature  # (5,)
    exponents = scores - scores.max() if method == "stable" else scores
    powers = exponents.exp()
    weights = powers / _total(powers)
    jacobian = weights.diag() - weights.outer(weights)
    lower = _scores([logits["logit_1"] - LOGIT_STEP], d_k, scaled, dtype)[0] / temperature
    found = [
        *(_found_naively(scores, lower, logits["logit_1"], dtype) if method == "naive" else []),
        *(_found_stably(scores, untempered, temperature) if method == "stable" else []),
    ]
    return (
        f"softmax of {', '.join(f'{s:.4g}' for s in scores.tolist())}: "
        f"weights {', '.join(f'{w:.3f}' for w in weights.tolist()).replace('nan', 'NaN')}; "
        f"{_saturation(weights, jacobian.double().norm())}{_overflows(scores, powers, dtype)}"
        f"{'; found: ' if found else ''}{', and '.join(found)}"
    )


def _scores(logits, d_k, scaled, dtype):
    """Return logits as scores (n,) of width d_k, not yet divided by a temperature."""
    scores = torch.tensor(logits, dtype=torch.float64).to(DTYPES[dtype]) * d_k**0.5
    return scores / d_k**0.5 if scaled else scores


def _total(powers):
    """Return the sum of powers (S,), rounded once: in which order it was made is not to be seen."""
    return powers.double().sum().to(powers.dtype)


def _norm(weights):
    """Return the Frobenius norm (...) of the Jacobian of weights (..., S).

    Each row of it sums to 0. So its diagonal p (1 - p) is found without 1 - p, which has lost its
    digits where one key has nearly all the weight.
    """
    beside = weights[..., :, None] * weights[..., None, :]  # (..., S, S)
    beside.diagonal(dim1=-2, dim2=-1).zero_()
    return (beside.square().sum((-2, -1)) + beside.sum(-1).square().sum(-1)).sqrt()


def _saturation(weights, norm):
    """Say how far weights (S,) are saturated: their entropy and the size of the Jacobian."""
    spread, most = entropy(weights.double()).item(), math.log(len(weights))
    return (
        f"entropy {spread:.3f} of at most {most:.3f} nats; "
        f"gradient norm {norm:.3g} (Frobenius norm of the Jacobian)"
    ).replace("nan", "NaN")


def _found_naively(scores, lower, logit_1, dtype):
    """Say what breaks in a naive softmax of scores (5,); lower is the first, a step before."""
    found = []
    first = scores[0].isfinite() and scores[0].exp().isinf() and lower.exp().isfinite()
    if first and logit_1 % LOGIT_STEP == 0:  # typed between, it may be another
        found.append(f"{logit_1:g} is the first logit 1 with an infinite power in {dtype}")
    if _total(scores.exp()) == 0:
        found.append(f"every power is 0 in {dtype}, and 0 / 0 is NaN")
    return found


def _found_stably(scores, untempered, temperature):
    """Say what a stable softmax saves, and at which temperatures its gradient is at an end."""
    found = []
    total = _total(scores.exp())
    if scores.isfinite().all() and (total.isinf() or total == 0):
        found.append("the same scores, and weights where naive fails")
    tried = torch.cat([TEMPERATURES, torch.tensor([temperature], dtype=torch.float64)])
    *norms, now = _norm((untempered.double() / tried[:, None]).softmax(dim=-1)).tolist()
    if max(norms) > min(norms) + 0.01:  # else the temperature changes nothing
        if now >= max(norms) - 1e-9:  # of two that tie one may be larger by rounding
            found.append("no other temperature has a larger gradient norm")
        elif temperature == TEMPERATURES[0]:
            found.append(f"at the lowest temperature the gradient norm is {now:.3f}")
    return found


def _overflows(scores, powers, dtype):
    """Say which entries of scores (S,) or of their exponentials are no numbers any more."""
    told = []
    for name, values in {"score": scores, "exp": powers}.items():
        for kind, found in {"inf": values.isinf(), "NaN": values.isnan()}.items():
            if found.any():
                keys = ", ".join(str(j + 1) for j in found.nonzero()[:, 0].tolist())
                told.append(f"{name} is {kind} at key {keys}")
    if powers.isfinite().all() and _total(powers).isinf():
        told.append("the sum of the exponentials is inf")
    return f"; overflow in {dtype}: {'; '.join(told)}" if told else ""
