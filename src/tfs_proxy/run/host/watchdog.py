"""Cleans up after a supervisor that was killed: processes that its children leave behind would hold the port.

Linux signals the children themselves (`parent_death`); the watchdog reaches their children as well.
"""

import contextlib
import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfs_proxy.run.host.workspace import LONGEST_PATH, PREFIX, refuse_unusable, temporary_workspace
from tfs_proxy.values.layout import Workspace

log = logging.getLogger(__name__)

# The shell waits on its input. End of file means that the supervisor is gone, however it ended.
SCRIPT = """
while read -r line; do groups=$line; done
[ -z "$groups" ] || kill -s KILL -- $groups 2>/dev/null
rm -rf -- "$1"
"""


class Watchdog:
    """A shell that outlives this process just long enough to kill ``guard``-ed process groups."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._groups: set[int] = set()
        self._shell = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "tfs-proxy-watchdog", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def guard(self, group: int) -> None:
        """Kills this process group, too, if the supervisor dies."""
        self._groups.add(group)
        self._write_groups()

    def forget(self, group: int) -> None:
        """Forgets a group that has ended: another process may get its number."""
        self._groups.discard(group)
        self._write_groups()

    def look(self) -> None:
        """Starts the shell again if it has been killed."""
        if self._shell.poll() is None:
            return
        self._close_input()
        try:
            self._shell = self._start()
        except OSError as error:
            log.warning("the watchdog was killed, and can't be started again yet: %s", error)
            return
        log.warning("the watchdog was killed: it has been started again")
        self._write_groups()

    def close(self) -> None:
        self._shell.kill()
        self._shell.wait()
        self._close_input()

    def _write_groups(self) -> None:
        """Writes all groups in one line: the last line counts."""
        if self._shell.stdin is None or self._shell.stdin.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            self._shell.stdin.write(" ".join(f"-{group}" for group in sorted(self._groups)).encode() + b"\n")
            self._shell.stdin.flush()

    def _close_input(self) -> None:
        if self._shell.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._shell.stdin.close()


@contextmanager
def guarded_workspace(
    home: str | None, longest_path: str = LONGEST_PATH
) -> Iterator[tuple[Workspace, Watchdog]]:
    """The workspace of a run and its watchdog. Raises SettingsError if nothing can be written there.

    Its sockets, up to ``longest_path``, and configuration files must be able to have paths there, too.
    """
    refuse_unusable(home, PREFIX, longest_path)
    with temporary_workspace(home, PREFIX) as workspace:
        watchdog = Watchdog(workspace.root)
        try:
            yield workspace, watchdog
        finally:
            watchdog.close()
