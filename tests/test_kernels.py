"""The Triton kernels against attention in float64, within what rounding may cost them.

On a CUDA device they are compiled; without one Triton interprets them, slowly.
"""

import itertools
import json
import os
import random
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

from course_utils import kernel_tiles
from course_utils.attention import causal_mask
from rounding import assert_within, attention_and_lse, attention_errors, normal
from sampling import EVERY_CASE

kernels = pytest.importorskip(
    "course_utils.kernels", reason="Triton exists for Linux only", exc_type=ImportError
)
flash_attention = kernels.flash_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16]
DTYPES += [torch.bfloat16] * (not kernels.INTERPRETED)  # which gets it wrong: see below
ALL = EVERY_CASE or DEVICE == "cuda"  # or a sample of the cases
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


def draw(seed, B, Hq, Hkv, L, S, D, dtype=torch.float32):
    """Return random q, k and v that require gradients."""
    shapes = [(B, Hq, L, D), (B, Hkv, S, D), (B, Hkv, S, D)]
    inputs = (normal(*shape, seed=seed + n, dtype=dtype) for n, shape in enumerate(shapes))
    return [x.to(DEVICE).requires_grad_() for x in inputs]


def mask_of(q, k, is_causal, align):
    L, S = q.shape[2], k.shape[2]
    mask = causal_mask(L, S, align=align) if is_causal else torch.ones(L, S, dtype=torch.bool)
    return mask.to(q.device)


def exact(q, k, v, is_causal, align):
    """Return output and logsumexp by the whole matrix of scores, in the precision of q."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    return attention_and_lse(q, k, v, mask_of(q, k, is_causal, align))


def errors_of(inputs, is_causal, align, arriving):
    """Return what rounding may cost output, logsumexp and gradients."""
    q, k, v = inputs
    Hkv, group = k.shape[1], q.shape[1] // k.shape[1]

    def together(x):  # heads that share keys are more queries: (B, Hkv, group · L, ...)
        return x.unflatten(1, (Hkv, group)).flatten(2, 3)

    tile = kernels._tiles(kernels._backward_kv, q).block_q, kernels._tiles(kernels._forward, q)[1]
    return attention_errors(
        together(q), k, v, mask_of(q, k, is_causal, align).repeat(group, 1), tile,
        None if q.dtype == torch.float32 else q.dtype, [together(x) for x in arriving],
    )  # fmt: skip


def compare(inputs, is_causal=False, align="upper_left", on_gpu=None):
    """Compare output, logsumexp and gradients with float64; ``on_gpu`` in place of the inputs."""
    exactly = [x.detach().double().requires_grad_() for x in inputs]
    given = on_gpu or inputs
    got = flash_attention(*given, is_causal=is_causal, align=align)
    right = exact(*exactly, is_causal, align)
    assert got[0].dtype == inputs[0].dtype and got[1].dtype == torch.float32
    arriving = [normal(*x.shape, seed=9).to(x) for x in got]
    got = [*got, *torch.autograd.grad(got, given, arriving)]
    right = [*right, *torch.autograd.grad(right, exactly, [d.double() for d in arriving])]
    errors = errors_of(inputs, is_causal, align, arriving)
    for one, other, error in zip(got, right, errors, strict=True):
        assert_within(one.as_subclass(torch.Tensor), other, error.view_as(other))


@pytest.mark.parametrize(
    "number, dtype",
    [(n, dtype) for n in range(24) for dtype in (DTYPES if ALL else [DTYPES[n // 2 % 2]])],
)
def test_random_configurations(number, dtype, cut, with_strides):
    if number % 2:
        with_strides()
    choose = random.Random(number)
    cut(*choose.choice(TILES))
    L, S = choose.randint(1, 100), choose.randint(1, 100)
    B, Hkv, group = choose.choice([(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 3), (1, 2, 2)])
    D = choose.choice([16, 16, 32, 64])
    is_causal = choose.random() < 0.7
    align = choose.choice(["upper_left", "lower_right"])
    compare(draw(number, B, Hkv * group, Hkv, L, S, D, dtype), is_causal, align)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("D", kernel_tiles.WIDTHS)
def test_the_block_sizes_that_ship(D, dtype):
    block = max(kernels._tiles(kernels._forward, torch.empty(1, D, dtype=dtype, device=DEVICE))[:2])
    compare(draw(D, 1, 2, 1, block + 22, block + 12, D, dtype), is_causal=D % 128 == 0)


SIZES = [(1, 1), (1, 50), (50, 1), (16, 64), (64, 64), (65, 63), (64, 65), (17, 129)]
SIZES.append((50, 64))  # from the lower right, query 0 sees all but one of the first 16 keys


@pytest.mark.parametrize("L, S", SIZES)
@pytest.mark.parametrize("align", ["upper_left", "lower_right"])
@pytest.mark.parametrize("block_q, block_k", [(16, 64), (64, 16)])
def test_sizes_at_and_beside_the_edge_of_a_block(L, S, align, block_q, block_k, cut):
    cut(block_q, block_k)
    compare(draw(L, 1, 1, 1, L, S, 16), True, align)


# NumPy warns of numbers in the rows beyond the last key, which are computed but never stored.
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_far_scores_neither_overflow_nor_vanish(cut):
    # Scores of ±1000 and more; m rises, and falls, from block to block.
    cut(16, 16)
    q, k, v = draw(0, 1, 2, 2, 40, 70, 16)
    slope = torch.linspace(-1, 1, 70)[:, None].to(k)
    for steep in (40 * slope, -40 * slope, torch.full_like(slope, -40)):
        compare([x.detach().clone().requires_grad_() for x in (q.abs() * 20, k + steep, v)])


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
    ids=["heads inside tokens", "odd rows", "odd start", "columns", "every other", "expanded"],
)
@pytest.mark.parametrize(
    "described, dtype",
    [(True, torch.float32), (False, torch.float16)]
    + [(False, torch.float32), (True, torch.float16)] * ALL,
)
def test_any_strides_give_the_same(layout, dtype, described, with_strides):
    if not described:
        with_strides()
    tensors = [*draw(0, 2, 2, 2, 20, 30, 16, dtype), draw(5, 2, 2, 2, 20, 1, 16, dtype)[0]]
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
    q, k, v = draw(0, 2, 2, 2, 40, 50, 16)
    _, lse = flash_attention(q, k, v)
    (expanded,) = torch.autograd.grad(lse.sum(), q, retain_graph=True)
    (dense,) = torch.autograd.grad(lse, q, torch.ones_like(lse))
    assert torch.equal(expanded, dense)


def test_the_matrix_is_never_made():
    # It would have 65,536 entries; what is saved for the backward pass is linear in L and S.
    q, k, v = torch.zeros(3, 1, 1, 1024, 16, device=DEVICE).unbind()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()), lambda x: x):
        flash_attention(q[:, :, :64].requires_grad_(), k, v)
    assert sum(saved) == 2 * 64 * 16 + 2 * 1024 * 16 + 64


def test_gradients_of_gradients_are_refused():
    q, k, v = draw(0, 1, 1, 1, 4, 4, 16)
    out, _ = flash_attention(q, k, v)
    (d_q,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        d_q.sum().backward()


X = torch.zeros(1, 2, 4, 16, device=DEVICE)
WRONG = {
    "k must have shape": (X, X[..., :8], X, {}),
    "v must have shape": (X, X, X[:, :, :3], {}),
    "q must have shape": (X[0], X, X, {}),
    "align must be one of": (X, X, X, {"align": "left"}),
    "align must be given": (X, X[:, :, :2], X[:, :, :2], {"is_causal": True}),
    "must be one of .16, 32, 64, 128, 256., got 8": (X[..., :8], X[..., :8], X[..., :8], {}),
    "heads of k must divide those of q = 2, got 3": (X, X[:, [0] * 3], X[:, [0] * 3], {}),
    "must not be empty": (X, X[:, :, :0], X[:, :, :0], {}),
    "q must be float16, bfloat16 or float32": (X.double(), X.double(), X.double(), {}),
    "v must be torch.float32 on": (X, X, X.half(), {}),
}  # fmt: skip
if kernels.INTERPRETED:
    WRONG["float16 or float32 in Triton's interpreter"] = *[X.bfloat16()] * 3, {}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_argument_is_named(message):
    *inputs, words = WRONG[message]
    with pytest.raises((TypeError, ValueError), match=message):
        flash_attention(*inputs, **words)


def test_without_triton_the_import_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ImportError, match="Linux only"):
        runpy.run_path(kernels.__file__)


def test_compiled_tensors_must_be_on_a_cuda_device(monkeypatch):
    monkeypatch.setattr(kernels, "INTERPRETED", False)
    with pytest.raises(ValueError, match="q must be on a CUDA device, got cpu"):
        flash_attention(*[X.cpu()] * 3)


def run(code, **variables):
    """Run code in another Python process and return what it printed."""
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


@pytest.mark.slow
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


@pytest.fixture(params=[(None, (7, 5)), ("6.3", (9, 4))], ids=["too old", "of AMD"])
def without_kernels(request, monkeypatch):
    """Set a GPU on which the kernels do not run; return the reason in the warning."""
    hip, capability = request.param
    monkeypatch.setattr(kernels, "INTERPRETED", False)
    monkeypatch.setattr(kernels, "_launch", None)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    kernels._warn_once.cache_clear()
    yield "for NVIDIA GPUs, not for Some GPU" if hip else "8.0 or higher, and Some GPU has 7.5"
    kernels._warn_once.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_where_kernels_do_not_run_plain_pytorch_does(dtype, without_kernels, monkeypatch):
    one_tile = kernel_tiles.Tiles(256, 512, 0, 0)  # of tiled_attention
    monkeypatch.setattr(kernels, "_tiles", lambda kernel, q: one_tile)
    inputs = draw(0, 1, 4, 2, 9, 12, 16, dtype)
    on_gpu = [x.detach().as_subclass(OnGPU).requires_grad_() for x in inputs]
    with pytest.warns(UserWarning, match=f"{without_kernels}, so tiled_attention") as warned:
        compare(inputs, True, "lower_right", on_gpu)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flash_attention(*on_gpu)  # warns only once


@pytest.mark.parametrize(
    "gpu, row",  # the row of TILES, or None where the kernels do not run
    [((7, 5), None), ((8, 0), (8, 0)), ((8, 6), (8, 6)), ((8, 9), (8, 6)), ((9, 0), (9, 0))]
    + [((10, 0), (10, 0)), ((10, 3), (10, 0)), ((12, 0), (12, 0)), ((12, 1), (12, 0))],
)
def test_each_gpu_gets_what_suits_it(gpu, row, monkeypatch):
    monkeypatch.setattr(kernels, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: gpu)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    assert (kernels.why_not("cuda") is None) == (row is not None)
    x = torch.zeros(1, 1, 16, 256, dtype=torch.float16)
    if row:
        assert kernels._tiles(kernels._backward_q, x) == kernel_tiles.TILES[row][256].backward_q
        described = isinstance(kernels._argument(x, 16), kernels.TensorDescriptor)
        assert described == (row in [(9, 0), (10, 0)])


GPUS = [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]
# Both ways to copy, all kinds of product, both formats, the narrowest head, and the widest where
# shared memory, registers and tensor memory are shortest.
COMPILED = [((8, 6), 256, "bfloat16"), ((9, 0), 16, "float16"), ((10, 0), 256, "bfloat16")]
if EVERY_CASE:
    COMPILED = [(*c, kind) for c in itertools.product(GPUS, kernel_tiles.WIDTHS)
                for kind in ("bfloat16", "float16")]  # fmt: skip
    # the smallest shared memory and the widest head
    COMPILED.append(((8, 6), 256, "float32"))


def print_needs():
    """Compile forward and backward, without a GPU, and print what each needs of one, as JSON."""
    import kernel_instructions as instructions

    rows = []
    for gpu, D, dtype in COMPILED:
        # Of float32 only the shared memory matters, which is known before LLVM optimizes.
        options = {"DISABLE_LLVM_OPT": "1"} if dtype == "float32" else {}
        with mock.patch.dict(os.environ, options):
            compiled = instructions.compile_attention(gpu, D, getattr(torch, dtype))
        product = {9: "wgmma.mma_async", 10: "tcgen05.mma"}.get(gpu[0], "mma.sync")
        for kernel in compiled:
            needs = instructions.needs(kernel) | {"product": product in kernel.asm["ptx"]}
            rows.append([gpu, D, dtype, instructions.KIBIBYTES[gpu], needs])
    print(json.dumps(rows))


def needs_of(module):
    """Run a test module's `print_needs` with Triton's compiler, whose results are cached."""
    cache = str(Path(__file__).parents[1] / "build" / "triton")
    code = f"import {module}; {module}.print_needs()"
    return json.loads(run(code, TRITON_INTERPRET="0", TRITON_CACHE_DIR=cache))


@pytest.mark.slow
def test_the_kernels_fit_every_gpu():
    """EVERY_CASE=1 takes each GPU with each width in both formats; this, some of them."""
    rows = needs_of("test_kernels")
    assert len(rows) == 3 * len(COMPILED)
    for gpu, D, dtype, shared, needs in rows:
        case = gpu, D, dtype, needs
        assert needs["shared"] <= shared, case
        if dtype != "float32":  # which is for checking: it may be slow, but it has to launch
            assert needs["tensor memory"] <= 512, case
            assert needs["stack"] <= 64, case  # bytes of a thread that found no register
            assert needs["product"] and not needs["loads of 2 bytes"], case
            assert needs["copies by descriptor" if gpu[0] in (9, 10) else "copies of 16 bytes"], (
                case
            )
