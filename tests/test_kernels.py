"""The Triton kernels against attention in float64, within what rounding may cost them.

On a CUDA device they are compiled; without one they run in Triton's interpreter.
"""

import json
import os
import random
import runpy
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

from course_utils import kernel_tiles
from course_utils.attention import causal_mask, merge
from rounding import assert_within, attention_and_lse, attention_errors
from sampling import EVERY_CASE

kernels = pytest.importorskip(
    "course_utils.kernels", reason="Triton exists for Linux only", exc_type=ImportError
)
flash_attention = kernels.flash_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16]
DTYPES += [torch.bfloat16] * (not kernels.INTERPRETED)  # which gets it wrong: see below
ALL = EVERY_CASE or DEVICE == "cuda"  # else some of what is independent: Triton interprets slowly
TILES = [(16, 32), (32, 16), (32, 32)]  # BLOCK_Q, BLOCK_K
EARLIER = (8, 0)  # a GPU that gets no descriptors


@pytest.fixture
def cut(monkeypatch):
    """Set the block sizes of all kernels."""

    def cut(block_q, block_k):
        tiles = kernel_tiles.Tiles(block_q, block_k, num_warps=4, num_stages=2)
        monkeypatch.setattr(kernels, "_tiles", lambda kernel, q: tiles)

    return cut


@pytest.fixture
def with_strides(monkeypatch):
    """Pass tensors to the kernels with strides, not as descriptors; any GPU takes both."""
    return lambda: monkeypatch.setattr(kernels, "capability", lambda device: EARLIER)


def draw(rng, B, Hq, Hkv, L, S, D, dtype):
    """Return random q, k and v that require gradients."""
    shapes = [(B, Hq, L, D), (B, Hkv, S, D), (B, Hkv, S, D)]
    return [torch.randn(s, generator=rng).to(DEVICE, dtype).requires_grad_() for s in shapes]


def mask_of(q, k, is_causal, align):
    L, S = q.shape[2], k.shape[2]
    mask = causal_mask(L, S, align=align) if is_causal else torch.ones(L, S, dtype=torch.bool)
    return mask.to(q.device)


def exact(q, k, v, is_causal, align):
    """Return output and logsumexp by the whole matrix of scores, in the precision of q."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    return attention_and_lse(q, k, v, mask_of(q, k, is_causal, align))


def errors_of(inputs, is_causal, align, arriving=None):
    """Return what rounding may cost output, logsumexp and gradients."""
    q, k, v = inputs
    Hkv, group = k.shape[1], q.shape[1] // k.shape[1]

    def together(x):  # heads that share keys are more queries: (B, Hkv, group · L, ...)
        return x.unflatten(1, (Hkv, group)).flatten(2, 3)

    return attention_errors(
        together(q), k, v, mask_of(q, k, is_causal, align).repeat(group, 1),
        blocks=(kernels._tiles(kernels._backward_kv, q).block_q,
                kernels._tiles(kernels._forward, q).block_k),
        kept=None if q.dtype == torch.float32 else q.dtype,
        arriving=arriving and [together(x) for x in arriving],
    )  # fmt: skip


def compare(inputs, is_causal=False, align="upper_left", gradients_from=None):
    """Compare output and logsumexp with float64, and with a generator given all gradients."""
    exactly = [x.detach().double().requires_grad_() for x in inputs]
    got = flash_attention(*inputs, is_causal=is_causal, align=align)
    right = exact(*exactly, is_causal, align)
    assert got[0].dtype == inputs[0].dtype and got[1].dtype == torch.float32
    arriving = None
    if gradients_from is not None:
        arriving = [torch.randn(x.shape, generator=gradients_from).to(x) for x in got]
        got = [*got, *torch.autograd.grad(got, inputs, arriving)]
        right = [*right, *torch.autograd.grad(right, exactly, [d.double() for d in arriving])]
    errors = errors_of(inputs, is_causal, align, arriving)
    for one, other, error in zip(got, right, errors, strict=True):
        assert_within(one, other, error.view_as(other))


@pytest.mark.parametrize(
    "number, dtype",
    [(n, dtype) for n in range(36) for dtype in (DTYPES if ALL else [DTYPES[n // 4 % 2]])],
)
def test_random_configurations(number, dtype, cut, with_strides):
    if number % 4 < 2:
        with_strides()
    choose = random.Random(number)
    rng = torch.Generator().manual_seed(number)
    cut(*choose.choice(TILES))
    L, S = choose.randint(1, 100), choose.randint(1, 100)
    B, Hkv, group = choose.choice([(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 3), (1, 2, 2)])
    D = choose.choice([16, 16, 32, 64])
    is_causal = choose.random() < 0.7
    align = choose.choice(["upper_left", "lower_right"])
    inputs = draw(rng, B, Hkv * group, Hkv, L, S, D, dtype)
    compare(inputs, is_causal, align, gradients_from=rng if number % 2 else None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("D", kernel_tiles.WIDTHS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_block_sizes_that_ship(D, dtype, is_causal):
    rng = torch.Generator().manual_seed(D)
    block = max(kernels._tiles(kernels._forward, torch.empty(1, D, dtype=dtype, device=DEVICE))[:2])
    inputs = draw(rng, 1, 2, 1, block + 22, block + 12, D, dtype)
    compare(inputs, is_causal, gradients_from=rng)


SIZES = [
    (1, 1),
    (1, 50),
    (50, 1),
    (16, 64),
    (64, 16),
    (64, 64),
    (65, 63),
    (63, 65),
    (64, 65),
    (17, 129),
    (50, 64),  # from the lower right, query 0 sees all but one of the first 16 keys
]


@pytest.mark.parametrize("L, S", SIZES)
@pytest.mark.parametrize("align", ["upper_left", "lower_right"])
@pytest.mark.parametrize("block_q, block_k", [(16, 64), (64, 16)])
def test_sizes_at_and_beside_the_edge_of_a_block(L, S, align, block_q, block_k, cut):
    cut(block_q, block_k)
    rng = torch.Generator().manual_seed(L)
    compare(draw(rng, 1, 1, 1, L, S, 16, torch.float32), True, align, gradients_from=rng)


# NumPy warns of numbers in the rows beyond the last key, which are computed but never stored.
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_far_scores_neither_overflow_nor_vanish(cut):
    # Scores of ±1000 and more; m rises, and falls, from block to block.
    cut(16, 16)
    rng = torch.Generator().manual_seed(0)
    q, k, v = draw(rng, 1, 2, 2, 40, 70, 16, torch.float32)
    slope = torch.linspace(-1, 1, 70)[:, None].to(k)
    for steep in (40 * slope, -40 * slope, torch.full_like(slope, -40)):
        inputs = [x.detach().clone().requires_grad_() for x in (q.abs() * 20, k + steep, v)]
        compare(inputs, gradients_from=rng)


def test_a_query_that_may_see_nothing_gives_zeros_and_passes_no_gradient(cut):
    cut(16, 16)
    rng = torch.Generator().manual_seed(0)
    q, k, v = draw(rng, 1, 1, 1, 50, 20, 16, torch.float32)
    out, lse = flash_attention(q, k, v, is_causal=True, align="lower_right")
    assert (out[..., :30, :] == 0).all() and (lse[..., :30] == -torch.inf).all()
    assert lse[..., 30:].isfinite().all()
    d_q, d_k, d_v = torch.autograd.grad(out.sum() + lse[..., 30:].sum(), [q, k, v])
    assert (d_q[..., :30, :] == 0).all()
    assert all(d.isfinite().all() for d in (d_q, d_k, d_v))


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),  # as split_heads leaves it
        lambda x: F.pad(x, (0, 5))[..., :-5],  # rows that do not begin at multiples of 16 bytes
        lambda x: F.pad(x.flatten(), (1, 0))[1:].view_as(x),  # odd start
        lambda x: x.mT.contiguous().mT,  # columns in one piece, not rows
        lambda x: x.repeat_interleave(2, dim=2)[:, :, ::2],
        lambda x: x[:, :1].expand_as(x),
    ],
    ids=["heads beside each other", "odd rows", "odd start", "columns", "every other", "expanded"],
)
@pytest.mark.parametrize(
    "described, dtype",
    [(True, torch.float32), (False, torch.float16)]
    + [(False, torch.float32), (True, torch.float16)] * ALL,
)
def test_any_strides_give_the_same(layout, dtype, described, with_strides):
    if not described:
        with_strides()
    rng = torch.Generator().manual_seed(0)
    tensors = [*draw(rng, 2, 2, 2, 20, 30, 16, dtype), draw(rng, 2, 2, 2, 20, 1, 16, dtype)[0]]
    *steps, step = kernels._aligned(layout(tensors[0])).stride()
    assert step == 1 and all(n > 0 and n % 16 == 0 for n in steps)  # as the copy unit needs it
    results = []
    for lay in (layout, lambda x: layout(x).clone(memory_format=torch.contiguous_format)):
        *leaves, d_out = (lay(x.detach()) for x in tensors)
        q, k, v = (x.requires_grad_() for x in leaves)
        out, lse = flash_attention(q, k, v, is_causal=True, align="upper_left")
        results.append([out, lse, *torch.autograd.grad(out, leaves, d_out)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_the_gradient_of_the_logsumexp_may_be_one_number_expanded():
    rng = torch.Generator().manual_seed(0)
    q, k, v = draw(rng, 2, 2, 2, 40, 50, 16, torch.float32)
    _, lse = flash_attention(q, k, v)
    (expanded,) = torch.autograd.grad(lse.sum(), q, retain_graph=True)
    (dense,) = torch.autograd.grad(lse, q, torch.ones_like(lse))
    assert torch.equal(expanded, dense)


def test_parts_merge_to_the_whole():
    rng = torch.Generator().manual_seed(0)
    inputs = q, k, v = draw(rng, 1, 2, 2, 30, 90, 16, torch.float32)
    parts = [flash_attention(q, k[:, :, at], v[:, :, at]) for at in (slice(40), slice(40, 90))]
    got = merge(*parts[0], *parts[1])
    exactly = [x.detach().double().requires_grad_() for x in inputs]
    right = exact(*exactly, False, "upper_left")
    arriving = [torch.randn(x.shape, generator=rng).to(x) for x in got]
    got = [*got, *torch.autograd.grad(got, inputs, arriving)]  # by way of the logsumexps' gradient
    right = [*right, *torch.autograd.grad(right, exactly, [d.double() for d in arriving])]
    for one, other, error in zip(
        got, right, errors_of(inputs, False, "upper_left", arriving), strict=True
    ):
        # A weight is one in its part times the part's share, which holds both logsumexps again.
        assert_within(one, other, 4 * error.amax())


def test_the_matrix_is_never_made():
    # It would have 65,536 entries; what is kept for the backward pass is linear in L and S.
    q, k, v = torch.zeros(3, 1, 1, 1024, 16, device=DEVICE).unbind()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()), lambda x: x):
        flash_attention(q[:, :, :64].requires_grad_(), k, v)
    assert sum(kept) == 2 * 64 * 16 + 2 * 1024 * 16 + 64


def test_gradients_of_gradients_are_refused():
    rng = torch.Generator().manual_seed(0)
    q, k, v = draw(rng, 1, 1, 1, 4, 4, 16, torch.float32)
    out, _ = flash_attention(q, k, v)
    (d_q,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        d_q.sum().backward()


def test_with_causality_align_says_where_if_lengths_differ():
    rng = torch.Generator().manual_seed(0)
    q, k, v = draw(rng, 1, 1, 1, 5, 8, 16, torch.float32)
    with pytest.raises(ValueError, match="align must be given, since L = 5 and S = 8 differ"):
        flash_attention(q, k, v, is_causal=True)
    flash_attention(q, k, v)
    square = flash_attention(q, q, q, is_causal=True)
    for align in ("upper_left", "lower_right"):
        other = flash_attention(q, q, q, is_causal=True, align=align)
        assert all(map(torch.equal, square, other))


def test_all_programs_are_on_the_axis_that_has_no_end(monkeypatch):
    grids = []

    class Kernel:
        __name__ = "_forward"

        def __getitem__(self, grid):
            grids.append(grid)
            return lambda **_: None

    monkeypatch.setattr(kernels, "_forward", Kernel())
    monkeypatch.setattr(kernels, "capability", lambda device: EARLIER)
    q = torch.zeros(1).half().expand(70_000, 3, 200, 16)  # 128 queries a block
    kernels._launch(kernels._forward, {"q": q}, {"k": q}, {}, 0)
    assert grids == [(70_000 * 3 * 2,)]


X = torch.zeros(1, 2, 4, 16, device=DEVICE)
WRONG = {
    "k must have shape": (X, X[..., :8], X, {}),
    "v must have shape": (X, X, X[:, :, :3], {}),
    "q must have shape": (X[0], X, X, {}),
    "align must be one of": (X, X, X, {"align": "left"}),
    "must be one of .16, 32, 64, 128, 256., got 8": (X[..., :8], X[..., :8], X[..., :8], {}),
    "heads of k must divide those of q = 2, got 3": (X, X[:, [0] * 3], X[:, [0] * 3], {}),
    "must not be empty": (X, X[:, :, :0], X[:, :, :0], {}),
    "q must be float16, bfloat16 or float32": (X.double(), X.double(), X.double(), {}),
    "v must be torch.float32 on": (X, X, X.half(), {}),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_argument_is_named(message):
    *inputs, words = WRONG[message]
    with pytest.raises((TypeError, ValueError), match=message):
        flash_attention(*inputs, **words)


@pytest.mark.skipif(not kernels.INTERPRETED, reason="bfloat16 is right where it is compiled")
def test_bfloat16_is_refused_in_the_interpreter():
    with pytest.raises(TypeError, match="float16 or float32 in Triton's interpreter"):
        flash_attention(*[X.bfloat16()] * 3)


def test_without_triton_the_import_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ImportError, match="Linux only"):
        runpy.run_path(kernels.__file__)


def test_compiled_tensors_must_be_on_a_cuda_device(monkeypatch):
    monkeypatch.setattr(kernels, "INTERPRETED", False)
    with pytest.raises(ValueError, match="q must be on a CUDA device, got cpu"):
        flash_attention(*[X.cpu()] * 3)


def run(code, **variables):
    """Run code in a Python of its own and return what it printed."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    here = Path(__file__).parent
    path = os.pathsep.join(map(str, [here, here.parent, here.parent / "benchmarks"]))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env | {"PYTHONPATH": path} | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_triton_imported_before_is_interpreted_all_the_same():
    code = (
        "import os, triton; os.environ['TRITON_INTERPRET'] = '1'; import torch\n"
        "from course_utils.kernels import flash_attention\n"
        "print(flash_attention(*torch.ones(3, 1, 1, 5, 16))[0].eq(1).all().item())"
    )
    assert run(code) == "True"


class OnGPU(torch.Tensor):
    """A tensor that says it is on a CUDA device."""

    is_cuda = property(lambda self: True)


@pytest.mark.parametrize(
    "hip, capability, reason",
    [
        (None, (7, 5), "need a GPU of compute capability 8.0 or later and Some GPU has 7.5"),
        ("6.3", (9, 4), "are for NVIDIA GPUs, not for Some GPU"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_where_kernels_do_not_run_plain_pytorch_does(hip, capability, reason, dtype, monkeypatch):
    monkeypatch.setattr(kernels, "INTERPRETED", False)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    monkeypatch.setattr(kernels, "_launch", None)
    kernels._warn_once.cache_clear()
    rng = torch.Generator().manual_seed(0)
    inputs = draw(rng, 1, 4, 2, 9, 12, 16, dtype)
    q, k, v = (x.detach().as_subclass(OnGPU).requires_grad_() for x in inputs)
    with pytest.warns(UserWarning, match=f"{reason}, so tiled_attention"):
        out, lse = flash_attention(q, k, v, is_causal=True, align="lower_right")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flash_attention(q, k, v)  # says it no second time
    exactly = [x.detach().double().requires_grad_() for x in inputs]
    right = exact(*exactly, True, "lower_right")
    assert out.dtype == dtype and lse.dtype == torch.float32
    arriving = [torch.randn(x.shape, generator=rng).to(x) for x in (out, lse)]
    got = [out, lse, *torch.autograd.grad((out, lse), (q, k, v), arriving)]
    right = [*right, *torch.autograd.grad(right, exactly, [d.double() for d in arriving])]
    one_tile = kernel_tiles.Tiles(256, 512, 0, 0)  # of tiled_attention
    monkeypatch.setattr(kernels, "_tiles", lambda kernel, q: one_tile)
    errors = errors_of(inputs, True, "lower_right", arriving)
    for one, other, error in zip(got, right, errors, strict=True):
        assert_within(one.as_subclass(torch.Tensor), other, error.view_as(other))


GPUS = [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]
# Both ways to copy, all kinds of product, both formats, the narrowest head, and the widest where
# shared memory, registers and tensor memory are shortest.
COMPILED = (
    [(gpu, D, dtype) for gpu in GPUS for D in kernel_tiles.WIDTHS for dtype in ("bf16", "fp16")]
    if EVERY_CASE
    else [((8, 6), 256, "bf16"), ((9, 0), 16, "fp16"), ((10, 0), 256, "bf16")]
)


@pytest.mark.parametrize("gpu", GPUS, ids=str)
def test_the_copy_unit_is_used_where_products_read_from_shared_memory(gpu, monkeypatch):
    monkeypatch.setattr(kernels, "capability", lambda device: gpu)
    described = not isinstance(kernels._argument(torch.zeros(1, 1, 16, 16), 16), kernels.Strided)
    assert described == (gpu in [(9, 0), (10, 0)])


FLOAT32 = ((8, 6), 256, "fp32")  # the smallest shared memory and the widest head
TRITON_CACHE = Path(__file__).parents[1] / "build" / "triton"  # by source, options and versions


def check_attention(capability, D, dtype):
    """Compile forward and backward, which needs no GPU, and check what they ask of one."""
    import kernel_instructions as instructions

    torch_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]
    # Of float32 only the shared memory is asked for, which is known before LLVM optimizes.
    in_haste = {"DISABLE_LLVM_OPT": "1"} if dtype == "fp32" else {}
    with mock.patch.dict(os.environ, in_haste):
        compiled = instructions.compile_attention(capability, D, torch_dtype)
    assert [kernel.name for kernel in compiled] == ["_forward", "_backward_q", "_backward_kv"]
    for kernel in compiled:
        needs = instructions.needs(kernel)
        assert needs["shared"] <= instructions.KIBIBYTES[capability], needs
        if dtype == "fp32":  # is here to check with: it may be slow, but it has to launch
            continue
        assert needs["tensor memory"] <= 512, needs
        assert needs["stack"] <= 64, needs  # bytes of a thread that found no register
        product = {9: "wgmma.mma_async", 10: "tcgen05.mma"}.get(capability[0], "mma.sync")
        assert product in kernel.asm["ptx"] and not needs["loads of 2 bytes"], needs
        if (9, 0) <= capability < (12, 0):
            assert needs["copies by descriptor"] and not needs["loads of 16 bytes"], needs
        else:  # nothing is waited for but the program's own blocks, before its loop
            tiles = getattr(kernel_tiles.cuts(capability)[D], kernel.name.removeprefix("_"))
            rows = {
                "_forward": tiles.block_q,
                "_backward_q": 3 * tiles.block_q,
                "_backward_kv": 2 * tiles.block_k,
            }[kernel.name]
            own = rows * D * 2 / 16 / (32 * tiles.num_warps)
            assert needs["copies of 16 bytes"] and needs["loads of 16 bytes"] <= own, needs


def print_faults():
    """Check all configurations; print what is wrong with which, as JSON."""
    faults = {}
    for configuration in [*COMPILED, FLOAT32]:
        try:
            check_attention(*configuration)
        except Exception:
            faults[str(configuration)] = traceback.format_exc()
    print(json.dumps(faults))


@pytest.fixture(scope="module")
def faults():
    """Return what is wrong, by configuration: one Python compiles all that is not in the cache."""
    code = "import test_kernels; test_kernels.print_faults()"
    return json.loads(run(code, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(TRITON_CACHE)))


@pytest.mark.parametrize("configuration", [*COMPILED, FLOAT32], ids=str)
def test_the_kernels_fit_every_gpu(configuration, faults):
    """EVERY_CASE=1 takes each GPU with each width in both formats; this, some of them."""
    assert str(configuration) not in faults, faults[str(configuration)]
