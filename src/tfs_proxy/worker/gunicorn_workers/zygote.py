"""Zygote: imports the modules of all workers, and forks gunicorn's masters on request; run as a module.

`run.programs.zygote` starts it and asks it at a socket that it owns, by a connection for each process.
It has one thread, and opens neither connections nor files that forked processes could inherit. Those keep
nothing but imported modules. If the model has one of those, too, or anything else differs from the zygote,
exec starts anew, in the same process: a fork is only quicker.
"""

import fcntl
import os
import socket
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from tfs_proxy.observe.logs.entry import LOG_VARIABLE
from tfs_proxy.serving.upstream.instances import fetch_deployment
from tfs_proxy.settings.settings import change_environment, inherited_environment
from tfs_proxy.settings.worker_environment import (
    FORK_SECONDS,
    GO,
    METRICS_VARIABLE,
    WORKSPACE_VARIABLE,
    ForkRequest,
    read,
    worker_workspace,
)
from tfs_proxy.values.errors import UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.values.processes import signal_at_death_of
from tfs_proxy.worker.gunicorn_workers import master
from tfs_proxy.worker.gunicorn_workers.preload import (
    REQUESTS,
    SCRIPT,
    WORKER,
    imported_names,
    names_of_model,
    preload,
)

MOST_DESCRIPTORS: Final = 253
"""Limit of Linux for the descriptors in one message."""

PYTHON_PATH: Final = "PYTHONPATH"
OF_MODEL: Final = (WORKSPACE_VARIABLE, METRICS_VARIABLE, LOG_VARIABLE, PYTHON_PATH, "CUDA_VISIBLE_DEVICES")
"""Variables that are a model's own, and that no module reads while it is imported."""

OF_PYTHON: Final = "LC_CTYPE"
"""Variable that Python sets by itself."""

STDIN = 0
STDERR = 2
PAUSE_SECONDS: Final = 0.001
_OPEN: Final = Path("/proc/self/fd")


def main(listener: socket.socket) -> None:
    """Serve at ``listener`` until a signal ends this process; earlier connections wait for the imports.

    Returns only in the processes that it has forked, once they have run as gunicorn's master.
    """
    names = preload([*WORKER, *SCRIPT, *REQUESTS]) | imported_names()
    supervisor = os.getppid()
    request, descriptors, connection = _accept_one(listener, supervisor)
    os.setpgid(0, 0)
    signal_at_death_of(supervisor, request.orphaned_signal)()
    try:
        connection.sendall(b"%d\n" % os.getpid())
        if connection.recv(len(GO)) != GO:  # the supervisor does not wait for its end
            os._exit(1)
    except OSError:
        os._exit(1)
    connection.close()
    _take_descriptors(descriptors, request.descriptors)
    if not _is_like_zygote(request, names):
        os.execve(request.argv[0], request.argv, request.env)  # noqa: S606 - needs no shell
    sys.argv = [str(master.__file__), *request.argv[3:]]
    master.main()


def _accept_one(listener: socket.socket, supervisor: int) -> tuple[ForkRequest, Sequence[int], socket.socket]:
    """Fork a process for each request, a line; returns in that process, where the listener is closed."""
    while True:
        connection, _ = listener.accept()
        with ExitStack() as held:
            held.callback(connection.close)
            connection.settimeout(FORK_SECONDS)
            try:
                begin, descriptors, _, _ = socket.recv_fds(connection, 1, MOST_DESCRIPTORS)
                for descriptor in descriptors:
                    held.callback(os.close, descriptor)
                with connection.makefile("rb") as rest:
                    request = read(ForkRequest, begin + rest.readline())
            except (OSError, ValueError):  # it is incomplete
                continue
            if _fork_for(supervisor):
                held.pop_all()
                listener.close()
                return request, descriptors, connection


def _fork_for(supervisor: int) -> bool:
    """Fork a process whose parent ends at once, so that ``supervisor`` inherits it; True in that process."""
    try:
        child = os.fork()
    except OSError:  # no memory, or too many processes: the supervisor notices
        return False
    if child:
        os.waitpid(child, 0)
        return False
    between = os.getpid()
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        os._exit(1)
    while os.getppid() == between:
        time.sleep(PAUSE_SECONDS)
    if os.getppid() != supervisor:
        os._exit(1)
    return True


def _take_descriptors(received: Sequence[int], numbers: Sequence[int]) -> None:
    """Put ``received`` under their ``numbers``, the first also as stderr; close all others."""
    above = max(*numbers, STDERR) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in received]
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in zip([nothing, moved[0], *moved], [STDIN, STDERR, *numbers], strict=True):
        os.dup2(descriptor, number)
    for descriptor in map(int, os.listdir(_OPEN)):  # noqa: PTH208 - their names
        if descriptor > STDERR and descriptor not in numbers:
            with suppress(OSError):  # the descriptor that listed them is closed
                os.close(descriptor)


def _is_like_zygote(request: ForkRequest, names: Collection[str]) -> bool:
    """True if a process with this command line and environment would be like this one, which takes them.

    The model may have none of the modules that are imported, which are ``names``.
    """
    own = inherited_environment()
    program = (sys.executable, "-m", master.__name__)
    others = (own.keys() | request.env.keys()) - {*OF_MODEL, OF_PYTHON}
    if request.argv[:3] != program or any(own.get(name) != request.env.get(name) for name in others):
        return False
    before, after = (
        [path for path in environ.get(PYTHON_PATH, "").split(os.pathsep) if path]
        for environ in (own, request.env)
    )
    count = len(after) - len(before)
    if count < 0 or after[count:] != before:
        return False
    change_environment({name: request.env.get(name) for name in OF_MODEL})
    first = 0 if sys.flags.safe_path else 1
    sys.path[first:first] = after[:count]
    try:
        deployment = fetch_deployment(worker_workspace().control_socket)
        return names_of_model(deployment).isdisjoint(names)
    except (UpstreamUnavailable, UpstreamTimeout, OSError):
        return False


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
