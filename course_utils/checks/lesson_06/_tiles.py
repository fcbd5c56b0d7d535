"""Shared by lesson 06's checks: does an answer go tile by tile, and what does it hold at once?"""

import contextlib

import torch

from course_utils.checks.compare import difference
from course_utils.checks.exercise import NamedMistake, call_with_clones
from course_utils.checks.inputs import Held, Shapes

WHOLE = (
    "makes the whole matrix",
    "Right, but you create a tensor of L × S numbers. Only one tile of scores, or of a mask, may "
    "exist at a time.",
)
KEYS = (
    "keys not cut",
    "Right, but for each block of queries, one step handles all keys, or their scores, at once. "
    "Split the keys too, and add each tile to m, ℓ and O before you compute the next one.",
)
QUERIES = "queries not cut", "Right, but block_q has no effect. Use block_q queries at a time."
BLOCKS = (
    "blocks not used",
    "Right, but block_q and block_k have no effect. Compute a tile of block_q × block_k scores at "
    "a time.",
)
KEPT = (
    "scores kept",
    "Right, but you hold the scores of all tiles of a block of queries at once, or as many other "
    "numbers. Add each tile to m, ℓ and O before you compute the next one.",
)
EXCHANGED = (
    "blocks exchanged",
    "Right, but block_q and block_k are exchanged. A tile is block_q queries against block_k keys.",
)
NEVER_DIVIDED = (
    "Your O is not divided by ℓ. Divide each row of O by its ℓ once, after the last tile."
)
NOTHING_RESCALED = (
    "You rescale neither O nor ℓ when a tile has a larger maximum. Multiply both by e^(m − m_new), "
    "as in 6.1."
)
OUT_NOT_RESCALED = (
    "Your O is not rescaled when a tile has a larger maximum, but ℓ is. Multiply O by e^(m − "
    "m_new) as well."
)
ELL_NOT_RESCALED = (
    "Your ℓ is not rescaled when a tile has a larger maximum, but O is. Multiply ℓ by e^(m − "
    "m_new) as well."
)
NO_MAXIMUM = (
    "Your e^score overflows to inf for large scores, and inf / inf is NaN. Subtract the largest "
    "score so far, as in 6.1."
)
OUT_OF_OLD_MAXIMUM = (
    "Your O is not rescaled. Like ℓ, it was computed relative to the old maximum. Multiply it by "
    "e^(m − m_new)."
)
BOTH_OF_OLD_MAXIMUM = (
    "You rescale neither ℓ nor O. Both were computed relative to the old maximum. Multiply both by "
    "e^(m − m_new)."
)


def in_tiles(answer, right, q, k, v, block_q, block_k):
    """Call an answer. If its result is right, check that it was computed tile by tile."""
    with Shapes() as shapes:
        results = call_with_clones(answer, q, k, v, block_q, block_k)
    if not q.requires_grad and difference(results[0], right) is None:
        fault = _of_sizes(shapes, q, k, v, block_q, block_k) or _of_blocks(answer, q, k, v)
        if not fault and scores_are_kept(answer, block_q * block_k, q, k, v, block_q, block_k):
            fault = KEPT
        if fault:
            raise NamedMistake(*fault, results)
    return results


def _of_sizes(shapes, q, k, v, block_q, block_k):
    """Look for a tensor as large as the matrix, if inputs and tiles are smaller."""
    pairs = q.shape[:-1].numel() * k.shape[-2]
    tile = q.shape[:-2].numel() * block_q * block_k * max(q.shape[-1], v.shape[-1])
    largest = max((shape.numel() for shape in shapes.results + shapes.in_sdpa), default=0)
    if largest >= pairs > max(q.numel(), k.numel(), v.numel(), tile):
        return WHOLE if q.shape[-2] > block_q else KEYS


def _of_blocks(answer, q, k, v):
    """Check whether smaller blocks take more operations. If not, the answer ignores them."""

    def work(block_q, block_k):
        with Shapes() as shapes, contextlib.suppress(Exception):  # other inputs show the error
            answer(q.clone(), k.clone(), v.clone(), block_q, block_k)
        return len(shapes.results)

    L, S = q.shape[-2], k.shape[-2]
    one_tile = work(L, S)
    if one_tile > work(S, L):
        return EXCHANGED
    cuts_queries = L == 1 or one_tile < work(-(-L // 2), S)
    cuts_keys = S == 1 or one_tile < work(L, -(-S // 2))
    if cuts_queries and cuts_keys:
        return None
    return KEYS if cuts_queries else QUERIES if cuts_keys else BLOCKS


def scores_are_kept(answer, tile, q, k, v, *sizes):
    """Check whether all scores are held at once, where copies of inputs and a few tiles take less.

    ``tile`` is the number of scores of one head that may exist at a time, and ``sizes`` are the
    arguments after q, k and v.
    """
    given = [each.clone() for each in (q, k, v)]
    pairs, tile = q.shape[:-1].numel() * k.shape[-2], q.shape[:-2].numel() * tile
    if pairs < 8 * tile + 4 * (q.numel() + k.numel() + v.numel()):
        return False
    with torch.no_grad(), Held(given) as watch:
        answer(*given, *sizes)
    return watch.most >= pairs * q.element_size()
