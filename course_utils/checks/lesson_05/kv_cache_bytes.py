"""5.8: how many bytes the keys and values of a model take."""

import torch

from course_utils.checks.exercise import Exercise


def kv_cache_bytes(B, S, layers, d_model, num_heads, num_kv_heads, bytes_each):
    d_k = d_model // num_heads
    keys = B * S * layers * num_kv_heads * d_k  # and as many numbers of values
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


NO_QUERIES = (
    "You get this result if you count queries as well. A later token needs the keys and values of "
    "earlier tokens, but not their queries. Count only keys and values."
)

MISTAKES = [
    ("keys alone",
     "Your result is half of the right one, as if only the keys were counted. The cache holds as "
     "many values. Count both.",
     ("2 * keys", "keys")),
    ("all query heads kept",
     "You get this result if you count one KV head for each query head, or KV heads of width "
     "d_model / num_kv_heads. Count num_kv_heads heads of width d_model / num_heads.",
     ("num_kv_heads * d_k", "d_model")),
    ("width by KV heads",
     "You get this result if you count num_heads / num_kv_heads KV heads, or one KV head of width "
     "d_model / num_kv_heads. Count num_kv_heads heads of width d_model / num_heads.",
     ("num_kv_heads * d_k", "d_model // num_kv_heads")),
    ("heads of one number",
     "You count one number per token for each KV head. A key has d_model / num_heads numbers, the "
     "width of a head. Count all of them.",
     ("num_kv_heads * d_k", "num_kv_heads")),
    ("more heads for fewer",
     "Your result grows when there are fewer KV heads. But the cache holds only num_kv_heads KV "
     "heads, so with fewer of them the cache is smaller. Count num_kv_heads heads of width d_model "
     "/ num_heads.",
     ("num_kv_heads * d_k", "d_model * (num_heads // num_kv_heads)")),
    ("KV heads at full width",
     "In your result, each KV head is d_model wide. A head is only d_model / num_heads wide. Count "
     "that width for each KV head.",
     ("d_model // num_heads", "d_model")),
    ("one layer counted",
     "Your result is for one layer. Each layer has its own cache. Multiply by the number of "
     "layers.",
     ("* layers ", "")),
    ("one sequence counted",
     "Your result is for one sequence. Each sequence has its own cache. Multiply by B.",
     ("B * S", "S")),
    ("one token counted",
     "Your result is for one token of each sequence. The cache holds the keys and values of all "
     "tokens. Multiply by S.",
     ("B * S", "B")),
    ("numbers counted",
     "You count numbers, not bytes. Each number takes bytes_each bytes. Multiply by bytes_each.",
     (" * bytes_each", "")),
    ("bits counted",
     "Your result is in bits. Return it in bytes, without the factor of 8.",
     ("2 * keys", "16 * keys")),
    ("gibibytes counted",
     "Your result is in GiB. Return it in bytes.",
     ("* bytes_each", "* bytes_each / 2**30")),
    ("gigabytes counted",
     "Your result is in GB. Return it in bytes.",
     ("* bytes_each", "* bytes_each / 10**9")),
    ("queries kept", NO_QUERIES, ("2 * keys", "(2 * keys + B * S * layers * d_model)")),
    ("queries kept for KV heads", NO_QUERIES, ("2 * keys", "3 * keys")),
    ("weights kept, no keys",
     "Your result grows as S² and is proportional to num_heads, as if you counted attention "
     "weights. Attention weights are not cached. Count the keys and values: for each of the S "
     "tokens, num_kv_heads heads of width d_model / num_heads.",
     ("2 * keys", "2 * B * S * S * layers * num_heads")),
    ("weights kept",
     "Your result is multiplied by S twice. The cache holds keys and values for each of the S "
     "tokens, so its size grows as S, not as S². Multiply by S once.",
     ("B * S", "B * S * S")),
]  # fmt: skip

exercise = Exercise(
    "5.8", kv_cache_bytes, inputs, MISTAKES, also_right=[by_tensors, by_the_share_of_heads]
)
