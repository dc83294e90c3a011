"""A process that has been started, however that was done, as `supervisor.process` needs it."""

import asyncio
import os
from typing import Protocol

LOST = 255
"""The exit status of a process that somebody else has collected, as asyncio has it."""


class RunningProcess(Protocol):
    """What asyncio's own ``Process`` has, too."""

    @property
    def pid(self) -> int:
        """Its process id."""

    async def wait(self) -> int:
        """Wait for its end; the exit status, or the negative number of the signal that ended it."""

    def send_signal(self, signal: int, /) -> None:
        """Send it a signal; raises ProcessLookupError if it has ended."""


class ForkedProcess:
    """A child of this process that another one has forked (Linux); to be made in the event loop.

    Raises OSError if the system can't watch it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._loop = asyncio.get_running_loop()
        self._descriptor = os.pidfd_open(pid)
        self._exit_status: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._descriptor, self._collect)

    async def wait(self) -> int:
        """Wait for its end; as `RunningProcess` says."""
        return await asyncio.shield(self._exit_status)

    def send_signal(self, signal: int, /) -> None:
        """Send it a signal; until it has been collected nobody else gets its number."""
        if not self._exit_status.done():
            os.kill(self.pid, signal)

    def _collect(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        try:
            _, status = os.waitpid(self.pid, 0)
            self._exit_status.set_result(os.waitstatus_to_exitcode(status))
        except ChildProcessError:
            self._exit_status.set_result(LOST)


def can_watch_forked() -> bool:
    """Whether ends of processes can be waited for that this one has not started itself."""
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True
