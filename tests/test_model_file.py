"""The language model's file: found where it may be, refused if damaged, fetched by its hash."""

import hashlib
import subprocess
import sys

import pytest

from course_utils import model_file as files

WHOLE = b"what was published"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return an empty cache, for a model of a few bytes."""
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


def test_a_file_is_found_in_the_cache_or_among_the_packages(cache, tmp_path):
    packaged = put(tmp_path / "packages")
    assert files.model_file() == packaged
    assert files.model_file() != put(cache) == files.model_file()


@pytest.mark.parametrize("what", [b"", WHOLE[:-1], WHOLE + b"!", WHOLE.upper()])
def test_a_partial_or_altered_file_is_refused_by_name(cache, what):
    path = put(cache, what)
    with pytest.raises(files.ModelMissing, match="is damaged.*`make model`") as refused:
        files.model_file()
    assert str(path) in str(refused.value)
    assert f"({len(what)} bytes, where {len(WHOLE)} were published" in str(refused.value)


def test_fetching_downloads_a_hashed_package_once_and_ends_with_a_whole_file(
    cache, monkeypatch, capsys
):
    calls = []

    def pip(command):
        calls.append(command)
        put(cache)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", pip)
    put(cache, WHOLE[:5])
    files.fetch()
    files.fetch()
    assert len(calls) == 1 and str(cache) in capsys.readouterr().out
    assert {"--no-deps", "--require-hashes", "--upgrade", str(files.PACKAGE)} <= set(calls[0])
    assert "--hash=sha256:" in files.PACKAGE.read_text(encoding="utf-8")


def test_pip_that_fails_ends_in_a_sentence_and_a_status(cache, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda c: subprocess.CompletedProcess(c, 1))
    with pytest.raises(SystemExit, match="pip could not download the language model"):
        files.fetch()


def test_without_the_model_a_notebook_shows_a_sentence_and_no_traceback(cache):
    """What to run, and how much is downloaded; IPython calls `_render_traceback_`."""
    with pytest.raises(files.ModelMissing, match=r"not here yet.*`make model`.*93 MB") as missing:
        files.model_file()
    assert missing.value._render_traceback_() == [str(missing.value)]
