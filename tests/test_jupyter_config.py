"""How JupyterLab is started: on the first lesson, for this user alone, and saving nothing extra."""

import copy
import http.cookiejar
import json
import os
import socket
import urllib.error
import urllib.parse
import urllib.request

import nbformat
import pytest
from traitlets.config.loader import PyFileConfigLoader

from tools import jupyterlab_server
from tools.jupyterlab_server import ROOT, TOKEN
from tools.notebooks import KERNEL


def load_config():
    return PyFileConfigLoader(str(ROOT / "course_utils" / "jupyter_config.py")).load_config()


def saved(content, type="notebook"):
    model = {"type": type, "content": copy.deepcopy(content)}
    load_config().ContentsManager.pre_save_hook(model=model, path="x", contents_manager=None)
    return model["content"]


def test_saving_a_lesson_drops_what_opening_added_and_nothing_else():
    path = ROOT / "exercises" / "01_exercises_dot_product_similarity.ipynb"
    lesson = nbformat.read(path, as_version=4)
    lesson.cells[1].metadata = {"jupyter": {"outputs_hidden": True}, "tags": ["mine"]}
    lesson.cells[2].metadata = {"collapsed": True, "jupyter": {"source_hidden": True}}
    lesson.metadata["mine"] = "too"
    assert lesson.metadata["kernelspec"] == KERNEL
    opened = copy.deepcopy(lesson)
    opened.metadata["language_info"] = {"name": "python", "version": "3.14.1"}
    opened.metadata["kernelspec"]["display_name"] = "Python 3 (ipykernel)"
    opened.cells[1].metadata["collapsed"] = True
    assert saved(opened) == lesson

    conda = {"name": "conda", "display_name": "Conda", "language": "R"}
    opened.metadata["kernelspec"] = conda
    assert saved(opened).metadata["kernelspec"] == conda
    del opened.metadata["course"]  # a notebook of the learner's
    assert saved(opened) == opened
    assert saved("text", "file") == "text"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    another = tmp_path_factory.mktemp("bin") / "jupyter-lab"  # as of conda's base
    another.write_text("#!/bin/sh\nexit 1\n")
    another.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(another.parent), prepend=os.pathsep)
        with jupyterlab_server.server(tmp_path_factory.mktemp("lab")) as address:
            yield address


def get(address, **headers):
    return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=600)


@pytest.mark.slow
def test_a_stranger_is_refused_and_the_users_own_token_works(address):
    with pytest.raises(urllib.error.HTTPError, match="403"):
        get(f"{address}/api/contents")
    listing = json.load(get(f"{address}/api/contents", Authorization=f"token {TOKEN}"))
    # The course is served, though the user's configuration names another folder.
    assert {"notebooks", "exercises"} <= {entry["name"] for entry in listing["content"]}
    # 127.0.0.2 is this machine too, but not the address it listens on.
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", int(address.rsplit(":", 1)[1])), timeout=5).close()


@pytest.mark.slow
def test_no_other_site_may_read_or_write(address):
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    browser = urllib.request.build_opener(cookies)
    browser.open(f"{address}/lab?token={TOKEN}", timeout=600)  # the user logs in
    with pytest.raises(urllib.error.HTTPError, match="403"):  # without the page's _xsrf
        browser.open(f"{address}/api/contents", data=b'{"type": "file"}', timeout=600)
    browser.addheaders = [("Origin", "http://elsewhere.example")]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        browser.open(f"{address}/api/contents", timeout=600)


@pytest.mark.slow
def test_the_printed_address_leads_to_the_first_lesson_beside_all_files(address, monkeypatch):
    monkeypatch.chdir(ROOT)
    # Jupyter prints its default_url with the token behind it.
    page = get(f"{address}{load_config().LabApp.default_url}?token={TOKEN}")
    url = urllib.parse.urlsplit(page.url)
    assert url.path == "/lab/tree/notebooks/00_start_here.ipynb"
    assert urllib.parse.parse_qs(url.query) == {"file-browser-path": ["/"], "token": [TOKEN]}
