"""Why a load failed, and the status that its client gets for it."""

import errno
import os

import pytest

from tfs_proxy.serving.upstream.shortages import load_failure
from tfs_proxy.values import errors
from tfs_proxy.wire.error_body import INTERNAL_ERROR
from tfs_proxy.wire.error_status import status_of_error

FULL_QUEUE = "RESOURCE_EXHAUSTED: The batch scheduling queue to which this task was submitted is full"


def of_errno(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def raised_from(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def raised_while_handling(error: Exception, context: BaseException, *, hidden: bool = False) -> Exception:
    error.__context__, error.__suppress_context__ = context, hidden
    return error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.DiscoveryError("two models are called m"), 400),
        (errors.NoModelFound("no SavedModel"), 400),
        (errors.RequirementsError("code/requirements.txt can't be installed"), 400),
        (errors.SettingsError("tfs-proxy.json: no such signature"), 400),
        (errors.ModelLoadError("model m version 1 can't be loaded: Op type not registered 'Foo'"), 400),
        (errors.ModelLoadError("the model server ended with SIGABRT while loading.", ended_with=-6), 500),
        (errors.ProcessGaveUp("gunicorn ended with exit status 1 too often"), 500),
        (errors.ModelServerEnded("the model server ended with exit status 1.", 1), 500),
        (errors.StartTimeout("not ready within 60 s"), 503),
        (errors.Draining("stopping"), 503),
        # No shortages: a full queue passes by itself, and an error's author may hide what was handled before.
        (errors.ModelLoadError(FULL_QUEUE), 400),
        (errors.ModelLoadError("m: Resource temporarily unavailable"), 400),
        (raised_while_handling(errors.ArchiveError("not a gzip file"), MemoryError(), hidden=True), 400),
        (of_errno(errno.ENOENT), 500),
        (PermissionError(errno.EACCES, "Permission denied"), 500),
        (KeyError("a bug"), 500),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_what_a_failed_load_is_answered_with(error: Exception, status: int) -> None:
    """A client's mistake is 4xx, what may pass 503, and the rest 500; a bug is for the log alone."""
    failure = load_failure(error)

    assert status_of_error(failure) == status
    assert str(failure) == (INTERNAL_ERROR if isinstance(error, KeyError) else str(error))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        *map(of_errno, (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EDQUOT)),
        raised_from(errors.ArchiveError("can't be unpacked"), of_errno(errno.ENOSPC)),
        raised_while_handling(errors.ArchiveError("can't be unpacked"), MemoryError()),
        errors.ModelLoadError("m: OOM when allocating tensor with shape[99,99] on /job:localhost"),
        errors.ModelLoadError("m: Failed to allocate memory for the batch"),
        errors.ModelLoadError("m: Dst tensor is not initialized."),
        errors.ModelLoadError("m: CUDA_ERROR_OUT_OF_MEMORY, CUDA_OUT_OF_MEMORY"),
        errors.ModelLoadError("m: The load failed: MemoryError: Unable to allocate 8 GiB"),
        errors.ModelLoadError("m can't be loaded: RESOURCE_EXHAUSTED: no room"),
        errors.ModelLoadError("m: Resource exhausted: no room"),
        errors.ModelLoadError("the model server ended with SIGKILL while loading.", ended_with=-9),
        errors.ModelServerEnded("the model server ended with SIGKILL.", 128 + 9),
        errors.ModelLoadError("ended. Its last output: [Errno 11] Resource temporarily unavailable"),
        errors.ScriptLoadError("inference.py can't be imported", report="Traceback\nMemoryError\n"),
        errors.RequirementsError("The installer's last lines:\n[Errno 28] No space left on device"),
        RuntimeError("can't start new thread"),
    ],
    ids=lambda error: f"{type(error).__name__}-{error}"[:60],
)
def test_every_sign_of_a_shortage_is_507(error: Exception) -> None:
    failure = load_failure(error)

    assert isinstance(failure, errors.NotEnoughResources)
    assert str(failure) == (str(error) or "MemoryError")
    assert status_of_error(failure) == 507
