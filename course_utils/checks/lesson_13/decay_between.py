"""13.3: what is left at each position of what was written at each earlier one."""

import torch

from course_utils.checks.exercise import Exercise, call_with_clones
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_13._linear import without_strong_decays


def decay_between(decay):
    L = decay.shape[-1]
    logs = decay.log()  # (..., L)
    sums = logs.cumsum(dim=-1)  # (..., L)
    between = sums[..., :, None] - sums[..., None, :]  # (..., L, L)
    future = torch.ones(L, L, dtype=torch.bool).triu(1)
    return between.masked_fill(future, -torch.inf).exp()


def by_cumulative_products(decay):
    L = decay.shape[-1]
    below = torch.ones(L, L, dtype=torch.bool).tril(-1)
    return torch.where(below, decay[..., :, None], 1).cumprod(dim=-2).tril()


def row_by_row(decay):
    L = decay.shape[-1]
    row = torch.zeros_like(decay)
    rows = []
    for i in range(L):
        one = torch.nn.functional.one_hot(torch.tensor(i), L).to(decay.dtype)
        row = row * decay[..., i : i + 1] + one
        rows.append(row)
    return torch.stack(rows, dim=-2)


def by_loops(decay):
    L, rows = decay.shape[-1], []
    for i in range(L):
        row = []
        for j in range(L):
            product = decay[..., j + 1 : i + 1].prod(dim=-1)
            row.append(product if j <= i else torch.zeros_like(product))
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=-2)


def inputs():
    normal = normals(133)

    def decays(*shape, low=0.2, dtype=torch.float64):
        return ((low + (1 - low) * normal(*shape).sigmoid()).to(dtype),)

    strong = 1e-30 * (1 + normal(2, 14).sigmoid())
    return [
        decays(5),
        decays(2, 3, 6),
        decays(4, 7, low=0.6),
        decays(3, 5, dtype=torch.float32),
        (torch.cat([torch.ones(2, 2), 0.5 * torch.ones(2, 3)], dim=-1).double(),),
        decays(1, 1, 1),
        decays(20, low=0.98),  # tokens far apart count as well
        # Below, the product of all decays is less than the smallest positive number.
        (strong,),
        ((0.05 + 0.2 * normal(60).sigmoid()).float(),),  # as in float32 after 60 ordinary decays
    ]


def values_of_strong_decays(answer, decay):
    """Call an answer, without gradients where products of decays underflow."""
    return call_with_clones(answer, without_strong_decays(decay))


RETURN = "return between.masked_fill(future, -torch.inf).exp()"
RATIO = "sums = decay.cumprod(dim=-1)\n    between = sums[..., :, None] / sums[..., None, :]\n    "
MISTAKES = [
    ("ratio of products",
     "Your result is NaN once the product of all decays has underflowed to 0. You get this result "
     "if you divide products, because 0 / 0 is NaN. Subtract sums of logarithms instead, and take "
     "the exponential at the end.",
     (RETURN, RATIO + "return between.masked_fill(future, 0)")),
    ("ratio multiplied by a mask",
     "Your result is NaN once the product of all decays has underflowed to 0. You get this result "
     "if you divide products, because 0 / 0 is NaN. Subtract sums of logarithms instead, and take "
     "the exponential at the end.",
     (RETURN, RATIO + "return between * ~future")),
    ("masked after the exponential",
     "Your result is NaN when decays are close to 0. You get this result if the exponential "
     "overflows to inf above the diagonal and is then multiplied by 0. Fill these entries with −∞ "
     "*before* you take the exponential.",
     (RETURN, "return between.exp() * ~future")),
    ("ratio made safe",
     "Your result goes wrong when the product of all decays comes close to 0. You get this result "
     "if you divide products and clamp the denominator. Subtract sums of logarithms instead, and "
     "take the exponential at the end.",
     (RETURN, RATIO.replace("sums[..., None, :]", "sums[..., None, :].clamp(min=1e-12)")
      + "return between.masked_fill(future, 0)")),
    ("small number in the denominator",
     "Your result goes wrong when the product of all decays comes close to 0. You get this result "
     "if you divide one running product by another, with a small number added to the "
     "denominator. Subtract sums of logarithms instead, and take the exponential at the end.",
     (RETURN, RATIO.replace("sums[..., None, :]", "(sums[..., None, :] + 1e-12)")
      + "return between.masked_fill(future, 0)")),
    ("NaN replaced by 0",
     "Your result is 0 in every row i where decay[0] · … · decay[i] has underflowed, even on the "
     "diagonal. You get this result if you divide products and replace NaN by 0. Subtract sums of "
     "logarithms instead.",
     (RETURN, RATIO + "return between.nan_to_num(0, 0, 0).masked_fill(future, 0)")),
    ("own decay counted",
     "Your entry (i, j) includes decay[j]. Token j decays the state *before* it writes, so "
     "decay[j] does not affect its write. Start the product at decay[j + 1].",
     (RETURN, RETURN + " * decay[..., None, :]")),
    ("last decay missing",
     "Your entry (i, j) lacks decay[i]. Token i decays the state before it reads, so include "
     "decay[i] in the product.",
     (RETURN, RETURN + " / torch.where(torch.eye(L, dtype=torch.bool), 1, decay[..., :, None])")),
    ("decay after the write",
     "Your entry (i, j) is decay[j] · … · decay[i − 1], as if each token decayed the state after "
     "its write. The decay comes first, so multiply all decays from decay[j + 1] to decay[i].",
     ("between = sums", "sums = sums - logs\n    between = sums")),
    ("above the diagonal",
     "Your result is right on and below the diagonal, but not 0 above it. Token i cannot see what "
     "later tokens write, so set these entries to 0.",
     (".masked_fill(future, -torch.inf)", "")),
    ("symmetric",
     "Your result is symmetric. Token i cannot see what later tokens write, so set the entries "
     "above the diagonal to 0.",
     (RETURN, "return (-between.abs()).exp()")),
    ("ones above the diagonal",
     "Your result is 1 above the diagonal. Token i cannot see what later tokens write, so set "
     "these entries to 0. Before an exponential, fill with −∞, because e⁰ is 1.",
     ("-torch.inf", "0")),
    ("transposed",
     "Your result is transposed. Rows belong to the tokens that read, and columns to the tokens "
     "that write. Swap the last two dimensions.",
     (RETURN, RETURN + ".mT")),
    ("empty diagonal",
     "Your diagonal is 0. A token reads right after it writes, so nothing of its own write has "
     "decayed. Set the diagonal to 1.",
     (".triu(1)", ".triu(0)")),
    ("logarithms",
     "You return logarithms. Take the exponential.",
     (".exp()", "")),
    ("logarithms with zeros",
     "You return logarithms, with 0 above the diagonal. Fill with −∞ there, and then take the "
     "exponential.",
     (RETURN, "return between.masked_fill(future, 0)")),
    ("sum of decays",
     "Your result adds up decays. Each token multiplies the state by its decay, so multiply the "
     "decays, or add up their logarithms and take the exponential.",
     (RETURN, "sums = decay.cumsum(dim=-1)\n    "
      "return (sums[..., :, None] - sums[..., None, :]).masked_fill(future, 0)")),
    ("exponential of sums of decays",
     "Your result is the exponential of a sum of decays. Add up their *logarithms* instead.",
     ("decay.log()", "decay")),
    ("exponential of negative decays",
     "Your result is e^(−sum of decays). Each token multiplies the state by the decay itself, so "
     "add up the *logarithms* of the decays.",
     ("decay.log()", "-decay")),
    ("power of the reader's decay",
     "Your entry (i, j) is decay[i] raised to the power i − j. Each token has its own decay, so "
     "multiply all decays from decay[j + 1] to decay[i].",
     ("between = sums[..., :, None] - sums[..., None, :]",
      "steps = torch.arange(L)[:, None] - torch.arange(L)\n    "
      "between = logs[..., :, None] * steps")),
    ("power of the writer's decay",
     "Your entry (i, j) is decay[j] raised to the power i − j. Each token has its own decay, so "
     "multiply all decays from decay[j + 1] to decay[i].",
     ("between = sums[..., :, None] - sums[..., None, :]",
      "steps = torch.arange(L)[:, None] - torch.arange(L)\n    "
      "between = logs[..., None, :] * steps")),
    ("one decay for all",
     "Your result uses the first decay for all tokens. Each token has its own, so multiply all "
     "decays from decay[j + 1] to decay[i].",
     ("between = sums[..., :, None] - sums[..., None, :]",
      "steps = torch.arange(L)[:, None] - torch.arange(L)\n    "
      "between = logs[..., :1, None] * steps")),
    ("products from the start",
     "Your entry (i, j) is the product of all decays up to decay[i], whatever j is. Start the "
     "product at decay[j + 1].",
     (" - sums[..., None, :]", " + 0 * sums[..., None, :]")),
    ("two decays multiplied",
     "Your entry (i, j) is decay[i] · decay[j]. But the write of token j fades by every decay "
     "after it, so multiply all decays from decay[j + 1] to decay[i]. Put 1 on the diagonal and 0 "
     "above it.",
     (RETURN, "return decay[..., :, None] * decay[..., None, :]")),
    ("two decays multiplied, lower half",
     "Your entry (i, j) is decay[i] · decay[j]. But the write of token j fades by every decay "
     "after it, so multiply all decays from decay[j + 1] to decay[i]. Put 1 on the diagonal.",
     (RETURN, "return (decay[..., :, None] * decay[..., None, :]).tril()")),
    ("products up to the last token alone",
     "You return one number per position, the product of its decay and all later ones. Return a "
     "matrix whose entry (i, j) is the product of all decays from decay[j + 1] to decay[i].",
     (RETURN, "return decay.flip(-1).cumprod(dim=-1).flip(-1)")),
    ("products over the columns",
     "Your products run along each row, from left to right. They must run down each column, "
     "because entry (i, j) is decay[i] times the entry above it. Use dim=-2.",
     (RETURN, "below = torch.ones(L, L, dtype=torch.bool).tril(-1)\n    "
      "return torch.where(below, decay[..., :, None], 1).cumprod(dim=-1).tril()")),
    ("zero everywhere",
     "Your result is 0 everywhere. This happens if every product contains a factor of 0, for "
     "example from a mask that is applied too early. Put 1 where a decay must not count, and set "
     "the entries above the diagonal to 0 at the end.",
     (RETURN, "return 0 * decay[..., :, None] * decay[..., None, :]")),
    ("one decay",
     "Your entry (i, j) is a single decay. Multiply all decays from decay[j + 1] to decay[i].",
     (RETURN, "eye = torch.eye(L, dtype=torch.bool)\n    "
      "return torch.where(eye, 1, decay[..., :, None].expand(*decay.shape, L)).tril()")),
    ("sum over the wrong dimension",
     "Your sums or products run over the first dimension, which is the batch if there is one. Run "
     "along the tokens: dim=-1 of `decay`, or dim=-2 if you have already built an L × L matrix.",
     ("cumsum(dim=-1)", "cumsum(dim=0)")),
    ("last row alone",
     "You return only the last row. Return a matrix with one row for each position.",
     (RETURN, RETURN + "[..., -1, :]")),
    ("cumulative products alone",
     "You return the product of all decays up to each position. Return a matrix whose entry (i, j) "
     "is the product of all decays from decay[j + 1] to decay[i].",
     (RETURN, "return sums.exp()")),
    ("causal mask alone",
     "Your result is the causal mask, without decays. For entry (i, j), multiply all decays from "
     "decay[j + 1] to decay[i].",
     (RETURN, "return (between * 0).masked_fill(future, -torch.inf).exp()")),
    ("running the other way",
     "Your entries below the diagonal are reciprocals of products of decays, so they are above 1. "
     "Add up logarithms from the first token on, and subtract the sum up to j from the sum up to "
     "i.",
     ("logs.cumsum(dim=-1)", "logs.flip(-1).cumsum(dim=-1).flip(-1)")),
    ("reciprocal",
     "Your entries are the reciprocals of the correct ones, so they are above 1. Subtract the sum "
     "of the logarithms up to j from the sum up to i, not the other way around.",
     ("sums[..., :, None] - sums[..., None, :]", "sums[..., None, :] - sums[..., :, None]")),
    ("diagonal alone",
     "Your result is 0 below the diagonal. There, entry (i, j) should be the product of all decays "
     "from decay[j + 1] to decay[i]. Multiply these decays.",
     (RETURN, "return torch.eye(L, dtype=decay.dtype).expand(*decay.shape, L) + 0 * between")),
    ("later decays multiplied",
     "In entry (i, j) of your result, the decays up to decay[j] are included twice. They should "
     "not be there at all, so start the product at decay[j + 1]. If you use sums of logarithms, "
     "subtract the sum up to j instead of adding it.",
     ("sums[..., :, None] - sums[..., None, :]", "sums[..., :, None] + sums[..., None, :]")),
    ("base 2",
     "Your result is a power of 2 with natural logarithms in the exponent. Use `exp` with `log`, "
     "or `exp2` with `log2`.",
     (".exp()", ".exp2()")),
    ("decays raised to a minimum",
     "Your result is wrong where a decay is very small. You get this result if you clamp the "
     "decays. Their logarithms are finite without that, so use the decays as given.",
     ("decay.log()", "decay.clamp(min=1e-3).log()")),
    ("ratio with a small minimum",
     "Your result goes wrong when the product of all decays comes close to 0. You get this result "
     "if you divide products and clamp the denominator. Subtract sums of logarithms instead, and "
     "take the exponential at the end.",
     ("return between.masked_fill(future, -torch.inf).exp()",
      "sums = decay.cumprod(dim=-1)\n"
      "    return (sums[..., :, None] / sums[..., None, :].clamp(min=1e-30)).tril()")),
    ("decays on the diagonal",
     "Your diagonal holds the decays. A token decays the state before it writes, so nothing of "
     "its own write has decayed when it reads. Set the diagonal to 1.",
     ("return between.masked_fill(future, -torch.inf).exp()",
      "D = between.masked_fill(future, -torch.inf).exp()\n"
      "    return D.tril(-1) + torch.diag_embed(decay)")),
    ("decays in reverse order",
     "Your products use the decays in reverse order. For entry (i, j), multiply all decays from "
     "decay[j + 1] to decay[i].",
     ("logs = decay.log()", "logs = decay.flip(-1).log()")),
    ("mean of the batch",
     "All your batch items have the same matrix. Each has its own decays, so keep all leading "
     "dimensions.",
     ("logs = decay.log()",
      "logs = decay.log()\n"
      "    logs = logs.mean(dim=tuple(range(logs.ndim - 1)), "
      "keepdim=True).expand_as(logs)")),
    ("tokens flipped",
     "Your result is upper triangular. You get this result if you flip the decays, and then flip "
     "the matrix back. Use the decays in the given order, and keep the entries on and below the "
     "diagonal.",
     ("return between.masked_fill(future, -torch.inf).exp()",
      "below = ~future & ~torch.eye(L, dtype=torch.bool)\n"
      "    D = torch.where(below, decay.flip(-1)[..., :, None], "
      "1).cumprod(dim=-2).tril()\n"
      "    return D.flip(-1, -2)")),
    ("reader's decay twice",
     "Your row i is multiplied by decay[i] once more. On the diagonal, nothing has decayed. For "
     "entry (i, j), multiply only the decays from decay[j + 1] to decay[i].",
     ("return between.masked_fill(future, -torch.inf).exp()",
      "return between.masked_fill(future, -torch.inf).exp() * decay[..., :, None]")),
    ("complement of the decays",
     "Your products use 1 − decay. `decay` is the fraction that remains, so multiply the decays "
     "themselves.",
     ("logs = decay.log()", "logs = (1 - decay).log()")),
    ("decays of the next tokens",
     "Your products are shifted by one token: they use decay[j + 2] to decay[i + 1]. Multiply all "
     "decays from decay[j + 1] to decay[i].",
     ("logs = decay.log()", "logs = decay.roll(-1, dims=-1).log()")),
    ("power of the mean decay",
     "Your entry (i, j) is the mean decay raised to the power i − j. Each token has its own decay, "
     "so multiply all decays from decay[j + 1] to decay[i].",
     ("between = sums[..., :, None] - sums[..., None, :]",
      "steps = torch.arange(L)[:, None] - torch.arange(L)\n"
      "    between = decay.mean(dim=-1, keepdim=True).log()[..., None] * steps")),
    ("rows divided by their sum",
     "Your rows are divided by their sums. The entries are fractions that remain, not attention "
     "weights, so leave out the division.",
     ("return between.masked_fill(future, -torch.inf).exp()",
      "D = between.masked_fill(future, -torch.inf).exp()\n"
      "    return D / D.sum(dim=-1, keepdim=True)")),
    ("logarithms to the base 10",
     "Your result is what e^x gives for logarithms to the base 10. Use `exp` with `log`.",
     ("decay.log()", "decay.log10()")),
    ("one decay of the writer",
     "Your entry (i, j) is decay[j] alone. Multiply all decays from decay[j + 1] to decay[i].",
     ("return between.masked_fill(future, -torch.inf).exp()",
      "eye = torch.eye(L, dtype=torch.bool)\n"
      "    return torch.where(eye, 1, decay[..., None, :].expand(*decay.shape, "
      "L)).tril()")),
    ("mean of the decays",
     "Your entry (i, j) is the mean of the decays from decay[j + 1] to decay[i]. The state is "
     "multiplied by each of them in turn, so take their product.",
     ("return between.masked_fill(future, -torch.inf).exp()",
      "total = decay.cumsum(dim=-1)\n"
      "    steps = torch.arange(L)[:, None] - torch.arange(L)\n"
      "    means = (total[..., :, None] - total[..., None, :]) / steps.clamp(min=1)\n"
      "    return means.tril(-1) + torch.eye(L, dtype=decay.dtype)")),
]  # fmt: skip

exercise = Exercise(
    "13.3", decay_between, inputs, MISTAKES, names="L L", run=values_of_strong_decays,
    differentiable=True, also_right=[by_cumulative_products, row_by_row, by_loops],
)  # fmt: skip
