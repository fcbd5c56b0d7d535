"""10b.5: what each head of a layer writes into each logit, after the final norm."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals

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
OTHER_EPSILON = (
    "Your result is wrong when x is close to 0, because your s adds another number in place of "
    "1e-5. Add 1e-5 to the mean of x², under the root."
)
MISTAKES = [
    ("norm of the heads' sum",
     "Your s is computed from what the heads of this layer write. RMSNorm reads the whole stream,"
     " so compute s from x.",
     (S, "s = (written.sum(dim=0).square().mean() + EPS).sqrt()")),
    ("what is lost without it",
     "Your result is how much each logit falls if the head is removed and s is recomputed. Keep s"
     " fixed, and return only the head's own part.",
     (WRITTEN, "(x / s - (x - written) / ((x - written).square().mean(-1, keepdim=True) + EPS)"
               ".sqrt()) * gamma @ E.T")),
    ("the rest, normed anew",
     "Your result is the logits of everything except the head, with s recomputed. Keep s fixed, "
     "and return only the head's own part.",
     (WRITTEN, "(x - written) / ((x - written).square().mean(-1, keepdim=True) + EPS).sqrt()"
               " * gamma @ E.T")),
    ("head centered",
     "In your result, the mean of what a head writes is subtracted, as in LayerNorm. RMSNorm "
     "subtracts no mean, so leave this step out.",
     ("written / s", "(written - written.mean(dim=-1, keepdim=True)) / s")),
    ("what is left",
     "Your result is what everything except the head adds to the logits. Return the head's own "
     "part.",
     ("written / s", "(x - written) / s")),
    ("all heads in each row",
     "Each row of your result is what all heads add together. In row h, return what head h adds "
     "alone.",
     (WRITTEN, "written.sum(dim=0).expand_as(written) / s * gamma @ E.T")),
    ("LayerNorm",
     "Your result is that of LayerNorm, which subtracts a mean and divides by a standard deviation."
     " Use RMSNorm: subtract nothing, and divide by s.",
     (WRITTEN, "(written - written.mean(dim=-1, keepdim=True)) / x.std(unbiased=False)"
               " * gamma @ E.T")),
    ("z transposed",
     "Your result is what you get if z is transposed before it is flattened. Flatten z as it is, "
     "so that the d_k outputs of a head stay together.",
     ("columns, z)", "columns, z.T.reshape(z.shape))")),
    ("norm of z",
     "Your s is computed from z. RMSNorm reads the residual stream, so compute s from x.",
     ("(x.square()", "(z.square()")),
    ("columns of head 0",
     "All your heads use the columns of head 0. Head h has the d_k columns that start at h · d_k.",
     ("columns, z)", "columns[:, :1].expand_as(columns), z)")),
    ("divided by H",
     "Your result is divided by H. The layer adds the parts of its heads without averaging, so "
     "leave this division out.",
     (WRITTEN, "written / s / H * gamma @ E.T")),
    ("logits of the stream subtracted",
     "Your result is the head's part minus the logits. Return the head's part alone.",
     (WRITTEN, "(written - x) / s * gamma @ E.T")),
    ("share of the logits",
     "Your result is divided by the logits. Return the head's part itself, not its share.",
     (WRITTEN, "written / s * gamma @ E.T / (x / s * gamma @ E.T)")),
    ("stream added",
     "Your result is the head's part plus the logits of x. x already contains that part. Return the"
     " part alone.",
     (WRITTEN, "(written + x) / s * gamma @ E.T")),
    ("log-softmax",
     "Your result is the log-softmax of the right numbers. Return the numbers themselves, because "
     "only they are parts of the logits.",
     ("    return written / s * gamma @ E.T",
      "    return (written / s * gamma @ E.T).log_softmax(dim=-1)")),
    ("rows of E normalized",
     "Your result is what you get if the rows of E are scaled to length 1. The logits are products "
     "with E itself, so use E as it is.",
     (WRITTEN, "written / s * gamma @ F.normalize(E, dim=-1).T")),
    ("heads added to the stream",
     "Your s is computed from x plus what all heads write. x already contains that, so compute s "
     "from x alone.",
     (S, "s = ((x + written.sum(dim=0)).square().mean() + EPS).sqrt()")),
    ("part divided by its length",
     "In your result, each head's part is divided by its own length. Use one s for all heads, "
     "computed from x.",
     (S, "s = written.norm(dim=-1, keepdim=True)")),
    ("mean of absolute values",
     "Your s is the mean of |x|. RMSNorm divides by the root of the mean square. Use √(mean of x² "
     "+ 1e-5).",
     (S, "s = x.abs().mean()")),
    ("wrong sign",
     "Your result has the wrong sign. Return what the head adds.",
     (WRITTEN, "-written / s * gamma @ E.T")),
    ("heads in reverse",
     "Your heads are in reverse order. Head 0 comes first.",
     ("    return written / s * gamma @ E.T", "    return (written / s * gamma @ E.T).flip(0)")),
    ("centered",
     "In your result, the mean of each row is subtracted. Return what the head adds to each "
     "logit, unchanged.",
     ("    return written / s * gamma @ E.T", "    added = written / s * gamma @ E.T\n"
      "    return added - added.mean(dim=-1, keepdim=True)")),
    ("softmax",
     "Your result is the softmax of the right numbers. Return the numbers themselves, because "
     "only they are parts of the logits.",
     ("    return written / s * gamma @ E.T",
      "    return (written / s * gamma @ E.T).softmax(dim=-1)")),
    ("norm of its own",
     "In your result, each head's part is divided by the RMS of what that head writes. Then the "
     "parts no longer add up to the logits. Use one s for all heads, computed from x.",
     (S, "s = (written.square().mean(dim=-1, keepdim=True) + EPS).sqrt()")),
    ("no norm",
     "Your result leaves out the division by s. The logits are computed from x / s, so divide "
     "each head's part by s, too.",
     (WRITTEN, "written * gamma @ E.T")),
    ("no gamma",
     "Your result leaves out `gamma`, the weights of the norm. Multiply by them.",
     (" * gamma", "")),
    ("neither",
     "Your result leaves out the final norm. Divide by s, and multiply by `gamma`.",
     (WRITTEN, "written @ E.T")),
    ("length",
     "Your s is the square root of the *sum* of x². Take the square root of the mean instead, "
     "with 1e-5 under it.",
     ("x.square().mean()", "x.square().sum()")),
    ("entry by entry",
     "Your s has one entry for each entry of x. It must be one number for the whole stream, so "
     "take the mean of x².",
     ("x.square().mean()", "x.square()")),
    ("not rooted",
     "Your result is divided by the mean of x². Divide by its square root.",
     (".sqrt()", "")),
    ("mean taken off",
     "In your s, the mean of x is subtracted first, as in LayerNorm. RMSNorm subtracts no mean, "
     "so leave this step out.",
     ("x.square().mean()", "(x - x.mean()).square().mean()")),
    ("spread",
     "Your s is x.std(), which subtracts the mean of x first. RMSNorm subtracts no mean. Use "
     "√(mean of x² + 1e-5).",
     (S, "s = x.std()")),
    ("no epsilon",
     "Your result is wrong when x is close to 0, because your s leaves out 1e-5. Add it to the "
     "mean of x², under the root.",
     (" + EPS", "")),
    ("epsilon outside",
     "In your s, 1e-5 is added after the square root. Add it to the mean of x², under the root.",
     ("(x.square().mean() + EPS).sqrt()", "x.square().mean().sqrt() + EPS")),
    ("epsilon of 1e-6", OTHER_EPSILON, (" + EPS", " + 1e-6")),
    ("epsilon of 1e-8", OTHER_EPSILON, (" + EPS", " + 1e-8")),
    ("one plus gamma",
     "Your result is multiplied by 1 + `gamma`, as in some models. Here, multiply by `gamma` "
     "itself.",
     ("* gamma", "* (1 + gamma)")),
    ("gamma twice",
     "Your result is multiplied by `gamma` twice. Multiply by it once.",
     ("* gamma", "* gamma * gamma")),
    ("head added to the stream",
     "Your s is computed from x plus the head's part. x already contains that part, so compute s"
     " from x alone.",
     (S, "s = ((x + written).square().mean(dim=-1, keepdim=True) + EPS).sqrt()")),
    ("dealt out",
     "Your heads take every H-th column. Head h takes the neighboring columns h · d_k to (h + 1)"
     " · d_k − 1.",
     ('W_o.unflatten(1, (H, d_k))', 'W_o.unflatten(1, (d_k, H)).mT')),
    ("rows for columns",
     "Your result is what you get with W_o transposed. The layer computes `W_o @ z.flatten()`, so"
     " each head has its own *columns* of W_o.",
     ("W_o.unflatten(1, (H, d_k))", "W_o.T.reshape(-1)[: W_o.numel()].view(W_o.shape)"
                                    ".unflatten(1, (H, d_k))")),
    ("all heads together",
     "Your result has one row for all heads together. Return one row for each head.",
     ('"dhk,hk->hd"', '"dhk,hk->d"')),
    ("times the stream",
     "Your result is multiplied by s. Divide by s instead.",
     ("written / s", "written * s")),
    ("divided by gamma",
     "Your result is divided by `gamma`. Multiply by it instead.",
     ("/ s * gamma", "/ s / gamma")),
    ("tokens before heads",
     "Your numbers are right, but your result is transposed. Make the heads its rows and the "
     "tokens its columns.",
     ("    return written / s * gamma @ E.T", "    return (written / s * gamma @ E.T).T")),
]  # fmt: skip

exercise = Exercise(
    "10b.5", attribute, inputs, MISTAKES, names="H V", also_right=[by_loops, by_zeros]
)
