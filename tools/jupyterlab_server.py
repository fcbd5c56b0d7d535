"""A real JupyterLab over a copy of the course, and a real browser to use it with."""

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

from playwright.sync_api import Error, sync_playwright

ROOT = Path(__file__).parents[1]
# Headless in containers, and without asking the network for anything.
CHROMIUM_FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run
    --disable-background-networking --disable-component-update --disable-sync""".split()
# How long anything may take, in milliseconds: a busy machine is no error.
PATIENCE = 600_000
# All cells in the page at once, so that a test finds them. Saved is what a test saves: of two pages
# with one notebook the second to save asks whose is to stay, and would wait for an answer.
SETTINGS = {
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
# Looked for so often, in milliseconds: not with each frame, for which the page would be drawn.
POLLING = 100
CONTEXTS = weakref.WeakKeyDictionary()  # of each browser, by density
# What a user might have set in his own Jupyter; the course has to respect it.
TOKEN = "the-users-own"
USER_CONFIG = {"IdentityProvider": {"token": TOKEN}, "ServerApp": {"root_dir": os.sep}}


@contextlib.contextmanager
def browser():
    """Yield a Chromium: the one installed here, or Playwright's own; None if there is neither."""
    names = ["chromium", "chromium-browser", "google-chrome"]
    found = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(executable_path=found, args=CHROMIUM_FLAGS)
        except Error:
            yield None
            return
        yield chromium
        chromium.close()


def new_page(chromium, width=1280, height=720, density=1):
    """Return a new page as large as a window on a laptop, on a screen of that density.

    Pages of one density share what they load: JupyterLab is much to load and to compile.
    """
    if density not in (contexts := CONTEXTS.setdefault(chromium, {})):
        contexts[density] = chromium.new_context(device_scale_factor=density)
    page = contexts[density].new_page()
    page.set_viewport_size({"width": width, "height": height})
    page.set_default_timeout(PATIENCE)
    return page


def installed(folder):
    """Put into ``folder`` what an installation adds to an environment, such as etc/jupyter."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    for source, target in build["targets"]["wheel"]["shared-data"].items():
        (folder / target).parent.mkdir(parents=True)
        shutil.copy(ROOT / source, folder / target)
    return folder


@contextlib.contextmanager
def server(folder):
    """Copy the notebooks into ``folder``, serve them as `make lab` does, yield the address."""
    for name in ["notebooks", "exercises", "solutions"]:
        shutil.copytree(ROOT / name, folder / "course" / name)
    config = folder / "config"
    (config / "labconfig").mkdir(parents=True)
    (config / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(SETTINGS))
    (config / "jupyter_server_config.json").write_text(json.dumps(USER_CONFIG))
    private = {
        f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ["CONFIG", "DATA", "RUNTIME"]
    }
    private["JUPYTER_CONFIG_PATH"] = str(installed(folder / "environment") / "etc" / "jupyter")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # not "-m jupyter lab", which takes the first jupyter-lab of PATH, another environment's maybe
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


def stop(process, patience=20):
    """End a process; Jupyter's server sometimes waits for a thread of its own, and never ends."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)  # seconds
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
    """Open a notebook in one more tab of the JupyterLab that the page shows."""
    execute(page, "docmanager:open", path=path)
    wait_until_open(page, path)


def close_all(page):
    """Close all notebooks, unsaved, and shut down their kernels."""
    page.evaluate(
        """async () => {
            for (const widget of [...window.jupyterapp.shell.widgets("main")]) {
                await widget.sessionContext?.shutdown();
                widget.dispose();
            }
        }"""
    )


def wait_until_open(page, path):
    """Wait until a notebook is in front and its kernel idle."""
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
    """Run all cells and wait until the last code cell has a number."""
    execute(page, "notebook:run-all-cells")
    wait_until_run(page)


def save(page):
    """Save the open notebook and wait until the server has stored it."""
    with page.expect_response(
        lambda response: response.request.method == "PUT" and "/api/contents/" in response.url
    ):
        execute(page, "docmanager:save")


def execute(page, command, **arguments):
    """Execute a JupyterLab command, without waiting for its end."""
    page.evaluate(
        "([command, given]) => { window.jupyterapp.commands.execute(command, given) }",
        [command, arguments],
    )


def wait_until_run(page):
    """Wait until no cell shows the star of a running or waiting cell."""
    page.wait_for_timeout(500)
    page.wait_for_function(
        """() => ![...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]
                 .some(prompt => prompt.textContent.includes('*'))""",
        timeout=PATIENCE,
        polling=POLLING,
    )


def errors(page):
    """Return the texts of all error outputs and of all that went to stderr."""
    kinds = [f"[data-mime-type='application/vnd.jupyter.{kind}']" for kind in ("error", "stderr")]
    return page.locator(", ".join(kinds)).all_inner_texts()
