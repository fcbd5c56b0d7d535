"""The tile sizes of `course_utils.kernels` for each GPU."""

from typing import NamedTuple


class Tiles(NamedTuple):
    """Block sizes, warps per program and pipeline stages of a kernel."""

    block_q: int
    block_k: int
    num_warps: int
    num_stages: int


class Cuts(NamedTuple):
    """The tiles of each kernel."""

    forward: Tiles
    backward_q: Tiles
    backward_kv: Tiles


# Tiles for float16 and bfloat16, by compute capability and head width. A GPU uses the highest row
# that does not exceed its own capability. Those of 9.0 were the fastest of 4 to 15 that we timed on
# an H200 for each kernel and width, or at most 4% slower than one that spills. Of the others we
# only know from compiling that they fit into shared memory and hardly spill. At width 256, the
# gradients of 64 keys and values take 128 KiB in float32. This is half of the registers of a
# multiprocessor and leaves little room. So backward_kv of 8.6, 9.0 and 10.0, and forward of 8.6,
# have more warps than a tile of scores can use, and compute these products twice.
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
        16: Cuts(Tiles(128, 64, 4, 3), Tiles(64, 64, 4, 3), Tiles(128, 64, 4, 3)),
        32: Cuts(Tiles(128, 64, 4, 3), Tiles(64, 64, 4, 3), Tiles(128, 64, 4, 3)),
        64: Cuts(Tiles(128, 64, 8, 3), Tiles(128, 64, 4, 3), Tiles(32, 128, 4, 3)),
        128: Cuts(Tiles(128, 64, 8, 3), Tiles(128, 64, 8, 3), Tiles(64, 128, 8, 3)),
        256: Cuts(Tiles(128, 64, 8, 2), Tiles(64, 32, 4, 3), Tiles(32, 64, 8, 3)),
    },
    (10, 0): {  # B200
        16: Cuts(Tiles(128, 64, 4, 3), Tiles(128, 64, 4, 3), Tiles(64, 128, 8, 3)),
        32: Cuts(Tiles(128, 64, 4, 3), Tiles(128, 64, 4, 3), Tiles(64, 128, 8, 3)),
        64: Cuts(Tiles(128, 64, 4, 3), Tiles(128, 64, 8, 3), Tiles(64, 128, 8, 3)),
        128: Cuts(Tiles(128, 128, 8, 2), Tiles(128, 64, 8, 3), Tiles(64, 128, 8, 3)),
        256: Cuts(Tiles(128, 64, 8, 2), Tiles(128, 32, 8, 2), Tiles(32, 64, 8, 2)),
    },
}
TILES[12, 0] = TILES[8, 6]  # RTX 50
WIDTHS = [*TILES[9, 0]]
# float32 is only for tests. These small tiles fit into the shared memory of all these GPUs.
FLOAT32 = dict.fromkeys(WIDTHS, Tiles(32, 32, 4, 2)) | {256: Tiles(16, 16, 4, 2)}


def cuts(capability):
    """Return the row of TILES for a GPU of this compute capability, (major, minor)."""
    return TILES[max(known for known in TILES if known <= capability)]
