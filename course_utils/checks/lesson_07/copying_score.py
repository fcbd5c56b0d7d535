"""7.8: for how many tokens a head that looks at them raises their own logit most."""

import torch

from course_utils.checks.exercise import Exercise


def copying_score(E, W_v, W_o, U):
    effect = E @ W_v @ W_o @ U  # (V, V), token looked at, logit raised
    raised_most = effect.argmax(dim=-1)  # (V,)
    return (raised_most == torch.arange(len(E))).float().mean()


def inputs():
    rng = torch.Generator().manual_seed(95)

    def circuit(V, d_model, d_k, strength, direct=0.0):
        def normal(*shape):
            return torch.randn(*shape, generator=rng)

        E, W_v, W_o = normal(V, d_model), normal(d_model, d_k), normal(d_k, d_model)
        # between noise and a perfect copy, so that some tokens are copied, and of the first three
        # the opposite; biased logits, so that rows and columns differ
        factors = torch.where(torch.arange(V) < 3, -2, 1)
        U = strength * torch.linalg.pinv(E @ W_v @ W_o) * factors + normal(d_model, V) / 40
        U = U + direct * torch.linalg.pinv(E)  # so that E U alone copies some tokens as well
        return E, W_v, W_o, U + 0.02 * normal(V)

    sizes = [
        (9, 7, 5, 0.3),
        (12, 10, 6, 0.4),
        (7, 8, 5, 0.2),
        (15, 8, 4, 0.5, 0.3),
        (50, 16, 16, 0.5, 0.1),
    ]
    turned = [each.T.contiguous().T for each in circuit(11, 6, 6, 0.4)]  # not contiguous
    return [*(circuit(*size) for size in sizes), tuple(turned)]


EFFECT = "E @ W_v @ W_o @ U"
MISTAKES = [
    ("largest of columns",
     "the largest of each column: which token raises a logit most; asked is which logit a token, a "
     "row, raises most", ("dim=-1", "dim=0")),
    ("mean of the diagonal",
     "that is the mean of the diagonal; count how often it holds a row's largest entry",
     f"({EFFECT}).diagonal().mean()"),
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

exercise = Exercise("7.8", copying_score, inputs, MISTAKES)
