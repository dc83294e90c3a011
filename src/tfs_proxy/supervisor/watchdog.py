"""Cleans up behind a supervisor that was killed: its children would go on, and hold the port."""

import contextlib
import subprocess
from pathlib import Path

# The shell waits on its input. End of file means that the supervisor is gone, however it ended.
SCRIPT = """
while read -r group; do groups="$groups -$group"; done
[ -z "$groups" ] || kill -s KILL -- $groups 2>/dev/null
rm -rf -- "$1"
"""


class Watchdog:
    """A shell that outlives this process by as long as it takes to end ``guard``-ed process groups."""

    def __init__(self, folder: Path) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "tfs-proxy-watchdog", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def guard(self, group: int) -> None:
        """Kill this process group, too, should the supervisor die."""
        if self._shell.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._shell.stdin.write(f"{group}\n".encode())
                self._shell.stdin.flush()

    def close(self) -> None:
        """Send the shell away, its work undone; idempotent."""
        self._shell.kill()
        self._shell.wait()
        if self._shell.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._shell.stdin.close()
