"""5.8: how many bytes a model's keys and values take."""

import torch

from course_utils.checks.exercise import Exercise


def kv_cache_bytes(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    d_k = d_model // num_heads
    keys = B * S * layers * num_kv_heads * d_k  # as many as values
    return 2 * keys * bytes_each


def by_tensors(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    one = torch.empty(B, num_kv_heads, S, d_model // num_heads, device="meta")
    return sum(2 * one.numel() for _ in range(layers)) * bytes_each


def by_the_share_of_heads(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    return 2 * layers * B * S * d_model * bytes_each * num_kv_heads / num_heads


def inputs():
    return [
        (1, 8192, 32, 4096, 32, 8, 2),
        (3, 100, 5, 48, 6, 2, 4),
        (2, 1000, 7, 60, 5, 1, 2),
        (4, 50, 3, 24, 4, 4, 1),
        (1, 1, 1, 7, 1, 1, 2),
        (5, 3, 2, 90, 9, 3, 8),
    ]


NO_QUERIES = "the queries are counted as well: of earlier tokens only keys and values are needed"

MISTAKES = [
    ("keys alone", "half of it: keys and values are kept, both", ("2 * keys", "keys")),
    ("all query heads kept",
     "a key head for each query head is counted, but num_kv_heads of them are kept; or their width "
     "is taken as d_model / num_kv_heads, but it is d_model / num_heads",
     ("num_kv_heads * d_k", "d_model")),
    ("width by key heads",
     "the width of a head is d_model / num_heads, however few key heads there are; and if you "
     "counted num_heads / num_kv_heads heads, that is a group: num_kv_heads are kept",
     ("num_kv_heads * d_k", "d_model // num_kv_heads")),
    ("heads of one number",
     "each key head is counted with one number for a token: it has d_model / num_heads columns",
     ("num_kv_heads * d_k", "num_kv_heads")),
    ("more heads for fewer",
     "num_heads / num_kv_heads is how many query heads share one of keys, and makes the cache that "
     "much smaller, not larger: num_kv_heads are kept, each d_model / num_heads wide",
     ("num_kv_heads * d_k", "d_model * (num_heads // num_kv_heads)")),
    ("key heads at full width",
     "each key head is counted d_model wide: it has d_model / num_heads columns",
     ("d_model // num_heads", "d_model")),
    ("one layer counted", "that is one layer: each layer has a cache of its own",
     ("* layers ", "")),
    ("one sequence counted", "that is one sequence: each of the B has a cache of its own",
     ("B * S", "S")),
    ("one token counted", "that is one token: the cache holds keys and values of all S",
     ("B * S", "B")),
    ("numbers counted", "that counts numbers: times bytes_each", (" * bytes_each", "")),
    ("bits counted", "that is in bits: bytes are asked", ("2 * keys", "16 * keys")),
    ("gibibytes counted", "that is in GiB: bytes are asked",
     ("* bytes_each", "* bytes_each / 2**30")),
    ("gigabytes counted", "that is in GB: bytes are asked",
     ("* bytes_each", "* bytes_each / 10**9")),
    ("queries kept", NO_QUERIES, ("2 * keys", "(2 * keys + B * S * layers * d_model)")),
    ("queries kept for key heads", NO_QUERIES, ("2 * keys", "3 * keys")),
    ("weights kept",
     "S² is the number of attention weights, which are not kept: the cache grows as S",
     ("B * S", "B * S * S")),
]  # fmt: skip

exercise = Exercise(
    "5.8", kv_cache_bytes, inputs, MISTAKES, also_right=[by_tensors, by_the_share_of_heads]
)
