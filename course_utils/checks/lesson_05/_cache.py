"""Read what an answer to 5.13 returns, and count the numbers in its cache."""

import torch

from course_utils.checks.exercise import NamedMistake

TWO = "Return two results: the output for the new tokens, and the cache for the next call."


def pair(result, piece, window):
    """Return the output and the cache that an answer returned; complain if it did not."""
    if not (isinstance(result, list | tuple) and len(result) == 2):
        raise NamedMistake("output without cache", TWO)
    output, cache = result
    if not (isinstance(output, torch.Tensor) and output.shape == piece.shape):
        hint = (
            "Your output does not have the shape of x, (B, n, d_model). Return the output for the "
            "new tokens only."
        )
        raise NamedMistake("not the new tokens' output", hint)
    if cache is None and window > 1:
        hint = "You return None for the cache. Return the keys and values that later tokens need."
        raise NamedMistake("no cache", hint)
    return output, cache


def held(cache):
    """Return how many numbers a cache holds, in any tuples, lists or dicts of tensors.

    Only floating-point numbers count. Integers and booleans are positions, counts or masks.
    """
    if cache is None:
        return 0
    if isinstance(cache, torch.Tensor):
        return cache.numel() if cache.is_floating_point() or cache.is_complex() else 0
    if isinstance(cache, dict):
        return held(list(cache.values()))
    if isinstance(cache, list | tuple):
        return sum(held(each) for each in cache)
    if isinstance(cache, int):  # a position, or a count
        return 0
    hint = "The check cannot count your cache. Return tensors, in any tuple, list or dict."
    raise NamedMistake("unreadable cache", hint)
