"""The project as a whole: one list of dependencies, a README that tells what exists."""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import install
from course_utils.data import load_word_vectors
from tools.notebooks import STUB, strip_solutions, write

ROOT = Path(__file__).parents[1]
INSTALLED = """install.py requirements.txt requirements-authors.txt pyproject.toml
    course_utils/jupyter_config.py course_utils/jupyterlab_settings.json""".split()
README = (ROOT / "README.md").read_text(encoding="utf-8")
needs_make = pytest.mark.skipif(
    os.name == "nt", reason="Windows has no make, nor commands that are scripts"
)


def lines(name):
    text = (ROOT / name).read_text().splitlines()
    return [line.strip() for line in text if line.strip() and not line.startswith("#")]


def make(*words, folder=ROOT):
    """Return the commands that make would run, one a line."""
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("MAKE")}
    run = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [line.rstrip() for line in run.stdout.splitlines()]


def test_dependencies_are_listed_once_and_bounded():
    *learner, course = lines("requirements.txt")
    first, *authors = lines("requirements-authors.txt")
    assert (course, first) == ("-e .", "-r requirements.txt")
    packages = {Requirement(line).name: Requirement(line) for line in learner + authors}
    assert len(packages) == len(learner + authors)
    for name, package in packages.items():
        operators = {each.operator for each in package.specifier}
        assert operators == {"=="} if name in {"torch", "triton"} else "~=" in operators
        if not package.marker or package.marker.evaluate():
            assert metadata.version(name) in package.specifier, "the tests run with another version"
    assert "4.0.0" not in packages["nbdime"].specifier  # it cannot merge
    assert "4.25.0" not in packages["jsonschema"].specifier  # it is seconds slower to import
    assert "9.2.0" not in packages["pytest"].specifier  # xdist shares out its tests one by one
    assert {"jupyterlab", "nbval", "nbdime"} <= {Requirement(line).name for line in learner}
    assert {"ruff", "nox", "playwright", "nbgrader", "pytest-xdist"} <= {
        Requirement(line).name for line in authors
    }
    assert "dependencies" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# They come with JupyterLab, ipywidgets and Matplotlib.
BROUGHT = {"IPython", "PIL", "jupyter_server", "nbclient", "nbformat", "traitlets"}


def test_all_that_the_course_imports_is_listed_for_learners():
    nodes = [
        node
        for path in (ROOT / "course_utils").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    names = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    imported = {name.split(".")[0] for name in names} - sys.stdlib_module_names
    listed = {Requirement(line).name for line in lines("requirements.txt")[:-1]}
    assert imported - BROUGHT - {"course_utils"} <= listed


def test_triton_is_asked_for_on_linux_alone():  # there is none for Windows and Macs
    (triton,) = [line for line in lines("requirements.txt") if line.startswith("triton")]
    marker = Requirement(triton).marker
    systems = {name: marker.evaluate({"sys_platform": name}) for name in ("linux", "win32")}
    assert systems == {"linux": True, "win32": False}


def test_conda_and_binder_take_the_same_list_and_the_cpu_build():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, packages = conda["dependencies"]
    assert python.startswith("python=") and python.removeprefix("python=") in python_needed()
    assert pip == "pip"
    assert packages == {"pip": [f"--extra-index-url {install.CPU_BUILD}", "-r requirements.txt"]}
    assert f"conda activate {conda['name']}" in README


def python_needed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return SpecifierSet(project["requires-python"])


def test_all_agree_on_the_python_that_is_needed():
    assert "3.11" in python_needed() and "3.10.99" not in python_needed()
    assert "Python 3.11 or newer" in README


def test_the_package_is_found_in_a_folder_of_any_name():
    # A .pth file with a path in it would stop Python before 3.12.4 in "Kurs über Köpfe".
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert hatch["dev-mode-exact"] is True


FAULTS = {
    "E501": f"x = {'1' * 97}\n",  # 101 letters
    "F401": "import os\n",
    "B006": "def f(x=[]):\n    return x\n",
    "I001": "import sys\nimport os\n\nprint(os, sys)\n",
    "UP006": "from typing import List\n\nx: List[int] = []\n",
    "NPY002": "import numpy as np\n\nnp.random.seed(1)\n",
}


@pytest.mark.parametrize("code, source", FAULTS.items(), ids=FAULTS)
def test_ruff_finds_each_kind_of_fault_but_in_a_learners_answers(code, source):
    for name, found in {"course_utils/new.py": True, "exercises/new.py": False}.items():
        options = ["--force-exclude", "--no-cache", "--stdin-filename", ROOT / name, "-"]
        run = subprocess.run(
            [sys.executable, "-m", "ruff", "check", *options],
            cwd=ROOT, input=source, capture_output=True, text=True,
        )  # fmt: skip
        assert (code in run.stdout) == found, run.stdout + run.stderr


def test_no_option_of_pytest_takes_tests_away():
    pytest_options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    assert pytest_options["ini_options"]["testpaths"] == ["tests"]
    assert pytest_options["ini_options"]["addopts"] == (
        "-ra --strict-markers -p no:unraisableexception"
    )


@needs_make
def test_the_menu_and_the_readme_name_the_same_commands():
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.M)
    menu = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True).stdout
    assert re.findall(r"^  make ([\w-]+)", menu, re.M) == targets
    assert set(re.findall(r"(?:^|`)make ([\w-]+)", README, re.M)) <= set(targets)
    assert {"lab", "test"} <= set(re.findall(r"^make (\w+)", README, re.M))


def test_the_readme_tells_what_the_installer_tells():
    options = set(re.findall(r"install\.py((?: --\w+)+)", README))
    assert {word for option in options for word in option.split()} == {"--cpu", "--here"}
    assert "2.3 GB" in README and "5.3 GB" in README
    assert ".venv/bin/jupyter lab ." in README and r".venv\Scripts\jupyter lab ." in README


@needs_make
def test_make_lab_installs_what_a_learner_needs_and_passes_nothing_on_to_the_server():
    as_root = " --allow-root" if os.getuid() == 0 else ""
    installed = ["python3 install.py", "touch .venv/learner"]
    started = [f".venv/bin/jupyter lab .{as_root}"]
    assert make("-B", "lab", "PYTHON=python3") == installed + started
    assert make("-B", "lab", "PYTHON=python4", "CPU=1")[0] == "python4 install.py --cpu"


@needs_make
@pytest.mark.parametrize("source", [*INSTALLED, ".venv/pyvenv.cfg"])
def test_what_is_installed_is_renewed_when_its_source_changes_or_it_was_moved(tmp_path, source):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in [*INSTALLED, ".venv/learner", ".venv/authors", ".venv/pyvenv.cfg"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"command = python3 -m venv {tmp_path}/.venv")
        os.utime(tmp_path / name, (1000, 1000))

    def renewed():
        commands = make("lab", "test", "PYTHON=python3", folder=tmp_path)
        return [line for line in commands if "install.py" in line]

    assert renewed() == []
    (tmp_path / source).write_text("command = python3 -m venv /elsewhere/.venv")
    both = ["python3 install.py", "python3 install.py --authors"]
    assert renewed() == (both[1:] if source == "requirements-authors.txt" else both)


@needs_make
def test_the_website_is_shown_to_this_machine_alone():
    assert make("site-serve", "PYTHON=python3") == [
        "python3 -m http.server --bind 127.0.0.1 --directory build/site"
    ]


@needs_make
def test_make_passes_on_what_it_is_given():
    badges = "python3 site/addresses.py"
    assert make("badges", "PYTHON=python3") == [badges]
    own = make("badges", "PYTHON=python3", "REPOSITORY=me/course")
    assert own == [f"{badges} --repository me/course"]
    for ranks in ["2", "4"]:
        assert f"--nproc-per-node {ranks} " in make("-B", "bench-ranks", f"RANKS={ranks}")[-1]


def test_make_test_checks_everything_with_what_authors_need():
    commands = make("-B", "test", "PYTHON=python3", "CPU=1")
    assert {"python3 install.py --cpu", "python3 install.py --authors"} <= set(commands)
    assert commands[-1] == ".venv/bin/python tests/stages.py"
    assert make("-B", "test-everywhere", "PYTHON=python3")[-1] == ".venv/bin/nox"


@needs_make
@pytest.mark.parametrize("target, program", [("lab", "jupyter"), ("test", "python")])
def test_make_fails_where_what_it_runs_fails(tmp_path, target, program):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "pyvenv.cfg").write_text(f"{tmp_path}/.venv")
    (tmp_path / ".venv" / "bin" / program).write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / ".venv" / "bin" / program).chmod(0o755)
    installed = [f"--old-file=.venv/{name}" for name in ["learner", "authors", "browser"]]
    run = subprocess.run(["make", *installed, target], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 2 and "Error 3" in run.stderr, run.stdout + run.stderr


@needs_make
@pytest.mark.parametrize(
    "target", ["lab", "test", "site", "exercises", "refresh", "bench", "bench-ranks", "bench-gpu"]
)
def test_a_command_first_installs_what_it_runs_with(target):
    assert make("-B", target, "PYTHON=python3")[0] == "python3 install.py"


@needs_make
@pytest.mark.parametrize("browser", ["chromium", "chromium-browser", "google-chrome", None])
def test_a_browser_that_is_there_is_taken_and_none_stops_make_test(tmp_path, browser):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    playwright = tmp_path / ".venv" / "bin" / "playwright"
    playwright.write_text("#!/bin/sh\necho playwright $*\nexit 1\n")
    playwright.chmod(0o755)
    for name in ["sh", "cat", "id", "touch", browser or "echo"]:
        (tmp_path / name).symlink_to(shutil.which(name) or "/bin/sh")
    run = subprocess.run(
        [shutil.which("make"), "-o", ".venv/authors", ".venv/browser"],
        cwd=tmp_path, env={"PATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    told = "playwright install chromium\nNo browser could be found or installed"
    assert run.stdout.startswith(told) if browser is None else not run.stdout


def test_the_readmes_map_names_every_lesson_as_it_names_itself():
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        title = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0]
        assert f"[{title.removeprefix('# ')}](notebooks/{path.name})" in README
    assert len(re.findall(r"\(notebooks/\d\d", README)) == len(
        list((ROOT / "notebooks").glob("*.ipynb"))
    )


@pytest.fixture
def commands(tmp_path):
    """A folder of commands that only note their words; make fails."""
    folder = tmp_path / "commands"
    folder.mkdir()
    for name in ["chromium", "apt-get", "make"]:
        fails = 3 if name == "make" else 0
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $* in $PWD"\nexit {fails}\n')
        (folder / name).chmod(0o755)
    for name in ["bash", "dirname"]:
        (folder / name).symlink_to(shutil.which(name))
    return folder


@needs_make
@pytest.mark.parametrize("browser", [True, False], ids=["with a browser", "without a browser"])
def test_ci_runs_the_readmes_test_command_and_fails_as_it_does(commands, browser, tmp_path):
    if not browser:
        (commands / "chromium").unlink()
    run = subprocess.run(
        ["bash", ROOT / ".ci" / "run"],
        cwd=tmp_path, env={"PATH": str(commands)}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 3, run.stderr
    *installed, test = run.stdout.splitlines()
    assert test == f"make test in {ROOT}"
    assert [each.split(" in ")[0] for each in installed] == (
        [] if browser else ["apt-get update -q", "apt-get install -yq chromium"]
    )


@needs_make
def test_the_readmes_workflow_fails_on_a_wrong_answer_with_its_hint_and_lists_progress(tmp_path):
    workflow = yaml.safe_load(textwrap.dedent(re.search(r"```yaml\n(.*?)```", README, re.S)[1]))
    (job,) = workflow["jobs"].values()
    python = next(step["with"]["python-version"] for step in job["steps"] if "with" in step)
    assert python in python_needed()
    installing, *steps = [step for step in job["steps"] if "run" in step]
    assert installing["run"] == "python install.py --cpu --here"

    exercise = strip_solutions(
        nbformat.read(
            ROOT / "solutions" / "01_solutions_dot_product_similarity.ipynb", as_version=4
        )
    )
    sources = [cell.source for cell in exercise.cells]
    exercise.cells = exercise.cells[: sources.index("check(dot)") + 1]
    (dot,) = [cell for cell in exercise.cells if STUB in cell.source]
    dot.source = "def dot(a, b):\n    return a * b"
    (tmp_path / "exercises").mkdir()
    write(exercise, tmp_path / "exercises" / "01.ipynb")

    bin = Path(sys.executable).parent
    environment = os.environ | {name: str(value) for name, value in job["env"].items()}
    environment |= {"PATH": f"{bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment["PYTEST_ADDOPTS"] = "-p no:randomly"  # cells run in their order
    failed, printed = False, []
    for step in steps:
        if not failed or step.get("if") == "always()":
            run = subprocess.run(
                ["bash", "-ec", step["run"]],
                cwd=tmp_path, env=environment, capture_output=True, text=True,
            )  # fmt: skip
            failed |= run.returncode != 0
            printed.append(run.stdout)
    assert failed and len(printed) == 2
    assert "❌ 1.1 dot: those are the products" in printed[0]
    assert "1.1" in printed[1] and "❌" in printed[1]


def test_importing_the_course_is_light():
    # pandas and seaborn would cost more than all the rest of course_utils; and hundreds of mistakes
    # are compiled when an answer is wrong.
    code = """import sys
import course_utils
from course_utils.checks.exercise import EXERCISES
print({"pandas", "seaborn"} & set(sys.modules))
print(sum("answer" in vars(each) for one in EXERCISES.values() for each in one.mistakes))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["set()", "0"]


def test_the_word_vectors_are_those_the_readme_beside_them_describes():
    folder = ROOT / "course_utils" / "data"
    content = (folder / "word_vectors.npz").read_bytes()
    about = (folder / "README.md").read_text()
    assert hashlib.sha256(content).hexdigest() in about
    assert len(content) <= 200_000
    words, vectors = load_word_vectors()
    assert vectors.shape == (len(words), 384) == (71, 384)
    assert f"{len(words)} everyday" in about and "Apache License 2.0" in about
