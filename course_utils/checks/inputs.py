"""What several exercises try answers on, and a look at what is made of it."""

import contextlib
import weakref

import torch
import torch.nn.functional as F
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode


def normals(seed):
    """Return a function of a shape that draws normal numbers, float64 unless told otherwise.

    They are the same in the same order for the same seed.
    """
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape, dtype=torch.float64):
        return torch.randn(*shape, generator=rng, dtype=dtype)

    return normal


def queries_and_keys(seed=0):
    """Return (q, k) pairs: plain, other sizes, batched, in single precision, a batch of one, out of
    order in memory, a single row.

    L, S and d differ, so that a transposed result has a wrong shape.
    """
    normal = normals(seed)
    return [
        (normal(5, 4), normal(7, 4)),
        (3 * normal(2, 3), normal(4, 3)),
        (normal(2, 3, 4, 6), normal(2, 3, 5, 6)),
        (normal(4, 8, dtype=torch.float32), normal(3, 8, dtype=torch.float32)),
        (normal(1, 2, 3, 5), normal(1, 2, 4, 5)),  # its 1 must not be squeezed away
        (normal(4, 3, 2).mT, normal(4, 3, 5).mT),  # .view() would not do
        (normal(1, 4), normal(1, 4)),
    ]


def out_of_order(*tensors):
    """Return the same matrices, each with its columns one after another in memory."""
    return [tensor.mT.contiguous().mT for tensor in tensors]


@contextlib.contextmanager
def parameters_made():
    """Yield a list that gets an entry for each parameter that some layer is given meanwhile."""
    made = []
    handle = register_module_parameter_registration_hook(lambda *entry: made.append(entry))
    try:
        yield made
    finally:
        handle.remove()


class Results(TorchFunctionMode):
    """Collect all tensors that are made."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.made += [_unwrapped(result)] if isinstance(result, torch.Tensor) else []
        return result

    def held(self):
        """Return those with memory of their own for all their numbers, as no view has."""
        return [
            each.detach()
            for each in self.made
            if each.untyped_storage().nbytes() == each.numel() * each.element_size()
        ]


class Shapes(TorchFunctionMode):
    """Collect the shapes of all results, and of the scores in calls of SDPA, which it hides."""

    def __init__(self):
        super().__init__()
        self.results, self.in_sdpa = [], []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.results.append(result.shape)
        if func is F.scaled_dot_product_attention:
            given = dict(zip(["query", "key"], args, strict=False)) | (kwargs or {})
            self.in_sdpa.append(
                given["query"].shape[:-1] + given["key"].shape[-2:-1]
            )  # (..., L, S)
        return result


def _unwrapped(tensor):
    """Return what a tensor within `torch.vmap` or `torch.func.grad` stands for; others as is."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def memory(tensor):
    """Return the memory that a tensor shares with its views."""
    return _unwrapped(tensor).untyped_storage()


class Held(TorchFunctionMode):
    """Track how many bytes are held at once in new tensors. A view counts as its base."""

    def __init__(self, given):
        super().__init__()
        self.given, self.alive, self.most = {memory(each).data_ptr() for each in given}, [], 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else [result]:
            if isinstance(each, torch.Tensor) and each.is_floating_point():
                self.alive.append(weakref.ref(each))
        self.alive = [each for each in self.alive if each() is not None]
        memories = [memory(each()) for each in self.alive]
        sizes = {each.data_ptr(): each.nbytes() for each in memories}
        self.most = max(self.most, sum(sizes[each] for each in sizes.keys() - self.given))
        return result
