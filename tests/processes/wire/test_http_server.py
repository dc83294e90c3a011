"""The asyncio HTTP server on real sockets."""

import asyncio
import socket
import struct
from pathlib import Path

from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.http_server import BACKLOG, HttpServer

TCP_INFO_BYTES = 104
QUEUE_LIMIT_OFFSET = 28
"""Of struct tcp_info: tcpi_sacked, in which Linux reports a listener's backlog."""


def queue_limit(listener: socket.socket) -> int:
    """How many connections may wait on ``listener``."""
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return int(struct.unpack_from("=I", info, QUEUE_LIMIT_OFFSET)[0])


async def hello(_: HttpRequest) -> HttpResponse:
    """Any answer."""
    return HttpResponse(200, b"{}")


def test_opening_a_listener_keeps_the_length_of_its_queue() -> None:
    """asyncio listens anew with a queue of 100, in which a burst of clients waits for retransmissions."""

    async def opened(listener: socket.socket) -> int:
        server = HttpServer(hello)
        await server.open(listener)
        try:
            return queue_limit(listener)
        finally:
            server.close()

    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listener:
        before = queue_limit(listener)
        after = asyncio.run(opened(listener))

    assert after == before == min(BACKLOG, int(Path("/proc/sys/net/core/somaxconn").read_text()))
