"""13.8: what a hybrid model remembers in bytes, and from which length on it holds less."""

from course_utils.checks.exercise import Exercise


def hybrid_memory(L, layers, every, H_kv, d_head, H, d_k, d_v):
    cache = 2 * L * H_kv * d_head * 2  # bytes of one attention layer: keys and values
    state = H * d_k * d_v * 4  # bytes of one linear-attention layer
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
        (1000, 8, 2, 1, 4, 32, 64, 64),  # as many bytes as the cache of thousands of tokens
        (10, 4, 2, 1, 5, 1, 4, 2),  # states of as many bytes as the cache of 1.6 tokens
    ]


SHORTER = "state // per_token + 1"
ATTENTION = "attention = layers // every"
MISTAKES = [
    ("keys alone",
     "Your attention layers hold half as many bytes as they should, as if only keys were cached. "
     "Count keys *and* values.",
     ("cache = 2 * L", "cache = L"), ("per_token = 2 *", "per_token =")),
    ("keys alone, for the bytes",
     "In your first two results, attention layers hold half as many bytes as they should, as if "
     "only keys were cached. Count keys *and* values.",
     ("cache = 2 * L", "cache = L")),
    ("numbers not bytes",
     "Your results count numbers, not bytes. Multiply the count for the cache by 2 and the "
     "count for the states by 4. These are the bytes per number.",
     ("d_head * 2  # bytes", "d_head  # bytes"), ("d_v * 4", "d_v"),
     ("H_kv * d_head * 2\n", "H_kv * d_head\n")),
    ("states of 2 bytes",
     "You count 2 bytes for each number of a state. States are kept in float32, so count 4.",
     ("d_v * 4", "d_v * 2")),
    ("cache of 4 bytes",
     "You count 4 bytes for each number of the cache. Only the states have 4 bytes per number, so "
     "count 2 for the cache.",
     ("d_head * 2  # bytes", "d_head * 4  # bytes"),
     ("H_kv * d_head * 2\n", "H_kv * d_head * 4\n")),
    ("bytes exchanged",
     "You count 4 bytes for each number of the cache and 2 for each number of a state. Count 2 "
     "for the cache and 4 for a state.",
     ("d_head * 2  # bytes", "d_head * 4  # bytes"), ("H_kv * d_head * 2\n", "H_kv * d_head * 4\n"),
     ("d_v * 4", "d_v * 2")),
    ("cache grows with query heads",
     "Your cache has H heads, but H is the number of heads in a linear-attention layer. An "
     "attention layer has H_kv KV heads, so use H_kv there.",
     ("cache = 2 * L * H_kv", "cache = 2 * L * H"), ("per_token = 2 * H_kv", "per_token = 2 * H")),
    ("states of the KV heads",
     "Your linear-attention layers have H_kv states. H_kv is the number of KV heads of an "
     "attention layer. A linear-attention layer has one state for each of its H heads, so use H.",
     ("state = H *", "state = H_kv *")),
    ("one head",
     "Your linear-attention layers hold a single state each. Each of the H heads has its own, so "
     "multiply by H.",
     ("state = H *", "state =")),
    ("one head of the cache",
     "Your attention layers cache the keys and values of a single head. Multiply by H_kv.",
     ("cache = 2 * L * H_kv *", "cache = 2 * L *"),
     ("2 * H_kv * d_head * 2\n", "2 * d_head * 2\n")),
    ("states grow",
     "Your states grow with L. A state keeps its size after any number of tokens, so leave out L.",
     ("state = H * d_k * d_v * 4", "state = H * d_k * d_v * 4 * L"),
     (SHORTER, "state // L // per_token + 1")),
    ("state of two vectors",
     "Your states have d_k + d_v numbers for each head. A state is a matrix, so count d_k · d_v.",
     ("d_k * d_v", "(d_k + d_v)")),
    ("square state",
     "Your states have d_k · d_k numbers for each head. A state has d_k rows and d_v columns, so "
     "count d_k · d_v.",
     ("d_k * d_v", "d_k * d_k")),
    ("two states",
     "You count each state twice, as if keys and values were stored separately. One state holds "
     "both, so count it once.",
     ("H * d_k * d_v", "2 * H * d_k * d_v")),
    ("layers exchanged",
     "You swap the two kinds of layers. Only the last layer of each group of `every` is an "
     "attention layer, so there are `layers // every` caches.",
     ("attention * cache + linear * state", "linear * cache + attention * state")),
    ("rounded up",
     "You count one attention layer too many if `every` does not divide `layers`. With 10 layers "
     "and every = 3, only layers 3, 6 and 9 are attention layers. Round down: use `layers // "
     "every`.",
     (ATTENTION, "attention = -(-layers // every)")),
    ("not rounded",
     "You count a fraction of an attention layer. With 10 layers and every = 3, layers 3, 6 and 9 "
     "are attention layers. Round down: use `layers // every`.",
     (ATTENTION, "attention = layers / every")),
    ("rounded to the nearest",
     "You round `layers / every` to the nearest whole number. An attention layer comes only at "
     "the end of a full group of layers, so round down.",
     (ATTENTION, "attention = round(layers / every)")),
    ("linear layers rounded down",
     "You count too few linear-attention layers if `every` does not divide `layers`. The layers "
     "after the last full group are linear-attention layers, too. Subtract the number of attention "
     "layers from `layers`.",
     ("layers - attention", "attention * (every - 1)")),
    ("one attention layer",
     "You count a single attention layer. Each full group of `every` layers has one, so there are "
     "`layers // every`.",
     (ATTENTION, "attention = 1")),
    ("every attention layers",
     "You count `every` attention layers, but `every` is the size of a group. Each full group has "
     "one attention layer, so there are `layers // every`.",
     (ATTENTION, "attention = every")),
    ("states in addition",
     "Your hybrid has states in every layer. Attention layers have none, so count states only for "
     "the linear-attention layers.",
     ("linear * state", "layers * state")),
    ("attention layers alone",
     "Your hybrid counts only its attention layers. Add the states of its linear-attention layers.",
     ("attention * cache + linear * state", "attention * cache")),
    ("one layer of full attention",
     "Your second result is the cache of one layer. The model with only attention has `layers` of "
     "them, so multiply by `layers`.",
     ("full = layers * cache", "full = cache")),
    ("queries kept",
     "Your cache holds three vectors for each token and head. Queries are not cached, so count "
     "only keys and values.",
     ("cache = 2 * L", "cache = 3 * L"), ("per_token = 2 *", "per_token = 3 *")),
    ("first length as much",
     "Your third result is one too small if the states take exactly as many bytes as the cache of "
     "some number of tokens. The states must take *fewer* bytes, which begins one token later. "
     "Add 1 in that case.",
     (SHORTER, "-(-state // per_token)")),
    ("last length not less",
     "Your third result is one too small. It is the last length at which the states do not take "
     "fewer bytes. Add 1.",
     (SHORTER, "state // per_token")),
    ("length not whole",
     "Your third result is the quotient of two numbers of bytes. Return the smallest whole number "
     "of tokens at which the states take fewer bytes.",
     (SHORTER, "state / per_token")),
    ("length for keys alone",
     "Your third result is what you get with half of the right cache, such as keys without "
     "values. A token adds 2 · H_kv · d_head numbers of 2 bytes. Compare the states with these "
     "bytes.",
     ("per_token = 2 *", "per_token =")),
    ("length in numbers",
     "Your third result compares numbers, not bytes. A number of a state takes 4 bytes, and one "
     "of the cache takes 2. Compare bytes.",
     (SHORTER, "(state // 4) // (per_token // 2) + 1")),
    ("length of all layers",
     "Your third result compares the states of all linear-attention layers with the cache of all "
     "attention layers. Compare the states of *one* linear-attention layer with the cache of *one* "
     "attention layer.",
     (SHORTER, "linear * state // (attention * per_token or 1) + 1")),
    ("length of all linear layers",
     "Your third result compares the states of all linear-attention layers with the cache of one "
     "layer. Compare the states of *one* linear-attention layer with it.",
     (SHORTER, "linear * state // per_token + 1")),
    ("last length, of all linear layers",
     "Your third result compares the states of all linear-attention layers with the cache of one "
     "layer, and is the last length at which they are not smaller. Compare the states of *one* "
     "linear-attention layer with it, and add 1.",
     (SHORTER, "linear * state // per_token")),
    ("length of the whole model",
     "Your third result compares the states of the linear-attention layers with the cache of *all* "
     "layers. Compare the states of *one* linear-attention layer with the cache of *one* attention "
     "layer.",
     (SHORTER, "linear * state // (layers * per_token) + 1")),
    ("full first",
     "Your first two results are swapped. Return the bytes of the hybrid first.",
     ("return hybrid, full,", "return full, hybrid,")),
    ("two results",
     "Your two numbers of bytes are right. Return a third result: the smallest L at which the "
     "states take fewer bytes.",
     ("return hybrid, full, shorter_from", "return hybrid, full")),
    ("difference",
     "Your first result is the number of bytes that the hybrid saves. Return the bytes that it "
     "needs.",
     ("return hybrid,", "return full - hybrid,")),
    ("kibibytes",
     "Your bytes are divided by 1024, which gives KiB. Return bytes.",
     ("return hybrid, full,", "return hybrid / 1024, full / 1024,")),
    ("bits",
     "Your bytes are multiplied by 8, which gives bits. Return bytes.",
     ("return hybrid, full,", "return hybrid * 8, full * 8,")),
    ("always one attention layer more",
     "You count one attention layer too many. Each full group of `every` layers has one, so there "
     "are `layers // every`.",
     ("attention = layers // every", "attention = layers // every + 1")),
    ("remainder of the layers",
     "Your number of attention layers is the remainder of `layers / every`. Each full group of "
     "`every` layers has one, so use `layers // every`.",
     ("attention = layers // every", "attention = layers % every")),
    ("attention layers of the hybrid alone",
     "Your second result counts only the attention layers of the hybrid. In the other model, all "
     "layers are attention layers, so count `layers` caches.",
     ("full = layers * cache", "full = attention * cache")),
    ("length rounded",
     "For your third result, you round to the nearest whole number before you add 1. If that "
     "rounds up, the result is one too large. Round down, and then add 1.",
     ("state // per_token + 1", "round(state / per_token) + 1")),
    ("length rounded up, and 1 added",
     "Your third result is one too large unless the bytes of the states are a multiple of the "
     "cache's bytes per token. Divide, round *down*, and then add 1.",
     ("state // per_token + 1", "-(-state // per_token) + 1")),
    ("length of another ratio",
     "For your third result, you divide cache bytes by state bytes. Divide the other way: the "
     "bytes of one linear-attention layer's states by the bytes that one token adds to one "
     "attention layer's cache. Round down, and add 1.",
     ("state // per_token + 1", "layers * per_token // state + 1")),
    ("length of the totals",
     "For your third result, you divide the bytes of the whole hybrid by the bytes of one token in "
     "the other model. Compare only the states of one linear-attention layer with the cache of one "
     "attention layer.",
     ("state // per_token + 1", "hybrid // (layers * per_token) + 1")),
    ("length one too large",
     "Your third result is one too large. With one token fewer, the states already take fewer "
     "bytes than the cache, so subtract 1.",
     ("state // per_token + 1", "state // per_token + 2")),
    ("mebibytes",
     "Your bytes are divided by 1024², which gives MiB. Return bytes.",
     ("return hybrid, full,", "return hybrid / 2**20, full / 2**20,")),
    ("ratio of one to every",
     "You count one attention layer for each `every` linear-attention layers. Of each group of "
     "`every` layers, only the last is an attention layer. Use `layers // every`.",
     ("attention = layers // every", "attention = layers // (every + 1)")),
    ("states in the other model",
     "Your second result also counts states. A model with only attention layers has none, so "
     "count only its caches.",
     ("full = layers * cache", "full = layers * (cache + state)")),
    ("one layer of each kind",
     "Your first result counts one attention layer and one linear-attention layer. There are "
     "`layers // every` attention layers, and all others are linear-attention layers. Multiply "
     "each size by the number of its layers.",
     ("hybrid = attention * cache + linear * state", "hybrid = cache + state")),
    ("bytes of the states as a length",
     "Your third result is the number of bytes of one linear-attention layer's states. Divide it "
     "by the bytes that one token adds to one attention layer's cache, round down, and add 1.",
     ("state // per_token + 1", "state")),
    ("bytes of a token as a length",
     "Your third result is the number of bytes that one token adds to one attention layer's cache. "
     "Divide the bytes of one linear-attention layer's states by it, round down, and add 1.",
     ("state // per_token + 1", "per_token")),
    ("length not whole, and 1 added",
     "For your third result, you add 1 to the quotient itself. Round the quotient down before you "
     "add 1.",
     ("state // per_token + 1", "state / per_token + 1")),
    ("replaced layers alone",
     "Your second result counts only the layers that are linear-attention layers in the hybrid. In "
     "the other model, all layers are attention layers, so count `layers` caches.",
     ("full = layers * cache", "full = linear * cache")),
    ("states of all layers",
     "Your second result is the bytes of a model with only linear-attention layers. Count `layers` "
     "caches.",
     ("full = layers * cache", "full = layers * state")),
    ("length of all states by attention layers",
     "Your third result compares states in all layers with the cache of the attention layers. "
     "Compare the states of *one* linear-attention layer with the cache of *one* attention layer.",
     ("state // per_token + 1", "layers * state // (attention * per_token or 1) + 1")),
    ("one token",
     "Your cache bytes are for a single token. Multiply the bytes of the caches by L, but "
     "not those of the states.",
     ("cache = 2 * L *", "cache = 2 *")),
    ("bytes doubled",
     "Your bytes are twice as many as they should be. Count 2 bytes for each number of the cache "
     "and 4 for each number of a state, for one text.",
     ("return hybrid, full,", "return 2 * hybrid, 2 * full,")),
]  # fmt: skip

exercise = Exercise("13.8", hybrid_memory, inputs, MISTAKES, also_right=[by_counting, by_division])
