"""Copies of lessons and exercises for Colab: what is in them, and that they run anywhere."""

import ast
import importlib.util
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
from stored_notebooks import EXERCISES, LESSONS, ROOT, code, prose

REPOSITORY = "me/course"
HOSTS = {  # a folder's address there, and where it lies
    f"https://colab.research.google.com/github/{REPOSITORY}/blob/gh-pages/colab/": "copies",
    f"https://github.com/{REPOSITORY}/blob/HEAD/": "repository",
}
LINKED = re.compile(r"\]\(([^)\s]+)\)|(?:href|src)=\"([^\"]+)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    copies.write_copies(folder, REPOSITORY)
    return folder


def copy_of(folder, path):
    return nbformat.read(folder / path.relative_to(ROOT), as_version=4)


@pytest.mark.parametrize("path", LESSONS + EXERCISES, ids=lambda path: path.stem)
def test_a_copy_is_the_notebook_with_a_first_cell_and_without_results(folder, path):
    copy, original = copy_of(folder, path), nbformat.read(path, as_version=4)
    nbformat.validate(copy)
    title, words, install, *others = copy.cells
    assert words.cell_type == "markdown" and install.source.startswith("import os\n")
    assert [cell.id for cell in [title, *others]] == [cell.id for cell in original.cells]
    assert [cell.source for cell in code(copy)[1:]] == [cell.source for cell in code(original)]
    assert not [cell for cell in code(copy) if cell.outputs or cell.execution_count]
    assert "jupyter" not in str([cell.metadata for cell in copy.cells])  # what is folded


def test_every_link_of_a_copy_is_absolute_and_leads_to_what_there_is(folder):
    places, found = {"copies": folder, "repository": ROOT}, 0
    for path in LESSONS + EXERCISES:
        for cell in prose(copy_of(folder, path)):
            for groups in LINKED.findall(cell.source):
                link = "".join(groups)
                assert urlsplit(link).scheme == "https" or link.startswith("#"), (path.name, link)
                for host, place in HOSTS.items():
                    if link.startswith(host):
                        found += 1
                        assert (places[place] / link.removeprefix(host)).is_file(), link
                assert "solutions/" not in link or link.startswith(
                    f"https://github.com/{REPOSITORY}"
                )
    assert found > 2 * len(EXERCISES)


def names_imported(text):
    nodes = list(ast.walk(ast.parse(text)))
    names = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}


# They come with Jupyter and with Matplotlib, and Triton with torch.
BROUGHT = {"IPython", "PIL", "jupyter_server", "nbclient", "nbformat", "traitlets", "triton"}


def test_the_first_cell_names_all_that_is_imported():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "course_utils").rglob("*.py")]
    for path in LESSONS + EXERCISES:
        cells = code(nbformat.read(path, as_version=4))
        texts += [cell.source for cell in cells if not re.search("^[%!]", cell.source, re.M)]
    imported = set.union(*map(names_imported, texts)) - set(sys.stdlib_module_names)
    named = {Requirement(line).name for line in copies.needed()}
    assert imported - BROUGHT - {"course_utils"} == named
    assert all(map(importlib.util.find_spec, named))  # under the name that pip knows


@pytest.fixture
def first_cell(folder, tmp_path, monkeypatch):
    """Run the first cell of a copy, with a pip that only notes what it is asked."""

    def run(path):
        asked, shell = [], InteractiveShell()
        shell.register_magic_function(asked.append, magic_name="pip")
        shell.run_cell(copy_of(folder, path).cells[2].source).raise_error()
        return asked

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return run


def test_what_is_there_stays_and_what_is_missing_comes(first_cell, monkeypatch):
    find = importlib.util.find_spec
    missing = {"gguf", "anywidget"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: name not in missing and find(name)
    )
    course, others = first_cell(LESSONS[1])
    assert course == "install --quiet --no-deps https://github.com/me/course/archive/HEAD.zip"
    command, quiet, *asked = others.split()
    assert (command, quiet) == ("install", "--quiet")
    listed = {Requirement(line).name: line for line in copies.needed()}
    assert asked == [
        line if name in missing else f"{name}=={metadata.version(name)}"
        for name, line in listed.items()
    ]


@pytest.mark.parametrize("path", [LESSONS[1], EXERCISES[0]], ids=lambda path: path.stem)
def test_answers_are_kept_in_one_folder_however_often_the_cell_is_run(first_cell, path, tmp_path):
    for _ in range(2):
        first_cell(path)
        assert Path.cwd() == tmp_path / "attention-course" / path.parent.name


def test_the_language_model_is_fetched_where_it_is_loaded_and_nowhere_else(folder):
    fetching, loading = set(), set()
    for path in LESSONS + EXERCISES:
        install, *others = code(copy_of(folder, path))
        if "fetch()" in install.source:
            fetching.add(path.stem)
        if any(re.search(r"language_model import .*\bload\b", cell.source) for cell in others):
            loading.add(path.stem)
    assert fetching == loading and "10_a_real_model" in loading


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def test_the_installed_package_has_every_file_of_its_folder(wheel):
    written = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "course_utils").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert written == {name for name in wheel.namelist() if name.startswith("course_utils/")}


def printed(cell):
    return "".join(each.text for each in cell.outputs if each.get("name") == "stdout")


def test_a_copy_runs_in_a_foreign_folder_with_the_installed_package(
    folder, wheel, tmp_path, monkeypatch
):
    installed, foreign = tmp_path / "installed", tmp_path / "foreign"
    foreign.mkdir()
    wheel.extractall(installed)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    for name in ["HOME", "USERPROFILE"]:
        monkeypatch.setenv(name, str(tmp_path))
    copy = copy_of(folder, EXERCISES[0])
    install = copy.cells[2]
    install.source = re.sub("^%pip .*", "", install.source, flags=re.M)  # no network in a test
    install.source += "\nimport course_utils\n\nprint(course_utils.__file__)"
    dot = next(cell for cell in code(copy) if cell.source.startswith("def dot("))
    dot.source = "def dot(a, b):\n    return a @ b"
    where = {"metadata": {"path": str(foreign)}}
    settings = {"kernel_name": "python3", "timeout": 900, "coalesce_streams": True}
    NotebookClient(copy, resources=where, **settings).execute()
    assert printed(install).strip() == str(installed / "course_utils" / "__init__.py")
    assert "✅ 1.1 dot" in printed(code(copy)[-1])
    kept = json.loads((tmp_path / "attention-course" / ".progress.json").read_text())
    assert kept == {"dot": "correct"}
    assert not os.listdir(foreign)


# The website


@pytest.mark.parametrize("repository", ["", REPOSITORY])
@pytest.mark.parametrize("code", [0, 3])  # 3: Sphinx could not make it
def test_the_copies_are_made_with_the_website_if_it_is_known_where_they_will_be(
    repository, code, tmp_path, monkeypatch
):
    monkeypatch.setattr(build, "lay_out", lambda *_: None)
    monkeypatch.setattr("sphinx.cmd.build.build_main", lambda _: code)
    assert build.main(["--folder", str(tmp_path), "--repository", repository]) == code
    made = sorted(path.name for path in tmp_path.glob("site/colab/*/*.ipynb"))
    assert made == (sorted(path.name for path in LESSONS + EXERCISES) if repository else [])


@pytest.mark.parametrize("path", [LESSONS[1], EXERCISES[0]], ids=lambda path: path.stem)
def test_a_page_leads_to_where_it_runs_if_that_is_known(path):
    page = nbformat.read(path, as_version=4)
    build.prepare(page, path, REPOSITORY)
    place = path.relative_to(ROOT).as_posix()
    for address in [
        f"https://colab.research.google.com/github/me/course/blob/gh-pages/colab/{place}",
        f"https://mybinder.org/v2/gh/me/course/HEAD?urlpath=lab/tree/{place}",
    ]:
        assert f"]({address})" in page.cells[1].source
    page = nbformat.read(path, as_version=4)
    build.prepare(page, path, "")
    assert not [cell for cell in page.cells if re.search("Colab|Binder", cell.source)]


# README


README = (ROOT / "README.md").read_text(encoding="utf-8")
BARE = addresses.without_badges(README)


def test_badges_stand_below_the_title_once_and_go_as_they_came():
    once = addresses.with_badges(BARE, REPOSITORY)
    title, badges, first = once.split("\n\n")[:3]
    assert [title, first] == BARE.split("\n\n")[:2]
    for address in re.findall(r"\((https://[^)]*)\)", badges):
        assert REPOSITORY in address or address.endswith(("colab-badge.svg", "badge_logo.svg"))
    assert badges.count("[![") == 3 and "\n" not in badges
    moved = addresses.with_badges(once, "you/fork")
    assert REPOSITORY not in moved and moved.count("[![") == 3
    assert addresses.with_badges(moved, "") == addresses.without_badges(moved) == BARE


def test_badges_lead_to_what_there_is():
    badges = addresses.badges(REPOSITORY)
    (workflow,) = set(re.findall(r"actions/workflows/([\w.]+)", badges))
    text = (ROOT / ".github" / "workflows" / workflow).read_text(encoding="utf-8")
    assert "\nname: tests\n" in text and "[![tests](" in badges  # what it says is what it shows
    notebooks = re.findall(r"notebooks/\w+\.ipynb", badges)
    assert len(notebooks) == 2 and all((ROOT / name).is_file() for name in notebooks)


def test_the_readme_has_badges_of_one_repository_or_none():
    named = re.findall(r"https://github\.com/([\w.-]+/[\w.-]+)/actions", README)
    assert README == addresses.with_badges(BARE, named[0] if named else "")


@pytest.mark.parametrize("repository", ["", REPOSITORY])
def test_make_badges_writes_them_into_the_readme(repository, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(addresses, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text(README, encoding="utf-8")
    addresses.main(["--repository", repository])
    written = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert written == addresses.with_badges(BARE, repository)
    assert (repository or "no address") in capsys.readouterr().out


def test_the_website_shows_no_badges_which_lie_on_other_hosts(tmp_path, monkeypatch):
    (tmp_path / "site" / "static").mkdir(parents=True)
    (tmp_path / "README.md").write_text(addresses.with_badges(BARE, REPOSITORY), encoding="utf-8")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    build.lay_out(tmp_path / "pages", REPOSITORY)
    shown = (tmp_path / "pages" / "README.md").read_text(encoding="utf-8")
    assert shown.startswith(BARE[:200]) and "badge" not in shown.split("## The lessons")[0]


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
