"""How long a connection waits for a client that does not take what was sent."""

import asyncio

from tfs_proxy.wire.server.bounds import SEND_SECONDS


class UntakenAnswers:
    """Ends a connection whose client takes nothing for long, between `begin` and `end`."""

    def __init__(self, transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Wait from now on."""
        unsent = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(SEND_SECONDS, self._look, unsent)

    def end(self) -> None:
        """Wait no longer; idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, unsent: int) -> None:
        if self._transport.get_write_buffer_size() < unsent:
            self.begin()
        else:
            self._transport.abort()
