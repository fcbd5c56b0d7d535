"""11.5: the bytes that a rank sends in a training step, with fewer KV heads."""

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_11._whole_numbers import in_a_tuple


def bytes_sent(N, W, H, H_kv, d, size):
    n = N // W  # tokens per rank
    heads = 2 * (2 * (W - 1) * (N * H * d) // W)  # an all-reduce, forward and backward
    moved = n * (2 * H + 2 * H_kv) * d  # q and output; k and v
    all_to_all = 2 * (moved * (W - 1) // W)
    block = 2 * n * H_kv * d  # k and v, or their gradients
    ring = 2 * (W - 1) * block + W * block
    return heads * size, all_to_all * size, ring * size


def by_hand(N, W, H, H_kv, d, size):
    x = N * H * d * size
    q, k = N // W * H * d * size, N // W * H_kv * d * size
    forward, back = 2 * (W - 1) * k, 2 * (W - 1) * k + 2 * W * k
    return 4 * x * (W - 1) // W, 4 * (q + k) * (W - 1) // W, forward + back


def in_floats(N, W, H, H_kv, d, size):
    x, k, sent = N * H * d * size, N * H_kv * d * size, 1 - 1 / W  # a rank keeps 1 part of W
    ring = 2 * k * (2 * sent + 1)
    return 4 * x * sent, 4 * (x + k) * sent / W, ring


def inputs():
    return [(96, 4, 4, 4, 16, 4), (64, 2, 8, 2, 4, 2), (48, 3, 9, 3, 5, 4), (160, 8, 16, 8, 3, 2)]


HEADS = "2 * (2 * (W - 1) * (N * H * d) // W)"
MOVED = "n * (2 * H + 2 * H_kv) * d"
RING = "2 * (W - 1) * block + W * block"
MISTAKES = [
    ("half by heads",
     "Your first number, by heads, is half of the correct number. There are two all-reduces, one "
     "forward and one backward, and each sends W − 1 of W parts twice.",
     (HEADS, "2 * (W - 1) * (N * H * d) // W")),
    ("forward only",
     "Your numbers are those of the forward pass. Add the bytes of the backward pass.",
     (HEADS, "2 * (W - 1) * (N * H * d) // W"), ("2 * (moved", "(moved"),
     (RING, "(W - 1) * block")),
    ("backward only",
     "Your numbers are those of the backward pass. Add the bytes of the forward pass.",
     (HEADS, "2 * (W - 1) * (N * H * d) // W"), ("2 * (moved", "(moved"),
     (RING, "(W - 1) * block + W * block")),
    ("own part reduced",
     "Your first number, by heads, counts all W parts. A rank keeps one of them, so in an "
     "all-reduce, it sends only W − 1 parts while the sums are formed, and W − 1 more while they "
     "are distributed.",
     (HEADS, "2 * (2 * (N * H * d))")),
    ("whole output to each",
     "Your first number, by heads, is that of sending the whole output to every other rank in "
     "each pass. In an all-reduce, it sends parts of size 1 / W instead: W − 1 parts while the "
     "sums are formed, and W − 1 more while they are distributed. Count these parts once for each "
     "pass.",
     (HEADS, "2 * (W - 1) * (N * H * d)")),
    ("three all-reduces",
     "Your first number, by heads, counts three all-reduces. There are two: one of the output in "
     "the forward pass, and one of the gradient of x in the backward pass.",
     (HEADS, "3 * (2 * (W - 1) * (N * H * d) // W)")),
    ("all-to-all forward only",
     "Your number for the all-to-all is that of the forward pass. The backward pass sends as "
     "much, so double it.",
     ("2 * (moved", "(moved")),
    ("ring forward only",
     "Your number for the ring is that of the forward pass. In the backward pass, keys and values "
     "are sent another W − 1 times, and their gradients W times. Add both.",
     (RING, "(W - 1) * block")),
    ("twice the forward",
     "Your number for the ring is twice its forward pass. The backward pass sends more: keys and "
     "values W − 1 times, and their gradients W times.",
     (RING, "2 * (W - 1) * block")),
    ("gradients not home",
     "Your ring sends the gradients of k and v W − 1 times. After that, they are still one rank "
     "away from their own, so count W times.",
     (RING, "3 * (W - 1) * block")),
    ("keys not sent again",
     "Your ring does not send keys and values in the backward pass. Each rank must send them "
     "another W − 1 times, in addition to their gradients.",
     (RING, "(W - 1) * block + W * block")),
    ("q travels",
     "Your ring also sends q. The queries stay on their own rank, and only k, v and their "
     "gradients travel.",
     (RING, RING + " + 2 * (W - 1) * n * H * d")),
    ("q travels, gradients do not",
     "Your ring sends q, k and v in both passes. The queries stay on their own rank, so leave q "
     "out. But the gradients of k and v travel too, W times.",
     (RING, "2 * (W - 1) * (block + n * H * d)")),
    ("gradients of q travel",
     "Your ring also sends the gradients of q. They stay on their own rank, as q does.",
     (RING, RING + " + W * n * H * d")),
    ("keys come home too",
     "Your ring sends keys and values W times in each pass. They need not return to their own "
     "rank, so count W − 1 times in each pass.",
     (RING, "3 * W * block")),
    ("keys come home backward",
     "Your ring sends keys and values W times in the backward pass. Only the gradients must "
     "return to their own rank, so count W − 1 for keys and values.",
     (RING, "(W - 1) * block + 2 * W * block")),
    ("as many KV heads",
     "You count H heads for the keys and values. They have only H_kv, so use H_kv for them in the "
     "all-to-all and in the ring.",
     (MOVED, "n * 4 * H * d"), ("2 * n * H_kv * d", "2 * n * H * d")),
    ("H_kv by heads",
     "Your first number, by heads, uses H_kv. The all-reduce adds up the ranks' outputs, each of N "
     "· H · d numbers, so use H.",
     (HEADS, "2 * (2 * (W - 1) * (N * H_kv * d) // W)")),
    ("H_kv in the all-to-all",
     "Your all-to-all uses H_kv heads for everything. Only k and v have H_kv heads. q and the "
     "output have H.",
     (MOVED, "n * 4 * H_kv * d")),
    ("H in the all-to-all",
     "Your ring is right, but your all-to-all counts H heads of k and v. As in the ring, k and v "
     "have only H_kv heads. Count H heads for q and the output, and H_kv heads for k and v.",
     (MOVED, "n * 4 * H * d")),
    ("H in the ring",
     "Your all-to-all is right, but your ring counts H heads of k and v. They have only H_kv "
     "heads, so use H_kv in the ring too.",
     ("2 * n * H_kv * d", "2 * n * H * d")),
    ("one of k and v with H heads in the all-to-all",
     "Your all-to-all counts H heads for either k or v. Both have only H_kv heads.",
     (MOVED, "n * (3 * H + H_kv) * d")),
    ("one of k and v with H heads in the ring",
     "Your ring counts H heads for either k or v. Both have only H_kv heads.",
     ("2 * n * H_kv * d", "n * (H + H_kv) * d")),
    ("gradients of four bytes",
     "Your ring counts 4 bytes for each number of the gradients of k and v. Here, each number "
     "takes `size` bytes.",
     ("ring * size", "(2 * (W - 1) * size + 4 * W) * block")),
    ("output not sent back",
     "Your all-to-all sends only q, k and v. The second all-to-all sends the output back, so "
     "count it too.",
     (MOVED, "n * (H + 2 * H_kv) * d")),
    ("output of H_kv heads",
     "Your all-to-all counts only H_kv heads of the output. The output has as many heads as q, so "
     "count H.",
     (MOVED, "n * (H + 3 * H_kv) * d")),
    ("own part sent",
     "Your all-to-all sends all W pieces. A rank keeps one of them for itself, so count only W "
     "− 1 of the W pieces.",
     ("2 * (moved * (W - 1) // W)", "2 * moved")),
    ("all tokens sent",
     "Your all-to-all sends all N tokens. A rank sends only its own n = N / W tokens.",
     (MOVED, "N * (2 * H + 2 * H_kv) * d")),
    ("all-reduce of n tokens",
     "Your all-reduce is over the outputs of n tokens. By heads, every rank holds all tokens, "
     "so use N.",
     (HEADS, "2 * (2 * (W - 1) * (n * H * d) // W)")),
    ("keys alone",
     "Your number for the ring counts keys or values, but not both. Both are sent, so double the "
     "number.",
     ("2 * n * H_kv * d", "n * H_kv * d")),
    ("all ranks",
     "Your numbers are those of all ranks together. Return what one rank sends.",
     ("heads * size, all_to_all * size, ring * size",
      "W * heads * size, W * all_to_all * size, W * ring * size")),
    ("ring of all tokens",
     "Your ring sends blocks of N tokens. A block has only n = N / W tokens.",
     ("2 * n * H_kv * d", "2 * N * H_kv * d")),
    ("ring of one head",
     "Your ring sends blocks of one head. A block has H_kv heads.",
     ("2 * n * H_kv * d", "2 * n * d")),
    ("always four bytes",
     "Your numbers are right only if a number takes 4 bytes. Here, each number takes `size` bytes.",
     ("heads * size, all_to_all * size, ring * size", "heads * 4, all_to_all * 4, ring * 4")),
    ("numbers, not bytes",
     "You return how many numbers are sent. Multiply by `size` to get bytes.",
     ("heads * size, all_to_all * size, ring * size", "heads, all_to_all, ring")),
]  # fmt: skip

exercise = Exercise(
    "11.5", bytes_sent, inputs, MISTAKES, run=in_a_tuple, also_right=[by_hand, in_floats]
)
