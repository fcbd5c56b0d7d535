"""How the kernels of `course_utils.kernels` cut their work on each GPU: the place to tune."""

from typing import NamedTuple


class Tiles(NamedTuple):
    """How a kernel cuts its work: block sizes, warps of a program, loads under way at a time."""

    block_q: int
    block_k: int
    num_warps: int
    num_stages: int


class Cuts(NamedTuple):
    """The tiles of each kernel."""

    forward: Tiles
    backward_q: Tiles
    backward_kv: Tiles


# For float16 and bfloat16, by compute capability (a GPU takes the last row not beyond its own) and
# width of a head. Compiled, they fit the shared memory and keep all but a few numbers in registers;
# which are the fastest, a GPU says: benchmarks/tune_kernels.py tries others. At 256 the gradients
# of 64 keys and values are 128 KiB in float32, half of a multiprocessor's registers, and what fits
# beside them is small: backward_kv of 8.6 and 9.0, and forward of 8.6, have more warps than a tile
# of scores has work for, and make those products twice.
TILES = {
    (8, 0): {  # A100
        16: Cuts(Tiles(128, 64, 4, 3), Tiles(128, 64, 4, 3), Tiles(64, 128, 4, 3)),
        32: Cuts(Tiles(128, 64, 4, 3), Tiles(128, 64, 4, 3), Tiles(64, 128, 8, 3)),
        64: Cuts(Tiles(128, 64, 4, 3), Tiles(128, 64, 4, 3), Tiles(64, 128, 8, 3)),
        128: Cuts(Tiles(128, 64, 8, 3), Tiles(128, 64, 8, 3), Tiles(64, 128, 8, 3)),
        256: Cuts(Tiles(64, 64, 8, 2), Tiles(64, 64, 8, 2), Tiles(64, 64, 8, 2)),
    },
    (8, 6): {  # RTX 30 and 40, L4
        16: Cuts(Tiles(128, 64, 4, 3), Tiles(128, 64, 4, 3), Tiles(64, 128, 4, 3)),
        32: Cuts(Tiles(128, 64, 4, 3), Tiles(128, 64, 4, 3), Tiles(64, 128, 8, 3)),
        64: Cuts(Tiles(128, 64, 4, 3), Tiles(128, 64, 8, 3), Tiles(64, 128, 8, 3)),
        128: Cuts(Tiles(128, 64, 8, 3), Tiles(128, 64, 8, 2), Tiles(64, 64, 8, 2)),
        256: Cuts(Tiles(64, 32, 8, 2), Tiles(32, 32, 4, 2), Tiles(32, 32, 8, 2)),
    },
    (9, 0): {  # H100, H200
        16: Cuts(Tiles(128, 64, 4, 3), Tiles(128, 64, 4, 3), Tiles(64, 128, 8, 3)),
        32: Cuts(Tiles(128, 64, 4, 3), Tiles(128, 64, 4, 3), Tiles(64, 128, 8, 3)),
        64: Cuts(Tiles(128, 64, 4, 3), Tiles(128, 64, 8, 3), Tiles(64, 128, 8, 3)),
        128: Cuts(Tiles(128, 128, 8, 2), Tiles(128, 64, 8, 3), Tiles(64, 128, 8, 3)),
        256: Cuts(Tiles(128, 64, 8, 2), Tiles(128, 32, 8, 2), Tiles(32, 64, 8, 2)),
    },
}
TILES[10, 0] = TILES[9, 0]  # B200
TILES[12, 0] = TILES[8, 6]  # RTX 50
WIDTHS = [*TILES[9, 0]]
# float32 is here to check with: small tiles, which fit the shared memory of any of these GPUs.
FLOAT32 = dict.fromkeys(WIDTHS, Tiles(32, 32, 4, 2)) | {256: Tiles(16, 16, 4, 2)}


def cuts(capability):
    """Return the row of TILES for a GPU of that compute capability, (major, minor)."""
    return TILES[max(known for known in TILES if known <= capability)]
