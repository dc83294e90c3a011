"""Sentences on limits of the machine by which a command ends: processes, open files, disk, size of files."""

import errno

from tfs_proxy.values.errors import SettingsError, StopServing
from tfs_proxy.values.resources import MOST_DESCRIPTORS, available_resources, most_descriptors

NO_ROOM = "make room, or set TFS_PROXY_HOME to a folder on a larger one"
TOO_LARGE = "is larger than files may be: allow larger ones (ulimit -f, docker run --ulimit fsize=-1)"


def shortage(error: BaseException) -> str | None:
    """Say which limit an exception is about, and how to raise it; None if it is about none."""
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    match errno.EAGAIN if no_thread else getattr(error, "errno", None):
        case errno.EAGAIN:
            return f"No more processes or threads may be started: allow more ({more_tasks()})."
        case errno.EMFILE:
            most = f"ulimit -Hn, docker run --ulimit nofile={MOST_DESCRIPTORS}"
            return f"No more than {most_descriptors()} files may be open: allow more ({most})."
        case errno.ENOSPC | errno.EDQUOT:
            return f"A disk has no room left: {NO_ROOM}."
        case errno.EFBIG:
            return f"A file {TOO_LARGE}."
    return None


def more_tasks() -> str:
    """The limit of processes and threads, and what raises it."""
    return f"pids.max is {available_resources().tasks}, docker run --pids-limit; or ulimit -u"


def ending(error: Exception) -> StopServing:
    """The error with which a command ends; raises ``error`` if it is neither ours nor about a limit."""
    if isinstance(error, StopServing):
        return error
    text = shortage(error)
    if text is None:
        raise error
    return SettingsError(text)
