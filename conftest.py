"""For nbval: how the kernel of a notebook is started, and which of its cells are compared.

A free port is looked for and then given to the kernel; whoever takes it in between makes the kernel
die, and nbval wait for it without an end. Files, each with a name of its own, cannot be taken.
"""

import importlib.util
import os
import tempfile
import uuid
from pathlib import Path

import nbval.kernel
import pytest


class KernelManager(nbval.kernel.KernelManager):
    def __init__(self, **settings):
        if os.name == "posix":  # Windows has no such sockets
            name = os.path.join(tempfile.gettempdir(), f"kernel-{uuid.uuid4()}.json")
            settings |= {"transport": "ipc", "connection_file": name}
        super().__init__(**settings)

    def start_kernel(self, **settings):
        # a wrong answer in an exercise is a failure; lesson 00 shows one on purpose
        strict = str(int(Path(settings["cwd"]).name == "exercises"))
        super().start_kernel(env={"COURSE_STRICT": strict} | os.environ, **settings)


nbval.kernel.KernelManager = KernelManager


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items):
    """Keep a notebook's cells together, since they share a kernel; skip kernels without Triton.

    Learners have outputs of their own in the exercises, and these are not compared.
    """
    skip = pytest.mark.skip(reason="Triton exists for Linux only")
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker(pytest.mark.xdist_group(item.path.name))
            item.options["check"] &= item.path.parent.name != "exercises"
            of_kernels = item.path.name == "06b_solutions_flash_attention_on_a_gpu.ipynb"
            if of_kernels and not importlib.util.find_spec("triton"):
                item.add_marker(skip)
