"""13.9: what a chunk of the gated delta rule does to any state, in matrix form."""

import contextlib

import torch

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Shapes, normals, out_of_order
from course_utils.checks.lesson_13._linear import head_inputs, without_strong_decays


def chunk_as_map(k, v, decay, beta):
    C, d_k = k.shape[-2:]
    below = torch.ones(C, C, dtype=torch.bool).tril(-1)
    D = torch.where(below, decay[..., :, None], 1).cumprod(dim=-2).tril()  # (..., C, C)
    since = decay.cumprod(dim=-1)[..., None]  # (..., C, 1), what is left of the old state
    kept = D[..., -1, :, None]  # (..., C, 1), of each write at the end
    b = beta[..., None]  # (..., C, 1)
    A = (b * (k @ k.mT) * D).tril(-1)  # (..., C, C)
    asked = since * b * k  # (..., C, d_k), what each token subtracts, as a map of the old state
    T = torch.eye(C, dtype=k.dtype) + A  # (..., C, C)
    W = torch.linalg.solve(T, asked)  # (..., C, d_k)
    U = torch.linalg.solve(T, b * v)  # (..., C, d_v)
    whole = since[..., -1:, :] * torch.eye(d_k, dtype=k.dtype)  # (..., d_k, d_k)
    return whole - (kept * k).mT @ W, (kept * k).mT @ U


def by_doubling(k, v, decay, beta):
    C, d_k = k.shape[-2:]
    below = torch.ones(C, C, dtype=torch.bool).tril(-1)
    D = torch.where(below, decay[..., :, None], 1).cumprod(dim=-2).tril()
    power = -(beta[..., None] * (k @ k.mT) * D).tril(-1)
    inverse, n = torch.eye(C, dtype=k.dtype) + power, 2
    while n < C:
        power = power @ power
        inverse, n = inverse + inverse @ power, 2 * n
    since = decay.cumprod(dim=-1)[..., None]
    right = torch.cat([since * beta[..., None] * k, beta[..., None] * v], dim=-1)
    both = (D[..., -1, :, None] * k).mT @ (inverse @ right)
    whole = since[..., -1:, :] * torch.eye(d_k, dtype=k.dtype)
    return whole - both[..., :d_k], both[..., d_k:]


def by_tree(k, v, decay, beta):
    key, b = k[..., :, None], beta[..., None, None]
    M = decay[..., None, None] * (torch.eye(k.shape[-1], dtype=k.dtype) - b * key @ key.mT)
    N = b * key @ v[..., None, :]
    while M.shape[-3] > 1:
        odd = M.shape[-3] % 2
        eye = torch.eye(k.shape[-1], dtype=k.dtype).expand_as(M[..., :1, :, :])
        if odd:
            M = torch.cat([M, eye], dim=-3)
            N = torch.cat([N, torch.zeros_like(N[..., :1, :, :])], dim=-3)
        first, second = M[..., ::2, :, :], M[..., 1::2, :, :]
        M, N = second @ first, second @ N[..., ::2, :, :] + N[..., 1::2, :, :]
    return M.squeeze(-3), N.squeeze(-3)


def inputs():
    normal = normals(139)

    def case(*batch, L, d_k, d_v, dtype=torch.float64, **given):
        _, *rest = head_inputs(normal, *batch, L=L, d_k=d_k, d_v=d_v, dtype=dtype, **given)
        k, v, decay, beta = rest
        return k, v, decay, beta

    k, v, decay, beta = case(2, L=5, d_k=3, d_v=4)
    return [
        case(L=4, d_k=3, d_v=2),
        case(2, 3, L=6, d_k=4, d_v=5),
        (k, v, torch.ones_like(decay), beta),
        (k, v, decay, torch.ones_like(beta)),
        case(3, L=5, d_k=2, d_v=3, dtype=torch.float32),
        case(L=48, d_k=3, d_v=2, low=0.9),
        (*out_of_order(k, v), decay, beta),
        (1.2 * k, v, decay, beta),
        case(1, 1, L=1, d_k=3, d_v=2),
        (k, v, 1e-80 * decay, beta),  # the product of all decays underflows
    ]


LOOP = (
    "loop over the tokens",
    "Right, but you take more tensor operations for more tokens. Write the corrections of all "
    "tokens as one triangular system, and solve it.",
)


def operations(answer, *args):
    """Return how many operations on tensors an answer takes."""
    with Shapes() as shapes, contextlib.suppress(Exception):  # the call itself shows the error
        answer(*(arg.clone() if hasattr(arg, "clone") else arg for arg in args))
    return len(shapes.results)


def in_matrix_form(answer, k, v, decay, beta):
    """Call an answer. If its result is right, check that it does not go token by token."""
    results = call_with_clones(answer, k, v, without_strong_decays(decay), beta)
    C = k.shape[-2]
    if k.requires_grad or C < 40:
        return results
    half = [x[..., : C // 2, :] for x in (k, v)] + [x[..., : C // 2] for x in (decay, beta)]
    if operations(answer, k, v, decay, beta) - operations(answer, *half) >= C // 4:
        raise NamedMistake(*LOOP, results)
    return results


RETURN = "return whole - (kept * k).mT @ W, (kept * k).mT @ U"
MISTAKES = [
    ("transition transposed",
     "Your addition is right, but your transition is transposed. You also get this result if you "
     "multiply the tokens' matrices in the wrong order. The last token acts last, so its matrix "
     "stands on the left.",
     (RETURN, "return (whole - (kept * k).mT @ W).mT, (kept * k).mT @ U")),
    ("no delta rule",
     "Your addition is that of linear attention, where each token writes β v, and your transition "
     "only decays. Each token must subtract what the state, with all earlier writes, returns for "
     "its key.",
     (RETURN, "return whole, (kept * k).mT @ (b * v)")),
    ("transition without the delta rule",
     "Your addition is right, but your transition only decays. The tokens also subtract what the "
     "old state returns for their keys.",
     (RETURN, "return whole, (kept * k).mT @ U")),
    ("corrections of the old state alone",
     "Your tokens subtract what the *old* state returns, but not what earlier tokens of the chunk "
     "have written. That is the matrix A: solve (I + A) U = β V.",
     ("T = torch.eye(C, dtype=k.dtype) + A", "T = torch.eye(C, dtype=k.dtype) + 0 * A")),
    ("first order",
     "Your result uses I − A in place of the inverse of I + A. That would be right if corrections "
     "did not themselves change later corrections. Solve the triangular system.",
     ("T = torch.eye(C, dtype=k.dtype) + A",
      "T = torch.linalg.inv(torch.eye(C, dtype=k.dtype) - A)")),
    ("second order",
     "Your result uses I − A + A² in place of the inverse of I + A. The series goes on. Solve the "
     "triangular system.",
     ("T = torch.eye(C, dtype=k.dtype) + A",
      "T = torch.linalg.inv(torch.eye(C, dtype=k.dtype) - A + A @ A)")),
    ("not inverted",
     "Your result multiplies by I + A. The writes *solve* (I + A) U = β V, so multiply by the "
     "inverse.",
     ("T = torch.eye(C, dtype=k.dtype) + A",
      "T = torch.linalg.inv(torch.eye(C, dtype=k.dtype) + A)")),
    ("sign of the system",
     "Your system has the wrong sign, I − A. Each token *subtracts* what earlier tokens have "
     "written, and moving that to the left gives I + A.",
     (") + A  #", ") - A  #")),
    ("own key in the system",
     "Your A includes the diagonal. A token corrects what *earlier* tokens wrote, so A is strictly "
     "below the diagonal.",
     (".tril(-1)  # (..., C, C)\n    asked", ".tril()  # (..., C, C)\n    asked")),
    ("later keys in the system",
     "Your A has entries above the diagonal, so tokens correct what later tokens write. Keep only "
     "what lies strictly below the diagonal.",
     ("A = (b * (k @ k.mT) * D).tril(-1)",
      "full = (decay.log().cumsum(-1)[..., :, None] - decay.log().cumsum(-1)[..., None, :]).abs()\n"
      "    A = b * (k @ k.mT) * (-full).exp() * (1 - torch.eye(C, dtype=k.dtype))")),
    ("system transposed",
     "Your system is transposed, so tokens correct what later tokens write. Row i of A holds k_i · "
     "k_j for the earlier tokens j.",
     (") + A  #", ") + A.mT  #")),
    ("beta of the writer",
     "Your A, entry i, j, has the β of token j. The token that corrects is i, so multiply row i by "
     "its own β.",
     ("A = (b * ", "A = (b.mT * ")),
    ("beta missing in the system",
     "Your A lacks β. Token i subtracts only β_i times what it finds, so multiply row i by β_i.",
     ("A = (b * (k", "A = ((k")),
    ("beta missing for the old state",
     "Your addition is right, but your transition lacks β where tokens subtract what the old state "
     "returns. Multiply by β there too.",
     ("since * b * k", "since * k")),
    ("beta missing for the values",
     "Your transition is right, but your addition lacks β in front of the values.",
     ("solve(T, b * v)", "solve(T, v)")),
    ("beta not used",
     "Your result does not depend on β. Each token writes β times its correction.",
     ("b = beta[..., None]", "b = torch.ones_like(beta)[..., None]")),
    ("no decay",
     "Your result does not depend on the decay. Multiply what was written by the decays of all "
     "later tokens, and the old state by all of them.",
     ("below = torch", "decay = torch.ones_like(decay)\n    below = torch")),
    ("system not decayed",
     "Your A lacks the decays. When token i corrects, the write of token j has been multiplied by "
     "decay[j + 1] · … · decay[i].",
     ("(k @ k.mT) * D).tril", "(k @ k.mT)).tril")),
    ("old state not decayed within the chunk",
     "Your addition is right. In your transition, tokens subtract what the old state returned at "
     "the start of the chunk. At token i it has been multiplied by the decays up to and including "
     "i.",
     ("since * b * k", "b * k")),
    ("own decay missing",
     "Your addition is right. In your transition, the old state lacks the decay of the token that "
     "corrects. A token decays first, so include its own decay.",
     ("since * b * k", "since / decay[..., None] * b * k")),
    ("decay after the write",
     "Your result decays the state after each write, not before. Each token decays first, then "
     "corrects.",
     ("since = decay.cumprod(dim=-1)[..., None]",
      "last = decay[..., -1:]\n    total = decay.cumprod(dim=-1)[..., -1:, None]\n    decay = "
      "torch.cat([torch.ones_like(decay[..., :1]), decay[..., :-1]], dim=-1)\n    D = "
      "torch.where(below, decay[..., :, None], 1).cumprod(dim=-2).tril()\n    "
      "since = decay.cumprod(dim=-1)[..., None]"),
     ("kept = D[..., -1, :, None]", "kept = D[..., -1, :, None] * last[..., None]"),
     ("whole = since[..., -1:, :]", "whole = total")),
    ("old state not decayed",
     "Your addition is right, but in your transition the identity lacks the decays. The old state "
     "is multiplied by all decays of the chunk.",
     ("whole = since[..., -1:, :] * torch", "whole = torch")),
    ("transition without decays",
     "Your addition is right, but the decays are missing in your transition: in its identity, and "
     "where tokens subtract what the old state returned.",
     ("since * b * k", "b * k"), ("whole = since[..., -1:, :] * torch", "whole = torch")),
    ("only writes decayed",
     "Your writes decay to the end of the chunk, but nothing decays when tokens correct. Multiply "
     "A by D, and what the old state returned by the decays up to the token.",
     ("since * b * k", "b * k"), ("(k @ k.mT) * D).tril", "(k @ k.mT)).tril")),
    ("writes and system not decayed",
     "Only the old state decays in your result. Writes decay too. Multiply A by D, and write j by "
     "entry j of the last row of D.",
     ("kept = D[..., -1, :, None]", "kept = torch.ones_like(D[..., -1, :, None])"),
     ("(k @ k.mT) * D).tril", "(k @ k.mT)).tril")),
    ("writes not decayed",
     "Your writes are added without the decay of the later tokens. Multiply write j by decay[j + "
     "1] · … up to the last decay of the chunk.",
     ("kept = D[..., -1, :, None]", "kept = torch.ones_like(D[..., -1, :, None])")),
    ("writes decayed by themselves",
     "Your write j is multiplied by decay[j] as well. A token decays before it writes, so use only "
     "the decays after j.",
     ("kept = D[..., -1, :, None]", "kept = D[..., -1, :, None] * decay[..., None]")),
    ("writes decayed from the start",
     "Your write j is multiplied by the decays up to j. Use the decays *after* j, up to the end of "
     "the chunk.",
     ("kept = D[..., -1, :, None]", "kept = since")),
    ("identity missing",
     "Your transition lacks the identity. The old state stays, decayed, except for what the tokens "
     "subtract.",
     (RETURN, "return -(kept * k).mT @ W, (kept * k).mT @ U")),
    ("sign of the transition",
     "Your transition adds what the tokens must subtract. The sign in front of the second term is "
     "minus.",
     ("return whole - ", "return whole + ")),
    ("results exchanged",
     "Both results are right, but in the wrong order. Return the transition first, then the "
     "addition.",
     (RETURN, "return (kept * k).mT @ U, whole - (kept * k).mT @ W")),
    ("addition alone",
     "You return one result. Return the transition and the addition.",
     (RETURN, "return (kept * k).mT @ U")),
    ("writes returned",
     "You return W and U, one row for each token. Multiply both by the decayed keys to get what "
     "happens to the state.",
     (RETURN, "return W, U")),
    ("keys of norm 1",
     "Your result is right for keys of norm 1 only, since you divide keys by their norms. Use them "
     "as they are given.",
     ("C, d_k = k.shape[-2:]",
      "k = torch.nn.functional.normalize(k, dim=-1)\n    C, d_k = k.shape[-2:]")),
    ("ratio of products",
     "Your result is right while the product of all decays is above 0. When it underflows, 0 / 0 "
     "is NaN. Multiply only the decays in between, or subtract sums of logarithms.",
     ("kept = D", "total = decay.cumprod(dim=-1)\n    "
      "D = (total[..., :, None] / total[..., None, :]).masked_fill(below.mT, 0)\n    kept = D")),
]  # fmt: skip

exercise = Exercise(
    "13.9", chunk_as_map, inputs, MISTAKES, names="d_k d_k|d_k d_v", run=in_matrix_form,
    differentiable=True, also_right=[by_doubling, by_tree],
)  # fmt: skip
