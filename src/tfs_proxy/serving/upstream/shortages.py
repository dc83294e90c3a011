"""Detection of a lack of memory, disk or processes in errors, which gives requests the status 507.

Between workers and the model servers, if there are many models: clients that load and unload them make room
after a 507. A single model's clients get TF Serving's own status.
"""

import errno
import os
import re
import signal
from typing import Final

from tfs_proxy.values.errors import (
    LoadFailed,
    ModelLoadError,
    ModelServerEnded,
    NotEnoughResources,
    ScriptLoadError,
    TfsProxyError,
)
from tfs_proxy.wire.error_body import INTERNAL_ERROR, error_text

SHORTAGES: Final = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Errors that say a lack of disk, memory or files."""

SHORTAGE_OF_PROCESSES: Final = errno.EAGAIN
"""Error of a fork without processes; other errors have the same words, so the number must stand with them."""

SHORTAGE_TEXTS: Final = (
    "OOM when allocating",
    "failed to allocate",
    "Dst tensor is not initialized",
    "CUDA_OUT_OF_MEMORY",
    "MemoryError",
    "can't start new thread",
    *map(os.strerror, SHORTAGES),
    f"[Errno {SHORTAGE_OF_PROCESSES}] {os.strerror(SHORTAGE_OF_PROCESSES)}",
)
"""Texts of TensorFlow, Python and pip in any case of letters: other programs' errors come as text."""

FULL_QUEUES: Final = ("batch scheduling queue", "Server Threadpool Exhausted")
"""Texts in TF Serving's and gRPC's RESOURCE_EXHAUSTED that mean too many requests."""

SHORTAGE_CLASSES: Final = frozenset({"ResourceExhaustedError", "OutOfMemoryError"})
"""Names of TensorFlow's and PyTorch's exceptions for a lack of memory."""

_SHELL_STATUS_OF_SIGKILL: Final = 128 + signal.SIGKILL
_EXHAUSTED_STATUS: Final = 429
_SERVERS_FAULT: Final = 500

_SHORTAGE = re.compile("|".join(map(re.escape, SHORTAGE_TEXTS)), re.IGNORECASE)
_EXHAUSTED = re.compile(r"RESOURCE[_ ]EXHAUSTED", re.IGNORECASE)


def means_shortage(text: str) -> bool:
    """True if an error's text says that memory, disk, files or processes are short."""
    if _SHORTAGE.search(text):
        return True
    return _EXHAUSTED.search(text) is not None and not _means_full_queue(text)


def refused_by_shortage(status: int, body: bytes) -> bool:
    """True if a model server's error, of this HTTP status and JSON, says that something is short.

    Its other refusals of a request (4xx) may repeat the client's own words, which say nothing.
    """
    text = error_text(body) or ""
    if status == _EXHAUSTED_STATUS:
        return not _means_full_queue(text)
    return status >= _SERVERS_FAULT and means_shortage(text)


def raised_by_shortage(error: BaseException | None) -> bool:
    """True if an exception of a script says that something is short.

    Its class alone does: its text may be a client's.
    """
    if isinstance(error, OSError) and error.errno in SHORTAGES:
        return True
    return any(kind is MemoryError or kind.__name__ in SHORTAGE_CLASSES for kind in type(error).__mro__)


def load_failure(error: BaseException) -> TfsProxyError:
    """The error for the client of a load: ``error`` itself if its class has an HTTP status.

    NotEnoughResources for any sign of a shortage, in the error or its causes; LoadFailed if
    the model server died, or for an error from outside this package.
    """
    if isinstance(error, NotEnoughResources):
        return error
    text = str(error) or type(error).__name__
    if _is_by_shortage(error):
        return NotEnoughResources(text)
    if isinstance(error, ModelLoadError) and error.ended_with is not None:
        return LoadFailed(text)
    if isinstance(error, TfsProxyError):
        return error
    return LoadFailed(text if isinstance(error, OSError) else INTERNAL_ERROR)


def _is_by_shortage(error: BaseException) -> bool:
    """True if the error of a load says that something is short, or one that it was raised from or in."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        match following:
            case MemoryError():
                return True
            case OSError() if following.errno in {*SHORTAGES, SHORTAGE_OF_PROCESSES}:
                return True
            case ModelLoadError() if following.ended_with == -signal.SIGKILL:
                return True  # by the kernel, which is out of memory: nobody else kills one that loads
            case ModelServerEnded() if following.exit_status == _SHELL_STATUS_OF_SIGKILL:
                return True
        report = following.report if isinstance(following, ScriptLoadError) else ""
        if means_shortage(f"{following}\n{report}"):
            return True
        seen.add(id(following))
        hidden = following.__suppress_context__
        following = following.__cause__ or (None if hidden else following.__context__)
    return False


def _means_full_queue(text: str) -> bool:
    return any(queue in text for queue in FULL_QUEUES)
