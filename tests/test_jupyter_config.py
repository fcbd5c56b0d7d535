"""How JupyterLab is started: little is set, and nothing that opens the server to others."""

import asyncio
import copy
import http.client
import http.cookiejar
import json
import os
import signal
import socket
import subprocess
import sys
import types
import urllib.error
import urllib.parse
import urllib.request
import warnings

import nbformat
import pytest
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from traitlets.config.loader import PyFileConfigLoader

from tools import jupyterlab_server
from tools.notebooks import KERNEL


def loaded():
    return PyFileConfigLoader(
        str(jupyterlab_server.ROOT / "course_utils" / "jupyter_config.py")
    ).load_config()


def test_nothing_is_set_but_the_first_page_the_connection_and_the_hook(monkeypatch, tmp_path):
    monkeypatch.chdir(jupyterlab_server.ROOT)
    config = loaded()
    assert {name: set(config[name]) for name in config} == {
        "ServerApp": {"kernel_websocket_connection_class"},
        "ContentsManager": {"pre_save_hook"},
        "LabApp": {"default_url", "handlers"},
    }
    monkeypatch.chdir(tmp_path)  # another folder, served from the same environment
    assert "LabApp" not in loaded()


def test_the_hook_is_set_without_a_warning():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        config = loaded()
        manager = AsyncLargeFileManager(config=config)
        manager.pre_save_hook = config.ContentsManager.pre_save_hook  # the server sets it twice
    assert not [each for each in told if "pre_save_hook" in str(each.message)]


def test_jupyter_finds_these_settings_in_the_environment(tmp_path):
    installed, source = (
        jupyterlab_server.installed(tmp_path) / "etc" / "jupyter",
        jupyterlab_server.ROOT / "course_utils",
    )
    settings = installed / "jupyter_server_config.py"
    assert settings.read_text() == (source / "jupyter_config.py").read_text()
    settings = installed / "labconfig" / "default_setting_overrides.json"
    assert settings.read_text() == (source / "jupyterlab_settings.json").read_text()
    notification = json.loads(settings.read_text())["@jupyterlab/apputils-extension:notification"]
    assert notification == {"fetchNews": "false"}  # else JupyterLab asks before the first lesson


def test_a_message_to_a_kernel_is_sent_at_once(monkeypatch):
    done = []

    async def connect(self):
        done.append("connected")

    monkeypatch.setattr(ZMQChannelsWebsocketConnection, "connect", connect)
    kind = loaded().ServerApp.kernel_websocket_connection_class

    class Connection(kind):
        websocket_handler = types.SimpleNamespace(set_nodelay=done.append)

    asyncio.run(Connection.__new__(Connection).connect())
    assert done == [True, "connected"]


def saved(content, type="notebook"):
    model = {"type": type, "content": copy.deepcopy(content)}
    loaded().ContentsManager.pre_save_hook(model=model, path="x", contents_manager=None)
    return model["content"]


def opened():
    """A lesson with one folded output, and the same as JupyterLab would store it."""
    lesson = nbformat.read(
        jupyterlab_server.ROOT / "exercises" / "01_exercises_dot_product_similarity.ipynb",
        as_version=4,
    )
    lesson.cells[1].metadata = {"jupyter": {"outputs_hidden": True}, "tags": ["mine"]}
    lesson.cells[2].metadata = {"collapsed": True, "jupyter": {"source_hidden": True}}
    lesson.metadata["mine"] = "too"
    changed = copy.deepcopy(lesson)
    changed.metadata["language_info"] = {"name": "python", "version": "3.14.1"}
    changed.metadata["kernelspec"]["display_name"] = "Python 3 (ipykernel)"
    changed.cells[1].metadata["collapsed"] = True
    return lesson, changed


def test_saving_a_lesson_drops_what_opening_added_and_nothing_else():
    lesson, changed = opened()
    assert lesson.metadata["kernelspec"] == KERNEL
    assert saved(changed) == lesson


def test_another_kernel_another_notebook_and_other_files_are_stored_as_they_are():
    _, changed = opened()
    changed.metadata["kernelspec"] = {"name": "conda", "display_name": "Conda", "language": "R"}
    assert saved(changed).metadata["kernelspec"] == changed.metadata["kernelspec"]
    del changed.metadata["course"]
    assert saved(changed) == changed
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


def test_a_stranger_is_refused_and_the_users_own_token_holds(address):
    with pytest.raises(urllib.error.HTTPError, match="403"):
        get(f"{address}/api/contents")
    shown = json.load(
        get(f"{address}/api/contents", Authorization=f"token {jupyterlab_server.TOKEN}")
    )
    # The course is served, though the user's configuration names another folder.
    assert {"notebooks", "exercises"} <= {entry["name"] for entry in shown["content"]}


def test_the_printed_address_leads_to_the_first_lesson_beside_all_files(address, monkeypatch):
    monkeypatch.chdir(jupyterlab_server.ROOT)
    # Jupyter prints its default_url with the token behind it.
    page = get(f"{address}{loaded().LabApp.default_url}?token={jupyterlab_server.TOKEN}")
    there = urllib.parse.urlsplit(page.url)
    assert there.path == "/lab/tree/notebooks/00_start_here.ipynb"
    assert urllib.parse.parse_qs(there.query) == {
        "file-browser-path": ["/"],
        "token": [jupyterlab_server.TOKEN],
    }


def test_no_browser_keeps_the_way_to_the_first_lesson(address, monkeypatch):
    monkeypatch.chdir(jupyterlab_server.ROOT)
    server = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=600)
    server.request("GET", f"{loaded().LabApp.default_url}?token={jupyterlab_server.TOKEN}")
    assert server.getresponse().status == 302  # 301 is kept, also for another copy of the course


@pytest.mark.skipif(os.name != "posix", reason="Windows ends a process at once")
def test_a_server_that_will_not_stop_is_ended():
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"
    command = [sys.executable, "-c", f"{deaf}; time.sleep(900)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        jupyterlab_server.stop(process, patience=0.1)
    assert process.returncode == -signal.SIGKILL


def test_no_other_site_may_read_or_write(address):
    browser = urllib.request.build_opener(
        urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    )
    browser.open(f"{address}/lab?token={jupyterlab_server.TOKEN}", timeout=600)  # the user logs in
    browser.open(f"{address}/api/contents", timeout=600)
    with pytest.raises(urllib.error.HTTPError, match="403"):  # no _xsrf, which only his pages know
        browser.open(f"{address}/api/contents", data=b'{"type": "file"}', timeout=600)
    browser.addheaders = [("Origin", "http://elsewhere.example")]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        browser.open(f"{address}/api/contents", timeout=600)


def test_only_this_machine_is_listened_to(address):
    # 127.0.0.2 is this machine too, but not the name it listens under.
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", int(address.rsplit(":", 1)[1])), timeout=5).close()
