"""Files that other processes lock while they use a model or a folder, for who wants to end or remove it."""

import fcntl
import os
from pathlib import Path


def is_locked(descriptor: int) -> bool:
    """Whether another process has locked the file; a lock that is got is given back at once."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def is_path_locked(path: Path) -> bool:
    """The same for the file at ``path``; False if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return is_locked(descriptor)
    finally:
        os.close(descriptor)
