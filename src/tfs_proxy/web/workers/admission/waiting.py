"""How old a request is when it comes to the gate: what it has waited before any code of the worker saw it."""

import socket
import struct
import sys
from typing import Any

from tfs_proxy.observe.request_record import WAIT, RequestRecord
from tfs_proxy.web.workers.late_calls import SOCKET

_LAST_DATA_RECEIVED = struct.Struct("=52xI")
"""``tcpi_last_data_recv`` in Linux's ``struct tcp_info``: milliseconds since the last bytes came."""

_MILLISECOND = 0.001


def seconds_waited(environ: dict[str, Any], record: RequestRecord | None, *, behind_nginx: bool) -> float:
    """Seconds since nginx sent the request on, or since its last bytes came from the client; 0 if unknown.

    The former has the time in the accept queue and until a thread was free; the latter, too.
    """
    if behind_nginx:
        return 0.0 if record is None else record.seconds[WAIT]
    return since_last_data(environ.get(SOCKET))


def since_last_data(connection: object) -> float:
    """Seconds since the last bytes came on a TCP connection, read or not; 0 where only others know."""
    if not (sys.platform == "linux" and isinstance(connection, socket.socket)):
        return 0.0
    if connection.family == socket.AF_UNIX:
        return 0.0
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECEIVED.size)
    except OSError:
        return 0.0
    if len(info) < _LAST_DATA_RECEIVED.size:
        return 0.0
    milliseconds: int = _LAST_DATA_RECEIVED.unpack(info)[0]
    return milliseconds * _MILLISECOND
