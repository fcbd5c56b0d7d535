"""How `make lab` serves kernels: without the pause that TCP puts between small messages."""

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
