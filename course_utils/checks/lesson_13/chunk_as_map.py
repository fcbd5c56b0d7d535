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

    k, v, decay, beta = case(L=64, d_k=2, d_v=3, dtype=torch.float32)
    long = k, v, 0.02 * decay, beta
    k, v, decay, beta = case(2, L=5, d_k=3, d_v=4)
    return [
        case(L=4, d_k=3, d_v=2),
        case(2, 3, L=6, d_k=4, d_v=5),
        (k, v, torch.ones_like(decay), beta),
        (k, v, decay, torch.ones_like(beta)),
        case(3, L=5, d_k=2, d_v=3, dtype=torch.float32),
        case(L=70, d_k=3, d_v=2, low=0.9),
        (*out_of_order(k, v), decay, beta),
        (1.2 * k, v, decay, beta),
        case(1, 1, L=1, d_k=3, d_v=2),
        (k, v, 1e-80 * decay, beta),  # the product of all decays underflows
        long,  # so does it here, and 1 divided by it overflows
    ]


LOOP = (
    "loop over the tokens",
    "Right, but your number of tensor operations grows with C. Write the corrections of all tokens "
    "as one triangular system, and solve it.",
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
    ("tokens in reverse order",
     "Your result is that of the chunk read backward, from the last token to the first. Token 0 "
     "must act first. If you multiply one matrix per token, that of the last token must stand on "
     "the left.",
     ("    C, d_k = k.shape[-2:]",
      "    k, v, decay, beta = k.flip(-2), v.flip(-2), decay.flip(-1), beta.flip(-1)\n"
      "    C, d_k = k.shape[-2:]")),
    ("transition transposed",
     "Your addition is right, but your transition is transposed. You also get this result if you "
     "multiply the tokens' matrices in the wrong order. The last token acts last, so put its "
     "matrix on the left.",
     (RETURN, "return (whole - (kept * k).mT @ W).mT, (kept * k).mT @ U")),
    ("no delta rule",
     "Your tokens write β v without a correction, and your transition only decays. From each v, "
     "subtract what the state, with all earlier writes, returns for the token's key. The part of "
     "the old state that each token subtracts also belongs in the transition.",
     (RETURN, "return whole, (kept * k).mT @ (b * v)")),
    ("transition without the delta rule",
     "Your addition is right, but your transition only decays. The tokens also subtract what the "
     "old state returns for their keys. Subtract this part from the decayed identity.",
     (RETURN, "return whole, (kept * k).mT @ U")),
    ("corrections of the old state alone",
     "Your tokens subtract what the *old* state returns, but not what earlier tokens of the chunk "
     "have written. Token i must also subtract a multiple of each earlier u_j. Put these factors "
     "into a strictly lower triangular matrix A. Then solve (I + A) N = P and (I + A) W = R.",
     ("T = torch.eye(C, dtype=k.dtype) + A", "T = torch.eye(C, dtype=k.dtype) + 0 * A")),
    ("first order",
     "Your result is what you get if I − A stands in for the inverse of I + A. These are only the "
     "first two terms of the series I − A + A² − A³ + …. Solve the triangular system instead.",
     ("T = torch.eye(C, dtype=k.dtype) + A",
      "T = torch.linalg.inv(torch.eye(C, dtype=k.dtype) - A)")),
    ("second order",
     "Your result uses I − A + A² as the inverse of I + A. These are only the first three terms of "
     "the series I − A + A² − A³ + …. Solve the triangular system instead.",
     ("T = torch.eye(C, dtype=k.dtype) + A",
      "T = torch.linalg.inv(torch.eye(C, dtype=k.dtype) - A + A @ A)")),
    ("not inverted",
     "Your result multiplies the right-hand sides by I + A. The writes U are the *solution* of (I "
     "+ A) U = right-hand side, so solve this system.",
     ("T = torch.eye(C, dtype=k.dtype) + A",
      "T = torch.linalg.inv(torch.eye(C, dtype=k.dtype) + A)")),
    ("sign of the system",
     "Your system has the matrix I − A. Each token *subtracts* what earlier tokens have written, "
     "so on the left side this term is added. Use I + A.",
     (") + A  #", ") - A  #")),
    ("own key in the system",
     "The matrix A of your system includes the diagonal. A token corrects only what *earlier* "
     "tokens wrote, so keep only the entries strictly below the diagonal.",
     (".tril(-1)  # (..., C, C)\n    asked", ".tril()  # (..., C, C)\n    asked")),
    ("later keys in the system",
     "The matrix A of your system has entries above the diagonal, so tokens correct what later "
     "tokens write. Keep only the entries strictly below the diagonal.",
     ("A = (b * (k @ k.mT) * D).tril(-1)",
      "full = (decay.log().cumsum(-1)[..., :, None] - decay.log().cumsum(-1)[..., None, :]).abs()\n"
      "    A = b * (k @ k.mT) * (-full).exp() * (1 - torch.eye(C, dtype=k.dtype))")),
    ("system transposed",
     "Your system is transposed, so tokens correct what later tokens write. Put k_i · k_j for the "
     "earlier tokens j into row i.",
     (") + A  #", ") + A.mT  #")),
    ("beta of the writer",
     "In your triangular system, entry (i, j) has the β of token j. Token i makes the correction, "
     "so multiply row i by the β of token i.",
     ("A = (b * ", "A = (b.mT * ")),
    ("beta missing in the system",
     "Your triangular system lacks β. Token i subtracts only β_i times what it reads, so multiply "
     "row i below the diagonal by β_i.",
     ("A = (b * (k", "A = ((k")),
    ("beta missing for the old state",
     "Your addition is right. In your transition, the right-hand side lacks β: token i subtracts "
     "β_i times what the old state returns. Multiply row i of the right-hand side by β_i.",
     ("since * b * k", "since * k")),
    ("beta missing for the values",
     "Your transition is right, but in your addition the values lack the factor β. Multiply each "
     "v by its β on the right-hand side.",
     ("solve(T, b * v)", "solve(T, v)")),
    ("beta not used",
     "Your result does not depend on β. Each token writes β times its correction, so multiply row "
     "i of the system below the diagonal, and of both right-hand sides, by β_i.",
     ("b = beta[..., None]", "b = torch.ones_like(beta)[..., None]")),
    ("no decay",
     "Your result does not depend on the decay. Multiply each write by the decays of all later "
     "tokens, and the old state by all decays so far.",
     ("below = torch", "decay = torch.ones_like(decay)\n    below = torch")),
    ("system not decayed",
     "Your triangular system lacks the decays. When token i corrects, the write of token j has "
     "been multiplied by decay[j + 1] · … · decay[i]. Multiply entry (i, j) by this product.",
     ("(k @ k.mT) * D).tril", "(k @ k.mT)).tril")),
    ("old state not decayed within the chunk",
     "Your addition is right. In your transition, token i subtracts what the undecayed old state "
     "returns. By then, that state has been multiplied by the decays up to and including decay[i]. "
     "Multiply row i of R by their product.",
     ("since * b * k", "b * k")),
    ("own decay missing",
     "Your addition is right. In your transition, token i corrects a state that has decayed only "
     "up to token i − 1. Each token first decays the state and then corrects it, so multiply row i "
     "of R by decay[i] as well.",
     ("since * b * k", "since / decay[..., None] * b * k")),
    ("decay after the write",
     "Your map decays the state after each token's write. Each token must decay it first, so that "
     "the token's own write is not multiplied by its own decay.",
     ("since = decay.cumprod(dim=-1)[..., None]",
      "last = decay[..., -1:]\n    total = decay.cumprod(dim=-1)[..., -1:, None]\n    decay = "
      "torch.cat([torch.ones_like(decay[..., :1]), decay[..., :-1]], dim=-1)\n    D = "
      "torch.where(below, decay[..., :, None], 1).cumprod(dim=-2).tril()\n    "
      "since = decay.cumprod(dim=-1)[..., None]"),
     ("kept = D[..., -1, :, None]", "kept = D[..., -1, :, None] * last[..., None]"),
     ("whole = since[..., -1:, :]", "whole = total")),
    ("old state not decayed",
     "Your addition is right, but in your transition the identity lacks the decays. The old state "
     "is multiplied by all decays of the chunk, so multiply the identity by their product.",
     ("whole = since[..., -1:, :] * torch", "whole = torch")),
    ("transition without decays",
     "Your addition is right, but your transition lacks decays in two places. Multiply the "
     "identity by all decays of the chunk. Where token i subtracts what the old state returns, "
     "multiply by the decays up to and including decay[i].",
     ("since * b * k", "b * k"), ("whole = since[..., -1:, :] * torch", "whole = torch")),
    ("only writes decayed",
     "Your writes decay to the end of the chunk, but nothing has decayed when tokens correct. "
     "Multiply entry (i, j) of the triangular system by decay[j + 1] · … · decay[i], and what "
     "token i reads from the old state by the decays up to and including decay[i].",
     ("since * b * k", "b * k"), ("(k @ k.mT) * D).tril", "(k @ k.mT)).tril")),
    ("writes and system not decayed",
     "Only the old state decays in your result, but writes must decay, too. Multiply entry (i, j) "
     "of the triangular system by decay[j + 1] · … · decay[i]. In both results, multiply what "
     "token j writes by decay[j + 1] up to the last decay of the chunk.",
     ("kept = D[..., -1, :, None]", "kept = torch.ones_like(D[..., -1, :, None])"),
     ("(k @ k.mT) * D).tril", "(k @ k.mT)).tril")),
    ("writes not decayed",
     "In your results, writes do not decay after they are made. Multiply what token j writes by "
     "decay[j + 1] up to the last decay of the chunk.",
     ("kept = D[..., -1, :, None]", "kept = torch.ones_like(D[..., -1, :, None])")),
    ("writes decayed by themselves",
     "In your results, the write of token j is also multiplied by decay[j]. A token decays the "
     "state before it writes, so use only the decays after decay[j].",
     ("kept = D[..., -1, :, None]", "kept = D[..., -1, :, None] * decay[..., None]")),
    ("writes decayed from the start",
     "In your results, the write of token j is multiplied by the decays up to and including "
     "decay[j]. Use the decays *after* decay[j] instead, up to the end of the chunk.",
     ("kept = D[..., -1, :, None]", "kept = since")),
    ("identity missing",
     "Your transition lacks the identity. The old state stays, multiplied by all decays, except "
     "for what the tokens subtract. Add the decayed identity.",
     (RETURN, "return -(kept * k).mT @ W, (kept * k).mT @ U")),
    ("sign of the transition",
     "Your transition adds what the tokens must subtract from the old state. Subtract it from the "
     "decayed identity.",
     ("return whole - ", "return whole + ")),
    ("results exchanged",
     "Both results are right, but in the wrong order. Return the transition first, then the "
     "addition.",
     (RETURN, "return (kept * k).mT @ U, whole - (kept * k).mT @ W")),
    ("addition alone",
     "You return only the addition. Return the transition and the addition.",
     (RETURN, "return (kept * k).mT @ U")),
    ("writes returned",
     "You return the solutions of the triangular system, one row for each token. Multiply them by "
     "the transposed keys, with each key decayed to the end of the chunk.",
     (RETURN, "return W, U")),
    ("keys of norm 1",
     "Your result is right only for keys of norm 1, because you divide each key by its norm. Use "
     "the keys as given.",
     ("C, d_k = k.shape[-2:]",
      "k = torch.nn.functional.normalize(k, dim=-1)\n    C, d_k = k.shape[-2:]")),
    ("ratio of products",
     "Your result is NaN once the product of all decays has underflowed to 0. You get this result "
     "if you divide products, because 0 / 0 is NaN. Multiply only the decays between two tokens, "
     "or subtract sums of logarithms.",
     ("kept = D", "total = decay.cumprod(dim=-1)\n    "
      "D = (total[..., :, None] / total[..., None, :]).masked_fill(below.mT, 0)\n    kept = D")),
    ("addition transposed",
     "Your transition is right, but your addition is transposed. Swap its last two dimensions.",
     ("return whole - (kept * k).mT @ W, (kept * k).mT @ U",
      "return whole - (kept * k).mT @ W, ((kept * k).mT @ U).mT")),
    ("addition of plain writes",
     "Your transition is right, but your addition has no corrections. Solve the triangular "
     "system, with β v on the right-hand side, for what the tokens write.",
     ("(kept * k).mT @ U", "(kept * k).mT @ (b * v)")),
    ("addition of plain writes without decay",
     "Your transition is right, but your addition is Kᵀ (β V), without corrections or decays. "
     "Solve the triangular system for N, the part of U without S, and decay each write to the "
     "end of the chunk.",
     ("(kept * k).mT @ U", "k.mT @ (b * v)")),
    ("addition not decayed",
     "Your transition is right, but in your addition the writes do not decay. Multiply what "
     "token j writes by decay[j + 1] up to the last decay of the chunk.",
     ("(kept * k).mT @ U", "k.mT @ U")),
    ("beta twice",
     "Your result uses β² where β should be. Multiply each correction by β once.",
     ("b = beta[..., None]", "b = beta[..., None] ** 2")),
    ("last decay for the old state",
     "Your addition is right, but in your transition the identity is multiplied only by the last "
     "decay. The old state is multiplied by all decays of the chunk, so multiply the identity by "
     "their product.",
     ("whole = since[..., -1:, :] * torch", "whole = decay[..., -1:, None] * torch")),
    ("one transition for the batch",
     "In your result, all batch items share one transition, the mean over the batch. Each item has "
     "its own, so keep all leading dimensions.",
     ("return whole - (kept * k).mT @ W, (kept * k).mT @ U",
      "M = whole - (kept * k).mT @ W\n"
      "    return (M.mean(dim=0, keepdim=True).expand_as(M) if M.ndim > 2 else M), "
      "(kept * k).mT @ U")),
    ("addition mapped once more",
     "Your transition is right, but your addition is multiplied by the transition, too. The "
     "tokens of the chunk have already acted on it, so return it as it is.",
     ("return whole - (kept * k).mT @ W, (kept * k).mT @ U",
      "M, N = whole - (kept * k).mT @ W, (kept * k).mT @ U\n"
      "    return M, M @ N")),
    ("addition mapped and subtracted",
     "Your transition is right, but transition @ addition is subtracted from your addition. "
     "Return the addition as it is.",
     ("return whole - (kept * k).mT @ W, (kept * k).mT @ U",
      "M, N = whole - (kept * k).mT @ W, (kept * k).mT @ U\n"
      "    return M, N - M @ N")),
    ("writes not decayed in the transition",
     "Your addition is right. In your transition, what token j subtracts does not decay after it "
     "is written. Multiply it by decay[j + 1] up to the last decay of the chunk.",
     ("return whole - (kept * k).mT @ W, (kept * k).mT @ U",
      "return whole - k.mT @ W, (kept * k).mT @ U")),
    ("values decayed",
     "Your transition is right, but in your addition the values are multiplied by the product of "
     "the decays since the start of the chunk. A token decays the state, not its own value. Use β "
     "v on the right-hand side.",
     ("solve(T, b * v)", "solve(T, since * b * v)")),
    ("subtracted part decayed from the start",
     "Your addition is right. In your transition, what the tokens subtract is multiplied by all "
     "decays of the chunk. Multiply what token j subtracts only by the decays after decay[j].",
     ("return whole - (kept * k).mT @ W, (kept * k).mT @ U",
      "return whole - whole @ (k.mT @ W), (kept * k).mT @ U")),
    ("transition is the identity",
     "Your addition is right, but your transition is the identity. Multiply the identity by all "
     "decays of the chunk. Then subtract Kᵀ W, with W from U = N − W S. First decay each "
     "token's row of W to the end of the chunk.",
     ("return whole - (kept * k).mT @ W, (kept * k).mT @ U",
      "return torch.eye(d_k, dtype=k.dtype).expand_as(whole), (kept * k).mT @ U")),
    ("addition decayed from the start",
     "Your transition is right, but in your addition every write is multiplied by all decays of "
     "the chunk. Multiply what token j writes only by the decays after decay[j].",
     ("(kept * k).mT @ U", "since[..., -1:, :] * (k.mT @ U)")),
    ("beta once more for the old state",
     "Your addition is right. In your transition, the solution of the triangular system is "
     "multiplied by β once more. Use β only in the system and on its right-hand side.",
     ("return whole - (kept * k).mT @ W, (kept * k).mT @ U",
      "return whole - (kept * k).mT @ (b * W), (kept * k).mT @ U")),
    ("sign of the addition",
     "Your transition is right, but your addition has the wrong sign. Add what the tokens write.",
     ("return whole - (kept * k).mT @ W, (kept * k).mT @ U",
      "return whole - (kept * k).mT @ W, -(kept * k).mT @ U")),
    ("beta of both tokens in the system",
     "In your triangular system, entry (i, j) has the β of both tokens. What token j wrote already "
     "contains its β, so use only the β of token i.",
     ("A = (b * (k @ k.mT) * D)", "A = (b * b.mT * (k @ k.mT) * D)")),
    ("system decayed twice",
     "In your triangular system, the decays are multiplied twice. Multiply entry (i, j) by decay[j "
     "+ 1] · … · decay[i] once.",
     ("A = (b * (k @ k.mT) * D)", "A = (b * (k @ k.mT) * D * D)")),
    ("beta once more in both",
     "In both results, the solution of the triangular system is multiplied by β once more. Use β "
     "only in the system and on its right-hand sides.",
     ("return whole - (kept * k).mT @ W, (kept * k).mT @ U",
      "return whole - (kept * k).mT @ (b * W), (kept * k).mT @ (b * U)")),
    ("beta once more in the addition",
     "Your transition is right. In your addition, the solution of the triangular system is "
     "multiplied by β once more. Use β only in the system and on its right-hand side.",
     ("return whole - (kept * k).mT @ W, (kept * k).mT @ U",
      "return whole - (kept * k).mT @ W, (kept * k).mT @ (b * U)")),
    ("matrices multiplied entry by entry",
     "Your transition multiplies the tokens' matrices entry by entry. Multiply them as matrices, "
     "with that of the last token on the left, or solve a triangular system.",
     ("return whole - (kept * k).mT @ W, (kept * k).mT @ U",
      "M = decay[..., None, None] * (torch.eye(d_k, dtype=k.dtype) - b[..., None] * "
      "k[..., :, None] * k[..., None, :])\n"
      "    return M.prod(dim=-3), (kept * k).mT @ U")),
]  # fmt: skip

exercise = Exercise(
    "13.9", chunk_as_map, inputs, MISTAKES, names="d_k d_k|d_k d_v", run=in_matrix_form,
    differentiable=True, also_right=[by_doubling, by_tree],
)  # fmt: skip
