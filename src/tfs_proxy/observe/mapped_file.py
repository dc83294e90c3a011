"""Files of fixed size that a worker writes in place, and others read: its journal and its table of stages."""

import logging
import mmap
import os
from pathlib import Path

log = logging.getLogger(__name__)


def mapped(path: Path, size: int) -> mmap.mmap:
    """Make a file of ``size`` zero bytes, and map it.

    Its blocks are allocated at once: writing into a hole of a full disk would end the process by SIGBUS.
    If there is no room, memory of the process's own takes the file's place, which nobody else can read.
    """
    with path.open("wb+") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
            return mmap.mmap(file.fileno(), size)
        except OSError as error:
            path.unlink()
            log.warning("%s can't be written, so nothing is counted there: %s", path.name, error.strerror)
            return mmap.mmap(-1, size)
