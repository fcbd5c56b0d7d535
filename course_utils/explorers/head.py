"""The explorer of lesson 05: what each head looks at."""

import numpy as np
import torch

from course_utils.explorers.browser_explorer import BrowserExplorer, choice, colours_of, number
from course_utils.explorers.kernel_explorer import cut
from course_utils.figures import SEQUENTIAL, as_labels
from course_utils.shapes import expects

EVERY = "every token"
DIGITS = 4  # of weights after the point: two are written, and shades are coarser
RULES = {  # of query i and key j, and whether their tokens are the same
    "the token before": lambda i, j, same: j == i - 1,
    "the token after": lambda i, j, same: j == i + 1,
    "the first token": lambda i, j, same: j == 0,
    "the same token": lambda i, j, same: same,
    "itself": lambda i, j, same: j == i,
    "all tokens so far": lambda i, j, same: j <= i,
}


@expects(weights="H L L")
def head_explorer(weights=None, tokens=None):
    """See all heads at once, choose one, and follow its weights from token to token.

    Parameters
    ----------
    weights : torch.Tensor, (H, L, L), optional
        Of one sequence with itself. By default those of six heads written by hand, one rule each.
    tokens : sequence of str, (L,), optional
        By default their numbers, from 0.

    Returns
    -------
    BrowserExplorer
        With controls ``head`` (counted from 0) and ``query`` (one token, as "0 the", or `EVERY`).
        A click chooses a head by its small picture, a token by its row of the large one.

    Raises
    ------
    TypeError, ValueError
        If weights is not a tensor of that shape, holds what is no weight, or there are not L
        tokens.
    """
    data = "" if weights is None else f"{weights.shape[0]} heads over {weights.shape[1]} tokens"
    if weights is None:
        weights, tokens = _by_hand()
    values = weights.detach().cpu().double().numpy()
    if not values.size or not ((values >= 0) & (values <= 1.001)).all():
        raise ValueError("weights must be from 0 to 1, and at least one; are these scores?")
    H, L, _ = values.shape
    positions = [str(i) for i in range(L)]
    tokens = as_labels(positions if tokens is None else tokens, L, "tokens")
    pairs = zip(positions, tokens, strict=True)
    names = [token if token == position else f"{position} {token}" for position, token in pairs]
    controls = {
        "head": number("head", 0, 0, H - 1, 1),
        "query": choice("from", EVERY, [EVERY, *names]),
    }
    given = {"weights": values.round(DIGITS).tolist(), "names": names, "labels": cut(tokens)}
    given["rules"] = {
        name: allowed.astype(int).tolist() for name, allowed in _rules(tokens).items()
    }
    given |= {"every": EVERY, "colours": colours_of(SEQUENTIAL)}
    return BrowserExplorer("head", controls, data=data, needs=["grid"], **given)


def _rules(tokens):
    """Return for each of `RULES` where it lets a query look, (L, L)."""
    i, j = np.indices((len(tokens), len(tokens)))
    same = np.array(tokens)[:, None] == np.array(tokens)
    return {name: np.broadcast_to(rule(i, j, same), i.shape) for name, rule in RULES.items()}


def _by_hand():
    """Return the weights (6, L, L) of six heads with one rule each, and their tokens."""
    tokens = "the cat saw the dog because the dog barked".split()
    scores = torch.tensor(np.array([*_rules(tokens).values()])) * 4.0  # (H, L, L)
    return scores.softmax(dim=-1), tokens
