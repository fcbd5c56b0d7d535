"""13.1: the state that holds a set of key-value pairs."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals, out_of_order


def state_from_pairs(k, v):
    keys = k.mT  # (..., d_k, n)
    state = keys @ v  # (..., d_k, n) @ (..., n, d_v) -> (..., d_k, d_v)
    return state


def by_writing(k, v):
    state = k.new_zeros(*k.shape[:-2], k.shape[-1], v.shape[-1])
    for i in range(k.shape[-2]):
        state = state + k[..., i, :, None] * v[..., i, None, :]
    return state


def by_einsum(k, v):
    return torch.einsum("...nk,...nv->...kv", k, v)


def by_outer_products(k, v):
    return (k.unsqueeze(-1) * v.unsqueeze(-2)).sum(dim=-3)


def inputs():
    normal = normals(131)
    return [
        (normal(6, 4), normal(6, 3)),
        (normal(4, 3), normal(4, 5)),
        (3 * normal(2, 3, 5, 4), normal(2, 3, 5, 6)),
        (normal(7, 3, dtype=torch.float32), normal(7, 2, dtype=torch.float32)),
        (*out_of_order(normal(2, 5, 3), normal(2, 5, 4)),),
        (normal(1, 1, 4, 2), normal(1, 1, 4, 3)),
        (normal(1, 3), normal(1, 2)),
    ]


MISTAKES = [
    ("state transposed",
     "Your state is transposed. Each row must correspond to a coordinate of the keys, so that a "
     "query reads the state as q @ S. Use k.mT @ v.",
     ("return state", "return state.mT")),
    ("mean of the pairs",
     "Your state is divided by the number of pairs. Each write adds its pair in full, so take the "
     "sum, not the mean.",
     ("return state", "return state / k.shape[-2]")),
    ("last pair alone",
     "Your state holds only the last pair. For each pair, *add* k vᵀ to the old state.",
     ("return state", "return k[..., -1, :, None] * v[..., -1, None, :]")),
    ("first pair alone",
     "Your state holds only the first pair. Add k vᵀ for each of the n pairs, and then return the "
     "state.",
     ("return state", "return k[..., 0, :, None] * v[..., 0, None, :]")),
    ("last pair missing",
     "Your state lacks the last pair. Write all n pairs.",
     ("return state", "return keys[..., :-1] @ v[..., :-1, :]")),
    ("first pair missing",
     "Your state lacks the first pair. Write all n pairs, starting at index 0.",
     ("return state", "return keys[..., 1:] @ v[..., 1:, :]")),
    ("sums multiplied",
     "Your state is the sum of all keys times the sum of all values, so each key is also paired "
     "with the values of the others. Multiply each key by its *own* value first, and then add up "
     "the products k vᵀ.",
     ("return state", "return k.sum(dim=-2)[..., :, None] * v.sum(dim=-2)[..., None, :]")),
    ("keys reshaped",
     "Your state has the entries of k in the wrong order. You get this result if you use "
     "`reshape` or `view` instead of a transpose. Use k.mT.",
     ("k.mT", "k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])")),
    ("one state for the batch",
     "Your result is a sum of states over all leading dimensions. Each batch item and each head "
     "has its own state, so keep these dimensions.",
     ("return state", "return state.sum(dim=tuple(range(state.ndim - 2)))"
      " if state.ndim > 2 else state")),
    ("one state for the batch, kept in shape",
     "Each of your states holds the pairs of all batch items and heads. Each should hold only its "
     "own pairs, so do not sum over the leading dimensions.",
     ("return state", "dims = tuple(range(state.ndim - 2))\n"
      "    return state.sum(dim=dims, keepdim=True).expand_as(state) if dims else state")),
    ("heads added",
     "Your result is a sum of states over the last leading dimension, such as the heads. Each head "
     "has its own state, so keep all leading dimensions.",
     ("return state", "return state.sum(dim=-3) if state.ndim > 2 else state")),
    ("batch added",
     "Your result is a sum of the states of all batch items. Each batch item has its own state, so "
     "keep all leading dimensions.",
     ("return state", "return state.sum(dim=0) if state.ndim > 2 else state")),
    ("first item alone",
     "You return only the state of the first batch item or head. Keep all leading dimensions.",
     ("return state", "return state[(0,) * (state.ndim - 2)]")),
    ("all states",
     "You return the state after each pair. Return only the state after the last pair, which "
     "holds all n pairs.",
     ("return state",
      "return (k[..., :, :, None] * v[..., :, None, :]).cumsum(dim=-3)")),
    ("products not added",
     "You return one product k vᵀ for each pair. Add up the n products.",
     ("return state", "return k[..., :, :, None] * v[..., :, None, :]")),
    ("scaled by the root",
     "Your state is divided by √d_k. This exercise scales nothing, so remove the factor.",
     ("return state", "return state / k.shape[-1] ** 0.5")),
    ("divided by the width",
     "Your state is divided by d_k. This exercise scales nothing, so remove the factor.",
     ("return state", "return state / k.shape[-1]")),
    ("keys of norm 1",
     "Your keys are divided by their norms. Write the keys as given.",
     ("k.mT", "torch.nn.functional.normalize(k, dim=-1).mT")),
    ("softmax over coordinates",
     "Your keys went through a softmax over their coordinates. Linear attention has no softmax, "
     "so write the keys as given.",
     ("k.mT", "k.softmax(dim=-1).mT")),
    ("softmax over pairs",
     "Your keys went through a softmax over the pairs. Linear attention has no softmax, so write "
     "the keys as given.",
     ("k.mT", "k.softmax(dim=-2).mT")),
    ("softmax of the state",
     "Your state went through a softmax. Linear attention has no softmax, so return k.mT @ v.",
     ("return state", "return state.softmax(dim=-1)")),
    ("feature map",
     "Your keys went through a feature map, elu(k) + 1. This exercise has no feature map, so write "
     "the keys as given.",
     ("k.mT", "(torch.nn.functional.elu(k) + 1).mT")),
    ("keys alone",
     "Your state is k.mT @ k, without the values. Add up the outer product of each key with its "
     "*value*.",
     ("keys @ v", "keys @ k")),
    ("values alone",
     "Your state is v.mT @ v, without the keys. Add up the outer product of each *key* with its "
     "value.",
     ("keys @ v", "v.mT @ v")),
    ("delta rule",
     "Your result is what the delta rule stores, because each write subtracts what the state "
     "already returns for the key. Here, add k vᵀ and subtract nothing.",
     ("return state",
      "state = torch.zeros_like(state)\n"
      "    for i in range(k.shape[-2]):\n"
      "        k_i, v_i = k[..., i : i + 1, :], v[..., i : i + 1, :]\n"
      "        state = state + k_i.mT @ (v_i - k_i @ state)\n"
      "    return state")),
    ("wrong sign",
     "Your state has the wrong sign. Add k vᵀ for each pair instead of subtracting it.",
     ("return state", "return -state")),
    ("inverse of the keys",
     "Your state is the least-squares solution, pinv(k) @ v. A write only adds a product and "
     "solves nothing. Add k vᵀ for each pair.",
     ("return state", "return torch.linalg.pinv(k) @ v")),
    ("values of norm 1",
     "Your values are divided by their norms. Write the values as given.",
     ("state = keys @ v", "state = keys @ torch.nn.functional.normalize(v, dim=-1)")),
    ("relu of the keys",
     "Your keys went through relu. This exercise has no feature map, so write the keys as given.",
     ("k.mT", "k.relu().mT")),
    ("values in reverse order",
     "Each of your keys is paired with a value from the other end of the list. Pair key i with "
     "value i.",
     ("keys @ v", "keys @ v.flip(-2)")),
    ("scaled by the root of the pairs",
     "Your state is divided by √n. Each write adds its pair in full, so take the plain sum.",
     ("return state", "return state / k.shape[-2] ** 0.5")),
    ("first value for all keys",
     "All your keys are written with the first value. Pair key i with value i.",
     ("keys @ v", "keys @ v[..., :1, :].expand_as(v)")),
    ("last value for all keys",
     "All your keys are written with the last value. Pair key i with value i.",
     ("keys @ v", "keys @ v[..., -1:, :].expand_as(v)")),
    ("softmax of the values",
     "Your values went through a softmax. Linear attention has no softmax, so write the values "
     "as given.",
     ("keys @ v", "keys @ v.softmax(dim=-1)")),
]  # fmt: skip

exercise = Exercise(
    "13.1", state_from_pairs, inputs, MISTAKES, names="d_k d_v", differentiable=True,
    also_right=[by_writing, by_einsum, by_outer_products],
)  # fmt: skip
