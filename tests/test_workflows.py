"""The workflows for GitHub: valid, doing what `make` does, and publishing what the links name."""

import os
import re
import subprocess
import sys

import pytest
import yaml

import addresses
from test_project import ROOT, make, needs_make, python_needed

FOLDER = ROOT / ".github" / "workflows"


def read(name):
    """Return the one job of a workflow."""
    (job,) = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))["jobs"].values()
    return job


def commands(job):
    return [step["run"] for step in job["steps"] if "run" in step]


def invalid(*files):
    """Return what GitHub's schema has against workflows, "" if nothing."""
    command = [sys.executable, "-m", "check_jsonschema"]
    command += ["--builtin-schema", "vendor.github-workflows", *files]
    run = subprocess.run(command, capture_output=True, text=True)
    return run.stdout + run.stderr if run.returncode else ""


def test_the_workflows_are_valid():
    files = sorted(FOLDER.iterdir())
    assert [file.name for file in files] == ["site.yml", "tests.yml"]
    assert not invalid(*files)


def test_a_slip_in_a_workflow_is_found(tmp_path):
    text = (FOLDER / "tests.yml").read_text(encoding="utf-8")
    (tmp_path / "tests.yml").write_text(text.replace("runs-on", "run-on"), encoding="utf-8")
    assert "run-on" in invalid(tmp_path / "tests.yml")


def test_each_workflow_runs_when_it_should_and_may_write_only_if_it_publishes():
    site, tests = (yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
                   for name in ("site.yml", "tests.yml"))  # fmt: skip
    on = True  # as YAML reads the word
    assert site[on]["push"] == {"branches": ["main"]} and "pull_request" not in site[on]
    assert {"push", "pull_request"} <= set(tests[on])
    assert site["permissions"] == {"contents": "write"}
    assert tests["permissions"] == {"contents": "read"}


def test_every_system_is_tested_with_every_python():
    strategy = read("tests.yml")["strategy"]
    assert strategy["fail-fast"] is False  # one that is red stops no other
    matrix = strategy["matrix"]
    assert {name.split("-")[0] for name in matrix["system"]} == {"ubuntu", "macos", "windows"}
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert all(version in python_needed() for version in matrix["python"])


@needs_make
def test_the_tests_run_what_make_test_runs():
    made = [line.replace(".venv/bin/", "") for line in make("-B", "test", "PYTHON=python")]
    lines_end_as_committed, install, browser, *others = commands(read("tests.yml"))
    assert lines_end_as_committed == "git config --global core.autocrlf false"
    assert install == "python install.py --cpu --authors --here"
    assert "playwright install chromium" in " ".join(made)
    assert browser == "python -m playwright install --with-deps chromium"
    assert others == [line for line in made if line.startswith("python ") and "install" not in line]


@needs_make
def test_the_site_is_built_as_make_site_builds_it():
    *_, made = make("-B", "site", "PYTHON=python", "REPOSITORY=me/course")
    build = commands(read("site.yml"))[1]
    assert build.replace('"$GITHUB_REPOSITORY"', "me/course") == made.replace(".venv/bin/", "")


@pytest.mark.skipif(os.name == "nt", reason="the site is published from Linux")
def test_what_is_published_is_what_the_links_to_colab_name(tmp_path):
    site, host = tmp_path / "site", tmp_path / "host" / "me"
    (site / "colab" / "notebooks").mkdir(parents=True)
    for name in [".nojekyll", "index.html", f"colab/{addresses.FIRST.as_posix()}"]:
        (site / name).touch()
    host.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "--bare", host / "course"], check=True)
    step = read("site.yml")["steps"][-1]
    assert step["working-directory"] == "build/site"
    environment = {
        "PATH": os.environ["PATH"],
        "TOKEN": "secret",
        "GITHUB_REPOSITORY": "me/course",
        "GITHUB_SHA": "abc",
        # instead of the host that the step names, a folder
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{tmp_path}/host/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://x-access-token:secret@github.com/",
    }
    for _ in range(2):  # what was published before is replaced
        subprocess.run(["bash", "-ec", step["run"]], cwd=site, env=environment, check=True)
        (site / ".git").rename(tmp_path / f"git-{_}")
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "gh-pages"],
        cwd=host / "course", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert listed.stdout.split() == sorted(
        [".nojekyll", "index.html", f"colab/{addresses.FIRST.as_posix()}"]
    )
    place = re.search(r"/me/course/blob/(.*)", addresses.colab("me/course", addresses.FIRST))[1]
    branch, path = place.split("/", 1)
    show = ["git", "cat-file", "-e", f"{branch}:{path}"]
    assert subprocess.run(show, cwd=host / "course").returncode == 0


def test_where_there_is_no_triton_exercises_on_kernels_are_skipped_by_name(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['triton'] = None\n")
    paths = [tmp_path, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_checks.py"]
    command += ["-k", "reference_is_right and (half_kernel or exp2_cubic)"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "1 passed, 1 skipped" in run.stdout, run.stdout
    assert "Triton exists for Linux only" in run.stdout
