"""How the course starts JupyterLab: jupyter lab --config=course_utils/jupyter_config.py

It opens lesson 00, and lets explorers answer without the pause that TCP puts between messages.
"""

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection


class PromptConnection(ZMQChannelsWebsocketConnection):
    """A kernel connection that sends each message at once.

    TCP holds a small message back until the one before it is acknowledged (Nagle's algorithm),
    which the other side may put off for 40 ms. For an explorer, that is more than all else from
    key press to new pixels.
    """

    async def connect(self):
        self.websocket_handler.set_nodelay(True)
        await super().connect()


c = get_config()  # noqa: F821 (Jupyter provides it)
c.ServerApp.kernel_websocket_connection_class = PromptConnection
c.LabApp.default_url = "/lab/tree/notebooks/00_start_here.ipynb"
