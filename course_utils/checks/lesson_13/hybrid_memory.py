"""13.8: what a hybrid model remembers in bytes, and from which length on it holds less."""

from course_utils.checks.exercise import Exercise


def hybrid_memory(L, layers, every, H_kv, d_head, H, d_k, d_v):
    cache = 2 * L * H_kv * d_head * 2  # bytes of one attention layer: keys and values
    state = H * d_k * d_v * 4  # bytes of one linear layer
    attention = layers // every
    linear = layers - attention
    hybrid = attention * cache + linear * state
    full = layers * cache
    per_token = 2 * H_kv * d_head * 2
    shorter_from = state // per_token + 1  # the first length whose cache is larger than a state
    return hybrid, full, shorter_from


def by_counting(L, layers, every, H_kv, d_head, H, d_k, d_v):
    def layer(i, length):
        return 4 * length * H_kv * d_head if i % every == 0 else 4 * H * d_k * d_v

    def both(length):
        kinds = [layer(i, length) for i in range(1, layers + 1)]
        return sum(kinds), layers * 4 * length * H_kv * d_head

    first = 1
    while both(first)[0] >= both(first)[1]:
        first += 1
    return [*both(L), first]


def by_division(L, layers, every, H_kv, d_head, H, d_k, d_v):
    a = layers // every
    from_length = (H * d_k * d_v) // (H_kv * d_head) + 1
    full = 4 * L * H_kv * d_head * layers
    return full * a // layers + (layers - a) * 4 * H * d_k * d_v, full, from_length


def inputs():
    return [
        (1000, 12, 4, 2, 64, 4, 32, 48),
        (300, 10, 3, 2, 16, 5, 12, 7),  # `every` does not divide `layers`
        (32_768, 48, 4, 2, 256, 32, 128, 128),
        (50, 7, 2, 3, 10, 4, 15, 6),  # a state of as many bytes as the cache of 12 tokens
        (7, 5, 6, 1, 8, 2, 4, 3),  # no attention layer at all
        (1, 4, 4, 5, 9, 1, 1, 2),  # a state is smaller than the cache of one token
        (200, 9, 3, 4, 12, 6, 20, 8),
    ]


SHORTER = "state // per_token + 1"
ATTENTION = "attention = layers // every"
MISTAKES = [
    ("keys alone",
     "Your attention layers hold half of the right number of bytes, as if only the keys were kept. "
     "Count keys *and* values.",
     ("cache = 2 * L", "cache = L"), ("per_token = 2 *", "per_token =")),
    ("keys alone, for the bytes",
     "Your bytes of attention layers are half of the right ones, as if only the keys were kept. "
     "Count keys *and* values.",
     ("cache = 2 * L", "cache = L")),
    ("numbers not bytes",
     "Your results count numbers, not bytes. A number of the cache takes 2 bytes, one of a state "
     "takes 4.",
     ("d_head * 2  # bytes", "d_head  # bytes"), ("d_v * 4", "d_v"),
     ("H_kv * d_head * 2\n", "H_kv * d_head\n")),
    ("states of 2 bytes",
     "You count 2 bytes for each number of a state. States are kept in float32, which takes 4.",
     ("d_v * 4", "d_v * 2")),
    ("cache of 4 bytes",
     "You count 4 bytes for each number of the cache. It is kept in bfloat16, which takes 2.",
     ("d_head * 2  # bytes", "d_head * 4  # bytes"),
     ("H_kv * d_head * 2\n", "H_kv * d_head * 4\n")),
    ("bytes exchanged",
     "You count 4 bytes for each number of the cache and 2 for each of a state. It is the other "
     "way around.",
     ("d_head * 2  # bytes", "d_head * 4  # bytes"), ("H_kv * d_head * 2\n", "H_kv * d_head * 4\n"),
     ("d_v * 4", "d_v * 2")),
    ("cache grows with query heads",
     "Your cache has H heads, those of the linear layers. The attention layers keep H_kv heads of "
     "keys and values, each d_head wide.",
     ("cache = 2 * L * H_kv", "cache = 2 * L * H"), ("per_token = 2 * H_kv", "per_token = 2 * H")),
    ("states of the key heads",
     "Your states have H_kv heads. That is the number of key heads of the attention layers. A "
     "linear layer has H heads.",
     ("state = H *", "state = H_kv *")),
    ("one head",
     "Your linear layers hold one state. Each of their H heads has its own.",
     ("state = H *", "state =")),
    ("one head of the cache",
     "Your attention layers hold the keys and values of one head. They keep H_kv heads.",
     ("cache = 2 * L * H_kv *", "cache = 2 * L *"),
     ("2 * H_kv * d_head * 2\n", "2 * d_head * 2\n")),
    ("states grow",
     "Your states grow with L. A state keeps its size, d_k × d_v for each head, however many "
     "tokens were read.",
     ("state = H * d_k * d_v * 4", "state = H * d_k * d_v * 4 * L"),
     (SHORTER, "state // L // per_token + 1")),
    ("state of two vectors",
     "Your state has d_k + d_v numbers for each head. It is a matrix of d_k × d_v numbers.",
     ("d_k * d_v", "(d_k + d_v)")),
    ("square state",
     "Your state has d_k × d_k numbers for each head. It has d_k rows and d_v columns.",
     ("d_k * d_v", "d_k * d_k")),
    ("two states",
     "Your linear layers hold twice as much, as if keys and values were kept apart. The state is "
     "one matrix for both.",
     ("H * d_k * d_v", "2 * H * d_k * d_v")),
    ("layers exchanged",
     "You exchange the two kinds of layers. Only every `every`-th layer is attention, and all "
     "others are linear.",
     ("attention * cache + linear * state", "linear * cache + attention * state")),
    ("rounded up",
     "You count one attention layer too many where `every` does not divide `layers`. With 10 "
     "layers and every = 3, the layers 3, 6 and 9 are attention.",
     (ATTENTION, "attention = -(-layers // every)")),
    ("not rounded",
     "You count a fraction of an attention layer. With 10 layers and every = 3, the layers 3, 6 "
     "and 9 are attention, so round layers / every down.",
     (ATTENTION, "attention = layers / every")),
    ("rounded to the nearest",
     "You round layers / every to the nearest number. Round down: an attention layer comes only "
     "at the end of a full group.",
     (ATTENTION, "attention = round(layers / every)")),
    ("linear layers rounded down",
     "Your linear layers are too few where `every` does not divide `layers`. All layers that are "
     "not attention are linear.",
     ("layers - attention", "attention * (every - 1)")),
    ("one attention layer",
     "You count a single attention layer. There are layers // every of them.",
     (ATTENTION, "attention = 1")),
    ("every attention layers",
     "You count `every` attention layers. Every `every`-th layer is attention, so there are layers "
     "// every of them.",
     (ATTENTION, "attention = every")),
    ("states in addition",
     "Your hybrid has a state in every layer. The attention layers have none.",
     ("linear * state", "layers * state")),
    ("attention layers alone",
     "Your hybrid counts only its attention layers. Add the states of its linear layers.",
     ("attention * cache + linear * state", "attention * cache")),
    ("one layer of full attention",
     "Your second result is the cache of one layer. The model without linear layers has `layers` "
     "of them.",
     ("full = layers * cache", "full = cache")),
    ("queries kept",
     "Your cache holds three vectors for each token and head. Only keys and values are kept, not "
     "queries.",
     ("cache = 2 * L", "cache = 3 * L"), ("per_token = 2 *", "per_token = 3 *")),
    ("first length as much",
     "Your third result is one too small where a state takes exactly as many bytes as the cache of "
     "some tokens. The hybrid must hold *less*, so it starts one token later.",
     (SHORTER, "-(-state // per_token)")),
    ("last length not less",
     "Your third result is one too small. It is the last length at which the hybrid does not hold "
     "less. Add 1.",
     (SHORTER, "state // per_token")),
    ("length not whole",
     "Your third result is a fraction. Return the smallest whole number of tokens for which the "
     "hybrid holds less.",
     (SHORTER, "state / per_token")),
    ("length for keys alone",
     "Your third result compares a state with the keys alone, or with 1 byte for each number. A "
     "token adds 2 · H_kv · d_head numbers of 2 bytes.",
     ("per_token = 2 *", "per_token =")),
    ("length in numbers",
     "Your third result compares numbers, not bytes. A number of a state takes twice as many bytes "
     "as one of the cache.",
     (SHORTER, "(state // 4) // (per_token // 2) + 1")),
    ("length of all layers",
     "Your third result compares all states with the cache of the attention layers. Both models "
     "have those. Compare one state with the one cache that it replaces.",
     (SHORTER, "linear * state // (attention * per_token or 1) + 1")),
    ("length of all linear layers",
     "Your third result compares the states of all linear layers with the cache of *one* layer. "
     "Each state replaces one cache, so compare one with one.",
     (SHORTER, "linear * state // per_token + 1")),
    ("last length, of all linear layers",
     "Your third result compares the states of all linear layers with the cache of *one* layer, "
     "and it is not the first length with less. Compare one state with one cache, and add 1.",
     (SHORTER, "linear * state // per_token")),
    ("length of the whole model",
     "Your third result compares the states of the linear layers with the caches of *all* layers. "
     "The attention layers have the same cache in both models. Compare one state with the cache "
     "that it replaces.",
     (SHORTER, "linear * state // (layers * per_token) + 1")),
    ("full first",
     "Your first two results are exchanged. Return the hybrid first.",
     ("return hybrid, full,", "return full, hybrid,")),
    ("two results",
     "Your two numbers of bytes are right. Return a third result, the first length at which the "
     "hybrid holds less.",
     ("return hybrid, full, shorter_from", "return hybrid, full")),
    ("difference",
     "Your first result is what the hybrid saves. Return what it holds.",
     ("return hybrid,", "return full - hybrid,")),
    ("kibibytes",
     "Your bytes are divided by 1024. Return bytes.",
     ("return hybrid, full,", "return hybrid / 1024, full / 1024,")),
    ("bits",
     "Your results are in bits. Return bytes.",
     ("return hybrid, full,", "return hybrid * 8, full * 8,")),
]  # fmt: skip

exercise = Exercise("13.8", hybrid_memory, inputs, MISTAKES, also_right=[by_counting, by_division])
