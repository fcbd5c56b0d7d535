"""The explorer of lesson 05: what each head looks at."""

import numpy as np
import torch

from course_utils.explorers.browser_explorer import BrowserExplorer, choice, colours_of, number
from course_utils.explorers.kernel_explorer import cut
from course_utils.figures import SEQUENTIAL, as_labels, first_largest
from course_utils.shapes import expects

EVERY = "every token"
FEWEST_TOLD = 0.05  # weights below it are left out of the words
DIGITS = 4  # of weights after the point: of them two are told, and shades are coarser
RULES = {  # of query i and key j, and whether their tokens are the same
    "the token before": lambda i, j, same: j == i - 1,
    "the token after": lambda i, j, same: j == i + 1,
    "the first token": lambda i, j, same: j == 0,
    "the same token": lambda i, j, same: same,
    "itself": lambda i, j, same: j == i,
    "all tokens so far": lambda i, j, same: j <= i,
}
MOST_STRAY = 0.25  # of each query's weight: so much may lie elsewhere than its rule says


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
        A press chooses a head by its small picture, a token by its row of the large one.

    Raises
    ------
    TypeError, ValueError
        If weights is not a tensor of that shape, holds what is no weight, or there are not L
        tokens.
    """
    if weights is None:
        weights, tokens = _by_hand()
    values = weights.detach().cpu().double().numpy()
    if not values.size or not ((values >= 0) & (values <= 1.001)).all():
        raise ValueError("weights must be from 0 to 1, and at least one; are these scores?")
    H, L, _ = values.shape
    numbers = [str(i) for i in range(L)]
    tokens = as_labels(numbers if tokens is None else tokens, L, "tokens")
    named = zip(numbers, tokens, strict=True)
    names = [number if number == token else f"{number} {token}" for number, token in named]
    rules = _rules(tokens)
    found = [_found(head, rules) for head in values]  # of each head and query
    values = values.round(DIGITS)
    strongest = [first_largest(head).tolist() for head in values]  # (H, L)

    def entry(head, i, j):
        return f"{names[j]} {values[head, i, j]:.2f}"

    def say(head, query):
        if query == EVERY:
            told = [f"{names[i]} → {entry(head, i, j)}" for i, j in enumerate(strongest[head])]
            return f"head {head} of {H}; strongest of each token: {', '.join(told)}"
        i = names.index(query)
        order = np.argsort(-values[head, i], kind="stable")  # those that tie in their order
        told = [entry(head, i, j) for j in order]
        told = told[: max(1, int((values[head, i] >= FEWEST_TOLD).sum()))]
        what = found[head][i] and f"; found: each token looks at {found[head][i]}"
        return f"head {head} of {H}; {query} looks at: {', '.join(told)}{what}"

    controls = {
        "head": number("head", 0, 0, H - 1, 1),
        "query": choice("from", EVERY, [EVERY, *names]),
    }
    given = {"weights": values.tolist(), "names": names, "labels": cut(tokens)}
    given |= {"strongest": strongest, "found": found, "every": EVERY, "fewest": FEWEST_TOLD}
    given["colours"] = colours_of(SEQUENTIAL)
    return BrowserExplorer("head", controls, say, needs=["grid"], **given)


def _rules(tokens):
    """Return for each of `RULES` where it lets a query look, (L, L)."""
    i, j = np.indices((len(tokens), len(tokens)))
    same = np.array(tokens)[:, None] == np.array(tokens)
    return {name: np.broadcast_to(rule(i, j, same), i.shape) for name, rule in RULES.items()}


def _found(weights, rules):
    """Return for each query of weights (L, L) the rules which all queries follow, in words.

    A query for which a rule has no key shows nothing of it.
    """
    followed = [name for name in rules if _follows(weights, rules[name])]
    shown = [[name for name in followed if rules[name][i].any()] for i in range(len(weights))]
    return [" or ".join(names) for names in shown]


def _follows(weights, rule):
    """Say whether each query that has keys by the rule spreads its weight evenly over them."""
    has = rule.any(axis=1)
    even = rule[has] / rule[has].sum(axis=1, keepdims=True)
    return (np.maximum(even - weights[has], 0).sum(axis=1) <= MOST_STRAY).all()


def _by_hand():
    """Return the weights (6, L, L) of six heads with one rule each, and their tokens."""
    tokens = "the cat saw the dog because the dog barked".split()
    scores = torch.tensor(np.array([*_rules(tokens).values()])) * 4.0  # (H, L, L)
    return scores.softmax(dim=-1), tokens
