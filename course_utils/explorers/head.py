"""The explorer of lesson 05: what each head attends to."""

import numpy as np
import torch

from course_utils.explorers.browser_explorer import BrowserExplorer, choice, colors_of, number
from course_utils.explorers.kernel_explorer import cut
from course_utils.figures import SEQUENTIAL, as_labels
from course_utils.shapes import expects
from course_utils.views import check_weights

EVERY = "every token"
DIGITS = 4  # decimals of weights, more than anybody sees: the text shows two
RULES = {  # may query i attend to key j? `same`: whether their tokens are equal
    "the token before": lambda i, j, same: j == i - 1,
    "the token after": lambda i, j, same: j == i + 1,
    "the first token": lambda i, j, same: j == 0,
    "the same token": lambda i, j, same: same,
    "itself": lambda i, j, same: j == i,
    "all tokens so far": lambda i, j, same: j <= i,
}


@expects(weights="H L L")
def head_explorer(weights=None, tokens=None):
    """Show all heads at once. Choose one to see its weights, and where each query attends.

    Parameters
    ----------
    weights : torch.Tensor, (H, L, L), optional
        Self-attention weights of one sequence. By default, those of six heads that are written by
        hand and follow one rule each.
    tokens : sequence of str, (L,), optional
        Their positions if not given.

    Returns
    -------
    BrowserExplorer
        Its controls are ``head``, counted from 0, and ``query``, a token such as "0 the" or
        `EVERY`. A click on a small picture chooses a head, and a click on a row a query.

    Raises
    ------
    TypeError, ValueError
        If weights has another shape, or entries that are not floating point from 0 to 1, or if
        there are not L tokens.
    """
    data = "" if weights is None else f"{weights.shape[0]} heads over {weights.shape[1]} tokens"
    if weights is None:
        weights, tokens = _by_hand()
    check_weights(weights)
    values = weights.detach().cpu().double().numpy()
    H, L, _ = values.shape
    positions = [str(i) for i in range(L)]
    tokens = as_labels(positions if tokens is None else tokens, L, "tokens")
    pairs = zip(positions, tokens, strict=True)
    names = [token if token == position else f"{position} {token}" for position, token in pairs]
    controls = {
        "head": number("head", 0, 0, H - 1, 1),
        "query": choice("query", EVERY, [EVERY, *names]),
    }
    given = {"weights": values.round(DIGITS).tolist(), "names": names, "labels": cut(tokens)}
    given["rules"] = {
        name: allowed.astype(int).tolist() for name, allowed in _rules(tokens).items()
    }
    given |= {"every": EVERY, "colors": colors_of(SEQUENTIAL)}
    return BrowserExplorer("head", controls, data=data, needs=["grid"], **given)


def _rules(tokens):
    """Return which keys each of `RULES` gives to each query, (L, L)."""
    i, j = np.indices((len(tokens), len(tokens)))
    same = np.array(tokens)[:, None] == np.array(tokens)
    return {name: np.broadcast_to(rule(i, j, same), i.shape) for name, rule in RULES.items()}


def _by_hand():
    """Return the weights (6, L, L) of six heads that follow one rule each, and their tokens."""
    tokens = "the cat saw the dog because the dog barked".split()
    scores = torch.tensor(np.array([*_rules(tokens).values()])) * 4.0  # (H, L, L)
    return scores.softmax(dim=-1), tokens
