"""13.4: linear attention with decay, chunk by chunk."""

import torch

from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
from course_utils.checks.inputs import Shapes, normals, out_of_order
from course_utils.checks.lesson_13._linear import (
    WHOLE,
    head_inputs,
    makes_square,
    without_strong_decays,
)


def decayed_in_chunks(q, k, v, decay, chunk):
    S = q.new_zeros(*q.shape[:-2], q.shape[-1], v.shape[-1])  # (..., d_k, d_v)
    outs = []
    for start in range(0, q.shape[-2], chunk):
        rows = slice(start, start + chunk)
        q_c, k_c, v_c = q[..., rows, :], k[..., rows, :], v[..., rows, :]  # (..., C, d)
        logs = decay[..., rows].log()  # (..., C)
        sums = logs.cumsum(dim=-1)  # (..., C), from the first token of the chunk on
        between = sums[..., :, None] - sums[..., None, :]  # (..., C, C)
        future = torch.ones(between.shape[-2:], dtype=torch.bool).triu(1)
        D = between.masked_fill(future, -torch.inf).exp()  # (..., C, C)
        since = sums.exp()[..., None]  # (..., C, 1), what is left of S at each token
        inside = (q_c @ k_c.mT * D) @ v_c  # (..., C, d_v)
        before = since * (q_c @ S)  # (..., C, d_v)
        outs.append(inside + before)
        kept = (sums[..., -1:] - sums).exp()[..., None]  # (..., C, 1), of each write at the end
        S = since[..., -1:, :] * S + (kept * k_c).mT @ v_c
    return torch.cat(outs, dim=-2), S


def by_sums_of_products(q, k, v, decay, chunk):
    S, outs = None, []
    parts = [x.split(chunk, dim=-2) for x in (q, k, v)]
    for q_c, k_c, v_c, a in zip(*parts, decay.split(chunk, dim=-1), strict=True):
        C = a.shape[-1]
        below = torch.ones(C, C, dtype=torch.bool).tril(-1)
        D = torch.where(below, a[..., :, None], 1).cumprod(dim=-2).tril()
        out = torch.einsum("...ik,...jk,...ij,...jv->...iv", q_c, k_c, D, v_c)
        new = torch.einsum("...jk,...j,...jv->...kv", k_c, D[..., -1, :], v_c)
        if S is not None:
            total = a.cumprod(dim=-1)
            out = out + torch.einsum("...ik,...kv,...i->...iv", q_c, S, total)
            new = new + total[..., -1, None, None] * S
        outs.append(out)
        S = new
    return torch.cat(outs, dim=-2), S


def inputs():
    normal = normals(134)

    def case(*batch, L, d_k, d_v, chunk, dtype=torch.float64, **given):
        *rest, _ = head_inputs(normal, *batch, L=L, d_k=d_k, d_v=d_v, dtype=dtype, **given)
        return *rest, chunk

    q, k, v, decay, _ = case(L=45, d_k=2, d_v=3, chunk=45, dtype=torch.float32)
    long = q, k, v, 0.12 * decay, 45
    q, k, v, decay, chunk = case(2, L=11, d_k=3, d_v=2, chunk=6)
    strong = 1e-70 * decay
    return [
        case(L=6, d_k=3, d_v=2, chunk=3),
        case(L=7, d_k=4, d_v=5, chunk=3),  # a shorter chunk at the end
        case(2, 3, L=8, d_k=3, d_v=4, chunk=4),
        case(L=48, d_k=2, d_v=3, chunk=6, low=0.8),
        case(2, L=5, d_k=3, d_v=4, chunk=2, dtype=torch.float32),
        case(L=5, d_k=2, d_v=3, chunk=9),  # one chunk, not full
        case(L=4, d_k=3, d_v=2, chunk=1),
        (*out_of_order(q, k, v), decay, chunk),
        case(1, 1, L=1, d_k=3, d_v=2, chunk=2),
        # Below, products of decays underflow, and 1 divided by them overflows.
        long,
        (q, k, v, strong, chunk),
    ]


TOKENS = (
    "token by token",
    "Right, but you process single tokens. Use a C × C matrix of scores within each chunk of C "
    "tokens, and carry the state from chunk to chunk.",
)
NUMBER = (
    "number of chunks",
    "Right, but you make `chunk` chunks. `chunk` is the number of tokens in a chunk, so process "
    "that many at once.",
)
OTHER = (
    "another number of tokens",
    "Right, but `chunk` does not set how many tokens you process at once. Use chunks of `chunk` "
    "tokens.",
)


def in_chunks(answer, q, k, v, decay, chunk):
    """Call an answer. If its result is right, check that it was computed chunk by chunk."""
    with Shapes() as shapes:
        results = call_with_clones(answer, q, k, v, without_strong_decays(decay), chunk)
    L = q.shape[-2]
    if L == 48:  # no other size, nor number of chunks, is like another one there
        if makes_square(shapes, L):
            raise NamedMistake(*WHOLE, results)
        if not makes_square(shapes, chunk):
            sizes = [size for size in range(4, L) if makes_square(shapes, size)]
            reason = NUMBER if L // chunk in sizes else OTHER if sizes else TOKENS
            raise NamedMistake(*reason, results)
    return results


AT_END = "(sums[..., -1:] - sums)"
MISTAKES = [
    ("each chunk alone",
     "Your outputs use only the tokens of the same chunk. Add what each query reads from the "
     "state before the chunk, q @ S, multiplied by the decays up to and including its own.",
     ("inside + before", "inside")),
    ("state from before not decayed",
     "Your outputs read the state before the chunk without the decays within the chunk. By token "
     "i, that state has been multiplied by the decays of the chunk's tokens up to and including "
     "i. Multiply q_i @ S by their product.",
     ("since * (q_c @ S)", "q_c @ S")),
    ("own decay missing for the state",
     "What token i reads from the state before the chunk lacks decay[i]. A token decays the state "
     "before it reads, so include its own decay.",
     ("since * (q_c @ S)", "(sums - logs).exp()[..., None] * (q_c @ S)")),
    ("whole decay of the chunk",
     "What you read from the state before the chunk is multiplied by all decays of the chunk. At "
     "token i, use only the decays of the chunk's tokens up to and including i.",
     ("since * (q_c @ S)", "since[..., -1:, :] * (q_c @ S)")),
    ("one decay for the state",
     "What token i reads from the state before the chunk is multiplied only by decay[i]. Multiply "
     "it by all decays of the chunk up to and including decay[i].",
     ("since * (q_c @ S)", "logs.exp()[..., None] * (q_c @ S)")),
    ("not decayed within a chunk",
     "Within a chunk, your scores are masked but not decayed. Multiply score (i, j) by all decays "
     "from decay[j + 1] to decay[i].",
     ("* D)", ").tril()")),
    ("own decay of writes",
     "Within a chunk, your score (i, j) includes decay[j]. A token decays the state before it "
     "writes, so start the product at decay[j + 1].",
     ("between = sums[..., :, None] - sums[..., None, :]",
      "between = sums[..., :, None] - (sums - logs)[..., None, :]")),
    ("decay after the write",
     "In your result, the state decays after each write, so a token's decay also affects its own "
     "write. Decay first, then write, then read.",
     ("sums = logs", "logs = torch.cat([torch.zeros_like(logs[..., :1]), logs[..., :-1]], -1)"
      "\n        sums = logs")),
    ("not causal within a chunk",
     "Within a chunk, your queries see later keys. Set the scores above the diagonal to 0.",
     ("future = torch.ones(between.shape[-2:], dtype=torch.bool).triu(1)",
      "between = -between.abs()"),
     ("between.masked_fill(future, -torch.inf).exp()", "between.exp()")),
    ("own token missing",
     "Within a chunk, your queries do not see their own token. A token writes before it reads, so "
     "keep the diagonal of the scores.",
     (".triu(1)", ".triu(0)")),
    ("state not decayed between chunks",
     "Your old state is not decayed when you compute the next one. Multiply it by the product of "
     "the chunk's decays before you add the chunk's writes.",
     ("since[..., -1:, :] * S", "S")),
    ("state decayed once for a chunk",
     "Your old state is multiplied only by the last decay of the chunk when you compute the next "
     "one. Multiply it by the product of all decays of the chunk.",
     ("since[..., -1:, :] * S", "logs[..., -1:, None].exp() * S")),
    ("state decayed by the first decay",
     "Your old state is multiplied only by the first decay of the chunk when you compute the next "
     "one. Multiply it by the product of all decays of the chunk.",
     ("since[..., -1:, :] * S", "logs[..., :1, None].exp() * S")),
    ("old state never decayed",
     "Your state from before the chunk is never decayed. Multiply what token i reads from it by "
     "the chunk's decays up to and including decay[i]. For the next state, multiply it by all "
     "decays of the chunk.",
     ("since[..., -1:, :] * S", "S"), ("since * (q_c @ S)", "q_c @ S")),
    ("state decayed before it is read",
     "Your state is multiplied by all decays of the chunk before it is read, and then again by "
     "the decays up to each query. Apply all decays of the chunk only when you compute the next "
     "state.",
     ("since * (q_c @ S)", "since * (q_c @ (since[..., -1:, :] * S))")),
    ("state replaced",
     "Your state after a chunk holds only this chunk's writes. Add the old state, multiplied by "
     "all decays of the chunk.",
     ("since[..., -1:, :] * S + ", "")),
    ("writes not decayed",
     "In your next state, the chunk's writes have not decayed. Multiply write j by all decays "
     "after decay[j], up to the end of the chunk.",
     ("(kept * k_c)", "k_c")),
    ("writes decayed from the start",
     "In your next state, write j is multiplied by the decays up to and including decay[j]. "
     "Multiply it by the later decays instead, decay[j + 1] up to the end of the chunk.",
     (AT_END, "sums")),
    ("own decay of writes in the state",
     "In your next state, write j is also multiplied by decay[j]. A token decays the state before "
     "it writes, so use only the decays after decay[j].",
     (AT_END, "(sums[..., -1:] - sums + logs)")),
    ("writes with their own decay alone",
     "In your next state, write j is multiplied only by decay[j]. Multiply it by the later decays "
     "instead, decay[j + 1] up to the end of the chunk.",
     (AT_END, "logs")),
    ("writes with the decay of the chunk",
     "In your next state, every write is multiplied by all decays of the chunk. Multiply write j "
     "only by the decays after decay[j].",
     (AT_END, "(sums[..., -1:] + 0 * sums)")),
    ("state after the chunk read",
     "Your queries read the state after the chunk, which already holds the chunk's own writes. "
     "These writes then count twice, and each query also sees later tokens of its chunk. Read the "
     "state from before the chunk.",
     ("        before = since * (q_c @ S)  # (..., C, d_v)\n        outs.append(inside + before)\n",
      ""),
     ("+ (kept * k_c).mT @ v_c",
      "+ (kept * k_c).mT @ v_c\n        outs.append(inside + since * (q_c @ S))")),
    ("decays in place of logarithms",
     "Your factors are exponentials of sums of decays. Add up the *logarithms* of the decays, or "
     "multiply the decays themselves.",
     ("decay[..., rows].log()", "decay[..., rows]")),
    ("read from before subtracted",
     "Your outputs subtract what the queries read from the state before the chunk. Add it.",
     ("inside + before", "inside - before")),
    ("state from before alone",
     "Your outputs use only the state before the chunk, and not the tokens of the chunk itself. "
     "Add the chunk's own part, (Q Kᵀ ⊙ D) V.",
     ("inside + before", "before")),
    ("no decay",
     "Your result has no decay at all. Multiply the state by each token's decay before the token "
     "writes.",
     ("decay[..., rows].log()", "0 * decay[..., rows]")),
    ("last chunk dropped",
     "Your outputs of the last, shorter chunk are missing. Process that chunk as well.",
     ("range(0, q.shape[-2], chunk)", "range(0, max(q.shape[-2] - chunk + 1, 1), chunk)")),
    ("last chunk zero",
     "Your outputs are 0 in the last, shorter chunk. Process that chunk as well.",
     ("range(0, q.shape[-2], chunk)", "range(0, max(q.shape[-2] - chunk + 1, 1), chunk)"),
     ("return torch.cat(outs, dim=-2)",
      "rest = torch.zeros_like(v[..., sum(out.shape[-2] for out in outs) :, :])\n"
      "    return torch.cat([*outs, rest], dim=-2)")),
    ("state of the padded chunk",
     "Your outputs are right, but your state is 0 when the last chunk is shorter. You get this "
     "result if you pad the decays with zeros. Pad them with ones, or process a shorter chunk.",
     ("return torch.cat(outs, dim=-2), S",
      "return torch.cat(outs, dim=-2), S * (0 if q.shape[-2] % chunk else 1)")),
    ("state before the last chunk",
     "Your outputs are right, but you return the state from before the last chunk. Return the "
     "state after it.",
     ("    S = since", "    last, S = S, since"),
     ("dim=-2), S", "dim=-2), last")),
    ("output alone",
     "Your output is right, but you return nothing else. Also return the state after the last "
     "token.",
     ("dim=-2), S", "dim=-2)")),
    ("results exchanged",
     "Both results are right, but in the wrong order. Return the output first, then the state.",
     ("return torch.cat(outs, dim=-2), S", "return S, torch.cat(outs, dim=-2)")),
    ("state transposed",
     "Your output is right, but the state that you return is transposed. Swap its last two "
     "dimensions.",
     ("dim=-2), S", "dim=-2), S.mT")),
    ("scores scaled",
     "Within a chunk, your scores are divided by √d_k. This exercise scales nothing, so remove "
     "the factor.",
     ("(q_c @ k_c.mT * D)", "(q_c @ k_c.mT * D / q.shape[-1] ** 0.5)")),
    ("queries scaled",
     "Your outputs are divided by √d_k. This exercise scales nothing, so remove the factor.",
     ("inside + before", "(inside + before) / q.shape[-1] ** 0.5")),
    ("softmax within a chunk",
     "Within a chunk, your scores went through a softmax. Linear attention has no softmax, so "
     "multiply the scores by D instead.",
     ("(q_c @ k_c.mT * D)", "(q_c @ k_c.mT).masked_fill(future, -torch.inf).softmax(dim=-1)")),
    ("state of the batch",
     "Your state is summed over the last leading dimension, such as the heads. Each head has its "
     "own state, so keep all leading dimensions.",
     ("+ (kept * k_c).mT @ v_c", "+ (kept * k_c).mT @ v_c\n"
      "        S = S.sum(dim=-3, keepdim=True).expand_as(S) if S.ndim > 2 else S")),
    ("ratio of products",
     "Your result is NaN once the product of a chunk's decays has underflowed to 0. You get this "
     "result if you divide products, because 0 / 0 is NaN. Subtract sums of logarithms, and take "
     "the exponential at the end.",
     ("D = between.masked_fill(future, -torch.inf).exp()",
      "D = (sums.exp()[..., :, None] / sums.exp()[..., None, :]).masked_fill(future, 0)")),
    ("everything by ratios",
     "Your result is NaN once the product of a chunk's decays has underflowed to 0. You get this "
     "result if you divide products, because 0 / 0 is NaN. For D and for the writes in the next "
     "state, subtract sums of logarithms, and take the exponential at the end.",
     ("D = between.masked_fill(future, -torch.inf).exp()",
      "D = (sums.exp()[..., :, None] / sums.exp()[..., None, :]).masked_fill(future, 0)"),
     (AT_END + ".exp()", "(sums[..., -1:].exp() / sums.exp())")),
    ("masked after the exponential",
     "Your result is NaN when decays are close to 0. You get this result if the exponential "
     "overflows to inf above the diagonal and is then multiplied by 0. Fill these entries with −∞ "
     "*before* you take the exponential.",
     ("between.masked_fill(future, -torch.inf).exp()", "between.exp() * ~future")),
    ("D transposed",
     "Within a chunk, your D is transposed, so queries see only their own and later tokens. Rows "
     "belong to the tokens that read, and columns to the tokens that write. Swap the last two "
     "dimensions of D.",
     ("* D)", "* D.mT)")),
    ("first decay for all",
     "You use the first decay of each chunk for all its tokens. Each token has its own decay, so "
     "use all of them.",
     ("decay[..., rows].log()", "decay[..., rows][..., :1].expand_as(decay[..., rows]).log()")),
    ("decays since the start of the text",
     "You multiply the state by all decays since the start of the text. The decays of earlier "
     "chunks have already been applied to it, so start the product at the first token of the "
     "chunk.",
     ("since = sums.exp()[..., None]",
      "since = decay[..., : start + chunk].log().cumsum(-1)[..., start:].exp()[..., "
      "None]")),
    ("queries times, keys divided by products",
     "Your result is inf or NaN where products of a chunk's decays are very small. You get this "
     "result if you divide by such products. For each entry of D, multiply only the decays "
     "between the two tokens, or subtract sums of logarithms.",
     ("(q_c @ k_c.mT * D)", "(q_c * since @ (k_c / since).mT).tril()")),
    ("keys divided by products everywhere",
     "Your result is inf or NaN where products of a chunk's decays are very small. You get this "
     "result if you divide by such products. For D and for the writes in the next state, subtract "
     "sums of logarithms, and then take the exponential.",
     ("(q_c @ k_c.mT * D)", "(q_c * since @ (k_c / since).mT).tril()"),
     ("since[..., -1:, :] * S + (kept * k_c).mT @ v_c",
      "since[..., -1:, :] * (S + (k_c / since).mT @ v_c)")),
    ("ratio for the writes",
     "Your outputs are right within a chunk, but the factors of the writes in your next state "
     "divide products of decays. When these underflow, 0 / 0 is NaN. Subtract sums of "
     "logarithms, and take the exponential at the end.",
     ("(sums[..., -1:] - sums).exp()", "(sums[..., -1:].exp() / sums.exp())")),
    ("clamped ratio for the writes",
     "The factors of the writes in your next state are wrong where products of decays are very "
     "small. You get this result if you divide products and clamp the denominator. Subtract sums "
     "of logarithms, and take the exponential at the end.",
     ("(sums[..., -1:] - sums).exp()", "(sums[..., -1:].exp() / sums.exp().clamp(min=1e-6))")),
    ("ratio of products since the start",
     "Your result is NaN once the product of all decays of the text has underflowed to 0. You get "
     "this result if you divide products, because 0 / 0 is NaN. Begin new products in each chunk, "
     "and do not divide there either: decay_between gives what is left of each write.",
     ("since = sums.exp()[..., None]",
      "G = decay.cumprod(dim=-1)\n"
      "        since = (G[..., rows] / (G[..., start - 1 : start] if start else "
      "1))[..., None]")),
    ("state divided by the length",
     "Your output is right, but your state is divided by L. Return the state as it is.",
     ("dim=-2), S", "dim=-2), S / q.shape[-2]")),
    ("later decays for the old state",
     "What token i reads from the state before the chunk is multiplied by the decays from "
     "decay[i] to the end of the chunk. Use the decays from the start of the chunk up to and "
     "including decay[i].",
     ("since * (q_c @ S)", "(sums[..., -1:] - sums + logs).exp()[..., None] * (q_c @ S)")),
    ("values multiplied by their decay",
     "In your result, the write of token t is multiplied by decay[t]. This decay applies to the "
     "state before the write, so write k_t v_tᵀ as it is.",
     ("v[..., rows, :]", "decay[..., rows, None] * v[..., rows, :]")),
    ("queries and keys swapped",
     "You swap queries and keys. Write with the keys, and read with the queries.",
     ("q_c, k_c, v_c = q[..., rows, :], k[..., rows, :], v[..., rows, :]",
      "q_c, k_c, v_c = k[..., rows, :], q[..., rows, :], v[..., rows, :]")),
    ("state without decays",
     "Your outputs are right, but the state that you return is Kᵀ V, without decays. Return the "
     "decayed state after the last token.",
     ("dim=-2), S", "dim=-2), k.mT @ v")),
    ("whole next state decayed",
     "In your next state, the chunk's writes are also multiplied by all decays of the chunk. "
     "Multiply only the old state by all of them, and write j by the decays after decay[j].",
     ("since[..., -1:, :] * S + (kept * k_c).mT @ v_c",
      "since[..., -1:, :] * (S + (kept * k_c).mT @ v_c)")),
    ("old state decayed twice",
     "Your old state is multiplied by all decays of the chunk twice when you compute the next "
     "one. Multiply it once.",
     ("since[..., -1:, :] * S", "since[..., -1:, :] ** 2 * S")),
    ("writes decayed twice",
     "In your next state, write j is multiplied twice by the decays after decay[j]. Multiply "
     "either the keys or the values by them, not both.",
     ("(kept * k_c).mT @ v_c", "(kept * k_c).mT @ (kept * v_c)")),
    ("scores decayed twice",
     "Within a chunk, your scores are multiplied by D twice. Multiply them by D once.",
     ("* D)", "* D * D)")),
    ("old state read twice",
     "You add what the queries read from the state before the chunk twice, once without its "
     "decays. Add it once, with the decays.",
     ("inside + before", "inside + before + q_c @ S")),
    ("writes subtracted",
     "Your writes are subtracted from the state. Add them.",
     ("* S + (kept", "* S - (kept")),
    ("first decay of the chunk missing",
     "What you read from the state before the chunk lacks the first decay of the chunk. You get "
     "this result if you use the first column of D. For token i, use the product of all decays "
     "from the first one of the chunk up to and including decay[i].",
     ("since * (q_c @ S)", "(sums - sums[..., :1]).exp()[..., None] * (q_c @ S)")),
    ("scores without D",
     "Within a chunk, your scores are neither masked nor decayed. Multiply Q Kᵀ by D.",
     ("(q_c @ k_c.mT * D)", "(q_c @ k_c.mT)")),
    ("D without scores",
     "Within a chunk, you multiply D by V without the scores. Use Q Kᵀ ⊙ D.",
     ("(q_c @ k_c.mT * D)", "D")),
    ("state replaced, writes not decayed",
     "Your state after a chunk is only Kᵀ V of this chunk. Multiply write j by the decays after "
     "decay[j], and add the old state, multiplied by all decays of the chunk.",
     ("since[..., -1:, :] * S + (kept * k_c).mT @ v_c", "k_c.mT @ v_c")),
    ("decays within a chunk alone",
     "You use the decays only in the scores within a chunk. Three more things must decay: what a "
     "query reads from the old state, the old state itself when it passes to the next chunk, and "
     "each of the chunk's writes, up to the end of the chunk.",
     ("since * (q_c @ S)", "q_c @ S"),
     ("since[..., -1:, :] * S + (kept * k_c).mT @ v_c", "S + k_c.mT @ v_c")),
    ("state carried on without decays",
     "Your next state is S + Kᵀ V, without decays. Multiply the old state by all decays of the "
     "chunk, and write j by the decays after decay[j].",
     ("since[..., -1:, :] * S + (kept * k_c).mT @ v_c", "S + k_c.mT @ v_c")),
    ("state read with the keys",
     "You read the state before the chunk with the keys. Read it with the queries.",
     ("(q_c @ S)", "(k_c @ S)")),
    ("queries written",
     "You write the queries into the state. Write the keys.",
     ("(kept * k_c)", "(kept * q_c)")),
    ("outputs without decays",
     "Your next state is right, but your outputs have no decays. Multiply the scores by D, and "
     "what you read from the state before the chunk by the decays up to and including each "
     "query's own.",
     ("* D)", ").tril()"),
     ("since * (q_c @ S)", "q_c @ S")),
]  # fmt: skip

exercise = Exercise(
    "13.4", decayed_in_chunks, inputs, MISTAKES, names="L d_v|d_k d_v", run=in_chunks,
    differentiable=True, also_right=[by_sums_of_products],
)  # fmt: skip
