"""A real JupyterLab that serves a copy of the course, and a real browser to use it with."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
import weakref
from pathlib import Path

from playwright.sync_api import sync_playwright

from course_utils.course_folder import FOLDERS

ROOT = Path(__file__).parents[1]
# For containers, and without requests to the network.
CHROMIUM_FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run
    --disable-background-networking --disable-component-update --disable-sync""".split()
# Longest times in milliseconds, for an element of a page and for all cells of a notebook. They are
# long, because a slow machine is not an error.
ELEMENT_PATIENCE, PATIENCE = 120_000, 600_000
# All cells are in the page at once, so that tests find them. Nothing is saved automatically: if
# two pages save the same notebook, JupyterLab asks which version to keep and waits for an answer.
SETTINGS = {
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
# Milliseconds between two checks of a condition; the default, every frame, makes the page draw.
POLLING = 100
CONTEXTS = weakref.WeakKeyDictionary()  # for each browser, a context per density
# Settings that users may have in their own Jupyter, which the course must respect.
TOKEN = "the-users-own"
USER_CONFIG = {"IdentityProvider": {"token": TOKEN}, "ServerApp": {"root_dir": os.sep}}


@contextlib.contextmanager
def browser():
    """Yield a Chromium, the one on PATH or else Playwright's own; None if there is neither.

    A Chromium that is there and does not start raises an error.
    """
    names = ["chromium", "chromium-browser", "google-chrome"]
    executable = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        if not executable and not os.path.exists(playwright.chromium.executable_path):
            yield None
            return
        chromium = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


def new_page(chromium, width=1280, height=720, density=1):
    """Return a new page with the size of a laptop's window, on a screen of that density.

    Pages of one density share a cache, because JupyterLab takes long to load.
    """
    if density not in (contexts := CONTEXTS.setdefault(chromium, {})):
        contexts[density] = chromium.new_context(device_scale_factor=density)
    page = contexts[density].new_page()
    page.set_viewport_size({"width": width, "height": height})
    page.set_default_timeout(ELEMENT_PATIENCE)
    return page


def installed(folder):
    """Copy into ``folder`` the files that an installation adds to an environment; return it."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    for source, target in build["targets"]["wheel"]["shared-data"].items():
        (folder / target).parent.mkdir(parents=True)
        shutil.copy(ROOT / source, folder / target)
    return folder


@contextlib.contextmanager
def server(folder):
    """Copy the notebooks into ``folder``, serve them as `make lab` does, yield the address."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / "course" / name)
    (folder / "config").mkdir()
    (folder / "config" / "jupyter_server_config.json").write_text(json.dumps(USER_CONFIG))
    configure(folder)
    private = {
        f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ["CONFIG", "DATA", "RUNTIME"]
    }
    private["JUPYTER_CONFIG_PATH"] = str(installed(folder / "environment") / "etc" / "jupyter")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # not "-m jupyter lab", which may start the jupyter-lab of another environment on PATH
    command = [sys.executable, "-m", "jupyterlab", ".", "--allow-root", "--no-browser"]
    command += [f"--port={port}", "--LabApp.expose_app_in_browser=True"]
    environment = os.environ | private
    with open(folder / "server.log", "w") as log:
        process = subprocess.Popen(
            command, cwd=folder / "course", env=environment, stdout=log, stderr=log
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(PATIENCE // 500):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/api", timeout=10).close()
                break
            time.sleep(0.5)
        yield address
    finally:
        stop(process)


def configure(folder, settings=SETTINGS):
    """Replace the user's settings of the JupyterLab that serves ``folder``, for pages to come."""
    own = folder / "config" / "lab" / "user-settings"
    shutil.rmtree(own, ignore_errors=True)
    for plugin, values in settings.items():
        path = own / f"{plugin.replace(':', '/')}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))


def stop(process):
    """End a process. Kill it if it does not end: Jupyter sometimes waits for its own thread."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)  # seconds
    process.kill()
    process.wait()


def open_notebook(page, address, path):
    """Open a notebook in JupyterLab, alone, and wait until its kernel is idle."""
    page.goto(f"{address}/lab/workspaces/test/tree/{path}?reset&token={TOKEN}")
    wait_until_open(page, path)


def open_alone(page, address):
    """Open JupyterLab without a notebook."""
    page.goto(f"{address}/lab/workspaces/test?reset&token={TOKEN}")
    page.wait_for_function("window.jupyterapp?.shell.currentWidget", timeout=PATIENCE)


def open_beside(page, path):
    """Open a notebook in another tab of the JupyterLab in this page."""
    execute(page, "docmanager:open", path=path)
    wait_until_open(page, path)


def close_all(page):
    """Close all notebooks without saving, and shut down their kernels."""
    page.evaluate(
        """async () => {
            for (const widget of [...window.jupyterapp.shell.widgets("main")]) {
                await widget.sessionContext?.shutdown();
                widget.dispose();
            }
        }"""
    )


def wait_until_open(page, path):
    """Wait until a notebook is in front and its kernel is idle."""
    page.wait_for_function(
        """path => {
            const widget = window.jupyterapp?.shell.currentWidget;
            return widget?.context?.path === path &&
                widget.sessionContext?.session?.kernel?.status === 'idle';
        }""",
        arg=path,
        timeout=PATIENCE,
        polling=POLLING,
    )


def run_all(page):
    """Run all cells, and wait for the last one."""
    execute(page, "notebook:run-all-cells")
    wait_until_run(page)


def save(page):
    """Save the open notebook, and wait until the server has stored it."""
    with page.expect_response(
        lambda response: response.request.method == "PUT" and "/api/contents/" in response.url
    ):
        execute(page, "docmanager:save")


def execute(page, command, **arguments):
    """Start a JupyterLab command, without waiting for its end."""
    page.evaluate(
        "([command, args]) => { window.jupyterapp.commands.execute(command, args) }",
        [command, arguments],
    )


def wait_until_run(page):
    """Wait until no cell has the star of a running or waiting cell."""
    page.wait_for_timeout(500)
    page.wait_for_function(
        """() => ![...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]
                 .some(prompt => prompt.textContent.includes('*'))""",
        timeout=PATIENCE,
        polling=POLLING,
    )


def errors(page):
    """Return the texts of all error outputs and everything on stderr."""
    kinds = [f"[data-mime-type='application/vnd.jupyter.{kind}']" for kind in ("error", "stderr")]
    return page.locator(", ".join(kinds)).all_inner_texts()
