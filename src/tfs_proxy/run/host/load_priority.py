"""Low priority for processes that load a model while others serve: their niceness, until they serve, too.

Only for processes: a low-priority thread that holds the interpreter's lock delays the event loop.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterable
from typing import Final

from tfs_proxy.observe.process_usage import PROC, process_tree

LOWER_BY: Final = 10
HIGHEST_NICENESS: Final = 19
MOST_ROUNDS: Final = 20

NOT_RESTORED: Final = (
    "models load at the priority of those that serve: lowered priority could not be raised again "
    "here (docker run --cap-add SYS_NICE)"
)


class LoadPriority:
    """The niceness of this process, and that for processes that load.

    ``can_be_restored`` is true if this process may lower niceness again (CAP_SYS_NICE, RLIMIT_NICE).
    """

    def __init__(self) -> None:
        self.normal = os.getpriority(os.PRIO_PROCESS, 0)
        self.lowered = min(self.normal + LOWER_BY, HIGHEST_NICENESS)
        self.can_be_restored = self._try_on_a_thread()

    def lower(self, pid: int) -> None:
        """Lowers the priority of a process that ends with the load. Does nothing if it has ended."""
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, self.lowered)

    def lower_until_ready(self, pid: int) -> None:
        """Lowers the priority of a process that is going to serve, if that can be undone."""
        if self.can_be_restored:
            self.lower(pid)

    def restore(self, pids: Iterable[int]) -> None:
        """Gives every thread of processes, and of all below them, the normal niceness back.

        Threads that have chosen another one keep it. New threads and processes have that of their parents, so
        it is looked until none is found.
        """
        pids = tuple(pids) if self.can_be_restored else ()
        for _ in range(MOST_ROUNDS):
            if not sum(self._restore_threads(member) for pid in pids for member in process_tree(pid)):
                return

    def _restore_threads(self, pid: int) -> int:
        restored = 0
        with contextlib.suppress(OSError):
            for thread in map(int, os.listdir(PROC / str(pid) / "task")):  # noqa: PTH208 - they come and go
                with contextlib.suppress(OSError):
                    if os.getpriority(os.PRIO_PROCESS, thread) == self.lowered != self.normal:
                        os.setpriority(os.PRIO_PROCESS, thread, self.normal)
                        restored += 1
        return restored

    def _try_on_a_thread(self) -> bool:
        """Lowers a short-lived thread and raises it again; only Linux has priorities of threads."""
        if sys.platform != "linux":
            return False
        may_restore = False

        def lower_and_raise() -> None:
            nonlocal may_restore
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self.lowered)
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self.normal)
                may_restore = True

        thread = threading.Thread(target=lower_and_raise, name="priority")
        thread.start()
        thread.join()
        return may_restore
