"""The versions of all models: which there are, their loads, and which of them requests reach."""

import errno
import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from tfs_proxy.embedded.core.catalog import Catalog, Model, VersionState, VersionStatus, still_loading
from tfs_proxy.embedded.core.servable import LoadedServable
from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.embedded.model_config import ModelSource
from tfs_proxy.values.names import HIGHEST_VERSION
from tfs_proxy.wire.grpc_codes import GrpcCode

log = logging.getLogger(__name__)

_SCHEME = "file://"
_NUMBER = re.compile(r"[0-9]+")

_UNLOAD_THREADS = 64
"""Each unload waits for its version's last request; a thread comes with the first unload that needs it."""


def find(base_path: str) -> dict[int, Path]:
    """Each version number below a base path with its folder; empty if there is none.

    A folder counts when its name is a whole number of at most 63 bits; zeros may lead (``00001``), and of
    several names of one number the last counts. Raises FileNotFoundError if the base path is not a folder of
    this machine, which is all that is looked at.
    """
    folders: dict[int, Path] = {}
    root = Path(base_path.removeprefix(_SCHEME))
    if not root.is_dir():
        remote = "://" in base_path and not base_path.startswith(_SCHEME)
        reason = "the embedded model server reads local folders only" if remote else os.strerror(errno.ENOENT)
        raise FileNotFoundError(errno.ENOENT, reason, base_path)
    for child in sorted(root.iterdir()):
        if _NUMBER.fullmatch(child.name) and child.is_dir() and int(child.name) <= HIGHEST_VERSION:
            folders[int(child.name)] = child
    return folders


Load = Callable[[str, int, Path], LoadedServable]
"""Loads one version: model name, version number, folder. Raises ServingError."""


class Retry(Struct, frozen=True):
    """Number of attempts after a failed load, and the pause before each."""

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
        return self._stopping.is_set()

    def start(self, name: str, model: Model, status: VersionStatus, folder: Path) -> None:
        """Load a version as soon as a thread is free."""

        def load() -> None:
            with self._catalog.changed:
                status.change_state(VersionState.LOADING)
            self._attempt(name, model, status, folder, self._retry.times)

        status.change_state(VersionState.START)
        self._pool.submit(load)

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

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
            self._stopping.wait(self._retry.interval_seconds)
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


class ServableLifecycle:
    """The one writer of a `Catalog`.

    With ``labels_for_unavailable`` a new label may name any version.
    """

    def __init__(
        self,
        catalog: Catalog,
        load: Load,
        *,
        retry: Retry,
        load_threads: int,
        labels_for_unavailable: bool = False,
    ) -> None:
        self._catalog = catalog
        self._loads = VersionLoads(catalog, load, retry, load_threads, changed=self._reconcile)
        self._labels_for_unavailable = labels_for_unavailable
        self._sources: tuple[ModelSource, ...] = ()
        self._unloads = ThreadPoolExecutor(_UNLOAD_THREADS, thread_name_prefix="unload")
        self._logged_once: set[str] = set()
        self._taken = False

    def reload(self, sources: Sequence[ModelSource]) -> None:
        """Serve these models from now on; loads go on in the background.

        Raises ServingError if a label names a version that is not available.
        """
        catalog = self._catalog
        with catalog.changed:
            for source in sources:
                model = self._catalog.models.get(source.name)
                for label, version in source.labels.items():
                    known = self._catalog.labels.get(source.name, {}).get(label, version)
                    if self._labels_for_unavailable and known == version:
                        continue
                    if model is None or version not in model.serving:
                        raise ServingError(
                            GrpcCode.FAILED_PRECONDITION,
                            f"Request to assign label to version {version} of model {source.name}, "
                            "which is not currently available for inference",
                        )
            labels = {source.name: dict(source.labels) for source in sources}
            self._sources = tuple(sources)
            catalog.labels = labels
            for name in catalog.names - {source.name for source in sources}:
                catalog.models[name].aspire({})
            for source in sources:
                catalog.models.setdefault(source.name, Model())
            catalog.names = frozenset(source.name for source in sources)
        self.poll()

    def poll(self) -> None:
        """Look at the sources' folders once, and load and unload accordingly."""
        for source in self._sources:
            try:
                folders = find(source.base_path)
            except OSError as error:
                self._log_once(
                    f"Could not find base path {source.base_path} for servable {source.name} "
                    f"with error {error.strerror}"
                )
                continue
            chosen = source.policy.choose(list(folders))
            self._log_missing_versions(source, chosen)
            with self._catalog.changed:
                if source in self._sources:
                    self._catalog.models[source.name].aspire(
                        {version: folders[version] for version in chosen}
                    )
        self._reconcile()

    @contextmanager
    def turn(self, still_wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """A block for one caller at a time, entered once the first models are loaded or have failed.

        Raises ServingError if the turn does not come while it is still wanted.
        """
        with self._catalog.changed:
            while self._must_wait and still_wanted() and not self._loads.stopped:
                self._catalog.changed.wait(0.1)
            if self._must_wait:
                raise still_loading()
            self._taken = True
        try:
            yield
        finally:
            with self._catalog.changed:
                self._taken = False
                self._catalog.changed.notify_all()

    @property
    def _must_wait(self) -> bool:
        return self._taken or self._catalog.starting

    def wait_until_available(
        self, names: Sequence[str], still_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Wait until these models serve, and each of their wanted versions has had its first attempt.

        A model that serves does not wait for another try of a version that failed. Raises ServingError
        that names the models of which no version could be loaded, or whose folders are not there.
        """
        models = self._catalog.models
        with self._catalog.changed:
            while still_wanted() and not all(models[name].settled for name in names):
                self._catalog.changed.wait(0.1)
            failed = [_failure(name, models[name]) for name in names if not models[name].serving]
        if failed:
            errors = "".join(f"{{{line}}}, " for line in failed)
            raise ServingError(
                GrpcCode.UNKNOWN, f"{len(failed)} model(s) did not become available: {{{errors}}}"
            )

    def stop(self) -> None:
        """Begin no more loads; those under way are finished, and waiting for another ends with an error."""
        self._loads.stop()

    def close(self) -> None:
        """Stop loading, and give every servable back once its requests are done."""
        self.stop()
        with self._catalog.changed:
            self._sources = ()
            leaving: list[LoadedServable] = []
            for model in self._catalog.models.values():
                leaving += model.serving.values()
                model.aspired = {}
                model.publish({})
            self._catalog.changed.notify_all()
        for servable in leaving:
            servable.retire()
        self._loads.close()
        self._unloads.shutdown()

    def _reconcile(self) -> None:
        with self._catalog.changed:
            for name, model in self._catalog.models.items():
                for version in sorted(model.aspired, reverse=True):
                    status = model.versions.setdefault(version, VersionStatus(version))
                    if status.may_start:
                        self._loads.start(name, model, status, model.aspired[version])
                self._unload_replaced(model)
            self._catalog.starting &= any(model.untried for model in self._catalog.models.values())
            self._catalog.changed.notify_all()

    def _unload_replaced(self, model: Model) -> None:
        replaced = not model.aspired or any(version in model.serving for version in model.aspired)
        leaving = [version for version in model.serving if version not in model.aspired]
        if not replaced or not leaving:
            return
        serving = dict(model.serving)
        for version in leaving:
            servable = serving.pop(version)
            model.versions[version].change_state(VersionState.UNLOADING)
            self._unloads.submit(self._unload, servable, model.versions[version])
        model.publish(serving)

    def _unload(self, servable: LoadedServable, status: VersionStatus) -> None:
        try:
            servable.retire()
        finally:
            with self._catalog.changed:
                status.change_state(VersionState.END)
                self._reconcile()
        log.info("Unloaded servable version {name: %s version: %d}", servable.name, servable.version)

    def _log_missing_versions(self, source: ModelSource, chosen: Collection[int]) -> None:
        for version in source.policy.specific:
            if version not in chosen:
                self._log_once(
                    f"Version {version} of servable {source.name}, which was requested to be served as a "
                    "'specific' version in the servable's version policy, was not found in the file system"
                )
        if not chosen:
            self._log_once(
                f"No versions of servable {source.name} found under base path {source.base_path}. "
                "Did you forget to name your leaf directory as a number (eg. '/1/')?"
            )

    def _log_once(self, text: str) -> None:
        """Log once what each poll, every second, would repeat."""
        if text not in self._logged_once:
            self._logged_once.add(text)
            log.warning("%s", text)


def _failure(name: str, model: Model) -> str:
    """The reason why a model did not become available, by its newest version, in TF Serving's words."""
    version = max(model.versions.keys() & model.aspired.keys(), default=-1)
    error = model.versions[version].error if version >= 0 else None
    if error is None:
        return f"{{name: {name}}} due to error: NOT_FOUND: no versions of it were found"
    return f"{{name: {name} version: {version}}} due to error: {error.code.name}: {error.text}"
