"""The project as a whole: the commands that its documents name exist and work."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest
import yaml

from course_utils import command, grade, model_file, predictions
from course_utils.checks.exercise import EXERCISES
from course_utils.checks.progress import FILE as PROGRESS
from course_utils.explorers.cache import MODELS
from course_utils.grading import submissions
from stored_notebooks import LESSONS, MOST_LINES, number_of
from tools.notebooks import STUB, strip_solutions, write

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md", "LEARNING.md", "CONTRIBUTING.md", "TEACHING.md"]
needs_make = pytest.mark.skipif(os.name == "nt", reason="Windows has no make")


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def make(*words, folder=ROOT):
    """Return the commands that make would run, one a line, whatever ``make test`` was given."""
    inherited = {"CPU", "GPU", "K", "PYTHON", "RANKS", "REPOSITORY"}
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MAKE") and name not in inherited
    }
    run = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [line.strip() for line in run.stdout.splitlines()]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_target_module_and_option_that_a_document_names_exists(document, tmp_path):
    targets = set(re.findall(r"^([a-z-]+):.*##", read("Makefile"), re.M))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", read(document), re.M))
    assert named <= targets, f"{document} names make {named - targets}, which the Makefile lacks"
    if shutil.which("make"):
        told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True).stdout
        assert targets <= {*told.split()}, "make help lacks some"
    for text, target in re.findall(r"\[(\w+\.md)\]\(([^)#]+)", read(document)):
        assert text == target, f"{document}: the link {text} leads to {target}"
    phony = re.search(r"^\.PHONY: (.*)", read("Makefile"), re.M)[1].split()
    assert targets <= {*phony}, "a file or folder with that name would hide the target"
    for module in set(re.findall(r"python -m ((?:tools|course_utils)\.[\w.]+)", read(document))):
        path = ROOT / (module.replace(".", "/") + ".py")
        assert path.exists(), f"{document} names python -m {module}"
        for option in re.findall(rf"python -m {module}[^`\n]*?(--[\w-]+)", read(document)):
            assert f'"{option}"' in path.read_text(), f"{document} names {module} {option}"
        for word in re.findall(rf"python -m {module} ([a-z]+)(?![\w/.])", read(document)):
            known = module == "course_utils.grade" or f'"{word}"' in path.read_text()  # a folder
            assert known, f"{document} names {module} {word}"
    for option in set(re.findall(r"install\.py[^`\n]*?(--\w+)", read(document))):
        assert f'"{option}"' in read("install.py"), f"{document} names install.py {option}"
    for program, rest in re.findall(r"\b(ruff \w+|pytest)( [^`\n]*)", read(document)):
        if options := re.findall(r"--[\w-]+", rest):
            command = [sys.executable, "-m", *program.split(), "--help"]
            listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
            unknown = {*options} - {*re.findall(r"--[\w-]+", listed)}
            assert not unknown, f"{document}: {program} does not know {unknown}"


@pytest.mark.parametrize("document", [*DOCUMENTS, "course_utils/model_file.py"])
def test_every_command_and_option_of_the_package_that_a_document_names_exists(document, capsys):
    for name, rest in re.findall(r"attention-course (\w+)([^`\n]*)", read(document)):
        with pytest.raises(SystemExit) as ended:
            command.main([name, "--help"])
        assert not ended.value.code, f"{document} names attention-course {name}"
        known = capsys.readouterr().out
        for option in re.findall(r"--[\w-]+", rest):
            assert option in known, f"{document} names attention-course {name} {option}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_setting_and_file_that_a_document_names_exists(document):
    code = read("Makefile") + read("tests/sampling.py") + "ATEN_CPU_CAPABILITY COURSE_STRICT"
    others = "Dockerfile", "install.py", "course_utils/course_folder.py", "course_utils/grade.py"
    code += "".join(map(read, [*others, "tools/mark_for_nbgrader.py"]))
    for address in re.findall(r"index-url ([^\s\"`]+)", read(document)):
        assert f'"{address}"' in code, f"{document} names {address}, which is not install.py's"
    for option in re.findall(r"uvx (\S+)", read(document)):
        assert option == "--from", f"{document}: write uvx --from SOURCE"
    for option in re.findall(r"pipx install (--[\w-]+)", read(document)):
        assert option == "--pip-args", f"{document}: pipx does not know {option}"
    for folder in re.findall(r"`(\w+)/`", read(document)):
        known = re.search(f'"{folder}[."]', code) or (ROOT / folder).is_dir()
        assert known, f"{document} names {folder}/"
    code = set(re.findall(r"\w+", code))
    settings = re.findall(r"make [a-z-]+ ([A-Z]+)=|([A-Z_]+)=\S+ make ", read(document))
    for setting in {name for names in settings for name in names if name}:
        assert setting in code, f"{document} sets {setting}, which nothing reads"
    for name in re.findall(r"--build-arg (\w+)=", read(document)):
        assert f"ARG {name}=" in read("Dockerfile"), f"{document} builds with {name}"
    for file in set(re.findall(r"`(\.\w+\.json)`", read(document))):
        assert file in {predictions.FILE, PROGRESS}, f"{document} names {file}"
    for name, after in re.findall(r"conda activate ([\w-]+)\n(.*)", read(document)):
        assert f"name: {name}\n" in read("environment.yml"), f"{document} activates {name}"
        assert "install.py --here" in after, f"{document}: install into the activated environment"


# Documents, the words around a number, and what the code has; a document need not say it.
TEXTS = ["README.md", "LEARNING.md", "TEACHING.md", "Makefile", "course_utils/command.py"]
LINE = re.search(r"line-length = (\d+)", read("pyproject.toml"))[1]
TORCH = re.search(r"^torch==(\S+)", read("requirements.txt"), re.M)[1]
SMOLLM = MODELS["SmolLM2-135M"]
NUMBERS = [
    (TEXTS, r"(\d+) MB", re.search(r"(\d+) MB", model_file.HOW)[1]),
    (["README.md"], r"model's (\d+) heads", SMOLLM["layers"] * SMOLLM["heads"]),
    (["CONTRIBUTING.md"], r"code cell has at most (\d+) lines", MOST_LINES),
    (["CONTRIBUTING.md"], r"lines of over (\d+) char", LINE),
    (["CONTRIBUTING.md"], r"Linux with PyTorch ([\d.]+\d)", TORCH),
    (["TEACHING.md"], r"more than (\d+) kB of code", submissions.LONGEST // 1000),
    (["TEACHING.md"], r"after (\d+) seconds", grade.NOTEBOOK),
]


@pytest.mark.parametrize("documents, words, number", NUMBERS, ids=[row[1] for row in NUMBERS])
def test_a_number_in_a_document_is_that_of_the_code(documents, words, number):
    for document in documents:
        for said in re.findall(words, read(document)):
            assert said == str(number), f"{document}: {words} is {number}, not {said}"


@pytest.mark.parametrize("document", [*DOCUMENTS, "Dockerfile"])
def test_every_file_exercise_and_lesson_that_a_command_names_exists(document):
    text = re.sub("(?<= )COURSE/|(?<==)/srv/attention-course/", "", read(document))
    for path in re.findall(r"(?:[ `](?=\w+/)|=|-f |python3? )([\w/-]+\.[a-z]+)\b", text):
        assert (ROOT / path).exists() or path.startswith("build/"), f"{document} names {path}"
    lessons = [f"{number_of(path)}_" for path in LESSONS]
    for name in re.findall(r"(?:K=|tools\.mutants )(\w+)", text):
        assert name in [*EXERCISES, *lessons], f"{document} names {name}"


@needs_make
def test_make_passes_its_options_on():
    assert make("-B", "lab", "PYTHON=python3")[0] == "python3 install.py"
    assert make("lab")[-1].endswith("attention-course start .")  # here, not in a folder below
    assert make("site-serve")[-1].endswith("--directory build/site")
    assert make("-B", "lab", "PYTHON=python3", "CPU=1")[0] == "python3 install.py --cpu"
    assert make("-B", "test", "PYTHON=python3", "GPU=1")[0] == "python3 install.py  --gpu"
    assert make("-B", "check", "K=split_heads")[-1].endswith("tools.run_all check split_heads")
    assert "--nproc-per-node 3 " in make("bench-ranks", "RANKS=3")[-1]
    assert make("badges", "REPOSITORY=me/course")[-1].endswith("--repository me/course")


@needs_make
@pytest.mark.parametrize(
    "changed",
    [
        *[
            "requirements.txt",
            "install.py",
            ".venv/pyvenv.cfg",
            "course_utils/jupyterlab_settings.json",
        ],
    ],
)
def test_what_an_update_needs_is_installed_and_a_moved_folder_is_installed_anew(tmp_path, changed):
    shutil.copy(ROOT / "Makefile", tmp_path)
    learner = next(line for line in read("Makefile").split("\n\n") if ".venv/learner: " in line)
    sources = re.findall(r"[\w./]+\.(?:py|txt|toml|json)", learner.split("\n\t@")[0])
    for name in [*sources, "requirements-authors.txt", ".venv/learner", ".venv/pyvenv.cfg"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"command = python3 -m venv {tmp_path}/.venv")
        os.utime(tmp_path / name, (1000, 1000))
    assert not any("install.py" in line for line in make("lab", "model", folder=tmp_path))
    (tmp_path / changed).write_text("command = python3 -m venv /elsewhere/.venv")
    for target in ("lab", "model"):
        assert any("install.py" in line for line in make(target, folder=tmp_path))


WORKFLOW = r"`\.github/workflows/\w+\.yml`.*?```yaml\n(.*?)```"  # GitHub looks nowhere else


@needs_make
@pytest.mark.slow
def test_a_forks_workflow_fails_on_a_wrong_answer_with_its_hint_and_lists_progress(tmp_path):
    block = re.search(WORKFLOW, read("TEACHING.md"), re.S)[1]
    (job,) = yaml.safe_load(textwrap.dedent(block))["jobs"].values()
    install, *steps = [step for step in job["steps"] if "run" in step]
    assert install["run"] == "python install.py --here"  # not into .venv

    solutions = ROOT / "solutions" / "01_solutions_dot_product_similarity.ipynb"
    exercise = strip_solutions(nbformat.read(solutions, as_version=4))
    sources = [cell.source for cell in exercise.cells]
    exercise.cells = exercise.cells[: sources.index("check(dot)") + 1]
    (dot,) = [cell for cell in exercise.cells if STUB in cell.source]
    dot.source = "def dot(a, b):\n    return a * b"
    stale = nbformat.v4.new_output("stream", text="as another version of the course printed it\n")
    exercise.cells[1].update(outputs=[stale], execution_count=1)
    (tmp_path / "exercises").mkdir()
    write(exercise, tmp_path / "exercises" / "01.ipynb")

    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {name: str(value) for name, value in job["env"].items()}
    environment |= {"PATH": path, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    failed, outputs = False, []
    for step in steps:
        if not failed or step.get("if") == "always()":
            run = subprocess.run(
                ["bash", "-ec", step["run"]],
                cwd=tmp_path, env=environment, capture_output=True, text=True,
            )  # fmt: skip
            failed |= run.returncode != 0
            outputs.append(run.stdout)
    assert failed and len(outputs) == 2
    assert "❌ 1.1 dot:" in outputs[0] and "1 failed" in outputs[0]
    assert "1.1" in outputs[1] and "❌" in outputs[1]


def test_importing_the_course_is_light():
    # Pandas, seaborn, Matplotlib and PyTorch's compiler would cost more than the checks, and
    # the mistakes of an exercise are compiled only when an answer to it is wrong.
    code = """import sys
import course_utils
from course_utils.checks.exercise import EXERCISES
print({"pandas", "seaborn", "matplotlib", "torch._dynamo"} & set(sys.modules))
print(sum("answer" in vars(each) for one in EXERCISES.values() for each in one.mistakes))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["set()", "0"]
