"""11.5: what a rank sends in a training step, by each way, with fewer heads of keys."""

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_11._whole_numbers import in_a_tuple


def bytes_sent(N, W, H, H_kv, d, size):
    n = N // W  # tokens a rank
    heads = 2 * (2 * (W - 1) * (N * H * d) // W)  # an all-reduce, forward and backward
    moved = n * (2 * H + 2 * H_kv) * d  # q and output; k and v
    exchange = 2 * (moved * (W - 1) // W)
    block = 2 * n * H_kv * d  # k and v, or their gradients
    ring = 2 * (W - 1) * block + W * block
    return heads * size, exchange * size, ring * size


def by_hand(N, W, H, H_kv, d, size):
    x = N * H * d * size
    q, k = N // W * H * d * size, N // W * H_kv * d * size
    forward, back = 2 * (W - 1) * k, 2 * (W - 1) * k + 2 * W * k
    return 4 * x * (W - 1) // W, 4 * (q + k) * (W - 1) // W, forward + back


def in_floats(N, W, H, H_kv, d, size):
    x, k, passed_on = N * H * d * size, N * H_kv * d * size, 1 - 1 / W  # the part of W that leaves
    ring = 2 * k * (2 * passed_on + 1)
    return 4 * x * passed_on, 4 * (x + k) * passed_on / W, ring


def inputs():
    return [(96, 4, 4, 4, 16, 4), (64, 2, 8, 2, 4, 2), (48, 3, 9, 3, 5, 4), (160, 8, 16, 8, 3, 2)]


HEADS = "2 * (2 * (W - 1) * (N * H * d) // W)"
MOVED = "n * (2 * H + 2 * H_kv) * d"
RING = "2 * (W - 1) * block + W * block"
MISTAKES = [
    ("forward only", "those are the bytes of the forward pass; asked is forward and backward",
     (HEADS, "2 * (W - 1) * (N * H * d) // W"), ("2 * (moved", "(moved"),
     (RING, "(W - 1) * block")),
    ("half by heads", "half of it by heads: an all-reduce sends W parts round twice, and there "
     "are two of them, one forward and one backward",
     (HEADS, "2 * (W - 1) * (N * H * d) // W")),
    ("own part reduced", "by heads all W parts are sent; in each of its two rounds an all-reduce "
     "sends W − 1", (HEADS, "2 * (2 * (N * H * d))")),
    ("whole output to each", "by heads the whole output goes to each of the others; an all-reduce "
     "sends parts of it, N / W tokens each, W − 1 times in each of two rounds",
     (HEADS, "2 * (W - 1) * (N * H * d)")),
    ("three all-reduces", "by heads there are two all-reduces, the output's forward and x's "
     "backward; three are counted", (HEADS, "3 * (2 * (W - 1) * (N * H * d) // W)")),
    ("exchange forward only", "the exchange has a backward as well, which exchanges as much",
     ("2 * (moved", "(moved")),
    ("ring forward only", "the ring has a backward as well: keys and values go round again, and "
     "their gradients with them", (RING, "(W - 1) * block")),
    ("twice the forward",
     "the ring's backward sends more than its forward: keys and values go round again, and their "
     "gradients with them, W times, for they must come home", (RING, "2 * (W - 1) * block")),
    ("gradients not home", "the ring's gradients of k and v are passed on W times, not W − 1: the "
     "last step brings them home", (RING, "3 * (W - 1) * block")),
    ("keys not sent again", "in the ring's backward keys and values go round once more: their "
     "gradients travel beside them", (RING, "(W - 1) * block + W * block")),
    ("keys come home as well", "in the ring keys and values need no way home, in either pass: "
     "W − 1 times each", (RING, "3 * W * block")),
    ("keys come home backward", "in the ring's backward only the gradients go W times: keys and "
     "values need no way home", (RING, "(W - 1) * block + 2 * W * block")),
    ("as many heads of keys", "keys and values are counted with H heads; they have H_kv",
     (MOVED, "n * 4 * H * d"), ("2 * n * H_kv * d", "2 * n * H * d")),
    ("H_kv by heads", "by heads the output is reduced, and that has all H heads",
     (HEADS, "2 * (2 * (W - 1) * (N * H_kv * d) // W)")),
    ("H_kv in the exchange", "in the exchange q and the output have all H heads; k and v have H_kv",
     (MOVED, "n * 4 * H_kv * d")),
    ("H in the exchange", "the ring is right; in the exchange k and v have H_kv heads as well",
     (MOVED, "n * 4 * H * d")),
    ("H in the ring", "the exchange is right; in the ring k and v have H_kv heads as well",
     ("2 * n * H_kv * d", "2 * n * H * d")),
    ("output not sent back", "in the exchange the output is sent as well, heads for tokens",
     (MOVED, "n * (H + 2 * H_kv) * d")),
    ("output of H_kv heads", "in the exchange the output is counted with H_kv heads; it has "
     "as many as q", (MOVED, "n * (H + 3 * H_kv) * d")),
    ("own part sent", "in the exchange a rank keeps one part of W for itself",
     ("2 * (moved * (W - 1) // W)", "2 * moved")),
    ("all tokens exchanged", "in the exchange a rank sends its own n tokens, not all N",
     (MOVED, "N * (2 * H + 2 * H_kv) * d")),
    ("all-reduce of n tokens", "by heads every rank has all tokens: the all-reduce is of N",
     (HEADS, "2 * (2 * (W - 1) * (n * H * d) // W)")),
    ("keys alone", "in the ring keys *and* values travel", ("2 * n * H_kv * d", "n * H_kv * d")),
    ("all ranks", "those are the bytes of all ranks together; asked is what each sends",
     ("heads * size, exchange * size, ring * size",
      "W * heads * size, W * exchange * size, W * ring * size")),
    ("ring of all tokens", "in the ring a block has n tokens, not all N",
     ("2 * n * H_kv * d", "2 * N * H_kv * d")),
    ("ring of one head", "in the ring a block has H_kv heads; one is counted",
     ("2 * n * H_kv * d", "2 * n * d")),
    ("always four bytes", "right for numbers of 4 bytes; each has `size` bytes",
     ("heads * size, exchange * size, ring * size", "heads * 4, exchange * 4, ring * 4")),
    ("numbers, not bytes", "those are numbers; each has `size` bytes",
     ("heads * size, exchange * size, ring * size", "heads, exchange, ring")),
]  # fmt: skip

exercise = Exercise(
    "11.5", bytes_sent, inputs, MISTAKES, run=in_a_tuple, also_right=[by_hand, in_floats]
)
