"""Ends of processes for lack of memory, or of processes and threads: the control group counts them."""

import logging
import signal
import time
from typing import Final

from tfs_proxy.run.host.processes import describe_exit
from tfs_proxy.values.resources import Resources, memory_shares, shortfalls
from tfs_proxy.wire.shortages import more_tasks

log = logging.getLogger(__name__)

RECENT_SECONDS: Final = 5.0
"""A process that ends so soon after a kill or a refusal, or within twice the time, has ended by it."""


class Limits:
    """The limits of memory and of processes that a run has met.

    ``models`` has the size on disk of each archive that is served, in bytes.
    """

    def __init__(self, resources: Resources) -> None:
        self.models: dict[str, int] = {}
        self._memory_bytes = resources.memory_bytes or 0
        self._before = self._last = shortfalls()
        self._told = self._last.killed
        self._at = time.monotonic()

    @property
    def memory(self) -> str:
        """The memory that there is, and what counts towards it."""
        return memory_shares(self._memory_bytes, sum(self.models.values()))

    def look(self) -> None:
        """Logs kills that no child of the run has told: of workers, and of what a script has started."""
        now = shortfalls()
        if now.killed > self._told:
            self._told = now.killed
            log.error("a process was killed for lack of memory: allow more than %s", self.memory)
        if time.monotonic() - self._at > RECENT_SECONDS:
            self._before = self._last
            self._last = now
            self._at = time.monotonic()

    def describe(self, status: int | None) -> str:
        """An exit status in words, with the limit by which it came."""
        return f"{describe_exit(status)}{self.shortage(status)}"

    def shortage(self, status: int | None) -> str:
        """The limit by which a process has ended just now, as a phrase; "" if by none.

        ``status`` is its exit status, None if that is not known.
        """
        now = shortfalls()
        self._told = now.killed
        if status in {-signal.SIGKILL, None} and now.killed > self._before.killed:
            return f" for lack of memory: allow more than {self.memory}"
        if status != 0 and now.refused > self._before.refused:
            return f" for want of processes and threads: allow more ({more_tasks()})"
        return ""
