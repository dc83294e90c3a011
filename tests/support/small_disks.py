"""Small disks for tests: in a mount namespace of their own, which ends with its processes."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


def can_mount() -> bool:
    """Whether a small disk can be had."""
    if shutil.which("unshare") is None:
        return False
    words = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def on_small_disk(folder: Path, megabytes: int) -> Sequence[str]:
    """The launcher of a stack that sees a disk of this size at ``folder``."""
    script = f'mount -t tmpfs -o size={megabytes}m tmpfs {folder} && exec "$@"'
    return "unshare", "--mount", "sh", "-c", script, "sh"
