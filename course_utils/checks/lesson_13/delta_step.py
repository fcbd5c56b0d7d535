"""13.5: one step of the delta rule."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def delta_step(S, k, v, beta):
    recalled = (k[..., None, :] @ S).squeeze(-2)  # (..., 1, d_k) @ (..., d_k, d_v) -> (..., d_v)
    error = v - recalled  # (..., d_v)
    write = beta[..., None] * error  # (..., d_v)
    return S + k[..., :, None] * write[..., None, :]


def by_projection(S, k, v, beta):
    b = beta[..., None, None]
    eye = torch.eye(k.shape[-1], dtype=S.dtype)
    erased = (eye - b * k.unsqueeze(-1) * k.unsqueeze(-2)) @ S
    return erased + b * k.unsqueeze(-1) * v.unsqueeze(-2)


def by_einsum(S, k, v, beta):
    error = v - torch.einsum("...kv,...k->...v", S, k)
    return S + torch.einsum("...,...k,...v->...kv", beta, k, error)


def by_gradient(S, k, v, beta):
    recalled = (k.unsqueeze(-1) * S).sum(dim=-2)
    gradient = k.unsqueeze(-1) * (recalled - v).unsqueeze(-2)  # of half the squared error
    return S - beta[..., None, None] * gradient


def inputs():
    normal = normals(135)

    def case(*batch, d_k, d_v, norm=1.0, dtype=torch.float64):
        k = norm * F.normalize(normal(*batch, d_k), dim=-1)
        rest = normal(*batch, d_k, d_v), k, normal(*batch, d_v), normal(*batch, 1).sigmoid()[..., 0]
        return tuple(each.to(dtype) for each in rest)

    S, k, v, beta = case(2, 3, d_k=3, d_v=4)
    return [
        case(d_k=4, d_v=3),
        case(2, 3, d_k=3, d_v=5),
        case(5, d_k=2, d_v=3, dtype=torch.float32),
        case(4, d_k=3, d_v=2, norm=1.4),
        (S, k, v, torch.ones_like(beta)),  # the key returns its value afterward
        (S, k, v, torch.zeros_like(beta)),
        (torch.zeros_like(S), k, v, beta),
        case(1, 1, d_k=3, d_v=2, norm=0.5),
    ]


RETURN = "return S + k[..., :, None] * write[..., None, :]"
MISTAKES = [
    ("nothing subtracted",
     "Your step adds β k vᵀ and subtracts nothing. The delta rule writes only a correction, so "
     "first subtract from v what the state returns for k.",
     ("v - recalled", "v")),
    ("plain write",
     "Your step adds k vᵀ, as linear attention does. The delta rule writes a correction, so add β "
     "k (v − k S)ᵀ.",
     ("beta[..., None] * error", "v")),
    ("beta not used",
     "Your step writes the whole error. Multiply it by β.",
     ("beta[..., None] * error", "error")),
    ("beta for the value alone",
     "Your β multiplies only v, not what you subtract from it. Multiply the whole error, v − k S, "
     "by β.",
     ("beta[..., None] * error", "beta[..., None] * v - recalled")),
    ("beta for the erasing alone",
     "Your β multiplies only what you subtract, not v. Multiply the whole error, v − k S, by β.",
     ("beta[..., None] * error", "v - beta[..., None] * recalled")),
    ("beta twice",
     "Your step multiplies the error by β². Multiply it by β.",
     ("beta[..., None] * error", "beta[..., None] ** 2 * error")),
    ("erased by beta twice",
     "Your v is multiplied by β, but k S by β². Multiply the whole error, v − k S, by β once.",
     ("v - recalled", "v - beta[..., None] * recalled")),
    ("correction upside down",
     "Your change to the state has the wrong sign. Add β k (v − k S)ᵀ instead of subtracting it.",
     ("v - recalled", "recalled - v")),
    ("recalled added",
     "Your step adds what the state returns for k to v. Subtract what the state returns: the error "
     "is v − k S.",
     ("v - recalled", "v + recalled")),
    ("whole state shrunk",
     "Your step multiplies the whole state by 1 − β. The delta rule does not shrink the whole "
     "state. It subtracts only β k (k S)ᵀ. Return S + β k (v − k S)ᵀ.",
     (RETURN, "b = beta[..., None, None]\n"
      "    return (1 - b) * S + b * k[..., :, None] * v[..., None, :]")),
    ("whole state multiplied by beta",
     "Your β also multiplies the old state. Multiply only k (v − k S)ᵀ by β.",
     (RETURN, "return beta[..., None, None] * (S + k[..., :, None] * error[..., None, :])")),
    ("update alone",
     "You return only the change. Add it to the state.",
     ("return S + k", "return k")),
    ("write before the read",
     "Your step reads the state after v has been written. Read what the state returns for k "
     "first, and then write.",
     (RETURN, "T = S + beta[..., None, None] * k[..., :, None] * v[..., None, :]\n"
      "    recalled = (k[..., None, :] @ T)  # (..., 1, d_v)\n"
      "    return T - beta[..., None, None] * k[..., :, None] * recalled")),
    ("erased, then corrected",
     "Your step subtracts the recalled value twice: once from the state, and once from v. "
     "Subtract it only from v, and add β k (v − k S)ᵀ.",
     (RETURN, "b = beta[..., None, None]\n    S = S - b * k[..., :, None] * recalled[..., None, :]"
      "\n    return S + k[..., :, None] * write[..., None, :]")),
    ("only erased",
     "Your step removes what the state returns for k, but does not write v. Add β k (v − k S)ᵀ.",
     ("v - recalled", "-recalled")),
    ("key made a unit vector",
     "Your result is right only for keys of norm 1, because you divide k by its norm. Use k as "
     "given.",
     ("recalled = (k", "k = F.normalize(k, dim=-1)\n    recalled = (k")),
    ("divided by the squared norm",
     "Your result is right only for keys of norm 1, because you divide the error by k · k. Add β "
     "k (v − k S)ᵀ as it is.",
     ("beta[..., None] * error",
      "beta[..., None] * error / k.square().sum(dim=-1, keepdim=True)")),
    ("divided by the norm",
     "Your result is right only for keys of norm 1, because you divide the error by the norm of "
     "k. Add β k (v − k S)ᵀ as it is.",
     ("= beta[..., None]", "= beta[..., None] / k.norm(dim=-1, keepdim=True)")),
    ("erased without the key",
     "Your step multiplies the whole state by 1 − β (k · k). Subtract β k (k S)ᵀ from the state "
     "instead.",
     (RETURN, "b = beta[..., None, None]\n    return S * (1 - b * (k * k).sum(-1)[..., None, None])"
      " + b * k[..., :, None] * v[..., None, :]")),
    ("coordinates erased separately",
     "Your step multiplies row i of the state by 1 − β k_i². That ignores the products of "
     "different coordinates of k. Multiply S by the matrix I − β k kᵀ.",
     (RETURN, "b = beta[..., None, None]\n    return (1 - b * k[..., :, None] ** 2) * S"
      " + b * k[..., :, None] * v[..., None, :]")),
    ("state transposed",
     "Your result is transposed. Swap its last two dimensions, so that the rows of the state "
     "correspond to the coordinates of the keys.",
     (RETURN, RETURN.replace("return ", "return (") + ").mT")),
    ("recalled value returned",
     "You return what the state returns for k. Return the new state, S + β k (v − k S)ᵀ.",
     (RETURN, "return recalled")),
    ("correction returned",
     "You return the error, v − k S. Add β k (v − k S)ᵀ to the state, and return the state.",
     (RETURN, "return error")),
    ("value recalled afterwards",
     "You return what the *new* state returns for k. Return the new state itself.",
     (RETURN, "T = S + k[..., :, None] * write[..., None, :]\n"
      "    return (k[..., None, :] @ T).squeeze(-2)")),
    ("state unchanged",
     "You return the state unchanged. Add β k (v − k S)ᵀ to it.",
     (RETURN, "return S + 0 * write.sum()")),
    ("one correction for all",
     "Your changes are summed over the leading dimensions. Each batch item has its own state and "
     "its own correction, so keep all leading dimensions.",
     ("return S +", "write = write + 0 * S[..., 0, :]\n    dims = tuple(range(write.ndim - 1))\n"
      "    outer = k[..., :, None] * write[..., None, :]\n"
      "    return S + (outer.sum(dim=dims) if dims else outer)\n    return S +")),
    ("state subtracted from the value",
     "Your error subtracts each row of the state from v. Subtract what the state returns for k, "
     "which is k S.",
     (RETURN,
      "return S + beta[..., None, None] * k[..., :, None] * (v[..., None, :] - S)")),
    ("twice the correction",
     "Your change is twice as large as it should be. Add β k (v − k S)ᵀ once.",
     ("beta[..., None] * error", "2 * beta[..., None] * error")),
    ("softmax of the recalled value",
     "You apply a softmax to k S. The delta rule has no softmax, so subtract k S.",
     ("v - recalled", "v - recalled.softmax(dim=-1)")),
    ("beta keeps the state",
     "Your new state is β S + (1 − β) k vᵀ. Keep the old state in full, and add β k (v − k S)ᵀ.",
     (RETURN, "b = beta[..., None, None]\n"
      "    return b * S + (1 - b) * k[..., :, None] * v[..., None, :]")),
    ("state shrunk and corrected",
     "Your step multiplies the whole state by 1 − β and then adds k (v − k S)ᵀ without β. Keep "
     "the old state in full, and add β k (v − k S)ᵀ.",
     (RETURN, "return (1 - beta[..., None, None]) * S"
      " + k[..., :, None] * error[..., None, :]")),
    ("mean of the betas",
     "Your step uses the mean of all β for every batch item. Each item has its own β, so do not "
     "average.",
     ("= beta[..., None] *", "= beta.mean() *")),
    ("divided by the width",
     "The change that you add to the state is divided by d_k. This exercise scales nothing, so "
     "remove the factor.",
     ("= beta[..., None] *", "= beta[..., None] / k.shape[-1] *")),
    ("divided by beta",
     "Your error is divided by β. Multiply it by β.",
     ("beta[..., None] * error", "error / beta[..., None]")),
    ("beta swapped for its rest",
     "Your error is multiplied by 1 − β. Multiply it by β, so that β = 0 writes nothing.",
     ("beta[..., None] * error", "(1 - beta[..., None]) * error")),
    ("scaled by the root",
     "The recalled value that you subtract is divided by √d_k. This exercise scales nothing, so "
     "remove the factor.",
     ("v - recalled", "v - recalled / k.shape[-1] ** 0.5")),
    ("sigmoid of beta",
     "You apply a sigmoid to β. `beta` is already between 0 and 1, so use it as given.",
     ("beta[..., None] * error", "beta.sigmoid()[..., None] * error")),
    ("keys softmaxed",
     "You apply a softmax to k. The delta rule has no softmax, so use k as given.",
     ("    recalled = (k",
      "    k = k.softmax(dim=-1)\n"
      "    recalled = (k")),
    ("beta under a root",
     "Your error is multiplied by √β. Multiply it by β.",
     ("beta[..., None] * error", "beta[..., None] ** 0.5 * error")),
    ("value normalized",
     "Your value is divided by its norm. Use v as given.",
     ("v - recalled", "F.normalize(v, dim=-1) - recalled")),
    ("state shrunk, and correction with beta",
     "Your step multiplies the whole state by 1 − β, and then adds the right correction. Keep "
     "the old state in full, and add β k (v − k S)ᵀ.",
     ("return S + k", "return (1 - beta[..., None, None]) * S + k")),
    ("value by beta squared",
     "Your v is multiplied by β², but k S only by β. Multiply the whole error, v − k S, by β once.",
     ("v - recalled", "beta[..., None] * v - recalled")),
    ("read with a unit key",
     "You read the state with k divided by its norm. Use k as given, for reading as well as for "
     "writing.",
     ("recalled = (k[..., None, :] @ S)",
      "recalled = (F.normalize(k, dim=-1)[..., None, :] @ S)")),
    ("sum of the rows",
     "You subtract the sum of the rows of the state from v. Subtract what the state returns for "
     "k. This is k S, in which row i has the weight k_i.",
     ("recalled = (k[..., None, :] @ S).squeeze(-2)", "recalled = S.sum(dim=-2)")),
    ("mean of the rows",
     "You subtract the mean of the rows of the state from v. Subtract what the state returns for "
     "k. This is k S, in which row i has the weight k_i.",
     ("recalled = (k[..., None, :] @ S).squeeze(-2)", "recalled = S.mean(dim=-2)")),
    ("recalled value written",
     "Your error is k S, what the state returns for k. It must be v − k S.",
     ("v - recalled", "recalled")),
    ("value subtracted",
     "Your step subtracts β k vᵀ from the state. Add a correction instead, β k (v − k S)ᵀ.",
     ("v - recalled", "-v")),
    ("plain write alone",
     "You return k vᵀ. Return the new state, S + β k (v − k S)ᵀ.",
     ("return S + k[..., :, None] * write[..., None, :]",
      "return k[..., :, None] * v[..., None, :]")),
    ("beta and its rest",
     "You multiply v by β, but k S by 1 − β. Multiply the whole error, v − k S, by β.",
     ("beta[..., None] * error", "beta[..., None] * v - (1 - beta[..., None]) * recalled")),
    ("correction with a nonlinearity",
     "You apply tanh to the error. The delta rule has no nonlinearity, so write β k (v − k S)ᵀ.",
     ("v - recalled", "(v - recalled).tanh()")),
    ("plain write added",
     "Your step adds β k vᵀ in addition to the right correction. Add only β k (v − k S)ᵀ.",
     ("v - recalled", "2 * v - recalled")),
]  # fmt: skip

exercise = Exercise(
    "13.5", delta_step, inputs, MISTAKES, names="d_k d_v", differentiable=True,
    also_right=[by_projection, by_einsum, by_gradient],
)  # fmt: skip
