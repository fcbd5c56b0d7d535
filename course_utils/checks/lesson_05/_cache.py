"""What an answer to 5.12 returns: read, and its cache counted."""

import torch

from course_utils.checks.exercise import NamedMistake

TWO = "return two things, the output for the new tokens and the cache for the next call"


def pair(result, piece, window):
    """Return the output and the cache that an answer returned; complain if it did not."""
    if not (isinstance(result, list | tuple) and len(result) == 2):
        raise NamedMistake("output without cache", TWO)
    output, cache = result
    if not (isinstance(output, torch.Tensor) and output.shape == piece.shape):
        hint = "the output must be a tensor shaped as x, (B, n, d_model): the new tokens' alone"
        raise NamedMistake("not the new tokens' output", hint)
    if cache is None and window > 1:
        hint = "None is returned in place of the cache: return the keys and values to be kept"
        raise NamedMistake("no cache", hint)
    return output, cache


def held(cache):
    """Return how many numbers a cache of tensors holds, in whatever tuples, lists or dicts.

    Keys and values are no whole numbers: those are places, counts or masks, and not counted.
    """
    if cache is None:
        return 0
    if isinstance(cache, torch.Tensor):
        return cache.numel() if cache.is_floating_point() or cache.is_complex() else 0
    if isinstance(cache, dict):
        return held(list(cache.values()))
    if isinstance(cache, list | tuple):
        return sum(held(each) for each in cache)
    if isinstance(cache, int):  # a place, or a count
        return 0
    hint = "the cache must be a tensor, or tensors in a tuple, list or dict: the check counts them"
    raise NamedMistake("unreadable cache", hint)
