"""10.5: the next token by temperature and nucleus, for a given random number."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def next_token(logits, T, top_p, u):
    if T == 0:
        return logits.argmax(dim=-1)
    probabilities = (logits / T).softmax(dim=-1)  # (B, V)
    ordered, order = probabilities.sort(dim=-1, descending=True)  # (B, V) each
    before = ordered.cumsum(dim=-1) - ordered  # (B, V), of the tokens before
    kept = ordered * (before < top_p)  # (B, V)
    kept = kept / kept.sum(dim=-1, keepdim=True)
    chosen = (kept.cumsum(dim=-1) <= u[:, None]).sum(dim=-1)  # (B,), a rank
    chosen = chosen.minimum((kept > 0).sum(dim=-1) - 1)  # rounding may end the line before u
    return order.gather(1, chosen[:, None])[:, 0]


def by_searchsorted(logits, T, top_p, u):
    if not T:
        return logits.max(dim=1).indices
    probabilities = F.softmax(logits.double() / T, dim=1)
    ordered, order = torch.sort(probabilities, dim=1, descending=True)
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
        (1e-12 * normal(9, 5), 0, 1.0, points(9)),  # a small T is not 0
        (100 * normal(20, 4) + 2000, 0.05, 0.9, points(20)),
        (normal(30, 9), 1.3, 0.05, points(30)),  # the nucleus is one token
        (normal(40, 7).float(), 1.0, 0.6, torch.full((40,), 1 - 2**-24)),  # near the line's end
        (log.expand(3, 4), 2.0, 0.9, torch.tensor([0.0, 0.5, 0.9]).double()),
    ]


REACHES = (
    "Your result leaves out the token with which the cumulative probability reaches top_p. This "
    "token belongs to the nucleus, and so does the most probable one. Keep it."
)
ABOVE = (
    "Your nucleus fits a limit for each single probability. Add the probabilities up, from the "
    "most probable token on, until their sum reaches top_p."
)
AGAIN = (
    "Your result applies softmax to probabilities. Divide those of the nucleus by their sum "
    "instead."
)
ZERO = "Your result is wrong for T = 0, where logits / T is not finite. Take the largest logit."
RANK = "(kept.cumsum(dim=-1) <= u[:, None])"
PROBABILITIES = "(logits / T).softmax(dim=-1)"
KEPT = "ordered * (before < top_p)"
NORMALIZED = "    kept = kept / kept.sum(dim=-1, keepdim=True)\n"
LAST = "order.gather(1, chosen[:, None])[:, 0]"
CLAMP = "chosen = chosen.minimum((kept > 0).sum(dim=-1) - 1)", "pass"
MISTAKES = [
    ("beyond the end of the line",
     "Your result is right, except where u is almost 1. Because of rounding, the probabilities may "
     "add up to less than u. Then choose the last token of the nucleus.", CLAMP),
    ("multiplied by T", "Your result multiplies the logits by T. A high temperature must make the "
     "distribution flatter. Divide.", ("logits / T", "logits * T")),
    ("probabilities divided by T", "Your result fits probabilities that are divided by T. Dividing "
     "by their sum removes T again. Divide the logits, before softmax.",
     (PROBABILITIES, "logits.softmax(dim=-1) / T")),
    ("powers of probabilities",
     "Your result fits probabilities p^(1 / T) that do not add up to 1. Then the nucleus is wrong. "
     "Divide them by their sum first, or divide the logits by T.",
     (PROBABILITIES, "logits.softmax(dim=-1) ** (1 / T)")),
    ("temperature left out", "Your result fits T = 1. Divide the logits by T.",
     ("logits / T", "logits")),
    ("nucleus without temperature",
     "Your nucleus is the one for T = 1. Apply the temperature first, and choose the nucleus from "
     "the new probabilities.",
     ("before = ordered.cumsum(dim=-1) - ordered",
      "cold = logits.softmax(dim=-1).gather(1, order)\n    before = cold.cumsum(dim=-1) - cold")),
    ("division by zero", ZERO, ("if T == 0", "if T == -1"), CLAMP),
    ("division by zero, and beyond the end", ZERO, ("if T == 0", "if T == -1"), CLAMP,
     (RANK, "(~(kept.cumsum(dim=-1) > u[:, None]))")),
    ("a small T for zero", "Your result for T = 0 depends on u if two logits are nearly equal. If "
     "you replace 0 by a small T, take the largest logit instead.",
     ("    if T == 0", "    T = max(T, 1e-2)\n    if T == 0")),
    ("the one that reaches p left out", REACHES,
     (KEPT, "torch.where((ordered.cumsum(-1) < top_p) | (before == 0), ordered, 0)")),
    ("the one that reaches p left out, but at 1", REACHES,
     (KEPT, "ordered * (before + ordered <= top_p)")),
    ("the one that reaches p left out, and beyond the end", REACHES,
     (KEPT, "ordered * (before + ordered < top_p)"),
     (RANK, "(~(kept.cumsum(dim=-1) > u[:, None]))")),
    ("one too many kept", "Your nucleus has one token too many. Its last token is the one with "
     "which the cumulative probability reaches top_p. Stop there.",
     (KEPT, "ordered * (torch.cat([before[:, :1], before[:, :-1]], dim=1) < top_p)")),
    ("one nucleus for all", "All your texts keep as many tokens as the first one. Find the nucleus "
     "of each row separately.", (KEPT, "ordered * (before < top_p)[:1]")),
    ("1 - top_p", "Your nucleus reaches the probability 1 − top_p. It must reach top_p.",
     ("before < top_p", "before < 1 - top_p")),
    ("points times top_p", "Your result fits u · top_p. But the nucleus has more probability than "
     "top_p, because its last token goes beyond it. Divide by the sum of the nucleus.",
     (NORMALIZED, "    kept = ordered / top_p\n")),
    ("nucleus left out", "Your result contains tokens outside the nucleus. Leave out all tokens "
     "after the one that reaches top_p.", (KEPT, "ordered")),
    ("not divided by their sum", "Your result contains tokens outside the nucleus. The "
     "probabilities that are left do not add up to 1, so some points lie beyond them. Divide by "
     "their sum.", (NORMALIZED, ""),
     ("gather(1, chosen[:, None])",
      "gather(1, chosen[:, None].clamp(max=probabilities.shape[1] - 1))")),
    ("ranks", "Your result has ranks, with 0 for the most probable token. Return the numbers of "
     "the tokens.", (LAST, "chosen")),
    ("in vocabulary order",
     "Your probabilities are on the line in vocabulary order. Put the most probable token first.",
     ("chosen = (kept.cumsum",
      "kept = torch.zeros_like(kept).scatter(1, order, kept)\n    chosen = (kept.cumsum"),
     (LAST, "chosen")),
    ("least probable first", "Your line begins with the least probable token. Sort in descending "
     "order.", ("descending=True", "descending=False")),
    ("a share of the tokens", "Your nucleus fits top_p as a share of the vocabulary. It is a "
     "probability. Add up the probabilities until they reach it.",
     ("before < top_p",
      "torch.arange(probabilities.shape[1]) < max(1, top_p * probabilities.shape[1])")),
    ("probabilities above p", ABOVE, ("before < top_p", "ordered >= (1 - top_p) * ordered[:, :1]")),
    ("probabilities above 1 - p", ABOVE, ("before < top_p", "ordered >= 1 - top_p")),
    ("softmax again, of all", AGAIN, (NORMALIZED, "    kept = kept.softmax(dim=-1)\n")),
    ("softmax again", AGAIN,
     (NORMALIZED, "    kept = ordered.masked_fill(kept == 0, -torch.inf).softmax(dim=-1)\n")),
    ("always the largest", "Your result is always the most probable token, whatever u is. If the "
     "nucleus has more tokens, use u to choose among them.",
     (RANK + ".sum(dim=-1)", "0 * u.long()")),
    ("from the other end", "Your result measures u from the far end of the line. Measure it from "
     "the most probable token.", ("<= u[:, None]", "<= 1 - u[:, None]")),
    ("softmax over the texts", "Your result fits a softmax over the texts. Each row is a "
     "distribution. Use dim=-1.", (PROBABILITIES, "(logits / T).softmax(dim=0)")),
    ("one point for all", "Your result uses the first point for all texts. Each text has its own. "
     "Use u[b] for text b.", ("<= u[:, None]", "<= u[0]")),
    ("a rank too far", "Your token is one rank too far. If u is below the first probability, "
     "choose the first token.",
     (LAST, "order.gather(1, (chosen[:, None] + 1).clamp(max=order.shape[1] - 1))[:, 0]")),
]  # fmt: skip

exercise = Exercise("10.5", next_token, inputs, MISTAKES, names="B", also_right=[by_searchsorted])
