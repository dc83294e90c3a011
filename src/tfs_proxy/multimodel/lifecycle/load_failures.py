"""Why a load failed -> the error that its client gets, of which the table of statuses makes a code: pure."""

import errno
import os
import re
import signal
from collections.abc import Iterator

from tfs_proxy.errors import (
    LoadFailed,
    ModelLoadError,
    ModelServerEnded,
    NotEnoughResources,
    ScriptLoadError,
    TfsProxyError,
)
from tfs_proxy.wire.error_body import INTERNAL_ERROR

SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Of disk, memory and files."""

SHORTAGE_OF_PROCESSES = errno.EAGAIN
"""A fork says so; elsewhere the same words mean less, so that its number has to stand with them."""

SHORTAGE_TEXTS = (
    "OOM when allocating",
    "failed to allocate",
    "Dst tensor is not initialized",
    "CUDA_OUT_OF_MEMORY",
    "MemoryError",
    "can't start new thread",
    *map(os.strerror, SHORTAGES),
    f"[Errno {SHORTAGE_OF_PROCESSES}] {os.strerror(SHORTAGE_OF_PROCESSES)}",
)
"""What TensorFlow, Python and pip write in any case of letters: other programs' errors come as text."""

FULL_QUEUE = "batch scheduling queue"
"""Stands in TF Serving's RESOURCE_EXHAUSTED that means too many requests."""

_SHORTAGE = re.compile("|".join(map(re.escape, SHORTAGE_TEXTS)), re.IGNORECASE)
_EXHAUSTED = re.compile(r"RESOURCE[_ ]EXHAUSTED", re.IGNORECASE)
_SHELL_STATUS_OF_SIGKILL = 128 + signal.SIGKILL


def means_shortage(text: str) -> bool:
    """Whether an error's text says that memory, disk, files or processes are short."""
    if _SHORTAGE.search(text):
        return True
    return _EXHAUSTED.search(text) is not None and FULL_QUEUE not in text


def load_failure(error: Exception) -> TfsProxyError:
    """What the client of a load is told: ``error`` itself if the table of statuses has its class.

    NotEnoughResources for any sign of a shortage, in the error or in what it was raised from; LoadFailed if
    the model server died, or for an error from outside this package.
    """
    if isinstance(error, NotEnoughResources):
        return error
    text = str(error) or type(error).__name__
    if any(map(_is_shortage, _with_causes(error))):
        return NotEnoughResources(text)
    if isinstance(error, ModelLoadError) and error.ended_with is not None:
        return LoadFailed(text)
    if isinstance(error, TfsProxyError):
        return error
    return LoadFailed(text if isinstance(error, OSError) else INTERNAL_ERROR)


def _is_shortage(error: BaseException) -> bool:
    match error:
        case MemoryError():
            return True
        case OSError() if error.errno in {*SHORTAGES, SHORTAGE_OF_PROCESSES}:
            return True
        case ModelLoadError() if error.ended_with == -signal.SIGKILL:
            return True  # by the kernel, which is out of memory: nobody else kills one that loads
        case ModelServerEnded() if error.exit_status == _SHELL_STATUS_OF_SIGKILL:
            return True
        case ScriptLoadError():
            return means_shortage(f"{error}\n{error.report}")
    return means_shortage(str(error))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """``error``, and what it was raised from or while handling."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        hidden = following.__suppress_context__
        following = following.__cause__ or (None if hidden else following.__context__)
