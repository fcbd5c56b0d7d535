"""10b.5: what each head of a layer writes into each logit, past the last norm."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.shared_hints import DEALT_OUT

EPS = 1e-5


def attribute(z, W_o, gamma, x, E):
    H, d_k = z.shape
    columns = W_o.unflatten(1, (H, d_k))  # (d_model, H, d_k), a head's own
    written = torch.einsum("dhk,hk->hd", columns, z)  # (H, d_model), into the stream
    s = (x.square().mean() + EPS).sqrt()  # one number, of the whole stream
    return written / s * gamma @ E.T  # (H, V)


def by_loops(z, W_o, gamma, x, E):
    d_k = z.shape[1]
    rows = []
    for h in range(len(z)):
        written = W_o[:, h * d_k : (h + 1) * d_k] @ z[h]
        rows.append(E @ (gamma * written * torch.rsqrt((x * x).mean() + 1e-5)))
    return torch.stack(rows)


def by_zeros(z, W_o, gamma, x, E):
    alone = torch.block_diag(*z[:, None])  # (H, H * d_k)
    readout = E * gamma / torch.sqrt(x.pow(2).sum() / len(x) + 1e-5)
    return F.linear(F.linear(alone, W_o), readout)


def inputs():
    normal = normals(105)

    def probe(H, d_k, d_model, V, size, dtype=torch.float64):
        z, W_o = normal(H, d_k, dtype=dtype), normal(d_model, H * d_k, dtype=dtype)
        x = size * normal(d_model, dtype=dtype) + W_o @ z.flatten()
        return z, W_o, 1 + normal(d_model, dtype=dtype) / 2, x, normal(V, d_model, dtype=dtype)

    sizes = [(3, 4, 7, 9, 5), (2, 5, 10, 6, 9), (4, 2, 8, 11, 3), (1, 3, 5, 4, 4), (6, 6, 36, 3, 2)]
    z, W_o, gamma, x, E = probe(3, 2, 6, 5, 1)
    small = [each * 1e-3 for each in (z, W_o, gamma, x)]
    turned = (z.T.contiguous().T, W_o.T.contiguous().T, gamma, x, E.T.contiguous().T)
    return [*(probe(*size) for size in sizes), probe(5, 3, 15, 8, 7, torch.float32),
            (*small, E), turned]  # fmt: skip


S = "s = (x.square().mean() + EPS).sqrt()"
WRITTEN = "written / s * gamma @ E.T"
MISTAKES = [
    ("norm of the heads' sum",
     "Your s is computed from what this layer's heads write. Compute it from x, the whole stream.",
     (S, "s = (written.sum(dim=0).square().mean() + EPS).sqrt()")),
    ("what is lost without it",
     "Your result is what each logit loses without the head, with a new norm each time. Keep s "
     "fixed, and return the head's own part.",
     (WRITTEN, "(x / s - (x - written) / ((x - written).square().mean(-1, keepdim=True) + EPS)"
               ".sqrt()) * gamma @ E.T")),
    ("the rest, normed anew",
     "Your result is the logits of everything except the head, with a norm of its own. Keep s "
     "fixed, and return the head's own part.",
     (WRITTEN, "(x - written) / ((x - written).square().mean(-1, keepdim=True) + EPS).sqrt()"
               " * gamma @ E.T")),
    ("head centred",
     "In your result, a mean is subtracted from what a head writes, as in LayerNorm. RMSNorm "
     "subtracts nothing.",
     ("written / s", "(written - written.mean(dim=-1, keepdim=True)) / s")),
    ("what is left",
     "Your result is what the rest adds, x without the head. Return the head's own part.",
     ("written / s", "(x - written) / s")),
    ("centred",
     "In your result, a mean over the logits is subtracted. Return what the head adds to each "
     "logit, unchanged.",
     ("    return written / s * gamma @ E.T", "    told = written / s * gamma @ E.T\n"
      "    return told - told.mean(dim=-1, keepdim=True)")),
    ("softmax",
     "Your result is the softmax of the right logits. Return the logits themselves, because they "
     "add up.",
     ("    return written / s * gamma @ E.T",
      "    return (written / s * gamma @ E.T).softmax(dim=-1)")),
    ("norm of its own",
     "In your result, each head is divided by the size of what it writes itself. Then the parts "
     "do not add up. Use one s for all heads, from the stream x.",
     (S, "s = (written.square().mean(dim=-1, keepdim=True) + EPS).sqrt()")),
    ("no norm",
     "Your result leaves out the division by s. Divide by it.",
     (WRITTEN, "written * gamma @ E.T")),
    ("no gamma",
     "Your result leaves out γ, the weights of the norm. Multiply by them.",
     (" * gamma", "")),
    ("neither",
     "Your result leaves out the last norm. Divide by s, and multiply by γ.",
     (WRITTEN, "written @ E.T")),
    ("length",
     "Your result is divided by the length of x. s is the square root of the *mean* of the "
     "squares, not of their sum.",
     ("x.square().mean()", "x.square().sum()")),
    ("entry by entry",
     "Your result is divided by the size of each entry of x. s is one number for the whole stream: "
     "take the mean of the squares.",
     ("x.square().mean()", "x.square()")),
    ("not rooted",
     "Your result is divided by the mean of the squares. Divide by its square root.",
     (".sqrt()", "")),
    ("mean taken off",
     "In your s, the mean of x is subtracted first, as in LayerNorm. RMSNorm subtracts nothing.",
     ("x.square().mean()", "(x - x.mean()).square().mean()")),
    ("spread",
     "Your result is divided by x.std(). That subtracts the mean of x, but RMSNorm does not. Use "
     "the square root of the mean square.",
     (S, "s = x.std()")),
    ("no epsilon",
     "Your result is wrong for a small stream. Add 1e-5 to the mean of the squares.",
     (" + EPS", "")),
    ("epsilon outside",
     "In your s, 1e-5 is added after the square root. Add it to the mean of the squares, under "
     "the root.",
     ("(x.square().mean() + EPS).sqrt()", "x.square().mean().sqrt() + EPS")),
    ("dealt out", DEALT_OUT,
     ('W_o.unflatten(1, (H, d_k))', 'W_o.unflatten(1, (d_k, H)).mT')),
    ("rows for columns",
     "Your heads take rows of W_o. It acts as W_o @ z.flatten(), so give each head its own "
     "columns.",
     ("W_o.unflatten(1, (H, d_k))", "W_o.T.reshape(-1)[: W_o.numel()].view(W_o.shape)"
                                    ".unflatten(1, (H, d_k))")),
    ("all heads together",
     "Your result has one row for all heads together. Return one row for each head.",
     ('"dhk,hk->hd"', '"dhk,hk->d"')),
    ("times the stream",
     "Your result is multiplied by s. Divide by it.",
     ("written / s", "written * s")),
    ("divided by gamma",
     "Your result is divided by γ. Multiply by it.",
     ("/ s * gamma", "/ s / gamma")),
    ("tokens before heads",
     "Your numbers are right, but transposed. Rows are heads, and columns are tokens: (H, V).",
     ("    return written / s * gamma @ E.T", "    return (written / s * gamma @ E.T).T")),
]  # fmt: skip

exercise = Exercise(
    "10b.5", attribute, inputs, MISTAKES, names="H V", also_right=[by_loops, by_zeros]
)
