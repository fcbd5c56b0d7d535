"""How the course starts JupyterLab; installed as the environment's jupyter_server_config.py.

It opens lesson 00 beside the list of all files, lets explorers answer without the pause that TCP
puts between messages, and stores a lesson that was only opened as it was. JupyterLab itself is told
one thing, in jupyterlab_settings.json: not to ask about news. All else is left to the user.
"""

import warnings
from pathlib import Path

from jupyter_server.base.handlers import RedirectWithParams
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

FIRST_LESSON = "notebooks/00_start_here.ipynb"


class PromptConnection(ZMQChannelsWebsocketConnection):
    """A kernel connection that sends each message at once.

    TCP holds a small message back until the one before it is acknowledged (Nagle's algorithm),
    which the other side may put off for 40 ms. For an explorer, that is more than all else from
    key press to new pixels.
    """

    async def connect(self):
        self.websocket_handler.set_nodelay(True)
        await super().connect()


def drop_what_opening_adds(model, **_):
    """Take out of a notebook of the course what JupyterLab writes into it by opening it.

    That is the kernel's language, version and name as they are on this machine, and a second mark
    at folded outputs. JupyterLab saves by itself after two minutes; git would call the notebook
    modified, and might refuse an update.
    """
    if model["type"] != "notebook" or "course" not in model["content"]["metadata"]:
        return
    metadata = model["content"]["metadata"]
    metadata.pop("language_info", None)
    if metadata["kernelspec"]["name"] == "python3":
        metadata["kernelspec"]["display_name"] = "Python 3"
    for cell in model["content"]["cells"]:
        if cell["metadata"].get("jupyter", {}).get("outputs_hidden"):
            cell["metadata"].pop("collapsed", None)


c = get_config()  # noqa: F821 (Jupyter provides it)
c.ServerApp.kernel_websocket_connection_class = PromptConnection
# Jupyter sets its hook twice, and warns of the second time.
warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")
c.ContentsManager.pre_save_hook = drop_what_opening_adds
if Path(FIRST_LESSON).exists():
    # Beside the lesson the file browser would show only the lesson's own folder. The path below is
    # no default_url itself: Jupyter prints that with "?token=…" after it, a second question mark.
    first = f"lab/tree/{FIRST_LESSON}?file-browser-path=/"
    c.LabApp.handlers = [("/course", RedirectWithParams, {"url": first, "permanent": False})]
    c.LabApp.default_url = "/course"
