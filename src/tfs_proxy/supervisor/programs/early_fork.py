"""gunicorn's master, forked from this very process before that has threads and an event loop.

It shares what both have imported; what workers need it imports once it is the master. A process that can't be
started so is started as any other: it only takes longer, and more memory.
"""

import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Final

from setproctitle import setproctitle

from tfs_proxy.observe.logs.config import reset_logging
from tfs_proxy.resources import set_malloc
from tfs_proxy.settings import Settings, change_environment
from tfs_proxy.supervisor.host.parent_death import signal_on_parent_death
from tfs_proxy.supervisor.host.running_process import ForkedProcess, RunningProcess, can_watch_forked
from tfs_proxy.supervisor.host.stop_signals import stop_signals
from tfs_proxy.supervisor.process import ProcessSpec, Spawn, spawn
from tfs_proxy.supervisor.programs import gunicorn
from tfs_proxy.supervisor.programs.fork_request import STDERR, STDOUT, send_request

PROGRAM: Final = "tfs_proxy.web.workers.warm.early"


class EarlyFork:
    """A process that waits, and becomes gunicorn's master once it is asked to."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self._pid: int | None = pid
        self._connection: socket.socket | None = connection

    async def spawn(self, spec: ProcessSpec, output: int) -> RunningProcess:
        """Start ``spec`` as `supervisor.process.spawn` does: the first one becomes of this process."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid is not None:
            with connection, suppress(OSError):  # it has ended, or can't be watched
                connection.setblocking(False)
                process = ForkedProcess(self._pid)
                await send_request(connection, spec, output)
                self._pid = None
                return process
            self.end()
        return await spawn(spec, output)

    def end(self) -> None:
        """End the process if nothing has become of it; idempotent."""
        pid, self._pid = self._pid, None
        with suppress(ChildProcessError):  # somebody has collected it: the number may be another's
            if pid is not None and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


@contextmanager
def forked_early(settings: Settings, environ: Mapping[str, str], listener: socket.socket) -> Iterator[Spawn]:
    """Fork the process, if workers of these settings can come of it; how gunicorn is started then.

    The new one never leaves this function, and does not keep ``listener``. With ``reload`` workers have a
    parent of their own.
    """
    can_be_forked = gunicorn.lives_with_imports(settings) and not settings.reload
    fork = _fork(settings, environ, listener) if can_be_forked else None
    try:
        yield spawn if fork is None else fork.spawn
    finally:
        if fork is not None:
            fork.end()


def _fork(settings: Settings, environ: Mapping[str, str], listener: socket.socket) -> EarlyFork | None:
    """The process; None if it can't be had."""
    if not (can_watch_forked() and _has_one_thread()):
        return None
    supervisor, dies_with_parent = os.getpid(), signal_on_parent_death(signal.SIGKILL)
    gc.freeze()  # PERF: no collection of either process writes into what they share
    try:
        ours, theirs = socket.socketpair()
        pid = os.fork()
    except OSError:  # no descriptors, memory or processes: whoever is started next finds out
        return None
    if pid:
        theirs.close()
        return EarlyFork(pid, ours)
    try:
        ours.close()
        listener.close()
        if dies_with_parent is not None:
            dies_with_parent()
        program = _prepare(gunicorn.defaults(settings), environ)
    except BaseException:  # noqa: BLE001 - exec starts gunicorn, and reports what is wrong
        os._exit(1)
    program.main(theirs, supervisor)
    sys.exit(0)


def _has_one_thread() -> bool:
    """Whether no other thread could hold a lock, which nobody would release in a forked process."""
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - their number
    except OSError:
        return False


def _prepare(defaults: Mapping[str, str], environ: Mapping[str, str]) -> ModuleType:
    """Be like a process that exec has started; the program, imported."""
    os.setpgid(0, 0)  # the keyboard's Ctrl-C is the supervisor's
    setproctitle("gunicorn: starting")
    for number in stop_signals():
        if number is not signal.SIGINT:  # for which Python has its own handler, before and after
            signal.signal(number, signal.SIG_DFL)
    reset_logging()
    # What imports print would come without the form of the log. One that fails is repeated after exec.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, STDOUT)
    os.dup2(nothing, STDERR)
    missing = {name: value for name, value in defaults.items() if name not in environ}
    change_environment(missing)
    set_malloc({name: int(missing[name]) for name in gunicorn.MEMORY_SETTINGS if name in missing})
    if not sys.flags.safe_path:
        sys.path[0] = str(Path.cwd())
    return importlib.import_module(PROGRAM)
