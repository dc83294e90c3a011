"""gunicorn's master, forked from this very process before that has threads and an event loop.

It shares what both have imported, and imports the rest while the archive is opened. A process that can't be
started so is started as any other: it only takes longer, and more memory.
"""

import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from setproctitle import setproctitle

from tfs_proxy.observe.logs.config import reset_logging
from tfs_proxy.settings import Settings, change_environment
from tfs_proxy.supervisor.host.parent_death import signal_on_parent_death
from tfs_proxy.supervisor.host.running_process import ForkedProcess, RunningProcess, can_watch_forked
from tfs_proxy.supervisor.host.stop_signals import stop_signals
from tfs_proxy.supervisor.process import ProcessSpec, Spawn, spawn
from tfs_proxy.supervisor.programs import gunicorn
from tfs_proxy.supervisor.programs.fork_request import send_request

PROGRAM: Final = "tfs_proxy.web.workers.warm.early"
_MALLOPT: Final = {"MALLOC_ARENA_MAX": -8, "MALLOC_MMAP_THRESHOLD_": -3, "MALLOC_TRIM_THRESHOLD_": -1}
"""The numbers of glibc's variables in malloc.h: it reads the variables only when a program starts."""


class EarlyFork:
    """A process that imports what workers need, and becomes gunicorn's master once it is asked to."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self._pid = pid
        self._connection: socket.socket | None = connection

    async def spawn(self, spec: ProcessSpec, output: int) -> RunningProcess:
        """Start ``spec`` as `supervisor.process.spawn` does: the first one becomes of this process."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with connection:
                connection.setblocking(False)
                with suppress(OSError):  # it has ended
                    process = ForkedProcess(self._pid)
                    await send_request(connection, spec, output)
                    return process
        return await spawn(spec, output)


def fork_early(settings: Settings, environ: Mapping[str, str]) -> Spawn:
    """Fork the process, if workers of these settings can come of it; how gunicorn is started then.

    To be called while this process has one thread. The new one never returns from here.
    """
    if not (gunicorn.lives_with_imports(settings) and can_watch_forked()):
        return spawn
    supervisor = os.getpid()
    dies_with_parent = signal_on_parent_death(signal.SIGKILL)
    ours, theirs = socket.socketpair()
    gc.freeze()  # PERF: no collection of either process writes into what they share
    try:
        pid = os.fork()
    except OSError:  # no memory, or too many processes: whoever is started next finds out
        ours.close()
        theirs.close()
        return spawn
    if pid == 0:
        if dies_with_parent is not None:
            dies_with_parent()
        _run(theirs, supervisor, gunicorn.defaults(settings), environ)
    theirs.close()
    return EarlyFork(pid, ours).spawn


def _run(
    connection: socket.socket, supervisor: int, defaults: Mapping[str, str], environ: Mapping[str, str]
) -> NoReturn:
    """Be like a process that exec has started, and run the program."""
    setproctitle("gunicorn: starting")
    os.setpgid(0, 0)  # the keyboard's Ctrl-C is the supervisor's
    for number in stop_signals():
        if number is not signal.SIGINT:  # for which Python has its own handler, before and after
            signal.signal(number, signal.SIG_DFL)
    reset_logging()
    missing = {name: value for name, value in defaults.items() if name not in environ}
    change_environment(missing)
    _set_malloc(missing)
    if not sys.flags.safe_path:
        sys.path[0] = str(Path.cwd())
    importlib.import_module(PROGRAM).main(connection, supervisor)
    sys.exit(0)


def _set_malloc(variables: Mapping[str, str]) -> None:
    """Do what glibc would have done for these variables at the start."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for name, number in _MALLOPT.items():
        if mallopt is not None and name in variables:
            mallopt(number, int(variables[name]))
