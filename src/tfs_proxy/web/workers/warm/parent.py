"""The warm parent: imports what every worker needs, and forks gunicorn's masters on request: run as a module.

`supervisor.programs.warm_parent` starts it and asks it, at a socket that it owns. It has one thread, and
opens neither connections nor files that what it forks could inherit.
"""

import os
import socket
import struct
import sys
from contextlib import ExitStack
from typing import Final

from tfs_proxy.forking.request import ANSWER_SECONDS, NUMBER, ForkRequest
from tfs_proxy.web.workers import gunicorn_master
from tfs_proxy.web.workers.warm.forked import Received, become, fork_for
from tfs_proxy.web.workers.warm.preload import SCRIPT, WORKER, imported_names, preload

MOST_DESCRIPTORS: Final = 253
"""In one message, as Linux allows."""

_PEER = struct.Struct("3i")


def main(listener: socket.socket) -> None:
    """Serve at ``listener`` until a signal ends this process; who connects before waits for the imports.

    Returns only in the processes that it has forked, once they have run as gunicorn's master.
    """
    names = preload([*WORKER, *SCRIPT]) | imported_names()
    received = _serve(listener, supervisor=os.getppid())
    become(received, names)
    gunicorn_master.main()


def _serve(listener: socket.socket, supervisor: int) -> Received:
    """Fork a process for each request; returns in that process, where the listener is closed."""
    while True:
        connection, _ = listener.accept()
        with ExitStack() as held:
            held.callback(connection.close)
            connection.settimeout(ANSWER_SECONDS)
            received = _receive(connection, supervisor, held)
            if received is not None and fork_for(supervisor):
                held.pop_all()
                listener.close()
                return received


def _receive(connection: socket.socket, supervisor: int, held: ExitStack) -> Received | None:
    """Read one request; None if it is not whole, or not the supervisor's."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    if _PEER.unpack(credentials)[0] != supervisor:
        return None
    try:
        head, descriptors, _, _ = socket.recv_fds(connection, NUMBER.size, MOST_DESCRIPTORS)
        for descriptor in descriptors:
            held.callback(os.close, descriptor)
        (left,) = NUMBER.unpack(head)
        text = b""
        while len(text) < left:
            part = connection.recv(left - len(text))
            if not part:
                return None
            text += part
        return Received(ForkRequest.from_bytes(text), descriptors, connection, supervisor)
    except (OSError, struct.error, ValueError, KeyError, TypeError):
        return None


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
