"""Copies of lessons and exercises for Colab: what is in them, and that they run anywhere."""

import ast
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from packaging.requirements import Requirement

import addresses
import build
import copies
from stored_notebooks import EXERCISES, LESSONS, ROOT, code, prose, read

REPOSITORY = "me/course"
HOSTS = {  # the address of a folder, and where its files are
    f"https://colab.research.google.com/github/{REPOSITORY}/blob/gh-pages/colab/": "copies",
    f"https://github.com/{REPOSITORY}/blob/HEAD/": "repository",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    copies.write_copies(folder, REPOSITORY)
    return folder


def copy_of(folder, path):
    return nbformat.read(folder / path.relative_to(ROOT), as_version=4)


@pytest.mark.parametrize("path", LESSONS + EXERCISES, ids=lambda path: path.stem)
def test_a_copy_is_the_notebook_with_a_first_cell_and_links_that_work_anywhere(folder, path):
    copy, original = copy_of(folder, path), read(path)
    nbformat.validate(copy)
    _, install, *others = copy.cells
    assert install.source.startswith("import os\n")
    kept = [cell for cell in original.cells if not is_folded(cell)]
    assert [cell.id for cell in others] == [cell.id for cell in kept]
    sources = [cell.source for cell in kept if cell.cell_type == "code"]
    assert [cell.source for cell in code(copy)[1:]] == sources
    for cell in others:  # there is nothing to fold, and no Makefile
        assert not re.search(r"\bmake (lab|model)\b|next cell is folded", cell.source)
        assert "`make " not in cell.source or "in a clone of the course" in cell.source
    assert not [cell for cell in code(copy) if cell.outputs or cell.execution_count]
    assert not [cell for cell in code(copy) if "jupyter" in cell.metadata]  # nothing is folded

    loads_model = "course_utils.language_model" in "".join(cell.source for cell in others)
    assert ("fetch()" in install.source) == loads_model
    text = "\n".join(cell.source for cell in prose(copy))
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    for link in links:
        assert urlsplit(link).scheme == "https" or link.startswith("#"), (
            f"{path.relative_to(ROOT)}: there is no file {link}; make exercises writes exercises/"
        )
        for host, place in HOSTS.items():
            if link.startswith(host):
                where = {"copies": folder, "repository": ROOT}[place]
                assert (where / link.removeprefix(host)).is_file(), link
                has_copy = re.match(r"(notebooks|exercises)/\w+\.ipynb", link.removeprefix(host))
                assert place == "copies" or not has_copy, f"{link} opens nothing that runs"
    assert any(link.startswith(tuple(HOSTS)) for link in links)


def is_folded(cell):
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


def test_the_first_lesson_leads_to_no_cell_that_its_copy_lacks(folder):
    copy, original = copy_of(folder, LESSONS[0]), read(LESSONS[0])
    lead = next(a.id for a, b in itertools.pairwise(original.cells) if is_folded(b))
    (before,) = [cell.source for cell in original.cells if cell.id == lead]
    (after,) = [cell.source for cell in copy.cells if cell.id == lead]
    assert after == before.rpartition("\n\n")[0] and "error" not in after


def names_imported(text):
    nodes = list(ast.walk(ast.parse(text)))
    names = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}


# They come with Jupyter and with Matplotlib, and Triton with torch.
BROUGHT = {"IPython", "PIL", "jupyter_server", "nbclient", "nbformat", "traitlets", "triton"}


def test_requirements_and_the_first_cell_name_all_that_is_imported(monkeypatch):
    named = {Requirement(line).name for line in copies.needed()}
    monkeypatch.setattr(copies, "NOT_NEEDED", ())
    listed = {Requirement(line).name for line in copies.needed()}
    paths = [ROOT / "course_utils" / name for name in ["command.py", "course_folder.py"]]
    apart = [path.read_text(encoding="utf-8") for path in paths]  # no lesson imports them
    paths = {*(ROOT / "course_utils").rglob("*.py")} - {*paths}
    texts = [path.read_text(encoding="utf-8") for path in paths]
    for path in LESSONS + EXERCISES:
        sources = [cell.source for cell in code(read(path))]
        texts += [source for source in sources if not re.search("^[%!]", source, re.M)]
    imported = set.union(*map(names_imported, texts)) - set(sys.stdlib_module_names)
    others = set.union(*map(names_imported, apart)) - set(sys.stdlib_module_names) - listed
    missing = (imported - named | others) - BROUGHT - {"course_utils", "nbgrader"}  # of teachers
    assert not missing, f"add {missing} to requirements.txt: lessons or course_utils import them"
    too_many = named - imported
    assert not too_many, f"add {too_many} to NOT_NEEDED in site/copies.py: no lesson imports them"


@pytest.fixture
def first_cell(folder, tmp_path, monkeypatch):
    """Run the first cell of a copy, with a pip that only records what it is asked."""

    def run(path):
        asked, shell = [], InteractiveShell()
        shell.register_magic_function(asked.append, magic_name="pip")
        shell.run_cell(copy_of(folder, path).cells[1].source).raise_error()
        return asked

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return run


def test_what_is_there_stays_and_what_is_missing_is_installed(first_cell, monkeypatch):
    find = importlib.util.find_spec
    missing = {"gguf", "anywidget"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: name not in missing and find(name)
    )
    others, course = first_cell(LESSONS[1])
    assert course == "install --quiet --no-deps https://github.com/me/course/archive/HEAD.zip"
    listed = {Requirement(line).name: line for line in copies.needed()}
    assert others.split() == ["install", "--quiet"] + [
        line if name in missing else f"{name}=={metadata.version(name)}"
        for name, line in listed.items()
    ]


@pytest.mark.parametrize("path", [LESSONS[1], EXERCISES[0]], ids=lambda path: path.stem)
def test_answers_are_kept_in_one_folder_however_often_the_cell_is_run(first_cell, path, tmp_path):
    for _ in range(2):
        first_cell(path)
        assert Path.cwd() == tmp_path / "attention-course" / path.parent.name


def printed(cell):
    return "".join(each.text for each in cell.outputs if each.get("name") == "stdout")


@pytest.mark.slow
def test_a_copy_runs_in_a_foreign_folder_with_the_installed_package(folder, tmp_path, monkeypatch):
    installed, foreign = tmp_path / "installed", tmp_path / "foreign"
    foreign.mkdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(installed)
    for path in (ROOT / "course_utils").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert (installed / path.relative_to(ROOT)).is_file()
    monkeypatch.setenv("PYTHONPATH", str(installed))
    for name in ["HOME", "USERPROFILE"]:
        monkeypatch.setenv(name, str(tmp_path))
    copy = copy_of(folder, EXERCISES[0])
    install = copy.cells[1]
    install.source = re.sub("^%pip .*", "", install.source, flags=re.M)  # no network in a test
    install.source += "\nimport course_utils\n\nprint(course_utils.__file__)"
    dot = next(cell for cell in code(copy) if cell.source.startswith("def dot("))
    dot.source = "def dot(a, b):\n    return a @ b"
    where = {"metadata": {"path": str(foreign)}}
    settings = {"kernel_name": "python3", "timeout": 900, "coalesce_streams": True}
    NotebookClient(copy, resources=where, **settings).execute()
    assert printed(install).strip() == str(installed / "course_utils" / "__init__.py")
    assert "✅ 1.1" in code(copy)[-1].outputs[0].data["text/plain"]
    entries = json.loads((tmp_path / "attention-course" / ".progress.json").read_text())
    assert entries == {"dot": "correct"}
    assert not os.listdir(foreign)


# The website and README


@pytest.mark.parametrize("repository", ["", REPOSITORY])
def test_the_website_has_copies_and_links_to_run_them_if_its_address_is_known(
    repository, tmp_path, monkeypatch
):
    monkeypatch.setattr(build, "lay_out", lambda *_: None)
    monkeypatch.setattr("sphinx.cmd.build.build_main", lambda _: 3)  # also if Sphinx fails
    assert build.main(["--folder", str(tmp_path), "--repository", repository]) == 3
    made = sorted(path.name for path in tmp_path.glob("site/colab/*/*.ipynb"))
    assert made == (sorted(path.name for path in LESSONS + EXERCISES) if repository else [])
    for path in [LESSONS[1], EXERCISES[0]]:
        page, place = nbformat.read(path, as_version=4), path.relative_to(ROOT).as_posix()
        build.prepare(page, path, repository)
        links = re.findall(r"\]\((https://[^)]*(?:colab|binder)[^)]*)\)", page.cells[1].source)
        assert (
            links
            == [
                f"https://colab.research.google.com/github/me/course/blob/gh-pages/colab/{place}",
                f"https://mybinder.org/v2/gh/me/course/HEAD?urlpath=lab/tree/{place}",
            ][: 2 * bool(repository)]
        )


def test_badges_stand_below_the_title_once_and_go_as_they_came(tmp_path, monkeypatch, capsys):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    bare = addresses.without_badges(readme)
    monkeypatch.setattr(addresses, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text(readme, encoding="utf-8")
    assert addresses.website("You/you.github.io") == "https://you.github.io/"
    for repository in [REPOSITORY, "you/fork"]:
        addresses.main(["--repository", repository])
        written = (tmp_path / "README.md").read_text(encoding="utf-8")
        title, badges, first = written.split("\n\n")[:3]
        assert [title, first] == bare.split("\n\n")[:2]
        assert badges.count("[![") == 4 and badges.count(repository) == 5
        assert addresses.website(repository) in badges
        for name in re.findall(r"notebooks/\w+\.ipynb|workflows/[\w.]+", badges):
            assert list(ROOT.glob(name)) or (ROOT / ".github" / name).is_file()
    addresses.main(["--repository", ""])
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == bare
    assert "no address" in capsys.readouterr().out


@pytest.mark.parametrize(
    "remote, repository",
    [
        ("https://github.com/me/my.course", "me/my.course"),
        ("git@github.com:me/course.git", "me/course"),
        ("https://example.org/me/course.git", ""),
        ("", ""),
    ],
)
def test_the_address_is_the_one_that_git_knows(remote, repository, tmp_path, monkeypatch):
    monkeypatch.setattr(addresses, "ROOT", tmp_path)
    git = ["git", "-C", tmp_path]
    subprocess.run([*git, "init", "-q"], check=True)
    if remote:
        subprocess.run([*git, "remote", "add", "origin", remote], check=True)
    assert addresses.remote() == repository
