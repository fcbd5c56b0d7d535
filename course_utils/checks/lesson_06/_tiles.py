"""Lesson 06's shared pieces: whether an answer goes tile by tile, and what it holds at once."""

import contextlib
import weakref

import torch
from torch.overrides import TorchFunctionMode

from course_utils.checks.compare import difference
from course_utils.checks.exercise import NamedMistake, call_with_clones
from course_utils.checks.inputs import Shapes

WHOLE = (
    "makes the whole matrix",
    "right, but it makes a tensor of all L × S: only one tile may exist at a time, of scores and "
    "of a mask",
)
KEYS = "keys not cut", "right, but queries meet all their keys at once: cut the keys as well"
QUERIES = "queries not cut", "right, but block_q changes nothing: take block_q queries at a time"
BLOCKS = (
    "blocks not used",
    "right, but block_q and block_k change nothing: make a tile of block_q × block_k scores at a "
    "time",
)
KEPT = (
    "scores kept",
    "right, but of a block of queries the scores of all tiles, or what was made of them, are held "
    "at once: take each tile into m, ℓ and O before the next one",
)
EXCHANGED = (
    "blocks exchanged",
    "right, but block_q and block_k are exchanged: a tile is block_q queries against block_k keys",
)


def in_tiles(answer, right, q, k, v, block_q, block_k):
    """Call an answer; complain if its result is right, but not made tile by tile."""
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
    """Look for a tensor as large as the matrix, where neither inputs nor tiles are."""
    pairs = q.shape[:-1].numel() * k.shape[-2]
    tile = q.shape[:-2].numel() * block_q * block_k * max(q.shape[-1], v.shape[-1])
    largest = max((shape.numel() for shape in shapes.results + shapes.in_sdpa), default=0)
    if largest >= pairs > max(q.numel(), k.numel(), v.numel(), tile):
        return WHOLE if q.shape[-2] > block_q else KEYS


def _of_blocks(answer, q, k, v):
    """See whether smaller blocks make more work; if not, the answer does not go by them."""

    def work(block_q, block_k):
        with Shapes() as shapes, contextlib.suppress(Exception):  # other inputs show that
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
    """See whether all scores are held at once, if copies of inputs and a few tiles take far less.

    ``tile`` is how many scores of one head may exist at a time, ``sizes`` what an answer gets
    besides q, k and v.
    """
    given = [each.clone() for each in (q, k, v)]
    pairs, tile = q.shape[:-1].numel() * k.shape[-2], q.shape[:-2].numel() * tile
    if pairs < 8 * tile + 4 * (q.numel() + k.numel() + v.numel()):
        return False
    with torch.no_grad(), Held(given) as watch:
        answer(*given, *sizes)
    return watch.most >= pairs * q.element_size()


memory = torch.Tensor.untyped_storage


class Held(TorchFunctionMode):
    """Watch how many numbers are held at once in tensors made here, views counted as their base."""

    def __init__(self, given):
        super().__init__()
        self.given, self.alive, self.most = {memory(each).data_ptr() for each in given}, [], 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else [result]:
            if isinstance(each, torch.Tensor) and each.is_floating_point():
                self.alive.append(weakref.ref(each))
        self.alive = [each for each in self.alive if each() is not None]
        memories = [memory(each()) for each in self.alive]
        sizes = {each.data_ptr(): each.nbytes() for each in memories}
        self.most = max(self.most, sum(sizes[each] for each in sizes.keys() - self.given))
        return result
