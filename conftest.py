"""For nbval: kernels that start at once must not take each other's port; Triton is not everywhere.

A free port is looked for and then given to the kernel; whoever takes it in between makes the kernel
die, and nbval wait for it without an end. Files, each with a name of its own, cannot be taken.
"""

import importlib.util
import os
import tempfile
import uuid

import nbval.kernel
import pytest


class KernelManager(nbval.kernel.KernelManager):
    def __init__(self, **settings):
        name = os.path.join(tempfile.gettempdir(), f"kernel-{uuid.uuid4()}.json")
        super().__init__(transport="ipc", connection_file=name, **settings)


if os.name == "posix":  # Windows has no such sockets
    nbval.kernel.KernelManager = KernelManager


def pytest_collection_modifyitems(items):
    """Skip by its name, where there is no Triton, the notebook whose verdicts are on kernels."""
    if not importlib.util.find_spec("triton"):
        for item in items:
            if item.path.name == "06b_solutions_flash_attention_on_a_gpu.ipynb":
                item.add_marker(pytest.mark.skip(reason="Triton exists for Linux only"))
