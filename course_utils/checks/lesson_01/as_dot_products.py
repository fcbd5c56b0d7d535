"""1.10: queries and keys whose dot products look up by distance."""

import torch
import torch.nn.functional as F

from course_utils.checks.compare import is_same, read
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import normals, queries_and_keys


def as_dot_products(q, k):
    ones = torch.ones_like(q[..., :1])  # (..., L, 1)
    squares = k.square().sum(dim=-1, keepdim=True)  # (..., S, 1), ‖k‖²
    wide_q = torch.cat([q, ones], dim=-1)  # (..., L, d + 1)
    wide_k = torch.cat([k, -squares / 2], dim=-1)  # (..., S, d + 1)
    return wide_q, wide_k


def by_padding(q, k):
    return F.pad(q, (1, 0), value=-0.5), torch.cat([k.pow(2).sum(-1, keepdim=True), k], -1)


def with_lists(q, k):
    """Both half as wide again, and the keys one by one."""
    rows = [torch.cat([row / 2, (-row @ row / 8)[None]]) for row in k.reshape(-1, k.shape[-1])]
    return F.pad(2 * q, (0, 1), value=4.0), torch.stack(rows).reshape(*k.shape[:-1], -1)


def inputs():
    normal = normals(10)
    return [
        *queries_and_keys(seed=11),
        (normal(12, 10), normal(9, 10)),
        (normal(3, 3), normal(3, 3)),
        (normal(5, 2), torch.tensor([[0.1], [1], [3]], dtype=torch.float64) * normal(3, 2)),
        (normal(4, 3) + 2, normal(6, 3) - 1),
    ]


def weights(answer, q, k):
    """Return the weights of a soft lookup with the learner's queries and keys."""
    wide_q, wide_k = pair(answer, q, k)
    beside_others = pair(answer, q, 2 * k.flip(-2))[0], pair(answer, 2 * q.flip(-2), k)[1]
    for one, other, name in zip((wide_q, wide_k), beside_others, ("query", "key"), strict=True):
        if not is_same(other, one.detach()):
            rest = "keys" if name == "query" else "queries"
            hint = f"a {name} comes out otherwise beside other {rest}; make it without them"
            raise NamedMistake("looks at the other side", hint)
    return [(wide_q @ wide_k.transpose(-2, -1)).softmax(dim=-1)]  # (..., L, S)


def pair(answer, q, k):
    """Call the answer; complain if it returns no queries and keys that can be multiplied."""
    (made,) = call_with_clones(answer, q, k)
    if not (isinstance(made, tuple | list) and len(made) == 2):
        raise NamedMistake("not a pair", "return two tensors: the new queries and the new keys")
    if not all(isinstance(each, torch.Tensor) and read(each) is not None for each in made):
        raise NamedMistake("not tensors", "the new queries and keys must both be tensors")
    wide_q, wide_k = made
    shapes = f"{tuple(wide_q.shape)} and {tuple(wide_k.shape)}"
    if wide_q.shape[:-1] != q.shape[:-1] or wide_k.shape[:-1] != k.shape[:-1]:
        hint = (
            f"as many queries and keys as before are asked, (..., L, D) and (..., S, D): {shapes}"
        )
        raise NamedMistake("other rows", hint)
    if wide_q.shape[-1] != wide_k.shape[-1]:
        raise NamedMistake("two widths", f"queries and keys must be equally wide: {shapes}")
    if wide_q.dtype != wide_k.dtype or not wide_q.is_floating_point():
        hint = (
            f"the new queries are {wide_q.dtype}, the new keys {wide_k.dtype}: both must be floats "
            f"of one kind, as the inputs are, {q.dtype}; torch.zeros(...) is float32 whatever k "
            "is, k.new_zeros(...) is as k"
        )
        raise NamedMistake("two dtypes", hint)
    if wide_q.shape[-1] > q.shape[-1] + 2:
        raise NamedMistake(
            "too wide", f"d + 2 numbers each at most, with d = {q.shape[-1]}: {shapes}"
        )
    return made


MISTAKES = [
    ("dot products alone",
     "the weights are those of plain dot products, so a long key still wins. What is the same for "
     "all keys of a query, such as ‖q‖², drops out of softmax; what else is in ‖q − k‖²?",
     "(q, k)"),
    ("square added", "the sign: a longer key, in the same direction, must lose by its length",
     ("-squares / 2", "squares / 2")),
    ("square not halved", "‖k‖² counts in whole beside q·k; write −‖q − k‖² / 2 out once more",
     ("-squares / 2", "-squares")),
    ("distance not halved", "that is e^(−‖q − k‖²); e^(−‖q − k‖² / 2) is asked",
     ("[q, ones]", "[2 * q, ones]"), ("-squares / 2", "-squares")),
    ("length not squared", "the length of the key is subtracted where its square is needed",
     ("squares = k.square().sum(dim=-1, keepdim=True)", "squares = k.norm(dim=-1, keepdim=True)")),
    ("squares averaged", "the mean of the squared entries is taken; ‖k‖² is their sum",
     ("sum(dim", "mean(dim")),
    ("sum of the entries", "the entries of the key are added unsquared; ‖k‖² is a sum of squares",
     ("k.square().sum", "k.sum")),
    ("sum squared", "(Σk)² is the sum of the entries, squared; ‖k‖² is the sum of their squares",
     ("k.square().sum(dim=-1, keepdim=True)", "k.sum(dim=-1, keepdim=True).square()")),
    ("squares meet squares",
     "the squares do not meet the ones: in q·k the last numbers multiply each other, so a 1 on one "
     "side stands where the other has its −‖ ‖² / 2",
     ("[q, ones]", "[q, -q.square().sum(dim=-1, keepdim=True) / 2, ones]"),
     ("-squares / 2]", "-squares / 2, torch.ones_like(squares)]")),
    ("product doubled", "q·k counts twice beside ‖k‖² / 2; write −‖q − k‖² / 2 out once more",
     ("[q, ones]", "[2 * q, ones]")),
    ("keys divided by root 2",
     "Your q·k is divided by √2, and your ‖k‖² / 2 is not. The weights need both as they are. "
     "Divide neither q nor k.",
     ("[k, -sq", "[k / 2**0.5, -sq")),
    ("divided by root d",
     "the weights are those of −‖q − k‖² / 2 divided by √d; here nothing is divided: the weight is "
     "e^(−‖q − k‖² / 2)", ("[q, ones], dim=-1)", "[q, ones], dim=-1) / q.shape[-1] ** 0.5")),
    ("product divided by root d",
     "q·k is divided by √d, ‖k‖² / 2 is not; neither is, in −‖q − k‖² / 2",
     ("[q, ones]", "[q / q.shape[-1] ** 0.5, ones]")),
    ("cosines", "both sides are brought to length 1, so that the direction alone decides; keys "
     "should lose because they are far, and how far takes their lengths",
     "(q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True))"),
    ("direction alone", "with keys of one length the direction alone decides; long keys should "
     "lose because they are far, not become short ones", "(q, k / k.norm(dim=-1, keepdim=True))"),
    ("sign of the product", "near keys get the least: q·k comes with a plus, as in −‖q − k‖² / 2",
     ("[q, ones]", "[-q, ones]")),
]  # fmt: skip

exercise = Exercise(
    "1.10", as_dot_products, inputs, MISTAKES, names="L S", run=weights, differentiable=True,
    compared="the weights they make", also_right=[by_padding, with_lists],
)  # fmt: skip
