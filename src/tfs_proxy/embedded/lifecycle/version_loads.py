"""Loads versions for the servable lifecycle, on threads of their own, and tries again what failed."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from tfs_proxy.embedded.core.catalog import Catalog, Model
from tfs_proxy.embedded.core.servable import LoadedServable
from tfs_proxy.embedded.core.states import VersionState, VersionStatus
from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.wire.grpc_codes import GrpcCode

log = logging.getLogger(__name__)

Load = Callable[[str, int, Path], LoadedServable]
"""Loads one version: model name, version number, folder. Raises ServingError."""


class Retry(Struct, frozen=True):
    """How often a failed load is tried again, and after how long."""

    times: int = 5
    interval_seconds: float = 60.0


class VersionLoads:
    """Loads under way; a loaded version is published in ``catalog``, then ``changed`` is called."""

    def __init__(
        self, catalog: Catalog, load: Load, retry: Retry, threads: int, changed: Callable[[], None]
    ) -> None:
        self._catalog = catalog
        self._load = load
        self._retry = retry
        self._changed = changed
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="load")

    @property
    def stopped(self) -> bool:
        """Whether no more loads begin."""
        return self._stopping.is_set()

    def start(self, name: str, model: Model, status: VersionStatus, folder: Path) -> None:
        """Load a version as soon as a thread is free."""
        status.change_state(VersionState.START)
        self._pool.submit(self._load_version, name, model, status, folder)

    def stop(self) -> None:
        """Begin no more loads."""
        self._stopping.set()

    def close(self) -> None:
        """Wait for the loads under way."""
        self._pool.shutdown(cancel_futures=True)

    def _load_version(self, name: str, model: Model, status: VersionStatus, folder: Path) -> None:
        with self._catalog.changed:
            status.change_state(VersionState.LOADING)
        self._attempt(name, model, status, folder, self._retry.times)

    def _attempt(self, name: str, model: Model, status: VersionStatus, folder: Path, retries: int) -> None:
        """One try at a load; if it fails and ``retries`` are left, the next one comes later."""
        error = self._try(name, model, status, folder)
        with self._catalog.changed:
            if error is not None and (not retries or self._is_discarded(status)):
                status.change_state(VersionState.END, error)
            elif error is not None:
                status.error = error
                self._later(self._attempt, name, model, status, folder, retries - 1)
            self._changed()

    def _try(self, name: str, model: Model, status: VersionStatus, folder: Path) -> ServingError | None:
        """Load, unless the version is no longer wanted. Returns the error, of whatever kind."""
        if self._is_discarded(status):
            return status.error or _cancelled()
        try:
            self._load_into(name, model, status, folder)
        except Exception as error:  # noqa: BLE001
            return _logged(name, status.version, error)
        return None

    def _is_discarded(self, status: VersionStatus) -> bool:
        return status.called_off or self.stopped

    def _load_into(self, name: str, model: Model, status: VersionStatus, folder: Path) -> None:
        servable = self._load(name, status.version, folder)
        with self._catalog.changed:
            wanted = not status.called_off
            if wanted:
                status.change_state(VersionState.AVAILABLE)
                model.publish({**model.serving, status.version: servable})
        if not wanted:
            servable.retire()
            raise _cancelled()
        log.info("Successfully loaded servable version {name: %s version: %d}", name, status.version)

    def _later(self, work: Callable[..., None], *arguments: object) -> None:
        """Submit work after the retry interval; the wait takes none of the pool's threads."""

        def wait() -> None:
            self._stopping.wait(min(self._retry.interval_seconds, threading.TIMEOUT_MAX))
            with suppress(RuntimeError):  # the pool has been closed
                self._pool.submit(work, *arguments)

        threading.Thread(target=wait, daemon=True, name="retry").start()


def _logged(name: str, version: int, error: Exception) -> ServingError:
    """The error of a load, written to the log, as clients get it."""
    if isinstance(error, ServingError):
        log.error("%s version %d: load failed: %s", name, version, error.text)
        return error
    log.error("%s version %d: load failed", name, version, exc_info=error)
    return ServingError(GrpcCode.INTERNAL, f"The load failed: {type(error).__name__}: {error}")


def _cancelled() -> ServingError:
    return ServingError(GrpcCode.CANCELLED, "Loading of servable cancelled")
