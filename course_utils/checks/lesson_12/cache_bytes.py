"""12.1: how many bytes a cache takes, layer by layer."""

import math

from course_utils.checks.exercise import Exercise


def cache_bytes(layers, S, B, bits):
    numbers = 0  # of one text
    for kind, *sizes in layers:
        if kind == "latent":
            d_c, d_rope = sizes
            numbers += S * (d_c + d_rope)
        else:
            H_kv, d_k, window = [*sizes, S][:3]
            tokens = min(S, window)
            numbers += tokens * 2 * H_kv * d_k
    return B * numbers * bits // 8


def by_tables(layers, S, B, bits):
    per_token = {
        "full": lambda H_kv, d_k: 2 * H_kv * d_k * S,
        "window": lambda H_kv, d_k, window: 2 * H_kv * d_k * min(window, S),
        "latent": lambda d_c, d_rope: (d_c + d_rope) * S,
    }
    return sum(per_token[layer[0]](*layer[1:]) for layer in layers) * B * (bits / 8)


def by_products(layers, S, B, bits):
    total = 0
    for layer in layers:
        if layer[0] == "latent":
            total += B * S * sum(layer[1:])
            continue
        tokens = S if layer[0] == "full" or S < layer[3] else layer[3]
        total += math.prod([2, B, tokens, layer[1], layer[2]])
    return int(total * bits) // 8


def inputs():
    full, window, latent = ("full", 3, 8), ("window", 2, 16, 50), ("latent", 24, 10)
    return [
        ([full] * 4, 100, 1, 16),
        ([full, window, window], 200, 3, 16),
        ([latent] * 5, 70, 2, 16),
        ([("full", 1, 4), ("full", 4, 6)], 30, 2, 4),
        ([window, full, latent], 20, 5, 8),  # shorter than the window
        ([("window", 5, 4, 33), ("window", 5, 4, 20)], 33, 1, 32),
        ([full], 1, 1, 16),
    ]


TOKENS = "tokens = min(S, window)"
BOTH = "tokens * 2 * H_kv * d_k"
LATENT = "S * (d_c + d_rope)"
RETURNED = "B * numbers * bits // 8"
MISTAKES = [
    ("keys alone",
     "You count only keys or only values in full and window layers. Each token has a key and a "
     "value in each head. Count both.",
     (BOTH, "tokens * H_kv * d_k")),
    ("latent counted twice",
     "You count the numbers of a latent layer twice. Keys and values are computed from the same "
     "numbers, so count these once.",
     (LATENT, "2 * S * (d_c + d_rope)")),
    ("latent alone counted twice",
     "You count the latent twice. Keys and values are computed from the same latent, so count it "
     "once.",
     (LATENT, "S * (2 * d_c + d_rope)")),
    ("keys alone, latent counted twice",
     "You put the factor of 2 into the wrong layers. Full and window layers keep keys and values, "
     "so double their numbers. A latent layer keeps one latent for both, so do not double its "
     "numbers.",
     (BOTH, "tokens * H_kv * d_k"), (LATENT, "2 * S * (d_c + d_rope)")),
    ("no factor of 2 in windows",
     "Your full layers are right, but in window layers, you count only keys or only values. Count "
     "both.",
     (BOTH, "tokens * (2 if len(sizes) == 2 else 1) * H_kv * d_k")),
    ("no rotated key",
     "You leave out the rotated key of a latent layer. Each token keeps this key in addition to "
     "its latent. Count d_c + d_rope numbers.",
     (LATENT, "S * d_c")),
    ("no latent",
     "You leave out the latent of a latent layer. Each token keeps a latent and a rotated key. "
     "Count d_c + d_rope numbers.",
     (LATENT, "S * d_rope")),
    ("latent times rotated key",
     "You multiply d_c by d_rope. A token keeps d_c numbers and another d_rope numbers, so add the "
     "two.",
     (LATENT, "S * d_c * d_rope")),
    ("rotated key counted twice",
     "You count the rotated key of a latent layer twice. There is no rotated value, so count the "
     "rotated key once.",
     (LATENT, "S * (d_c + 2 * d_rope)")),
    ("windows over the batch",
     "In your result, all B texts share one window. Each text keeps its own newest tokens. Use "
     "min(S, window) for each text, then multiply by B.",
     (TOKENS, "tokens = min(B * S, window) / B if len(sizes) == 3 else S"),
     (RETURNED, "round(B * numbers * bits / 8)")),
    ("tokens times window",
     "In window layers, you multiply S by `window`. A layer keeps at most `window` tokens of a "
     "text, so use min(S, window).",
     (TOKENS, "tokens = S * window if len(sizes) == 3 else S")),
    ("windows as full",
     "In window layers, you count all S tokens. These layers keep at most `window` tokens, so use "
     "min(S, window).",
     (TOKENS, "tokens = S")),
    ("windows always full",
     "Your result is right for long texts. If S is smaller than the window, a window layer keeps "
     "only S tokens. Use min(S, window).",
     (TOKENS, "tokens = window")),
    ("windows once for all texts",
     "In window layers, you count the tokens of one text. Each of the B texts has its own window, "
     "so multiply by B.",
     (BOTH, "tokens * 2 * H_kv * d_k / (1 if len(sizes) == 2 else B)"),
     (RETURNED, "round(B * numbers * bits / 8)")),
    ("larger of the two",
     "In window layers, you use the larger of S and `window`. A layer keeps at most `window` "
     "tokens, so use the smaller one.",
     (TOKENS, "tokens = max(S, window) if len(sizes) == 3 else S")),
    ("window without the newest",
     "Your window layers keep one token too few. In this exercise, a window layer keeps the "
     "newest `window` tokens. Count min(S, window).",
     (TOKENS, "tokens = min(S, window - 1) if len(sizes) == 3 else S")),
    ("window and the newest",
     "Your window layers keep one token too many. In this exercise, a window layer keeps at most "
     "the newest `window` tokens. Count min(S, window).",
     (TOKENS, "tokens = min(S, window + 1) if len(sizes) == 3 else S")),
    ("window layers of one token",
     "In window layers, you count one token. These layers keep min(S, window) tokens, so multiply "
     "by this number.",
     (TOKENS, "tokens = 1 if len(sizes) == 3 else S")),
    ("one layer",
     "Your result is for the first layer only. Each layer has its own cache, so add up the bytes "
     "of all layers.",
     ("in layers:", "in layers[:1]:")),
    ("last layer",
     "Your result is for the last layer only. Each layer has its own cache, so add up the bytes "
     "of all layers.",
     ("in layers:", "in layers[-1:]:")),
    ("first layer for all",
     "Your result is that of the first layer, multiplied by the number of layers. The layers can "
     "differ, so add them up one by one.",
     ("in layers:", "in [layers[0]] * len(layers):")),
    ("latent layers of one text",
     "In latent layers, you count only one text. Each of the B texts has its own latents, so "
     "multiply by B.",
     (LATENT, "S * (d_c + d_rope) / B"),
     (RETURNED, "round(B * numbers * bits / 8)")),
    ("full layers of one text",
     "In full layers, you count only one text. Each of the B texts has its own cache, so multiply "
     "by B.",
     (BOTH, "tokens * 2 * H_kv * d_k / (B if len(sizes) == 2 else 1)"),
     (RETURNED, "round(B * numbers * bits / 8)")),
    ("one text",
     "Your result is for one text. Each of the B texts has its own cache, so multiply by B.",
     (RETURNED, "numbers * bits // 8")),
    ("bits",
     "Your result is in bits. A byte has 8 bits, so divide by 8.",
     (RETURNED, "B * numbers * bits")),
    ("bits and bytes exchanged",
     "You divide by `bits` and multiply by 8. Each number takes bits / 8 bytes, so multiply by "
     "`bits` and divide by 8.",
     (RETURNED, "B * numbers * 8 / bits")),
    ("half of the bytes",
     "Your result is half of the correct number. Each number takes bits / 8 bytes, and keys and "
     "values both count. Look for a factor of 2 that is missing everywhere.",
     (RETURNED, "B * numbers * bits / 16")),
    ("numbers",
     "You count numbers. Each number takes bits / 8 bytes, so multiply by bits / 8.",
     (RETURNED, "B * numbers")),
    ("always 16 bits",
     "You take 2 bytes for each number, whatever `bits` is. Use bits / 8 bytes.",
     (RETURNED, "B * numbers * 2")),
    ("bits as bytes, always 4",
     "You take 4 bytes for each number, whatever `bits` is. Use bits / 8 bytes.",
     (RETURNED, "B * numbers * 4")),
    ("whole bytes only",
     "Your result is right if `bits` is 8 or more. With 4 bits, your result is 0, as if you used "
     "`bits // 8`. Multiply by `bits` first, and divide by 8 at the end.",
     (RETURNED, "B * numbers * (bits // 8)")),
    ("a byte at least",
     "Your result is right if `bits` is 8 or more. With 4 bits, it takes a whole byte for each "
     "number, but two numbers share a byte. Multiply by bits / 8.",
     (RETURNED, "B * numbers * max(bits // 8, 1)")),
    ("gigabytes",
     "Your result is in GB. Return it in bytes.",
     (RETURNED, "B * numbers * bits / 8e9")),
    ("GiB", "Your result is in GiB. Return it in bytes.", (RETURNED, "B * numbers * bits / 2**33")),
    ("MiB", "Your result is in MiB. Return it in bytes.", (RETURNED, "B * numbers * bits / 2**23")),
    ("megabytes",
     "Your result is in MB. Return it in bytes.",
     (RETURNED, "B * numbers * bits / 8e6")),
    ("one head",
     "You count one KV head in each full or window layer. Such a layer has H_kv KV heads, so "
     "multiply by H_kv.",
     (BOTH, "tokens * 2 * d_k")),
    ("no width",
     "You count one number for each key and each value. Keys and values have d_k numbers, so "
     "multiply by d_k.",
     (BOTH, "tokens * 2 * H_kv")),
    ("heads and width added",
     "You add H_kv and d_k. Each of the H_kv heads has d_k numbers, so multiply them.",
     (BOTH, "tokens * 2 * (H_kv + d_k)")),
    ("one token",
     "Your result is for one token. A full or latent layer keeps S tokens, and a window layer "
     "keeps min(S, window). Multiply by these numbers.",
     (TOKENS, "tokens = 1"), (LATENT, "d_c + d_rope")),
    ("full layers of one token",
     "In full layers, you count one token. These layers keep a key and a value for each of the S "
     "tokens, so multiply by S.",
     (TOKENS, "tokens = min(S, window) if len(sizes) == 3 else 1")),
    ("latent of one token",
     "In latent layers, you count one token. These layers keep a latent and a rotated key for each "
     "of the S tokens, so multiply by S.",
     (LATENT, "d_c + d_rope")),
    ("rotated key of one token",
     "In latent layers, you count one rotated key in all. Each of the S tokens has its own. "
     "Multiply the sum d_c + d_rope by S.",
     (LATENT, "S * d_c + d_rope")),
    ("dropped tokens",
     "In window layers, you count S − window tokens, which are the dropped ones. Count the tokens "
     "that are kept, min(S, window).",
     (TOKENS, "tokens = S - window if len(sizes) == 3 else S")),
    ("window layers forgotten",
     "You leave out the window layers. Add 2 · H_kv · d_k numbers for each of their min(S, window) "
     "tokens.",
     (BOTH, "(3 - len(sizes)) * tokens * 2 * H_kv * d_k")),
    ("KiB", "Your result is in KiB. Return it in bytes.", (RETURNED, "B * numbers * bits / 2**13")),
    ("full layers forgotten",
     "You leave out the full layers. Add 2 · H_kv · d_k numbers for each of their S tokens.",
     (BOTH, "(len(sizes) - 2) * tokens * 2 * H_kv * d_k")),
    ("latent layers forgotten",
     "You leave out the latent layers. Add d_c + d_rope numbers for each of their S tokens.",
     (LATENT, "0")),
]  # fmt: skip

exercise = Exercise("12.1", cache_bytes, inputs, MISTAKES, also_right=[by_tables, by_products])
