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
     "s is the size of what this layer's heads write together; it is the whole stream's, x",
     (S, "s = (written.sum(dim=0).square().mean() + EPS).sqrt()")),
    ("what is lost without it",
     "the norm is worked out anew without each head; asked is its part with s held fixed",
     (WRITTEN, "(x / s - (x - written) / ((x - written).square().mean(-1, keepdim=True) + EPS)"
               ".sqrt()) * gamma @ E.T")),
    ("the rest, normed anew",
     "that is what all the rest gives, with a norm of its own; asked is the head's part, s fixed",
     (WRITTEN, "(x - written) / ((x - written).square().mean(-1, keepdim=True) + EPS).sqrt()"
               " * gamma @ E.T")),
    ("head centred", "a mean is taken off what a head writes, as LayerNorm does; RMSNorm does not",
     ("written / s", "(written - written.mean(dim=-1, keepdim=True)) / s")),
    ("what is left", "that is what all the rest adds, x less the head; asked is the head's part",
     ("written / s", "(x - written) / s")),
    ("centred", "a mean over the logits is taken off; asked is what is added to each, as it is",
     ("    return written / s * gamma @ E.T", "    told = written / s * gamma @ E.T\n"
      "    return told - told.mean(dim=-1, keepdim=True)")),
    ("softmax", "right up to the logits, then softmax; asked are logits, which add up",
     ("    return written / s * gamma @ E.T",
      "    return (written / s * gamma @ E.T).softmax(dim=-1)")),
    ("norm of its own",
     "each head is divided by the size of what it writes itself; s is the whole stream's, the same "
     "for all heads, or the parts do not add up",
     (S, "s = (written.square().mean(dim=-1, keepdim=True) + EPS).sqrt()")),
    ("no norm", "the last norm is left out: divide by s", (WRITTEN, "written * gamma @ E.T")),
    ("no gamma", "γ, the norm's weights, is left out", (" * gamma", "")),
    ("neither", "the last norm is left out altogether: divide by s, multiply with γ",
     (WRITTEN, "written @ E.T")),
    ("length", "divided by the stream's length; s is √(mean of squares), not of their sum",
     ("x.square().mean()", "x.square().sum()")),
    ("not rooted", "divided by the mean of squares; s is its root", (".sqrt()", "")),
    ("mean taken off", "a mean is taken off the stream, as LayerNorm does; RMSNorm does not",
     ("x.square().mean()", "(x - x.mean()).square().mean()")),
    ("spread", "divided by x.std(), which takes a mean off the stream; RMSNorm does not",
     (S, "s = x.std()")),
    ("no epsilon", "1e-5 is missing under the root: it counts where a stream is small",
     (" + EPS", "")),
    ("epsilon outside", "1e-5 is added after the root; it stands under it",
     ("(x.square().mean() + EPS).sqrt()", "x.square().mean().sqrt() + EPS")),
    ("dealt out", DEALT_OUT,
     ('W_o.unflatten(1, (H, d_k))', 'W_o.unflatten(1, (d_k, H)).mT')),
    ("rows for columns",
     "rows of W_o are taken for a head; it acts as W_o @ z.flatten(), so a head has columns",
     ("W_o.unflatten(1, (H, d_k))", "W_o.T.reshape(-1)[: W_o.numel()].view(W_o.shape)"
                                    ".unflatten(1, (H, d_k))")),
    ("all heads together", "one row for all heads together; asked is one a head",
     ('"dhk,hk->hd"', '"dhk,hk->d"')),
    ("times the stream", "multiplied with s where it should be divided",
     ("written / s", "written * s")),
    ("divided by gamma", "divided by γ; the norm multiplies with it",
     ("/ s * gamma", "/ s / gamma")),
    ("tokens before heads", "right numbers, but one row a token: asked is (H, V)",
     ("    return written / s * gamma @ E.T", "    return (written / s * gamma @ E.T).T")),
]  # fmt: skip

exercise = Exercise(
    "10b.5", attribute, inputs, MISTAKES, names="H V", also_right=[by_loops, by_zeros]
)
