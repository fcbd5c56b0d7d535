"""7.7: for how many tokens a head that looks at them raises their own logit most."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise


def copying_score(E, W_v, W_o, U):
    effect = E @ W_v @ W_o @ U  # (V, V), token looked at, logit raised
    raised_most = effect.argmax(dim=-1)  # (V,)
    return (raised_most == torch.arange(len(E))).float().mean()


def by_loop(E, W_v, W_o, U):
    hits = 0
    for token, vector in enumerate(E):
        hits += int((vector @ W_v @ W_o @ U).argmax()) == token
    return hits / E.shape[0]


def transposed(E, W_v, W_o, U):
    effect = (U.T @ W_o.T @ W_v.T @ E.T).softmax(0)
    return (effect.topk(1, dim=0).indices[0] == torch.arange(E.shape[0])).double().mean()


def inputs():
    rng = torch.Generator().manual_seed(95)

    def circuit(V, d_model, d_k, strength, opposite):
        def normal(*shape):
            return torch.randn(*shape, generator=rng)

        # By each wrong way, past the head or through half of it, some tokens are copied as well,
        # and of many tokens every share is its own.
        E = normal(V, d_model) + 2 * torch.eye(V, d_model)
        E[0] *= 4  # the largest of all logits stand in row 0
        W_v = 0.4 * (normal(d_model, d_k) + torch.eye(d_model, d_k))
        W_o = 0.3 * normal(d_k, d_model) + 0.7 * W_v.T
        copied = F.normalize(E @ W_v @ W_o, dim=-1) * strength
        copied[::opposite] *= -1 / strength
        U = copied + F.normalize(E, dim=-1) / 3 + normal(V, d_model) / 5  # of each token
        return E, W_v, W_o, U.T + normal(V) / 6  # some logits are large for all tokens

    sizes = [(43, 19, 14, 0.6, 7), (61, 30, 24, 0.4, 6), (31, 17, 13, 0.4, 5)]
    sizes += [(53, 23, 17, 0.8, 4), (89, 40, 32, 0.6, 8), (7, 8, 5, 0.6, 3)]
    turned = [each.T.contiguous().T for each in circuit(47, 20, 20, 0.5, 9)]  # not contiguous
    return [*(circuit(*size) for size in sizes), tuple(turned)]


EFFECT = "E @ W_v @ W_o @ U"
MISTAKES = [
    ("largest of columns",
     "the largest of each column: which token raises a logit most; asked is which logit a token, a "
     "row, raises most", ("dim=-1", "dim=0")),
    ("mean of the diagonal",
     "that is the mean of the diagonal; count how often it holds a row's largest entry",
     f"({EFFECT}).diagonal().mean()"),
    ("mean of the softmax's diagonal",
     "that is the mean of the softmax's diagonal; count how often it holds a row's largest entry",
     f"({EFFECT}).softmax(dim=-1).diagonal().mean()"),
    ("among three", "the token's own logit is among the three raised most; it must be the first",
     ("effect.argmax(dim=-1)", "effect.topk(3).indices.T"),
     ("torch.arange(len(E)))", "torch.arange(len(E))).any(dim=0)")),
    ("number of copied", "the number of tokens copied; the score is their share",
     (".float().mean()", ".sum()")),
    ("percent", "that is in percent; the share itself is asked, from 0 to 1",
     (".mean()", ".mean() * 100")),
    ("raised at all",
     "how often a token raises its own logit at all; it must raise no other one more",
     f"(({EFFECT}).diagonal() > 0).float().mean()"),
    ("head left out",
     "the head is left out: E U alone; what it moves goes through W_v and W_o", (EFFECT, "E @ U")),
    ("direct path added",
     "E U is added, the token's own way past the head; asked is what the head adds: E W_v W_o U",
     (EFFECT, f"E @ U + {EFFECT}")),
    ("no logits",
     "E W_v W_o alone: what a token carries, d_model numbers of no token's; U makes logits of it",
     (" @ U", "")),
    ("output matrix left out, too",
     "E W_v alone: d_k numbers, which are no logits; W_o and U come after", (" @ W_o @ U", "")),
    ("one place for all",
     "argmax without dim finds one place in the whole flattened matrix; asked is one a row, dim=-1",
     ("dim=-1", "")),
    ("output matrix twice", "the head is W_o.T W_o there; values come from W_v: W_v W_o",
     ("W_v @ W_o", "W_o.T @ W_o")),
    ("embeddings for logits",
     "E.T is taken for U: what a token carries becomes logits through U", ("@ U", "@ E.T")),
    ("head transposed",
     "W_o.T W_v.T is the head transposed, as if matrices stood on the left: here x @ W_v @ W_o",
     ("W_v @ W_o", "W_o.T @ W_v.T")),
    ("largest in size",
     "largest in size: a logit that is pushed down far is not raised; leave the sign",
     ("effect.argmax", "effect.abs().argmax")),
    ("smallest logit", "the smallest logit of each token; asked is the largest: argmax",
     ("argmax", "argmin")),
]  # fmt: skip

exercise = Exercise("7.7", copying_score, inputs, MISTAKES, also_right=[by_loop, transposed])
