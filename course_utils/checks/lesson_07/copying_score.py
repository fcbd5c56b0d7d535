"""7.7: the share of tokens whose own logit rises most when a head attends to them."""

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

        # Wrong products, past the head or through half of it, copy some tokens too. With many
        # tokens, no two of them give the same share.
        E = normal(V, d_model) + 2 * torch.eye(V, d_model)
        E[0] *= 4  # the largest logits are in row 0
        E[-1] *= V != 61  # an embedding of 0, such as that of padding, raises no logit
        W_v = 0.4 * (normal(d_model, d_k) + torch.eye(d_model, d_k))
        W_o = 0.3 * normal(d_k, d_model) + 0.7 * W_v.T
        copied = F.normalize(E @ W_v @ W_o, dim=-1) * strength
        copied[::opposite] *= -1 / strength
        U = copied + F.normalize(E, dim=-1) / 3 + normal(V, d_model) / 5  # of each token
        logits_of_all = 3 * normal(d_model, 1) * (V == 53)  # all entries of some rows are negative
        # and some logits are large for all tokens
        return E, W_v, W_o, U.T + logits_of_all + normal(V) / 6

    sizes = [(43, 19, 14, 0.6, 7), (61, 30, 24, 0.4, 6), (31, 17, 13, 0.4, 5)]
    sizes += [(53, 23, 17, 0.8, 4), (89, 40, 32, 0.6, 8), (7, 8, 5, 0.6, 3)]
    turned = [each.T.contiguous().T for each in circuit(47, 20, 20, 0.5, 9)]  # not contiguous
    return [*(circuit(*size) for size in sizes), tuple(turned)]


EFFECT = "E @ W_v @ W_o @ U"
ONE_EACH = "You return one value per token. Return the share of copied tokens, one number."
MISTAKES = [
    ("largest of columns",
     "You take the largest entry of each column, which says which token raises a logit most. Take "
     "the largest entry of each row, `dim=-1`.", ("dim=-1", "dim=0")),
    ("mean of the diagonal",
     "Your result is the mean of the diagonal. Return the share of rows in which the diagonal "
     "entry is the largest.",
     f"({EFFECT}).diagonal().mean()"),
    ("mean of the softmax's diagonal",
     "Your result is the mean of the diagonal after softmax. Return the share of rows in which the "
     "diagonal entry is the largest.",
     f"({EFFECT}).softmax(dim=-1).diagonal().mean()"),
    ("tokens kept apart", ONE_EACH, (".float().mean()", ".float()")),
    ("true or false for each token", ONE_EACH, (".float().mean()", "")),
    ("ties counted",
     "You also count a token if its own logit changes exactly as much as another, as with an "
     "embedding of 0. The change in its own logit must be larger than the change in any other.",
     f"(({EFFECT}).diagonal() >= ({EFFECT}).amax(dim=-1)).float().mean()"),
    ("largest of all",
     "You compare the diagonal with the largest entry of the whole matrix. Compare it with the "
     "largest entry of its row.",
     f"(({EFFECT}).diagonal() == ({EFFECT}).max()).float().mean()"),
    ("eigenvalues",
     "Your result is the sum of the eigenvalues divided by the sum of their absolute values, "
     "another score for copying. Return the share of rows in which the diagonal entry is the "
     "largest.",
     f"(lambda each: (each.sum() / each.abs().sum()).real)(torch.linalg.eigvals({EFFECT}))"),
    ("cosines",
     "Your result is what you get if the columns of U are scaled to length 1, as for a cosine "
     "similarity. Logits are plain products. Use U as it is.",
     ("@ U", "@ F.normalize(U, dim=0)")),
    ("value matrix left out",
     "Your result is what you get without W_v, from the first d_k columns of E. Compute E W_v W_o "
     "U.",
     ("E @ W_v", "E[:, :len(W_o)]")),
    ("softmax over the tokens attended to",
     "Your result is what you get after a softmax over the tokens attended to. That can change "
     "which entry of a row is the largest. Compare the logits as they are.",
     ("effect.argmax", "effect.softmax(dim=0).argmax")),
    ("largest and positive",
     "You leave out tokens whose own logit falls, even where it falls less than all others. Count "
     "these tokens too, because the diagonal entry is the largest of its row.",
     ("effect.argmax(dim=-1)", "torch.where(effect.diagonal() > 0, effect.argmax(dim=-1), -1)")),
    ("largest of row and column",
     "You count a token only if the diagonal entry is the largest of its row and of its column. It "
     "only has to be the largest of its row.",
     f"(({EFFECT}).argmax(-1) == ({EFFECT}).argmax(0)).logical_and(({EFFECT}).argmax(-1) == "
     "torch.arange(len(E))).float().mean()"),
    ("mean over all pairs",
     "Your number of copied tokens is divided by V². Divide it by V, the number of tokens.",
     (".float().mean()", ".float().mean() / len(E)")),
    ("output matrix left out",
     "Your result is what you get without W_o, from the first d_k rows of U. Compute E W_v W_o U.",
     ("@ W_o @ U", "@ U[: W_v.shape[1]]")),
    ("among three",
     "You count a token if its own logit is one of the three largest. It must be the largest.",
     ("effect.argmax(dim=-1)", "effect.topk(3).indices.T"),
     ("torch.arange(len(E)))", "torch.arange(len(E))).any(dim=0)")),
    ("number of copied",
     "Your result is the number of copied tokens. Return their share.",
     (".float().mean()", ".sum()")),
    ("divided by the width",
     "Your number of copied tokens is divided by d_model. Divide it by V, the number of tokens.",
     (".float().mean()", ".sum() / E.shape[1]")),
    ("percent",
     "Your result is in percent. Return a number from 0 to 1.",
     (".mean()", ".mean() * 100")),
    ("raised at all",
     "You get this result if you count a token whose own logit rises at all, or rises more than "
     "the others on average. Count it only if the change in its own logit is larger than the "
     "change in any other.",
     f"(({EFFECT}).diagonal() > 0).float().mean()"),
    ("head left out",
     "Your result is the score of E U, without the head. Put W_v and W_o between them.",
     (EFFECT, "E @ U")),
    ("direct path added",
     "You include E U, the direct path past the head. Use only E W_v W_o U, the contribution of "
     "the head.",
     (EFFECT, f"E @ U + {EFFECT}")),
    ("no logits",
     "Your result is the score of E W_v W_o, whose columns are not logits. Multiply it by U.",
     (" @ U", "")),
    ("output matrix left out, too",
     "Your result is the score of E W_v, whose columns are not logits. Multiply it by W_o and U.",
     (" @ W_o @ U", "")),
    ("one place for all",
     "You use one index for the whole matrix. `argmax` without `dim` flattens its input. Use "
     "`dim=-1`.",
     ("dim=-1", "")),
    ("output matrix twice",
     "You use W_o.T in place of W_v. Values come from W_v, so compute W_v W_o.",
     ("W_v @ W_o", "W_o.T @ W_o")),
    ("embeddings for logits",
     "You use E.T in place of U. Multiply by U to get logits.", ("@ U", "@ E.T")),
    ("head transposed",
     "You use the transposed head, W_o.T W_v.T. Here matrices multiply from the right, so "
     "compute E W_v W_o U.",
     ("W_v @ W_o", "W_o.T @ W_v.T")),
    ("largest in size",
     "You take the entry with the largest absolute value. A large negative entry lowers the logit, "
     "so keep the sign.",
     ("effect.argmax", "effect.abs().argmax")),
    ("smallest logit",
     "You take the smallest logit of each token. Take the largest, with `argmax`.",
     ("argmax", "argmin")),
    ("logits centered",
     "From each logit, you subtract its mean over all tokens attended to. That can change which "
     "logit of a row is the largest. Compare the logits as they are.",
     ("effect.argmax", "(effect - effect.mean(dim=0)).argmax")),
    ("unembedding for embeddings",
     "You use U.T in place of E. Start with E, the embeddings of the tokens attended to.",
     ("E @ W_v", "U.T @ W_v")),
]  # fmt: skip

exercise = Exercise("7.7", copying_score, inputs, MISTAKES, also_right=[by_loop, transposed])
