"""Decoding against attention in float64, within what rounding may cost it.

On a CUDA device the kernels are compiled; without one Triton interprets them, slowly.
"""

import json
import random
import sys

import pytest
import torch
import torch.nn.functional as F

from rounding import assert_within, attention_and_lse, attention_errors, normal
from sampling import EVERY_CASE
from test_kernels import OnGPU, needs_of, without_kernels  # noqa: F401  (a fixture)

decoding = pytest.importorskip(
    "course_utils.decoding", reason="Triton exists for Linux only", exc_type=ImportError
)
decode_attention, kernels = decoding.decode_attention, sys.modules["course_utils.kernels"]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16]
NAN = float("nan")


def draw(seed, B, Hq, Hkv, L, S, D, dtype=torch.float32):
    """Return random q, k and v."""
    shapes = [(B, Hq, L, D), (B, Hkv, S, D), (B, Hkv, S, D)]
    return [normal(*s, seed=seed + n, dtype=dtype).to(DEVICE) for n, s in enumerate(shapes)]


def compare(q, k, v, lengths, **words):
    """Compare output and logsumexp with float64. ``words`` may hold the cache in another form."""
    (B, Hq, L, D), (Hkv, S) = q.shape, k.shape[1:3]
    given = {"k_cache": k, "v_cache": v, "lengths": torch.tensor(lengths, device=DEVICE)} | words
    got = decode_attention(q, **given)
    assert [x.dtype for x in got] == [q.dtype, torch.float32]

    rows = q.view(B, Hkv, -1, D)  # heads that share keys are more queries
    last = torch.tensor(lengths)[:, None, None] + torch.arange(-L, 0)[:, None]  # (B, L, 1)
    mask = torch.arange(S) <= last  # (B, L, S)
    mask = mask.repeat(1, Hq // Hkv, 1)[:, None].to(DEVICE)  # (B, 1, rows, S)
    clean = [x.nan_to_num() for x in (k, v)]
    right = attention_and_lse(rows.double(), *(x.double() for x in clean), mask)
    rounded_to = None if q.dtype == torch.float32 else q.dtype
    block_k = decoding.BLOCK_K[D] if rounded_to else decoding.FLOAT32_BLOCK_K
    errors = attention_errors(rows, *clean, mask, (16, block_k), rounded_to)
    for one, other, error in zip(got, right, errors, strict=True):
        # A weight is one in its part times the part's share, e^(its logsumexp - that of all): a
        # logsumexp more, which costs as much again, and roundings of numbers as far apart as lse
        # and score, of which `attention_errors` counts one and here are up to seven.
        assert_within(one, other.view_as(one), 8 * error.view_as(one))
    return got


def spoil(x, lengths):
    """Fill the slots past each sequence's end with NaN."""
    unused = torch.arange(x.shape[2]) >= torch.tensor(lengths)[:, None]  # (B, S)
    return x.masked_fill(unused[:, None, :, None].to(DEVICE), NAN)


def in_pages(x, size, order):
    """Return a cache (B, Hkv, S, D) in pages (pages, Hkv, size, D), numbered by ``order``."""
    B, Hkv, S, D = x.shape
    padded = torch.full((B, Hkv, -(-S // size) * size, D), NAN, dtype=x.dtype, device=DEVICE)
    padded[:, :, :S] = x
    pool = torch.full((order.max() + 1, Hkv, size, D), NAN, dtype=x.dtype, device=DEVICE)
    pool[order.flatten()] = padded.unflatten(2, (-1, size)).transpose(1, 2).flatten(0, 1)
    return pool


@pytest.mark.parametrize(
    "number, dtype",
    [(n, dtype) for n in range(20) for dtype in (DTYPES if EVERY_CASE else [DTYPES[n // 2 % 2]])],
)
def test_random_configurations(number, dtype, monkeypatch):
    choose, rng = random.Random(number), torch.Generator().manual_seed(number)
    D = choose.choice([16, 16, 32, 64])
    monkeypatch.setitem(decoding.BLOCK_K, D, choose.choice([16, 32]))
    B, Hkv, group = choose.choice(
        [(1, 1, 1), (3, 1, 1), (2, 2, 1), (2, 1, 3), (1, 2, 5), (1, 1, 20)]
    )
    L, S = choose.choice([1, 1, 2, 3]), choose.randint(1, 150)
    lengths = [choose.choice([0, S, choose.randint(0, S)]) for _ in range(B)]
    q, k, v = draw(number, B, Hkv * group, Hkv, L, S, D, dtype)
    k, v = spoil(k, lengths), spoil(v, lengths)
    words = {"parts": choose.choice([None, 1, 2, 3, 8])}
    if number % 2:
        size = choose.choice([1, 4, 16, 24])
        pages = -(-S // size)
        order = torch.randperm(B * pages + 3, generator=rng)[: B * pages].view(B, pages)
        words |= {"k_cache": in_pages(k, size, order), "v_cache": in_pages(v, size, order)}
        words["block_table"] = order.to(DEVICE)
    compare(q, k, v, lengths, **words)


@pytest.mark.parametrize("D, dtype", [(D, DTYPES[n % 2]) for n, D in enumerate(decoding.BLOCK_K)])
def test_the_block_sizes_that_ship(D, dtype):
    compare(*draw(D, 2, 4, 2, 1, 150, D, dtype), [150, 70], parts=2)


@pytest.mark.parametrize("factor", [1000.0, -1000.0])
def test_scores_whose_exponentials_overflow(factor):
    q, k, v = draw(2, 1, 2, 1, 2, 90, 16)
    compare(factor * q, k, v, [90], parts=4)
    compare(100 * q.abs() + 100, factor * (1 + k.abs()) / 10, v, [77], parts=1)  # one sign


@pytest.mark.parametrize("length", [1, 2, 33])  # 33: the last block and part hold one key
def test_of_several_new_tokens_the_earlier_see_less(length):
    q, k, v = draw(9, 1, 2, 1, 3, 40, 128, torch.float16)  # blocks of 32 keys
    _, lse = compare(q, k, v, [length], parts=2)
    assert (lse == -torch.inf).sum() == 2 * max(3 - length, 0)


def test_a_group_may_have_more_rows_than_a_tile(monkeypatch):
    monkeypatch.setitem(decoding.MAX_ROWS, 16, 16)
    compare(*draw(10, 2, 14, 2, 3, 70, 16), [70, 44], parts=2)  # 21 rows


def test_the_parts_of_a_text_are_equal_however_short_it_is():
    q = torch.zeros(3, 1, 1, 16, device=DEVICE)  # all scores 0: lse is the log of a part's keys
    _, k, v = draw(5, 3, 1, 1, 1, 1024, 16)
    _, lses = decoding.attend_to_parts(q, k, v, 4, torch.tensor([1024, 256, 5], device=DEVICE))
    keys = lses[:, :, 0, 0].exp().round()  # (parts, B)
    assert keys.T.tolist() == [[256] * 4, [64] * 4, [5, 0, 0, 0]]


def test_a_text_does_not_depend_on_the_others_if_parts_are_given():
    q, k, v = draw(6, 3, 4, 2, 1, 300, 16)
    lengths = torch.tensor([300, 1, 222], device=DEVICE)
    together = decode_attention(q, k, v, lengths=lengths, parts=4)
    alone = decode_attention(q[2:], k[2:], v[2:], lengths=lengths[2:], parts=4)
    assert all(torch.equal(a[2:], b) for a, b in zip(together, alone, strict=True))


def test_a_length_above_the_slots_counts_as_all():  # it is not checked on a GPU
    q, k, v = draw(13, 2, 2, 1, 1, 64, 16)
    caches = [k[:, :, :40], v[:, :, :40]]  # with more behind them in memory
    lengths = torch.tensor([[45, 40], [40, 40]], device=DEVICE)
    got, right = (decoding.attend_to_parts(q, *caches, 2, each) for each in lengths)
    assert all(map(torch.equal, got, right))


def test_a_cache_may_have_any_strides():
    q, k, v = draw(7, 2, 2, 2, 2, 60, 16)
    layouts = [
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),  # tokens before heads
        lambda x: F.pad(x, (0, 0, 0, 9))[:, :, :60],  # part of a longer cache
        lambda x: torch.stack([x, x], dim=3)[:, :, :, 0],  # keys beside values
    ]
    right = decode_attention(q, k, v, parts=2)
    inputs = [(q.mT.contiguous().mT, k, v)]
    inputs += [
        (q, lay(k), other(v))
        for lay, other in zip(layouts, [*layouts[1:], lambda x: x], strict=True)
    ]
    for given in inputs:
        got = decode_attention(*given, parts=2)
        assert all(torch.equal(a, b) for a, b in zip(got, right, strict=True))


def test_texts_may_share_pages():
    q, k, v = draw(8, 2, 2, 1, 1, 48, 16)
    k[1, :, :32], v[1, :, :32] = k[0, :, :32], v[0, :, :32]  # the same first 32 tokens
    order = torch.tensor([[4, 0, 2], [4, 0, 1]])
    pools = [in_pages(x, 16, order) for x in (k, v)]
    table = order.to(DEVICE, torch.int32).repeat_interleave(2, dim=1)[:, ::2]  # not contiguous
    compare(q, k, v, [48, 41], k_cache=pools[0], v_cache=pools[1], block_table=table)


def test_parts_fill_the_processors_but_are_never_short():
    choose = decoding.choose_parts
    assert choose(132, 8, 8192) == 32  # 66 for four programs to each of 132; 256 keys each: 32
    assert choose(132, 600, 65536) == choose(132, 8, 200) == 1
    assert choose(1000, 1, 10**6) == decoding.MAX_PARTS
    for groups in range(1, 529):
        programs = groups * choose(132, groups, 10**6)
        assert 264 < programs <= 528 or programs == decoding.MAX_PARTS * groups


X = torch.zeros(2, 4, 1, 16, device=DEVICE)
C = torch.zeros(2, 2, 30, 16, device=DEVICE)
WRONG = {
    "q must have shape": (X[0], C, C, {}),
    "v_cache must have shape": (X, C, C[:, :, :9], {}),
    "k_cache must hold 2 sequences as q, got 1": (X, C[:1], C[:1], {}),
    "must be one of .16, 32, 64, 128, 256., got 8": (X[..., :8], C[..., :8], C[..., :8], {}),
    "heads of k_cache must divide those of q = 3, got 2": (X[:, :3], C, C, {}),
    "nothing may be empty": (X, C[:, :, :0], C[:, :, :0], {}),
    "q must be one of": (X.double(), C.double(), C.double(), {}),
    "v_cache must be torch.float32 on": (X, C, C.half(), {}),
    "k_cache must have stride 1 along D": (X, C.mT.contiguous().mT, C, {}),
    "lengths must have shape": (X, C, C, {"lengths": torch.ones(3).long()}),
    "lengths must be a tensor or sequence of whole": (X, C, C, {"lengths": torch.ones(2)}),
    "parts must be 1 or more": (X, C, C, {"parts": 0}),
    "parts must be 128 or less": (X, C, C, {"parts": 129}),
    "block_table must have shape": (X, C, C, {"block_table": torch.ones(2).long()}),
}
if DEVICE == "cpu":  # on a GPU these are not checked
    BF16 = X.bfloat16(), C.bfloat16(), C.bfloat16()
    WRONG |= {
        "torch.float16 in Triton's interpreter, got torch.bfl": (*BF16, {}),
        "lengths must be from 0 to 30": (X, C, C, {"lengths": [31, 0]}),
        "block_table must be from 0 to 1": (X, C, C, {"block_table": torch.tensor([[2], [0]])}),
    }


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_argument_is_named(message):
    *inputs, words = WRONG[message]
    with pytest.raises((TypeError, ValueError), match=message):
        decode_attention(*inputs, **words)


@pytest.fixture
def without_decoding_kernels(without_kernels, monkeypatch):  # noqa: F811
    monkeypatch.setattr(decoding, "INTERPRETED", False)
    monkeypatch.setattr(decoding, "DTYPES", [*decoding.DTYPES, torch.bfloat16])
    monkeypatch.setattr(decoding, "attend_to_parts", None)
    return without_kernels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("paged, L", [(False, 1), (True, 1), (True, 3)])
def test_where_kernels_do_not_run_plain_pytorch_does(dtype, paged, L, without_decoding_kernels):
    lengths = [70, 0, 33, 2]  # full, empty, ragged, fewer than the new tokens
    q, k, v = draw(11, 4, 6, 2, L, 70, 16, dtype)
    q, k, v = q.as_subclass(OnGPU), spoil(k, lengths), spoil(v, lengths)
    words = {}
    if paged:
        order = torch.randperm(23, generator=torch.Generator().manual_seed(0))[:20].view(4, 5)
        words = {f"{name}_cache": in_pages(x, 16, order) for name, x in [("k", k), ("v", v)]}
        words["block_table"] = order
    with pytest.warns(UserWarning, match=f"{without_decoding_kernels}, so tiled_") as warned:
        out, lse = compare(q, k, v, lengths, **words)
    assert (out[1] == 0).all() and (lse[1] == -torch.inf).all()
    assert (lse[3] == -torch.inf).sum() == 6 * max(L - 2, 0)
    assert warned[0].filename == __file__


@pytest.mark.filterwarnings("ignore:the kernels")
def test_plain_pytorch_takes_no_lengths_and_too_large_ones_as_all(without_decoding_kernels):
    q, k, v = draw(12, 2, 4, 2, 3, 40, 16)
    q = q.as_subclass(OnGPU)
    right = compare(q, k, v, [40, 40])
    for lengths in (None, torch.tensor([45, 40]).as_subclass(OnGPU)):  # not checked on a GPU
        got = decode_attention(q, k, v, lengths=lengths)
        assert all(map(torch.equal, got, right))


def print_needs():
    """Compile the kernel of a part, without a GPU, and print what it needs of one, as JSON."""
    import kernel_instructions as instructions

    few = [((8, 6), 64, "float16", 1), ((9, 0), 128, "bfloat16", 64), ((8, 6), 256, "bfloat16", 32)]
    every = [(gpu, *case) for gpu in instructions.KIBIBYTES for _, *case in few]
    rows = []
    # float32 only has to run; lesson 06b does it on a T4 of Colab too
    slow = [((7, 5), 64, "float32", 1), ((8, 6), 256, "float32", 1)]
    for gpu, D, dtype, group in [*(every if EVERY_CASE else few), *slow]:
        q = torch.empty(2, group, 1, D, dtype=getattr(torch, dtype), device="meta")
        cache, table = torch.empty_like(q[:1, :1]).expand(8, 1, 16, D).contiguous(), None
        if group > 1:
            table = torch.empty(2, 16, dtype=torch.int32, device="meta")
        with instructions.compiling(gpu) as found:
            decoding.attend_to_parts(q, cache, cache, 2, None, table)
        room = instructions.KIBIBYTES.get(gpu, 64)
        rows += [[gpu, D, dtype, room, instructions.needs(kernel)] for kernel in found]
    print(json.dumps(rows))


@pytest.mark.slow
def test_the_kernel_fits_every_gpu():
    """Caches come in copies of 16 bytes, two programs fit at a time, and registers suffice."""
    rows = needs_of("test_decoding")
    assert len(rows) > 3
    for gpu, D, dtype, shared, needs in rows:
        case = gpu, D, dtype, needs
        if dtype != "float32":
            assert (1 if D == 256 else 2) * needs["shared"] <= shared, case
            assert needs["copies of 16 bytes"] and not needs["loads of 2 bytes"], case
            assert needs["stack"] <= 64, case
        assert needs["shared"] <= shared, case
