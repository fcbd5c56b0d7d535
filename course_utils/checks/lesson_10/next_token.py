"""10.5: choose the next token by temperature and nucleus, with the random number given."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def next_token(logits, T, top_p, u):
    if T == 0:
        return logits.argmax(dim=-1)
    share = (logits / T).softmax(dim=-1)  # (B, V)
    ordered, order = share.sort(dim=-1, descending=True)  # (B, V) each
    before = ordered.cumsum(dim=-1) - ordered  # (B, V), what more probable tokens have
    kept = ordered * (before < top_p)  # (B, V)
    kept = kept / kept.sum(dim=-1, keepdim=True)
    chosen = (kept.cumsum(dim=-1) <= u[:, None]).sum(dim=-1)  # (B,), a rank
    chosen = chosen.minimum((kept > 0).sum(dim=-1) - 1)  # rounding may end the line before u
    return order.gather(1, chosen[:, None])[:, 0]


def by_searchsorted(logits, T, top_p, u):
    if not T:
        return logits.max(dim=1).indices
    share = F.softmax(logits.double() / T, dim=1)
    ordered, order = torch.sort(share, dim=1, descending=True)
    far = ordered.cumsum(1)
    last = (far < top_p).sum(1, keepdim=True).clamp(max=logits.shape[1] - 1)
    rank = torch.searchsorted(far, u[:, None] * far.gather(1, last), right=True)
    return order.gather(1, rank).squeeze(1)


def inputs():
    normal, rng = normals(105), torch.Generator().manual_seed(105)

    def points(B):
        return torch.rand(B, generator=rng, dtype=torch.float64)

    log = torch.tensor([[0.1, 0.4, 0.2, 0.3]], dtype=torch.float64).log()  # (1, 4)
    given = [(log, 1.0, p, torch.tensor([u]).double())
             for p in (0.35, 0.5, 0.8, 1.0) for u in (0.05, 0.45, 0.65, 0.95)]  # fmt: skip
    return [
        *given,
        (normal(40, 6), 1.0, 1.0, points(40)),
        (normal(40, 7), 1.0, 0.6, points(40)),
        (2 * normal(40, 5), 0.5, 0.9, points(40)),
        (normal(40, 8), 3.0, 0.7, points(40)),
        (normal(9, 5), 0, 0.5, points(9)),
        (normal(9, 5), 0, 1.0, points(9)),
        (1e-12 * normal(9, 5), 0, 1.0, points(9)),  # no small T stands for 0
        (100 * normal(20, 4) + 2000, 0.05, 0.9, points(20)),
        (normal(30, 9), 1.3, 0.05, points(30)),  # the nucleus is one token
        (normal(40, 7).float(), 1.0, 0.6, torch.full((40,), 1 - 2**-24)),  # near the line's end
        (log.expand(3, 4), 2.0, 0.9, torch.tensor([0.0, 0.5, 0.9]).double()),
    ]


REACHES = (
    "the token with which the shares reach top_p is left out; it belongs to the nucleus, and so "
    "does the first always"
)
ABOVE = (
    "tokens are kept whose own share is above some limit; they are added up from the most probable "
    "on, until they reach top_p"
)
AGAIN = "softmax is taken of shares, which are made already: divide what is left by its sum"
ZERO = "T = 0 divides by zero: there take the largest logit"
RANK = "(kept.cumsum(dim=-1) <= u[:, None])"
SHARE = "(logits / T).softmax(dim=-1)"
KEPT = "ordered * (before < top_p)"
NORMED = "    kept = kept / kept.sum(dim=-1, keepdim=True)\n"
LAST = "order.gather(1, chosen[:, None])[:, 0]"
CLAMP = "chosen = chosen.minimum((kept > 0).sum(dim=-1) - 1)", "pass"
MISTAKES = [
    ("beyond the end of the line",
     "Your result is right, except where u is almost 1. Rounding lets the shares add up to less "
     "than u there. Give the last token of the nucleus all points beyond it.", CLAMP),
    ("multiplied by T", "logits are multiplied by T; a high temperature flattens, so divide",
     ("logits / T", "logits * T")),
    ("shares divided by T", "the shares are divided by T, which changes nothing once they are made "
     "to sum to 1; the logits are, before softmax", (SHARE, "logits.softmax(dim=-1) / T")),
    ("temperature left out", "the temperature is not used", ("logits / T", "logits")),
    ("nucleus without temperature",
     "the nucleus is taken at temperature 1; T comes first, then its shares decide",
     ("before = ordered.cumsum(dim=-1) - ordered",
      "cold = logits.softmax(dim=-1).gather(1, order)\n    before = cold.cumsum(dim=-1) - cold")),
    ("division by zero", ZERO, ("if T == 0", "if T == -1"), CLAMP),
    ("division by zero, and beyond the end", ZERO, ("if T == 0", "if T == -1"), CLAMP,
     (RANK, "(~(kept.cumsum(dim=-1) > u[:, None]))")),
    ("a small T for zero", "T = 0 is taken for some small T, at which nearly equal logits can all "
     "come: take the largest", ("    if T == 0", "    T = max(T, 1e-2)\n    if T == 0")),
    ("the one that reaches p left out", REACHES,
     (KEPT, "torch.where((ordered.cumsum(-1) < top_p) | (before == 0), ordered, 0)")),
    ("the one that reaches p left out, but at 1", REACHES,
     (KEPT, "ordered * (before + ordered <= top_p)")),
    ("the one that reaches p left out, and beyond the end", REACHES,
     (KEPT, "ordered * (before + ordered < top_p)"),
     (RANK, "(~(kept.cumsum(dim=-1) > u[:, None]))")),
    ("one too many kept", "the nucleus goes one token too far: it ends with the token with which "
     "the shares reach top_p",
     (KEPT, "ordered * (torch.cat([before[:, :1], before[:, :-1]], dim=1) < top_p)")),
    ("one nucleus for all", "all texts keep as many tokens as the first; each has a nucleus of its "
     "own", (KEPT, "ordered * (before < top_p)[:1]")),
    ("1 - top_p", "the nucleus reaches 1 − top_p, where top_p is asked",
     ("before < top_p", "before < 1 - top_p")),
    ("points times top_p", "u is multiplied by top_p; what is kept has more than that together, as "
     "the one that reaches it belongs: divide by its sum",
     (NORMED, "    kept = ordered / top_p\n")),
    ("nucleus left out", "top_p is not used: all tokens can come", (KEPT, "ordered")),
    ("shares not made to sum to 1", "what is left of the shares does not sum to 1: beyond it a "
     "point meets a token outside the nucleus; divide by their sum", (NORMED, ""),
     ("gather(1, chosen[:, None])", "gather(1, chosen[:, None].clamp(max=share.shape[1] - 1))")),
    ("ranks", "those are ranks: 0 for the most probable; return the tokens' numbers",
     (LAST, "chosen")),
    ("in the order of the vocabulary",
     "shares lie on the line in the order of the vocabulary; the most probable comes first",
     ("chosen = (kept.cumsum",
      "kept = torch.zeros_like(kept).scatter(1, order, kept)\n    chosen = (kept.cumsum"),
     (LAST, "chosen")),
    ("least probable first", "the least probable tokens come first: sort the other way",
     ("descending=True", "descending=False")),
    ("a share of the tokens", "top_p is taken for a share of the vocabulary; it is probability",
     ("before < top_p", "torch.arange(share.shape[1]) < max(1, top_p * share.shape[1])")),
    ("shares above p", ABOVE, ("before < top_p", "ordered >= (1 - top_p) * ordered[:, :1]")),
    ("shares above 1 - p", ABOVE, ("before < top_p", "ordered >= 1 - top_p")),
    ("softmax again, of all", AGAIN, (NORMED, "    kept = kept.softmax(dim=-1)\n")),
    ("softmax again", AGAIN,
     (NORMED, "    kept = ordered.masked_fill(kept == 0, -torch.inf).softmax(dim=-1)\n")),
    ("always the largest", "always the most probable token comes, whatever u is; more "
     "may belong to the nucleus, and u chooses among them",
     (RANK + ".sum(dim=-1)", "0 * u.long()")),
    ("from the other end", "points are counted from the far end of the line",
     ("<= u[:, None]", "<= 1 - u[:, None]")),
    ("softmax over the texts", "softmax runs over the texts; each row is a distribution, dim=-1",
     (SHARE, "(logits / T).softmax(dim=0)")),
    ("one point for all", "all texts use the first point; each has its own",
     ("<= u[:, None]", "<= u[0]")),
    ("a rank too far", "one rank too far: where u lies below the first share the first token comes",
     (LAST, "order.gather(1, (chosen[:, None] + 1).clamp(max=order.shape[1] - 1))[:, 0]")),
]  # fmt: skip

exercise = Exercise("10.5", next_token, inputs, MISTAKES, names="B", also_right=[by_searchsorted])
