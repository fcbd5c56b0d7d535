"""The formulas of lessons and exercises, each beside the same in code, and what it must give.

A formula stands here as it stands in the notebooks. One that is changed there is unknown here; one
that is changed in both places must still come out right.
"""

import re

import nbformat
import pytest
import torch

from course_utils import attention as course
from stored_notebooks import LESSONS, SOLUTIONS, prose

torch.manual_seed(0)
L, S, d_k, d_v = 4, 6, 5, 3
Q, K, V, dO = (torch.randn(*shape).double() for shape in ((L, d_k), (S, d_k), (S, d_v), (L, d_v)))
q, k = Q[0], K[0]
additive = course.AdditiveScore(d_k, d_k, 2).double()
W_q, W_k, w = additive.W_q.weight, additive.W_k.weight, additive.w.weight[0]
P = (Q @ K.T / d_k**0.5).softmax(dim=-1)
O = P @ V  # noqa: E741
heads, W_O = torch.randn(3, L, 2).double(), torch.randn(6, 6).double()

# What three heads found for one token, and the stream, if they alone write into it
found, gamma, e_t = torch.randn(3, 2).double(), torch.rand(6).double(), torch.randn(6).double()
added = W_O @ found.flatten()

x, g = torch.randn(2, 7).double()
e, m, one = x.exp(), x.max(), torch.eye(7)
p = e / e.sum()
jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(dim=-1), x)
read, block = x.split([3, 4])
m_read, ell = read.max(), (read - read.max()).exp().sum()
values = torch.randn(7, d_v).double()  # one row for each entry of x

# Two workers with keys of their own
out_a, lse_a = (Q @ K[:2].T).softmax(dim=-1) @ V[:2], (Q @ K[:2].T).logsumexp(dim=-1)
out_b, lse_b = (Q @ K[2:].T).softmax(dim=-1) @ V[2:], (Q @ K[2:].T).logsumexp(dim=-1)
share = torch.stack([lse_a, lse_b]).softmax(dim=0)[..., None]
joined = (Q @ K.T).softmax(dim=-1) @ V

# Independent entries of mean 0 and variance 1: all signs of three entries of q and three of k
signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 6)
q_, k_ = signs[:, :3], signs[:, 3:]


def var(values):
    return values.var(dim=0, correction=0)


def gradients():
    """Return dQ, dK and dV as autograd finds them, for scores Q Kᵀ that are not scaled."""
    leaves = [each.clone().requires_grad_() for each in (Q, K, V)]
    mixed = (leaves[0] @ leaves[1].T).softmax(dim=-1) @ leaves[2]
    return torch.autograd.grad(mixed, leaves, dO)


def by_hand():
    P = (Q @ K.T).softmax(dim=-1)
    dV, dP = P.T @ dO, dO @ V.T
    dS = P * (dP - (dO * (P @ V)).sum(dim=-1, keepdim=True))
    return dS @ K, dS.T @ Q, dV


# Two hands of length 1, and the angle from one to the other when both are turned
alpha, beta, i, j = torch.tensor([0.3, 1.1, 7.0, 4.0]).double()
turned = [
    course.rotary(torch.stack([angle.cos(), angle.sin()])[None], place[None])[0]
    for angle, place in ((alpha, i), (beta, j))
]
between = torch.atan2(turned[0][1], turned[0][0]) - torch.atan2(turned[1][1], turned[1][0])

FORMULAS = {
    r"(x_i + p_i)\cdot(x_j + p_j) = x_i\cdot x_j + x_i\cdot p_j + p_i\cdot x_j + p_i\cdot p_j":
        (Q[0] @ Q[1] + Q[0] @ K[1] + K[0] @ Q[1] + K[0] @ K[1], (Q[0] + K[0]) @ (Q[1] + K[1])),
    r"(\alpha + is) - (\beta + js) = (\alpha - \beta) + (i - j)s":
        ((alpha + i) - (beta + j), (alpha - beta) + (i - j), between.remainder(2 * torch.pi)),
    r"q \cdot k = \lVert q\rVert\,\lVert k\rVert \cos\theta":
        (q.norm() * k.norm() * torch.cosine_similarity(q, k, dim=0), q @ k),
    r"(q-k)\cdot(q-k)": ((q - k) @ (q - k), (q - k).norm() ** 2),
    r"\lVert q-k\rVert^2 = \lVert q\rVert^2 + \lVert k\rVert^2 - 2\,q\cdot k":
        (q.norm() ** 2 + k.norm() ** 2 - 2 * q @ k, (q - k).norm() ** 2),
    r"\lVert q-k\rVert": ((q - k).norm(), course.euclidean_distance(Q, K)[0, 0]),
    r"-\lVert q-k\rVert^2": (-((q - k) ** 2).sum(), 2 * q @ k - q @ q - k @ k),
    r"e^{-\lVert q-k_j\rVert^2/2}":
        ((-((q - K) ** 2).sum(dim=-1) / 2).exp(),
         (K @ q - (q @ q + (K * K).sum(dim=-1)) / 2).exp()),
    r"w\cdot\tanh(W_q q + W_k k)": (w @ (W_q @ q + W_k @ k).tanh(), additive(Q, K)[0, 0]),
    r"QK^\top": (Q @ K.T, course.dot_product_scores(Q, K)),
    r"\text{attention}(Q, K, V) = \text{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right)V":
        ((Q @ K.T / d_k**0.5).softmax(dim=-1) @ V, course.attention(Q, K, V)[0]),
    r"\text{softmax}(QK^\top/\sqrt{d_k})V":
        ((Q @ K.T / d_k**0.5).softmax(dim=-1) @ V, course.attention(Q, K, V)[0]),
    r"\text{softmax}(QK^\top/\sqrt{d_k})V\,W_o":
        ((Q @ K.T / d_k**0.5).softmax(dim=-1) @ V @ W_O[:3], O @ W_O[:3]),
    r"\text{softmax}(QK^\top\cdot\text{scale})V":
        ((Q @ K.T * 0.3).softmax(dim=-1) @ V, course.attention(Q, K, V, scale=0.3)[0]),
    r"E[q_i k_i] = E[q_i]\,E[k_i] = 0":
        ((q_ * k_).mean(dim=0), q_.mean(dim=0) * k_.mean(dim=0), torch.zeros(3)),
    r"\text{Var}(q_i k_i) = E[q_i^2]\,E[k_i^2] - 0 = 1 \cdot 1 = 1":
        (var(q_ * k_), (q_**2).mean(dim=0) * (k_**2).mean(dim=0) - 0, torch.ones(3)),
    r"\text{Var}(q\cdot k) = \sum_{i=1}^{d_k} \text{Var}(q_i k_i) = d_k":
        (var((q_ * k_).sum(dim=-1)), var(q_ * k_).sum(), torch.tensor(3.0)),
    r"\text{Var}(q\cdot k / \sqrt{d_k}) = d_k / (\sqrt{d_k})^2 = 1":
        (var((q_ * k_).sum(dim=-1) / 3**0.5), torch.tensor(3 / (3**0.5) ** 2), torch.tensor(1.0)),
    r"\text{std}(q\cdot k) = \sigma_q\,\sigma_k\sqrt{d_k}":
        (var((2 * q_ * 5 * k_).sum(dim=-1)).sqrt(), torch.tensor(2 * 5 * 3**0.5)),
    r"H = -\sum_j p_j \ln p_j": (-(p * p.log()).sum(), course.entropy(p)),
    r"\partial p_i/\partial s_j = p_i(\delta_{ij} - p_j)": (p[:, None] * (one - p), jacobian),
    r"\text{diag}(p) - pp^\top": (p.diag() - p.outer(p), jacobian),
    r"p_i = \frac{e^{x_i}}{\sum_j e^{x_j}}": (e / e.sum(), x.softmax(dim=-1)),
    r"\frac{e^{x_i - c}}{\sum_j e^{x_j - c}} = \frac{e^{-c}\,e^{x_i}}{e^{-c}\sum_j e^{x_j}} = p_i":
        ((x - 2).exp() / (x - 2).exp().sum(), 2.7**-2 * e / (2.7**-2 * e.sum()), p),
    r"\text{lse}(x) = \log\sum_j e^{x_j} = m + \log\sum_j e^{x_j - m}, \qquad m = \max_j x_j":
        (e.sum().log(), m + (x - m).exp().sum().log(), x.logsumexp(dim=-1)),
    r"\frac{\partial p_i}{\partial x_j} = \frac{[i=j]\,e^{x_i}}{Z} - \frac{e^{x_i}\,e^{x_j}}{Z^2}"
    r" = [i=j]\,p_i - p_i p_j":
        (one * e / e.sum() - e.outer(e) / e.sum() ** 2, one * p - p.outer(p), jacobian),
    r"g^\top(\text{diag}(p) - pp^\top) = p \odot (g - p\cdot g)":
        (g @ (p.diag() - p.outer(p)), p * (g - p @ g), g @ jacobian),
    r"\ell_{new} = \ell\,e^{m - m_{new}} + \sum_{block} e^{x - m_{new}}":
        (ell * (m_read - m).exp() + (block - m).exp().sum(), (x - m).exp().sum()),
    r"\text{out} = \sum_{i \in \{a,b\}} \text{softmax}(\text{lse}_a, \text{lse}_b)_i\ \text{out}_i,"
    r" \qquad \text{lse} = \text{logsumexp}(\text{lse}_a, \text{lse}_b)":
        (share[0] * out_a + share[1] * out_b, course.merge(out_a, lse_a, out_b, lse_b)[0], joined),
    r"e^{x_i - m} / \sum_j e^{x_j - m}": ((x - m).exp() / (x - m).exp().sum(), course.softmax(x)),
    r"m + \log\sum_j e^{x_j - m}": (m + (x - m).exp().sum().log(), course.logsumexp(x)),
    r"x_i - \text{lse}(x)": (x - x.logsumexp(dim=-1), course.log_softmax(x)),
    r"p \odot (g - p\cdot g)": (p * (g - p @ g), course.softmax_vjp(p, g)),
    r"\ell\,e^{m - m_{new}} + \sum e^{x - m_{new}}":
        (ell * (m_read - m).exp() + (block - m).exp().sum(),
         course.online_update(m_read, ell, block)[1]),
    r"o\,e^{m - m_{new}} + \sum e^{x - m_{new}}\,v":
        ((read - m_read).exp() @ values[:3] * (m_read - m).exp() + (block - m).exp() @ values[3:],
         (x - m).exp() @ values),
    r"\text{softmax}(\text{lse}_a, \text{lse}_b) \cdot (\text{out}_a, \text{out}_b)":
        (share[0] * out_a + share[1] * out_b, course.merge(out_a, lse_a, out_b, lse_b)[0]),
    r"\text{concat}(\text{head}_1, \dots, \text{head}_H)\,W^O = \sum_h \text{head}_h W^O_h":
        (torch.cat(list(heads), dim=-1) @ W_O,
         sum(head @ rows for head, rows in zip(heads, W_O.split(2), strict=True))),
    r"\left(\frac{W_O^h z_h}{s} \odot \gamma\right) \cdot e_t":  # of all heads, of one token
        (sum(columns @ z / added.square().mean().sqrt() * gamma @ e_t
             for columns, z in zip(W_O.split(2, dim=1), found, strict=True)),
         torch.nn.functional.rms_norm(added, (6,), gamma, eps=0.0) @ e_t),
    r"dV = P^\top dO \qquad dP = dO\,V^\top \qquad dS = P \circ (dP - \delta) \qquad dQ = dS\,K"
    r" \qquad dK = dS^\top Q": (by_hand(), gradients()),
}  # fmt: skip

# Names of things, which say nothing that could be wrong but in their place
NAMES = {"W_O", "W_Q", "W_K", "W_V", "n_a", "n_b", r"\cos\theta", "e^H", r"\sqrt{n_a n_b}",
         "d_k^{-1/4}", "d_k^{-1/2}", r"A_{i,\,i-1}", "E W_V W_O U", "v_j",
         "x^2", "x^4", "W_O^h", "e_t"}  # fmt: skip


def plain(formula):
    return "".join(formula.split())


def formulas(path):
    text = "\n\n".join(cell.source for cell in prose(nbformat.read(path, as_version=4)))
    found = re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", text, re.S)
    return {plain(display or inline) for display, inline in found}


@pytest.mark.parametrize("path", LESSONS + SOLUTIONS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_formula_is_one_that_is_tried_here(path):
    assert formulas(path) <= {plain(formula) for formula in FORMULAS.keys() | NAMES}


def test_every_formula_here_stands_in_a_notebook():
    used = set().union(*(formulas(path) for path in LESSONS + SOLUTIONS))
    assert {plain(formula) for formula in FORMULAS.keys() | NAMES} == used


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_gives_what_it_says(formula):
    *sides, right = FORMULAS[formula]
    for side in sides:
        torch.testing.assert_close(side, right, check_dtype=False)
