"""For nbval: kernels that start at once must not take each other's port.

A free port is looked for and then given to the kernel; whoever takes it in between makes the kernel
die, and nbval wait for it without an end. Files, each with a name of its own, cannot be taken.
"""

import os
import tempfile
import uuid

import nbval.kernel


class KernelManager(nbval.kernel.KernelManager):
    def __init__(self, **settings):
        name = os.path.join(tempfile.gettempdir(), f"kernel-{uuid.uuid4()}.json")
        super().__init__(transport="ipc", connection_file=name, **settings)


if os.name == "posix":  # Windows has no such sockets
    nbval.kernel.KernelManager = KernelManager
