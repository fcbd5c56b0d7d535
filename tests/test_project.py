"""The project as a whole: one list of dependencies, a README that tells what exists."""

import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import yaml

from course_utils.data import load_word_vectors

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def requirements():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def test_dependencies_are_listed_once():
    *packages, course = requirements()
    assert course == "-e ."
    names = [re.match(r"[\w-]+", package)[0].lower() for package in packages]
    assert len(set(names)) == len(names)
    for package in packages:
        assert "==" in package if package.startswith(("torch", "triton")) else "~=" in package
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert [re.match(r"\w+", each)[0] for each in conda if isinstance(each, str)] == [
        "python",
        "pip",
    ]
    assert [each for each in conda if not isinstance(each, str)] == [
        {"pip": ["-r requirements.txt"]}
    ]
    assert "dependencies" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_menu_and_the_readme_name_the_same_commands():
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.M)
    menu = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True).stdout
    assert re.findall(r"^  make ([\w-]+)", menu, re.M) == targets
    assert set(re.findall(r"(?:^|`)make ([\w-]+)", README, re.M)) <= set(targets)
    assert {"lab", "test"} <= set(re.findall(r"^make (\w+)", README, re.M))


def test_the_readmes_map_names_every_lesson_as_it_names_itself():
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        title = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0]
        assert f"[{title.removeprefix('# ')}](notebooks/{path.name})" in README
    assert len(re.findall(r"\(notebooks/\d\d", README)) == len(
        list((ROOT / "notebooks").glob("*.ipynb"))
    )


def test_ci_runs_the_readmes_test_command():
    assert (ROOT / ".ci" / "run").read_text().rstrip().splitlines()[-1] == "make test"


def test_importing_the_course_is_light():
    # pandas and seaborn would cost more than all the rest of course_utils.
    heavy = "import sys, course_utils; print({'pandas', 'seaborn'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_the_word_vectors_are_those_the_readme_beside_them_describes():
    folder = ROOT / "course_utils" / "data"
    content = (folder / "word_vectors.npz").read_bytes()
    about = (folder / "README.md").read_text()
    assert hashlib.sha256(content).hexdigest() in about
    assert len(content) <= 200_000
    words, vectors = load_word_vectors()
    assert vectors.shape == (len(words), 384) == (71, 384)
    assert f"{len(words)} everyday" in about and "Apache License 2.0" in about
