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

    def middles(logits, top_p, ranks):
        """Return points in the middle of the segments of tokens with these ranks."""
        ordered = logits.double().softmax(dim=-1).sort(dim=-1, descending=True).values
        ends = ordered.cumsum(dim=-1)
        whole = ends.where(ends >= top_p, torch.inf).amin(dim=-1)
        return (ends - ordered / 2).gather(1, ranks[:, None])[:, 0] / whole

    long = normal(20, 4000).float()
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
        (0.1 * normal(20, 5), 0.08, 0.9, points(20)),  # a small T is not 0
        (0.01 * normal(20, 5), 0.008, 1.0, points(20)),
        (0.001 * normal(20, 5), 0.0008, 1.0, points(20)),
        (0.5 * normal(20, 12), 1.0, 0.4, points(20)),  # several tokens in spite of a small top_p
        (0.5 * normal(20, 12), 1.0, 0.2, points(20)),
        (long, 1.0, 0.9, middles(long, 0.9, torch.arange(20) * 100)),
        (log, 1.0, 0.4005, torch.tensor([0.7]).double()),  # one token does not reach it
    ]


BEYOND = (
    "Your result is right, except where u is almost 1. Because of rounding, your line may end "
    "before u, and then {}. In this case, return the last token of the nucleus."
)
REACHES = (
    "You leave out the token that brings the sum to top_p. This token belongs to the nucleus. Keep "
    "it."
)
ABOVE = (
    "You keep each token whose own probability is above a limit. Add up the probabilities instead, "
    "starting with the most probable token, until their sum reaches top_p."
)
AGAIN = (
    "You apply softmax to probabilities, which makes them more equal. If the "
    "softmax includes zeros for tokens outside the nucleus, these tokens get a share too, because "
    "e^0 is 1. Divide the probabilities of the nucleus by their sum instead."
)
ZERO = (
    "For T = 0, logits / T is infinite. Softmax then computes inf − inf, which is NaN. Return the "
    "token with the largest logit instead."
)
RANK = "(kept.cumsum(dim=-1) <= u[:, None])"
PROBABILITIES = "(logits / T).softmax(dim=-1)"
KEPT = "ordered * (before < top_p)"
NORMALIZED = "    kept = kept / kept.sum(dim=-1, keepdim=True)\n"
LAST = "order.gather(1, chosen[:, None])[:, 0]"
CLAMP = "chosen = chosen.minimum((kept > 0).sum(dim=-1) - 1)", "pass"
COARSE = (
    "Your result is what you get if you convert the {} to {}. This dtype rounds them too much, so "
    "some tokens are wrong. Keep the dtype of the given logits."
)
SIXTEEN = [("float16", "half"), ("bfloat16", "bfloat16")]
MISTAKES = [
    ("beyond the end of the line", BEYOND.format("your code finds no token"), CLAMP),
    ("beyond the end, last of the vocabulary",
     BEYOND.format("you return the least probable token of the vocabulary"),
     (CLAMP[0], "chosen = chosen.clamp(max=ordered.shape[1] - 1)")),
    ("beyond the end, the most probable", BEYOND.format("you return the most probable token"),
     (CLAMP[0], "chosen = chosen.where(chosen < (kept > 0).sum(dim=-1), 0)")),
    ("multiplied by T", "You multiply the logits by T. A high temperature must make the "
     "distribution flatter, so divide by T.", ("logits / T", "logits * T")),
    ("probabilities divided by T", "You divide the probabilities by T. When they are divided by "
     "their sum, T cancels. Divide the logits by T, before softmax.",
     (PROBABILITIES, "logits.softmax(dim=-1) / T")),
    ("powers of probabilities",
     "Your result is what you get from p^(1 / T) for each probability p. These numbers do not add "
     "up to 1, so the nucleus is wrong. Divide them by their sum before you choose the nucleus, or "
     "divide the logits by T before softmax.",
     (PROBABILITIES, "logits.softmax(dim=-1) ** (1 / T)")),
    ("temperature left out", "Except for T = 0, your result is the one for T = 1. Divide the "
     "logits by T.", ("logits / T", "logits")),
    ("nucleus without temperature",
     "Your nucleus is the one for T = 1. Divide the logits by T first, and choose the nucleus from "
     "the new probabilities.",
     ("before = ordered.cumsum(dim=-1) - ordered",
      "cold = logits.softmax(dim=-1).gather(1, order)\n    before = cold.cumsum(dim=-1) - cold")),
    ("division by zero", ZERO, ("if T == 0", "if T == -1"), CLAMP),
    ("division by zero, and beyond the end", ZERO, ("if T == 0", "if T == -1"), CLAMP,
     (RANK, "(~(kept.cumsum(dim=-1) > u[:, None]))")),
    ("division by zero, and an empty nucleus", ZERO, ("if T == 0", "if T == -1"),
     (CLAMP[0], "chosen = chosen.minimum((before < top_p).sum(dim=-1) - 1)")),
    ("T = 1 for zero", "For T = 0, your result is the one for T = 1. Return the token with the "
     "largest logit instead.", ("    if T == 0", "    T = T or 1\n    if T == 0")),
    ("a small T for zero", "For T = 0, your result depends on u if two logits are nearly equal. "
     "This happens if you replace 0 by a small T. Return the token with the largest logit instead.",
     ("    if T == 0", "    T = max(T, 1e-2)\n    if T == 0")),
    ("a very small T for zero", "For T = 0, your result depends on u if two logits are nearly "
     "equal. This happens if you replace 0 by a small T. Return the token with the largest logit "
     "instead.", ("    if T == 0", "    T = T or 1e-6\n    if T == 0")),
    ("the one that reaches p left out", REACHES,
     (KEPT, "torch.where((ordered.cumsum(-1) < top_p) | (before == 0), ordered, 0)")),
    ("the one that reaches p left out, but at 1", REACHES,
     (KEPT, "ordered * (before + ordered <= top_p)")),
    ("the one that reaches p left out, and beyond the end", REACHES,
     (KEPT, "ordered * (before + ordered < top_p)"),
     (RANK, "(~(kept.cumsum(dim=-1) > u[:, None]))")),
    ("one too many kept", "Your nucleus has one token too many. The token that brings the "
     "sum to top_p must be its last one. Leave out all tokens after it.",
     (KEPT, "ordered * (torch.cat([before[:, :1], before[:, :-1]], dim=1) < top_p)")),
    ("one nucleus for all", "In your result, every row keeps as many tokens as row 0. Find "
     "the nucleus of each row separately.", (KEPT, "ordered * (before < top_p)[:1]")),
    ("1 - top_p", "Your nucleus reaches the probability 1 − top_p. Add up the probabilities "
     "until their sum reaches top_p.",
     ("before < top_p", "before < 1 - top_p")),
    ("points times top_p", "Your result is what you get if you divide by top_p. But the sum of the "
     "nucleus is larger than top_p if its last token goes beyond top_p. Divide by the sum of the "
     "nucleus.",
     (NORMALIZED, "    kept = ordered / top_p\n")),
    ("nucleus left out", "You draw from all tokens, whatever top_p is. Leave out all tokens after "
     "the one that brings the sum to top_p.", (KEPT, "ordered")),
    ("not divided by their sum", "The probabilities of your nucleus do not add up to 1, so the "
     "last token of the nucleus comes too often. Divide the probabilities by their sum.",
     (NORMALIZED, "")),
    ("not divided by their sum, and outside the nucleus", "Your result contains tokens outside the "
     "nucleus. The probabilities of your nucleus do not add up to 1, so u may lie beyond the end "
     "of your line. Divide the probabilities by their sum.",
     (NORMALIZED, ""), (CLAMP[0], "chosen = chosen.clamp(max=ordered.shape[1] - 1)")),
    ("ranks", "You return ranks, with 0 for the most probable token. Return the ids of the tokens "
     "that have these ranks.", (LAST, "chosen")),
    ("in vocabulary order",
     "On your line, the tokens are in vocabulary order. Put the most probable token first.",
     ("chosen = (kept.cumsum",
      "kept = torch.zeros_like(kept).scatter(1, order, kept)\n    chosen = (kept.cumsum"),
     (LAST, "chosen")),
    ("least probable first", "Your nucleus and your line begin with the least probable token. Sort "
     "in descending order.", ("descending=True", "descending=False")),
    ("a share of the tokens", "You keep the fraction top_p of all tokens in the vocabulary. But "
     "top_p is a probability. Add up the probabilities, starting with the most probable token, "
     "until their sum reaches top_p.",
     ("before < top_p",
      "torch.arange(probabilities.shape[1]) < max(1, top_p * probabilities.shape[1])")),
    ("probabilities above p", ABOVE, ("before < top_p", "ordered >= (1 - top_p) * ordered[:, :1]")),
    ("probabilities above p of the largest", ABOVE,
     ("before < top_p", "ordered >= top_p * ordered[:, :1]")),
    ("probabilities above 1 - p", ABOVE, ("before < top_p", "ordered >= 1 - top_p")),
    ("probabilities above 1 - p, and the largest", ABOVE,
     ("before < top_p", "(ordered >= 1 - top_p) | (before == 0)")),
    ("softmax again, of all", AGAIN, (NORMALIZED, "    kept = kept.softmax(dim=-1)\n")),
    ("softmax again", AGAIN,
     (NORMALIZED, "    kept = ordered.masked_fill(kept == 0, -torch.inf).softmax(dim=-1)\n")),
    ("always the largest", "Your result is always the most probable token, whatever u is. Use u to "
     "choose among the tokens of the nucleus.",
     (RANK + ".sum(dim=-1)", "0 * u.long()")),
    ("from the other end", "Your result is the one for 1 − u instead of u. The most probable token "
     "comes first on the line. Use u itself.", ("<= u[:, None]", "<= 1 - u[:, None]")),
    ("softmax over the texts", "Your softmax runs over the texts. Each row is a distribution of "
     "its own. Use dim=-1.", (PROBABILITIES, "(logits / T).softmax(dim=0)")),
    ("one point for all", "You use u[0] for all texts. Each text has its own point. Use u[b] "
     "for text b.", ("<= u[:, None]", "<= u[0]")),
    ("a rank too far", "You return the token after the one whose segment contains u. If u is below "
     "the first probability, return the first token of the line.",
     (LAST, "order.gather(1, (chosen[:, None] + 1).clamp(max=order.shape[1] - 1))[:, 0]")),
    ("a rank too near", "You return the token before the one whose segment contains u. If u lies "
     "in the second segment, return the second token of the line.",
     (LAST, "order.gather(1, (chosen[:, None] - 1).clamp(min=0))[:, 0]")),
    *((f"sorted probabilities in {name}", COARSE.format("probabilities", name),
       ("    before =", f"    ordered = ordered.{call}()\n    before ="))
      for name, call in SIXTEEN),
    *((f"all logits in {name}", COARSE.format("logits", name),
       ("    if T == 0", f"    logits = logits.{call}()\n    if T == 0"))
      for name, call in SIXTEEN),
    ("a column for T = 0", "Your tokens are right, but for T = 0 they are in a column (B, 1). "
     "Return shape (B,). If you wrote keepdim=True, leave it out.",
     ("logits.argmax(dim=-1)", "logits.argmax(dim=-1, keepdim=True)")),
    ("argmax of all texts", "For T = 0, your result is the index of the largest logit of the "
     "whole batch, flattened. Each text has its own largest logit. Use argmax(dim=-1).",
     ("return logits.argmax(dim=-1)", "return logits.argmax()[None].expand(len(logits))")),
    ("argmax of all texts, one number", "For T = 0, your result is the index of the largest "
     "logit of the whole batch, flattened. Each text has its own largest logit. Use "
     "argmax(dim=-1).",
     ("return logits.argmax(dim=-1)", "return logits.argmax()")),
    ("argmax over the texts", "For T = 0, your argmax runs over the texts. Each row is a "
     "distribution of its own. Use dim=-1.",
     ("return logits.argmax(dim=-1)", "return logits.argmax(dim=0)")),
    *((f"T up to {limit} as zero", "For a small T, your result is always the most probable token. "
       "Only T = 0 means that. For every T above 0, divide the logits by T.",
       ("if T == 0", f"if T <= {limit}"))
      for limit in (1, 0.1, 0.01, 0.001)),
    *((f"top_p below {limit} as greedy", "For a small top_p, your result is always the most "
       "probable token. The nucleus can still have more tokens. Add up the probabilities until "
       "their sum reaches top_p.", ("if T == 0", f"if T == 0 or top_p < {limit}"))
      for limit in (0.5, 0.3)),
    ("softmax twice", "Your result is what you get if softmax is applied twice, which makes the "
     "probabilities more equal. Apply it once.",
     (PROBABILITIES, PROBABILITIES + ".softmax(dim=-1)")),
    ("softmax over the texts, then over the tokens", "Your softmax runs over the texts. Each row "
     "is a distribution of its own. Use dim=-1.",
     (PROBABILITIES, "(logits / T).log_softmax(dim=0).softmax(dim=-1)")),
    ("divided by T twice", "You divide the logits by T twice. Divide them once.",
     ("logits / T", "logits / T / T")),
    ("logits outside set to 0", "You set the logits outside the nucleus to 0. A logit of 0 still "
     "gets a probability, because e^0 is 1. Set these logits to −∞.",
     (NORMALIZED, "    left = (logits / T).gather(1, order).where(kept > 0, 0)\n"
                  "    kept = left.softmax(dim=-1)\n"),
     (CLAMP[0], "chosen = chosen.minimum((before < top_p).sum(dim=-1) - 1)")),
    ("logits outside set to 0, and drawn", "You set the logits outside the nucleus to 0. A logit "
     "of 0 still gets a probability, because e^0 is 1. Set these logits to −∞.",
     (NORMALIZED, "    left = (logits / T).gather(1, order).where(kept > 0, 0)\n"
                  "    kept = left.softmax(dim=-1)\n")),
    ("largest nucleus for all", "In your result, all texts keep as many tokens as the text that "
        "needs the most. Find the nucleus of each row separately.",
     (KEPT, "ordered * (before < top_p).any(dim=0)")),
    ("smallest nucleus for all", "In your result, all texts keep as few tokens as the text that "
     "needs the fewest. Find the nucleus of each row separately.",
     (KEPT, "ordered * (before < top_p).all(dim=0)")),
    ("order of the first text", "In every text, you turn ranks into token ids with the sorted "
     "tokens of the first text. Each text has its own order. Use row b of the order for text b.",
     (LAST, "order[0, chosen]")),
    ("cut to k tokens", "Your nucleus has at most a fixed number of tokens. Only top_p decides "
     "where it ends. Leave out the second limit.",
     ("before < top_p", "(before < top_p) & (torch.arange(ordered.shape[1]) < 3)")),
    ("two tokens at least", "Your nucleus always has at least two tokens. If the most probable "
     "token reaches top_p by itself, it is the whole nucleus. In this case, keep no other token.",
     ("before < top_p", "(before < top_p) | (torch.arange(ordered.shape[1]) < 2)")),
    ("a column", "Your tokens are right, but in a column (B, 1). Return shape (B,): take [:, 0].",
     (LAST, "order.gather(1, chosen[:, None])"), ("logits.argmax(dim=-1)",
      "logits.argmax(dim=-1, keepdim=True)")),
    ("a column, but for T = 0", "Your tokens are right, but in a column (B, 1) unless T is 0. "
     "Return shape (B,): take [:, 0].", (LAST, "order.gather(1, chosen[:, None])")),
    ("equal shares", "You draw all tokens of the nucleus with equal probability. A more probable "
     "token needs a longer segment. Divide the probabilities of the nucleus by their sum.",
     (NORMALIZED, "    kept = (kept > 0) / (kept > 0).sum(dim=-1, keepdim=True)\n")),
    ("top_p lowered", "Your nucleus ends too early where the sum is slightly below top_p. Compare "
     "with top_p itself.", ("before < top_p", "before < top_p - 1e-3")),
    *((f"probabilities in {name}", COARSE.format("probabilities", name),
       (PROBABILITIES, f"{PROBABILITIES}.{call}()")) for name, call in SIXTEEN),
    *((f"logits in {name}", COARSE.format("logits", name),
       ("(logits / T).softmax", f"(logits.{call}() / T).softmax")) for name, call in SIXTEEN),
]  # fmt: skip

exercise = Exercise("10.5", next_token, inputs, MISTAKES, names="B", also_right=[by_searchsorted])
