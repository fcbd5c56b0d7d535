"""6.4: causal attention, tile by tile, without reading tiles of the future."""

import math

import torch

from course_utils.attention import tiled_attention
from course_utils.checks import shared_hints
from course_utils.checks.compare import difference
from course_utils.checks.exercise import Exercise, NamedMistake
from course_utils.checks.inputs import normals, out_of_order
from course_utils.checks.lesson_06._tiles import (
    ELL_NOT_RESCALED,
    NEVER_DIVIDED,
    NO_MAXIMUM,
    NOTHING_RESCALED,
    OUT_NOT_RESCALED,
    in_tiles,
)
from course_utils.tiled import tile_update

INF = torch.inf


def flash_causal(q, k, v, block_q, block_k):
    L, S, d_k = q.shape[-2], k.shape[-2], q.shape[-1]
    offset = S - L  # query i is token i + offset
    output = v.new_zeros(*q.shape[:-1], v.shape[-1])
    for i in range(0, L, block_q):
        q_i = q[..., i : i + block_q, :]  # (..., B_q, d_k)
        positions = torch.arange(i, i + q_i.shape[-2])[:, None] + offset  # (B_q, 1)
        m = torch.full_like(q_i[..., 0], -INF)  # (..., B_q)
        ell = torch.zeros_like(m)  # (..., B_q)
        out = torch.zeros_like(output[..., i : i + block_q, :])  # (..., B_q, d_v)
        for j in range(0, S, block_k):
            if j > positions[-1]:
                break  # entirely in the future
            k_j, v_j = k[..., j : j + block_k, :], v[..., j : j + block_k, :]  # (..., B_k, d)
            scores = q_i @ k_j.mT / d_k**0.5  # (..., B_q, B_k)
            keys = torch.arange(j, j + k_j.shape[-2])  # (B_k,)
            scores = scores.masked_fill(keys > positions, -INF)
            m, ell, out = tile_update(m, ell, out, scores, v_j)
        output[..., i : i + block_q, :] = out / ell[..., None]
    return output


def with_columns_of_state(q, k, v, block_q, block_k):
    """Keep m and ℓ as columns, mask with a large negative number, and stop at the last query."""
    offset, outs = k.shape[-2] - q.shape[-2], []  # query i sees keys up to i + offset
    for i, qi in zip(range(0, q.shape[-2], block_q), q.split(block_q, -2), strict=True):
        m = torch.full((*qi.shape[:-1], 1), -INF, dtype=q.dtype)
        ell, out = torch.zeros_like(m), 0
        for j in range(0, i + qi.shape[-2] + offset, block_k):
            s = qi @ k[..., j : j + block_k, :].transpose(-1, -2) / math.sqrt(q.shape[-1])
            s = s.masked_fill(torch.ones(s.shape[-2:]).tril(i + offset - j) == 0, -1e9)
            top = torch.maximum(m, s.amax(-1, keepdim=True))
            p, old = torch.exp(s - top), torch.exp(m - top)
            m, ell = top, ell * old + p.sum(-1, keepdim=True)
            out = out * old + p @ v[..., j : j + block_k, :]
        outs.append(out / ell)
    return torch.cat(outs, -2)


def inputs():
    normal = normals(64)

    def case(L, S, *tile, batch=(), d_k=3, d_v=2, loud=1.0, dtype=torch.float64):
        q, k = loud * normal(*batch, L, d_k, dtype=dtype), normal(*batch, S, d_k, dtype=dtype)
        return q, k, normal(*batch, S, d_v, dtype=dtype), *tile

    steep = [torch.tensor(x).double() for x in ([[1e3], [1.0]], [[-1.0], [1.0]], [[1.0], [2.0]])]
    q, k, v, *tile = case(7, 9, 3, 2, batch=(2,), d_k=4)
    return [
        case(8, 10, 4, 3),
        case(8, 8, 2, 2),
        case(12, 12, 4, 3),
        case(11, 11, 3, 4),
        case(5, 13, 2, 3),
        case(6, 6, 8, 8),
        case(7, 9, 3, 2, batch=(2, 3), d_k=4, d_v=5),
        case(5, 8, 2, 3, loud=2000.0),  # e^score overflows
        case(9, 20, 4, 6, dtype=torch.float32),
        (100 + 100 * q[0].abs(), -100 - 100 * k[0].abs(), v[0], *tile),  # all below -20,000
        (*out_of_order(q, k, v), *tile),
        case(1, 14, 4, 4, batch=(1, 2)),  # one query, as in decoding
        case(3, 17, 1, 4),
        (*steep, 2, 2),  # a forbidden score far above the allowed one
        case(16, 256, 16, 8, d_k=1, d_v=1),  # one block of queries, many of keys
        case(1, 1, 1, 1, d_k=1, d_v=1),
    ]


def run(answer, q, k, v, block_q, block_k):
    """Call an answer. If it is right, check that it goes tile by tile and skips the future."""
    right, _ = tiled_attention(q, k, v, is_causal=True, align="lower_right")
    results = in_tiles(answer, right, q, k, v, block_q, block_k)
    if q.requires_grad or difference(results[0], right) is not None:
        return results
    L, S = q.shape[-2], k.shape[-2]
    for end in range(block_q, L, block_q):  # of each block of queries but the last
        seen = -(-(end + S - L) // block_k) * block_k  # keys that its last query sees, whole tiles
        poisoned = torch.cat([v[..., :seen, :], torch.full_like(v[..., seen:, :], torch.nan)], -2)
        if answer(q.clone(), k.clone(), poisoned, block_q, block_k)[..., :end, :].isnan().any():
            hint = "Right, but you also read tiles in the future of all their queries. Skip them."
            raise NamedMistake("reads the future", hint, results)
    return results


UPDATE = "m, ell, out = tile_update(m, ell, out, scores, v_j)"
TRIL = "torch.ones(*scores.shape[-2:]).tril() == 0"

MISTAKES = [
    ("local causal indices",
     "Your causal mask starts at the corner of each tile. Compare the positions of queries and "
     "keys in the whole sequence, and skip tiles in the future of all their queries.",
     ("j > positions[-1]", "False"),
     ("keys > positions", TRIL)),
    ("tril from the corner",
     "In tiles on the diagonal, your mask starts at the corner of the tile. The diagonal "
     "rarely passes through a corner. Compare the position of each query with that of each key.",
     ("keys > positions", f"(keys[-1] >= i + offset) & ({TRIL})")),
    ("tril in each visited tile",
     "You read the right tiles, but in each one your mask starts at the corner of the tile. "
     "Count queries and keys from the start of the sequence.",
     ("keys > positions", TRIL)),
    ("skipped by the first query",
     "You skip tiles that the *first* query of the block may not see. The last query sees "
     "further. Skip only tiles that start after the last query's position.",
     ("j > positions[-1]", "j > positions[0]")),
    ("skipped without the offset",
     "Your mask is right, but your tiles stop S − L positions too early. The queries are the last "
     "L tokens. Skip only tiles that start after the position of the last query.",
     ("j > positions[-1]", "j >= i + block_q")),
    ("own tile skipped",
     "Right, except where a tile starts with the last query's own key. That tile must be read "
     "too. Skip only tiles that start after the last query's position.",
     ("j > positions[-1]", "j >= positions[-1]")),
    ("tiles on the diagonal skipped",
     "You skip tiles that end after the last query of the block. Their first keys may be allowed. "
     "Skip only tiles that *start* after the last query's position.",
     ("j > positions[-1]", "j + block_k > positions[-1] + 1")),
    ("tiles after the first block of queries skipped",
     "Right for the first block of queries. In later blocks, you skip tiles that start after the "
     "position of the block's *first* query. The last query sees further. Skip only tiles that "
     "start after its position.",
     ("j > positions[-1]", "j > positions[0] and i > 0")),
    ("cut-off tiles on the diagonal skipped",
     "You skip a tile if its last key comes after the last query of the block. Its first keys may "
     "be allowed. Skip only tiles that *start* after the last query's position.",
     ("j > positions[-1]", "min(j + block_k, S) - 1 > positions[-1]")),
    ("partly seen tiles skipped",
     "You skip tiles that the first query of the block sees only in part. Some of their pairs are "
     "allowed. Skip only tiles that start after the last query's position.",
     ("j > positions[-1]", "min(j + block_k, S) - 1 > positions[0]")),
    ("causal not scaled", shared_hints.NOT_SCALED, (" / d_k**0.5", "")),
    ("scaled twice", shared_hints.SCALED_TWICE, ("d_k**0.5", "d_k")),
    ("causal without maximum", NO_MAXIMUM,
     ("m, ell, out = tile_update(m, ell, out, scores, v_j)",
      "ell, out = ell + scores.exp().sum(dim=-1), out + scores.exp() @ v_j")),
    ("maximum begins at zero", shared_hints.STARTS_FINITE, ("0], -INF", "0], 0.0")),
    ("tiles skipped by number",
     "Your result is what you get by skipping a block of keys if its number is larger than that "
     "of the block of queries. This works only if block_q = block_k and L = S. Compare positions.",
     ("j > positions[-1]", "j // block_k > i // block_q")),
    ("lined up at the start",
     "Right for L = S. With more keys, you align the first query with the first key. The "
     "queries are the last L tokens.",
     ("offset = S - L", "offset = 0")),
    ("offset turned round",
     "Your offset has the wrong sign. The queries are the last L of S tokens, so query i has "
     "position i + S − L.",
     ("offset = S - L", "offset = L - S")),
    ("queries counted from their block",
     "Your mask counts the queries of each block from 0. Count them from the first query of all: "
     "row r of the block that starts at query i has position i + r + S − L.",
     ("keys > positions", "keys > positions - i")),
    ("counted inside the tile",
     "You read the right tiles, but your mask counts queries and keys from the start of the tile. "
     "Add i to the query positions and j to the key positions in a tile that starts at query i and "
     "key j.",
     ("keys > positions", "keys - j > positions - i")),
    ("counted inside each tile",
     "You read all tiles, and your mask counts queries and keys from the start of the tile. Add i "
     "to the query positions and j to the key positions in a tile that starts at query i and key "
     "j. Skip tiles in the future of all their queries.",
     ("j > positions[-1]", "False"),
     ("keys > positions", "keys - j > positions - i")),
    ("keys counted inside the tile",
     "You read the right tiles, but your mask counts keys from the start of the tile. Add the "
     "position of the tile's first key.",
     ("keys > positions", "keys - j > positions")),
    ("masked by the last query",
     "In your result, all queries of a block see what its last query sees. Compare each key with "
     "the position of each query.",
     ("keys > positions", "keys > positions[-1]")),
    ("masked by the first query",
     "In your result, all queries of a block see only what its first query sees. Compare each key "
     "with the position of each query.",
     ("keys > positions", "keys > positions[0]")),
    ("past masked",
     "Your mask is inverted. It allows the future and forbids the past. Forbid the keys after the "
     "query's own position, and skip tiles that hold only such keys.",
     ("j > positions[-1]", "False"),
     ("keys > positions", "keys < positions")),
    ("stopped at the first query",
     "You skip tiles that start at or after the position of the block's first query. Later "
     "queries of the block may see some of their keys. Skip only tiles that start after the last "
     "query's position.",
     ("j > positions[-1]", "j >= positions[0]")),
    ("diagonal tiles not masked",
     "Your result has no mask. Skip the tiles past the diagonal, and in the tiles on the diagonal "
     "set the scores of later keys to −∞.",
     ("j > positions[-1]", "False"),
     ("keys > positions", "keys < 0")),
    ("only skipped",
     "Tiles past the diagonal are skipped, but in tiles on the diagonal a query still sees later "
     "keys. Set the scores of those keys to −∞.",
     ("keys > positions", "keys < 0")),
    ("last tile masked",
     "You mask only the last tile that a block of queries visits. If block_q is larger than "
     "block_k, the diagonal crosses several tiles. Mask all of them.",
     ("keys > positions", "(keys > positions) & (j + block_k > positions[-1])")),
    ("own key masked",
     "Your queries do not see their own key. Forbid only the keys after it.",
     ("keys > positions", "keys >= positions")),
    ("next key allowed",
     "Your queries see one key too many, the next one. Forbid every key after the query's own "
     "position.",
     ("j > positions[-1]", "j > positions[-1] + 1"),
     ("keys > positions", "keys > positions + 1")),
    ("next key allowed in tiles",
     "Wherever a tile is read, your queries also see the next key. Forbid every key after the "
     "query's own position.",
     ("keys > positions", "keys > positions + 1")),
    ("forbidden scores zero",
     "Your forbidden scores are 0, which is a score like any other, because e^0 = 1. Set them to "
     "−∞, and skip tiles that hold only forbidden keys.",
     ("j > positions[-1]", "False"),
     ("positions, -INF", "positions, 0")),
    ("forbidden scores zero in tiles",
     "In the tiles that you read, your forbidden scores are 0. This is a score like any other, "
     "because e^0 = 1. Set them to −∞.",
     ("positions, -INF", "positions, 0")),
    ("forbidden scores finite",
     "Your result is right as long as the scores are near 0. If you fill forbidden scores with a "
     "finite number, and the allowed scores are far below it, the forbidden keys get all the "
     "weight. Set forbidden scores to −∞.",
     ("positions, -INF", "positions, -1e4")),
    ("forbidden scores at -10",
     "Your forbidden keys still get some weight. You get this result if you set their scores to a "
     "number such as −10, because other scores are as low. Set them to −∞.",
     ("positions, -INF", "positions, -10.0")),
    ("forbidden scores at -10 in all tiles",
     "Your forbidden keys still get some weight, even in tiles of the future. You get this result "
     "if you set their scores to a number such as −10, because other scores are as low. Set them "
     "to −∞, and skip the tiles of the future.",
     ("j > positions[-1]", "False"),
     ("positions, -INF", "positions, -10.0")),
    ("divided by root d_v", shared_hints.BY_D_V, ("d_k**0.5", "v.shape[-1] ** 0.5")),
    ("output as wide as keys", shared_hints.AS_WIDE_AS_KEYS,
     ("v.new_zeros(*q.shape[:-1], v.shape[-1])", "torch.zeros_like(q)")),
    ("first key left out", shared_hints.FIRST_KEY_LEFT_OUT,
     ("range(0, S, block_k)", "range(1, S, block_k)")),
    ("first keys left out", shared_hints.FIRST_KEYS_LEFT_OUT,
     ("range(0, S, block_k)", "range(block_k, S, block_k)")),
    ("last keys dropped", shared_hints.LAST_KEYS_DROPPED,
     ("range(0, S, block_k)", "range(0, max(S - block_k, 0) + 1, block_k)")),
    ("last queries dropped", shared_hints.LAST_QUERIES_DROPPED,
     ("return output", "return output[..., : L // block_q * block_q, :]")),
    ("last queries left zero", shared_hints.LAST_QUERIES_ZERO,
     ("range(0, L, block_q)", "range(0, L - block_q + 1, block_q)")),
    ("never divided", NEVER_DIVIDED,
     ("out / ell[..., None]", "out")),
    ("skipped by the first query, without the offset",
     "You skip tiles that start after the block's first query, counted from 0. The last query "
     "sees further, and the queries are the last L tokens. Skip only tiles that start after "
     "the position of the last query.",
     ("j > positions[-1]", "j > i")),
    ("mask turned round in the tiles",
     "You read the right tiles, but in them your mask is inverted. Forbid the keys after the "
     "query's own position.",
     ("keys > positions", "keys < positions")),
    ("masked after the exponential",
     "Right, unless a forbidden score is far above the allowed ones. It still counts in your "
     "maximum, so all allowed weights underflow to 0, and 0 / 0 is NaN. Set forbidden scores to −∞ "
     "before you take the maximum.",
     ("scores = scores.masked_fill(keys > positions, -INF)",
      "top = torch.maximum(m, scores.amax(-1))"),
     (UPDATE, "p, old = (scores - top[..., None]).exp() * (keys <= positions), (m - top).exp()\n"
              "            m, ell = top, ell * old + p.sum(dim=-1)\n"
              "            out = out * old[..., None] + p @ v_j")),
    ("nothing rescaled", NOTHING_RESCALED,
     (UPDATE, "m = torch.maximum(m, scores.amax(dim=-1))\n"
              "            p = (scores - m[..., None]).exp()\n"
              "            ell, out = ell + p.sum(dim=-1), out + p @ v_j")),
    ("output not rescaled", OUT_NOT_RESCALED,
     (UPDATE, "m, ell, _ = tile_update(m, ell, out, scores, v_j)\n"
              "            out = out + (scores - m[..., None]).exp() @ v_j")),
    ("sum not rescaled", ELL_NOT_RESCALED,
     (UPDATE, "m, _, out = tile_update(m, ell, out, scores, v_j)\n"
              "            ell = ell + (scores - m[..., None]).exp().sum(dim=-1)")),
]  # fmt: skip

exercise = Exercise(
    "6.4", flash_causal, inputs, MISTAKES, names="L d_v", run=run, differentiable=True,
    also_right=[with_columns_of_state],
)  # fmt: skip
