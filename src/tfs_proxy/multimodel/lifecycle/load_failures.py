"""Why a load failed -> the error that its client gets, of which the table of statuses makes a code: pure."""

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
from tfs_proxy.upstream.shortages import SHORTAGE_OF_PROCESSES, SHORTAGES, means_shortage
from tfs_proxy.wire.error_body import INTERNAL_ERROR

_SHELL_STATUS_OF_SIGKILL = 128 + signal.SIGKILL


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
