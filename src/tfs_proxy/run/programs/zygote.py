"""The zygote: the process that has imported what workers need, and from which gunicorn is forked.

A process that can't be forked from it is started as any other: it only takes longer, and more memory.
"""

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Callable, Iterator, Mapping

from tfs_proxy.run.host.processes import ForkedProcess, RunningProcess, can_watch_forked
from tfs_proxy.run.process import ChildProcess, ProcessSpec, ProcessState, spawn
from tfs_proxy.run.programs import gunicorn
from tfs_proxy.settings.settings import Settings
from tfs_proxy.settings.worker_environment import FORK_SECONDS, GO, ForkRequest, written
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.processes import become_subreaper
from tfs_proxy.wire.http_server import BACKLOG

log = logging.getLogger(__name__)

PROGRAM = "tfs_proxy.worker.gunicorn_workers.zygote"
STDOUT = 1
STDERR = 2
MOST_ANSWER_BYTES = 16
STOP_SECONDS = 3.0


class Zygote:
    """The zygote of a run, once it has been started, and a way to start processes with or without it."""

    def __init__(self, settings: Settings, workspace: Workspace, environ: Mapping[str, str]) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        descriptor = self._listener.fileno()
        self._spec = ProcessSpec(
            name="the zygote of workers",
            argv=(sys.executable, "-m", PROGRAM, str(descriptor)),
            env=gunicorn.environment(environ, settings, workspace, ()),
            pass_fds=(descriptor,),
        )
        self._path = str(workspace.zygote)
        self._child: ChildProcess | None = None

    def start(self, start: Callable[[ProcessSpec], ChildProcess]) -> None:
        """Starts it, unless the system can't watch what it forks."""
        if can_watch_forked() and become_subreaper():
            self._listener.bind(self._path)
            self._listener.listen(BACKLOG)
            self._child = start(self._spec)

    def children(self) -> Iterator[ChildProcess]:
        if self._child is not None:
            yield self._child

    def reap_orphans(self) -> None:
        for child in self.children():
            child.reap_orphans()

    async def stop(self) -> None:
        """Ends it; processes forked from it go on."""
        for child in self.children():
            await child.stop(STOP_SECONDS)
        self._listener.close()

    async def spawn(self, spec: ProcessSpec, output: int) -> RunningProcess:
        """Starts ``spec`` as `run.process.spawn` does, forked from the zygote if there is one."""
        for child in self.children():
            if child.state is ProcessState.RUNNING:
                forked = await self._fork(child, spec, output)
                if forked is not None:
                    return forked
        return await spawn(spec, output)

    async def _fork(self, child: ChildProcess, spec: ProcessSpec, output: int) -> ForkedProcess | None:
        """A process forked from ``child``; None if it can't be."""
        try:
            async with asyncio.timeout(FORK_SECONDS):
                return await self._ask(spec, output)
        except TimeoutError:
            log.warning("%s has not answered for %g s: %s is started", child.name, FORK_SECONDS, spec.name)
        except (OSError, EOFError) as error:
            reason = str(error) or type(error).__name__
            log.debug("%s can't be forked, and is started: %s", spec.name, reason)
        return None

    async def _ask(self, spec: ProcessSpec, output: int) -> ForkedProcess:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            await loop.sock_connect(connection, self._path)
            # Its output has their place, as in a process that is started with them.
            passed = [number for number in spec.pass_fds if number > STDERR]
            request = ForkRequest(spec.argv, spec.env, (STDOUT, *passed), int(spec.orphaned_signal))
            line = written(request).encode() + b"\n"
            socket.send_fds(connection, [line[:1]], [output, *passed])
            await loop.sock_sendall(connection, line[1:])
            answer = b""
            while not answer.endswith(b"\n"):
                received = await loop.sock_recv(connection, MOST_ANSWER_BYTES)
                if not received:
                    raise EOFError("the zygote could not fork it")
                answer += received
            forked = ForkedProcess(int(answer))
            with contextlib.suppress(OSError):  # it has been killed by now, which its exit status tells
                await loop.sock_sendall(connection, GO)
            return forked
