"""The warm parent: imports what every worker needs, and forks gunicorn's masters on request: run as a module.

`supervisor.programs.warm_parent` starts it and asks it, at a socket that it owns. It has one thread, and
opens neither connections nor files that what it forks could inherit.
"""

import os
import socket
import sys
from contextlib import ExitStack

from tfs_proxy.forking.request import ANSWER_SECONDS
from tfs_proxy.web.workers import gunicorn_master
from tfs_proxy.web.workers.warm.fork_requests import Received, receive
from tfs_proxy.web.workers.warm.forked import become, follow, fork_for, wait_for_go
from tfs_proxy.web.workers.warm.preload import REQUESTS, SCRIPT, WORKER, imported_names, preload


def main(listener: socket.socket) -> None:
    """Serve at ``listener`` until a signal ends this process; who connects before waits for the imports.

    Returns only in the processes that it has forked, once they have run as gunicorn's master.
    """
    names = preload([*WORKER, *SCRIPT, *REQUESTS]) | imported_names()
    received = _serve(listener, supervisor=os.getppid())
    os.setpgid(0, 0)
    follow(received)
    wait_for_go(received.connection)
    become(received, names)
    gunicorn_master.main()


def _serve(listener: socket.socket, supervisor: int) -> Received:
    """Fork a process for each request; returns in that process, where the listener is closed."""
    while True:
        connection, _ = listener.accept()
        with ExitStack() as held:
            held.callback(connection.close)
            connection.settimeout(ANSWER_SECONDS)
            received = receive(connection, supervisor, held)
            if received is not None and fork_for(supervisor):
                held.pop_all()
                listener.close()
                return received


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
