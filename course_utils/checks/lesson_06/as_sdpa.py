"""6.8: a temperature, shared KV heads and an inverted mask, in one call of SDPA."""

import torch
import torch.nn.functional as F

from course_utils.checks import shared_hints
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Shapes, normals, out_of_order

INF = torch.inf


def as_sdpa(q, k, v, ignore, temperature):
    d_k = q.shape[-1]
    scale = 1 / (d_k**0.5 * temperature)
    mask = ~ignore  # (B, 1, L, S), True = may attend
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)


def with_repeated_heads(q, k, v, ignore, temperature):
    times = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    bias = torch.zeros(ignore.shape, dtype=q.dtype).masked_fill(ignore, -INF)
    return F.scaled_dot_product_attention(q / temperature, k, v, attn_mask=bias)


def in_groups(q, k, v, ignore, temperature):
    grouped = q.unflatten(1, (k.shape[1], -1))  # (B, Hkv, group, L, d_k)
    out = F.scaled_dot_product_attention(
        query=grouped / temperature,
        key=k.unsqueeze(2).expand(*grouped.shape[:3], -1, -1),
        value=v.unsqueeze(2).expand(*grouped.shape[:3], -1, -1),
        attn_mask=torch.logical_not(ignore).unsqueeze(2),
    )
    return out.flatten(1, 2)


def inputs():
    normal = normals(68)

    def case(B, Hq, Hkv, L, S, d_k, d_v, temperature, dtype=torch.float64):
        ignore = normal(B, 1, L, S) > 0.3
        ignore[..., 0] = False  # every query sees something
        q, k = normal(B, Hq, L, d_k, dtype=dtype), normal(B, Hkv, S, d_k, dtype=dtype)
        return q, k, normal(B, Hkv, S, d_v, dtype=dtype), ignore, temperature

    blind = case(3, 4, 2, 3, 4, 5, 2, 1.5)
    blind[3][0, 0, 1] = True  # query 1 of one sequence must ignore all
    q, k, v, *rest = case(1, 4, 2, 5, 4, 3, 6, 0.7)
    return [
        case(3, 4, 2, 3, 5, 4, 6, 2.0),
        case(2, 6, 3, 5, 4, 9, 3, 0.5),
        case(1, 4, 1, 2, 6, 4, 4, 1.0),
        case(2, 3, 3, 4, 5, 2, 3, 3.0),
        case(2, 4, 2, 3, 5, 4, 6, 2.0, dtype=torch.float32),
        (*out_of_order(q, k, v), *rest),
        blind,
        case(1, 1, 1, 1, 1, 1, 1, 2.0),
        case(2, 4, 2, 5, 5, 3, 4, 1.5),
    ]


def in_one_call(answer, *args):
    """Call an answer. If it is right, check that it is one call of SDPA."""
    with Shapes() as shapes:
        results = call_with_clones(answer, *args)
    if len(shapes.in_sdpa) != 1:
        hint = "Right, but it is not one call of F.scaled_dot_product_attention. Use its arguments."
        raise NamedMistake("not one call", hint, results)
    return results


IN_TURN = (
    "return F",
    "k, v = (x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v))\n    return F",
)
FINITE = "~ignore", "ignore.to(q.dtype) * -1e9"

MISTAKES = [
    ("ported wrongly",
     "Your code still has both bugs. Try two KV heads for four query heads, with different "
     "numbers in each head of v. Then try a query that must ignore everything.",
     IN_TURN,
     FINITE),
    ("ignore not inverted",
     "Your mask is not inverted. In `ignore`, True means ignore. In SDPA, True means may attend, "
     "so pass ~ignore.",
     ("~ignore", "ignore")),
    ("temperature alone",
     "Your scores lack the factor 1/√d_k. If you pass `scale`, SDPA leaves this factor out. Pass 1 "
     "/ (√d_k · temperature).",
     ("d_k**0.5 * temperature", "temperature")),
    ("temperature as scale",
     "Your scores are multiplied by the temperature, without 1/√d_k. `scale` multiplies, and "
     "it replaces 1/√d_k. Use 1 / (√d_k · temperature).",
     ("1 / (d_k**0.5 * temperature)", "temperature")),
    ("temperature twice",
     "Your scores are divided by the temperature twice. Divide q by it, or put it into "
     "`scale`, but not both.",
     ("* temperature", "* temperature**2")),
    ("temperature ignored",
     "You do not use the temperature. Scores must also be divided by it, so pass 1 / (√d_k · "
     "temperature) as `scale`.",
     ("d_k**0.5 * temperature", "d_k**0.5")),
    ("temperature upside down",
     "Your scores are multiplied by the temperature. Divide the scores by it.",
     ("1 / (d_k**0.5 * temperature)", "temperature / d_k**0.5")),
    ("scale upside down",
     "Your scores are multiplied by √d_k and the temperature. `scale` multiplies, so use 1 / "
     "(√d_k · temperature).",
     ("1 / (d_k**0.5 * temperature)", "d_k**0.5 * temperature")),
    ("mask not given",
     "You do not use the mask. Ignored keys must get no weight, so invert `ignore` and pass it as "
     "attn_mask.",
     ("attn_mask=mask, ", "")),
    ("causal instead",
     "You use a causal mask. Use the given mask instead: invert `ignore` and pass it as attn_mask.",
     ("attn_mask=mask", "is_causal=True")),
    ("mask as numbers",
     "Your result is what you get with a mask of 0s and 1s in place of booleans. SDPA *adds* a "
     "numeric mask to the scores, so these numbers forbid nothing. Pass the boolean mask "
     "`~ignore`.",
     ("~ignore", "(~ignore).to(q.dtype)")),
    ("ignore as numbers",
     "Your result is what you get with a mask of 0s and 1s in place of booleans. SDPA *adds* a "
     "numeric mask to the scores, so ignored keys count e times as much. Pass the boolean mask "
     "`~ignore`, in which True means may attend.",
     ("~ignore", "ignore.to(q.dtype)")),
    ("finite in place of infinity",
     "Your result is right, except for a query that must ignore everything. With a large negative "
     "number instead of −∞, all its keys still get weight. Pass the boolean mask `~ignore`.",
     FINITE),
    ("smallest number in place of infinity",
     "Your result is right, except for a query that must ignore everything. With the lowest finite "
     "number instead of −∞, all its keys get the same weight. Pass the boolean mask `~ignore`.",
     ("~ignore", "ignore.to(q.dtype) * torch.finfo(q.dtype).min")),
    ("mask times infinity",
     "Your result is NaN. If you multiply a mask by −∞, the allowed entries become 0 · −∞, which "
     "is NaN. Pass the boolean mask `~ignore`.",
     ("~ignore", "ignore.to(q.dtype) * -INF")),
    ("queries reordered",
     "Your output has the heads of q in another order. You get this result if you reorder q for "
     "the groups. Query heads that share a KV head are neighbors already, so leave q as it is.",
     ("return F", "q = q.unflatten(1, (-1, k.shape[1])).transpose(1, 2).flatten(1, 2)\n"
      "    return F")),
    ("mask reversed",
     "Your mask is reversed along the keys. Column s of `ignore` belongs to key s, so do not flip "
     "it.",
     ("~ignore", "~ignore.flip(-1)")),
    ("heads in turn",
     "Your query heads take turns with the KV heads, as `repeat` arranges them: 0 1 0 1 with two "
     "KV heads. Query head h must use KV head h // (Hq / Hkv). Use enable_gqa or "
     "repeat_interleave.",
     IN_TURN),
    ("values in turn",
     "Your heads of k are right, but your query heads take turns with the heads of v: 0 1 0 1 with "
     "two of them. Query head h must use head h // (Hq / Hkv) of k and of v. Use enable_gqa or "
     "repeat_interleave.",
     ("return F", "v = v.repeat(1, q.shape[1] // v.shape[1], 1, 1)\n    "
      "k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)\n    return F")),
    ("keys in turn",
     "Your heads of v are right, but your query heads take turns with the heads of k: 0 1 0 1 with "
     "two of them. Query head h must use head h // (Hq / Hkv) of k and of v. Use enable_gqa or "
     "repeat_interleave.",
     ("return F", "k = k.repeat(1, q.shape[1] // k.shape[1], 1, 1)\n    "
      "v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)\n    return F")),
    ("heads not shared",
     "You get an error, because SDPA shares KV heads only if you ask for it. Pass "
     "enable_gqa=True.",
     (", enable_gqa=True", "")),
    ("scaled twice",
     "Your scores are divided by d_k, not by √d_k. This happens if `scale` lacks the square root, "
     "or if you divide q by √d_k and SDPA divides again. Divide by √d_k only once.",
     ("d_k**0.5", "d_k")),
    ("scaled by the width of values", shared_hints.BY_D_V, ("q.shape[-1]", "v.shape[-1]")),
    ("temperature under the root",
     "Your scores are divided by the square root of the temperature. Divide by √d_k · "
     "temperature.",
     ("d_k**0.5 * temperature", "(d_k * temperature) ** 0.5")),
    ("not one call",
     "Your result is NaN for a query that must ignore everything. A single call to "
     "F.scaled_dot_product_attention gives 0 there. Use its arguments instead of your own "
     "softmax.",
     ("return F",
      "k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))\n    return (q "
      "@ k.mT * scale).masked_fill(ignore, -INF).softmax(dim=-1) @ v\n    return F")),
    ("output over temperature",
     "Your output is divided by the temperature. Divide the scores by it, before the softmax.",
     ("d_k**0.5 * temperature", "d_k**0.5"),
     ("gqa=True)", "gqa=True) / temperature")),
    ("first KV head for all",
     "All your query heads use the first KV head. Each group of query heads has its own KV "
     "head. Pass enable_gqa=True.",
     ("(q, k, v, attn", "(q, k[:, :1], v[:, :1], attn")),
    ("neither factor",
     "Your scores are not scaled. `scale` replaces 1/√d_k, so use 1 / (√d_k · temperature).",
     ("1 / (d_k**0.5 * temperature)", "1.0")),
    ("root multiplied",
     "Your scores are multiplied by √d_k. Divide by it: 1 / (√d_k · temperature).",
     ("1 / (d_k**0.5 * temperature)", "d_k**0.5 / temperature")),
    ("finite and too near",
     "Your ignored keys still get some weight. If your mask adds a number such as −10, that is not "
     "low enough. Pass the boolean mask `~ignore`.",
     ("~ignore", "ignore.to(q.dtype) * -10")),
]  # fmt: skip

exercise = Exercise(
    "6.8", as_sdpa, inputs, MISTAKES, names="B Hq L d_v", run=in_one_call, differentiable=True,
    also_right=[with_repeated_heads, in_groups],
)  # fmt: skip
