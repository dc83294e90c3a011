"""gunicorn's master of one run, forked from the supervisor: it waits for what it is to become.

`supervisor.programs.early_fork` calls it by its name, in a process like one that exec has started.
"""

import os
import socket
from contextlib import ExitStack

from tfs_proxy.web.workers.warm import master
from tfs_proxy.web.workers.warm.fork_requests import receive
from tfs_proxy.web.workers.warm.forked import become, follow
from tfs_proxy.web.workers.warm.preload import imported_names


def main(connection: socket.socket, supervisor: int) -> None:
    """Run as gunicorn's master until it ends; ends at once if the supervisor needs none, or has died."""
    received = receive(connection, supervisor, ExitStack())  # what it receives is this process's to keep
    if received is None:
        os._exit(0)
    follow(received)
    become(received, imported_names())
    master.main()
