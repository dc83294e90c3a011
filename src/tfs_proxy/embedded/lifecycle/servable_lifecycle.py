"""The servable lifecycle: decides which versions to load and unload as the folders on disk change.

A new version is loaded before the one that it replaces goes (TF Serving's availability-preserving
policy). `version_loads` loads on a pool of its own; unloads, which wait for requests, run on another.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tfs_proxy.embedded.core.catalog import Catalog, Model, still_loading
from tfs_proxy.embedded.core.servable import LoadedServable
from tfs_proxy.embedded.core.states import VersionState, VersionStatus
from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.embedded.lifecycle import versions
from tfs_proxy.embedded.lifecycle.version_loads import Load, Retry, VersionLoads
from tfs_proxy.embedded.model_config import ModelSource
from tfs_proxy.wire.grpc_codes import GrpcCode

log = logging.getLogger(__name__)

_UNLOAD_THREADS = 64
"""Each unload waits for its version's last request; a thread comes with the first unload that needs it."""


class ServableLifecycle:
    """The one writer of a `Catalog`.

    With ``labels_for_unavailable`` a new label may name any version, with ``labels_for_any`` an old one
    too; without ``polls`` no folder is ever looked at.
    """

    def __init__(
        self,
        catalog: Catalog,
        load: Load,
        *,
        retry: Retry,
        load_threads: int,
        labels_for_unavailable: bool = False,
        labels_for_any: bool = False,
        polls: bool = True,
    ) -> None:
        self._catalog = catalog
        self._loads = VersionLoads(catalog, load, retry, load_threads, changed=self._reconcile)
        self._labels_for_unavailable = labels_for_unavailable
        self._labels_for_any = labels_for_any
        self._polls = polls
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
            labels = self._checked_labels(sources)
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
        if not self._polls:
            return
        for source in self._sources:
            try:
                folders = versions.find(source.base_path)
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

    def _checked_labels(self, sources: Sequence[ModelSource]) -> Mapping[str, Mapping[str, int]]:
        for source in sources:
            model = self._catalog.models.get(source.name)
            for label, version in source.labels.items():
                known = self._catalog.labels.get(source.name, {}).get(label, version)
                if self._labels_for_any or (self._labels_for_unavailable and known == version):
                    continue
                if model is None or version not in model.serving:
                    raise ServingError(
                        GrpcCode.FAILED_PRECONDITION,
                        f"Request to assign label to version {version} of model {source.name}, "
                        "which is not currently available for inference",
                    )
        return {source.name: dict(source.labels) for source in sources}

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
    """Why a model did not become available, by its newest version, in TF Serving's words."""
    version = max(model.versions.keys() & model.aspired.keys(), default=-1)
    error = model.versions[version].error if version >= 0 else None
    if error is None:
        return f"{{name: {name}}} due to error: NOT_FOUND: no versions of it were found"
    return f"{{name: {name} version: {version}}} due to error: {error.code.name}: {error.text}"
