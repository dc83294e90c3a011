"""Which versions are served: from sources on disk to loaded servables, and back out again.

A new version is loaded before the one that it replaces goes (TF Serving's availability-preserving
policy). Requests ask `acquire`, which takes no lock that a load could hold.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tfs_proxy.embedded import versions
from tfs_proxy.embedded.errors import Code, ServingError, invalid
from tfs_proxy.embedded.model_config import ModelSource
from tfs_proxy.embedded.servable import Servable
from tfs_proxy.embedded.states import State, VersionStatus

log = logging.getLogger(__name__)

Load = Callable[[str, int, Path], Servable]
"""Loads one version: model name, version number, folder. Raises ServingError."""

_EMPTY: Mapping[int, Servable] = {}


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failed load is tried again, and after how long."""

    times: int = 5
    interval_seconds: float = 60.0


@dataclass(slots=True)
class _Model:
    """What is known of one model; ``serving`` is replaced as a whole, never changed."""

    aspired: dict[int, Path] = field(default_factory=dict)
    versions: dict[int, VersionStatus] = field(default_factory=dict)
    serving: Mapping[int, Servable] = field(default_factory=dict)
    latest: Servable | None = None

    def publish(self, serving: Mapping[int, Servable]) -> None:
        self.serving = serving
        self.latest = serving[max(serving)] if serving else None


class Engine:
    """Keeps what is loaded in step with the sources."""

    def __init__(
        self, load: Load, *, retry: Retry, load_threads: int, labels_for_unavailable: bool = False
    ) -> None:
        self._load = load
        self._retry = retry
        self._labels_for_unavailable = labels_for_unavailable
        self._sources: tuple[ModelSource, ...] = ()
        self._labels: Mapping[str, Mapping[str, int]] = {}
        self._models: dict[str, _Model] = {}
        self._changed = threading.Condition(threading.RLock())
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(load_threads, thread_name_prefix="load")
        self._reported: set[str] = set()

    def reload(self, sources: Sequence[ModelSource]) -> None:
        """Serve these models from now on; loads go on in the background.

        Raises ServingError where a label names a version that is not available.
        """
        with self._changed:
            labels = self._checked_labels(sources)
            gone = {source.name for source in self._sources} - {source.name for source in sources}
            self._sources = tuple(sources)
            self._labels = labels
            for name in gone:
                self._models[name].aspired = {}
        self.poll()

    def poll(self) -> None:
        """Look at the sources' folders once, and load and unload accordingly."""
        for source in self._sources:
            try:
                found = versions.find(source.base_path)
            except OSError:
                self._report(f"Could not find base path {source.base_path} for servable {source.name}")
                with self._changed:
                    self._models.setdefault(source.name, _Model())
                continue
            chosen = source.policy.choose(list(found))
            if not chosen:
                self._report(
                    f"No versions of servable {source.name} found under base path {source.base_path}. "
                    "Did you forget to name your leaf directory as a number (eg. '/1/')?"
                )
            with self._changed:
                model = self._models.setdefault(source.name, _Model())
                model.aspired = {version: found[version] for version in chosen}
        self._reconcile()

    def acquire(self, name: str, version: int | None = None, label: str | None = None) -> Servable:
        """The servable that a request is for, counted as used: `Servable.leave` it afterwards.

        Raises ServingError as TF Serving does: no name, an unknown label, or nothing to serve.
        """
        if not name:
            raise invalid("ModelSpec has no name specified.")
        if label is not None:
            version = self._labels.get(name, {}).get(label)
            if version is None:
                raise invalid(f"Unrecognized servable version label: {label}")
        model = self._models.get(name)
        while model is not None:
            servable = model.latest if version is None else model.serving.get(version)
            if servable is None:
                break
            if servable.enter():
                return servable
        wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise ServingError(Code.NOT_FOUND, f"Servable not found for request: {wanted}")

    @contextmanager
    def using(self, name: str, version: int | None = None, label: str | None = None) -> Iterator[Servable]:
        """`acquire` and `Servable.leave` around a block."""
        servable = self.acquire(name, version, label)
        try:
            yield servable
        finally:
            servable.leave()

    def statuses(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> list[VersionStatus]:
        """The state of one version, or of all, newest first.

        Raises ServingError where there is none.
        """
        if label is not None:
            version = self._labels.get(name, {}).get(label)
            if version is None:
                raise invalid(f"Unrecognized servable version label: {label}")
        with self._changed:
            known = self._models[name].versions if name in self._models else {}
            if version is None:
                if not known:
                    raise ServingError(Code.NOT_FOUND, f"Could not find any versions of model {name}")
                return [known[each] for each in sorted(known, reverse=True)]
            if version not in known:
                raise ServingError(Code.NOT_FOUND, f"Could not find version {version} of model {name}")
            return [known[version]]

    def wait_until_available(
        self, names: Sequence[str], still_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Wait until every wanted version of these models is loaded, or failed for good.

        Raises ServingError that names those that failed, or whose folders are not there.
        """
        with self._changed:
            while still_wanted() and not self._stopping.is_set():
                if all(self._settled(name) for name in names):
                    break
                self._changed.wait(0.1)
            failed = [line for name in names for line in self._failures(name)]
        if failed:
            raise ServingError(
                Code.UNKNOWN, f"{len(failed)} servable(s) did not become available: {{{', '.join(failed)}}}"
            )

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names of the models that are wanted now."""
        return tuple(source.name for source in self._sources)

    def close(self) -> None:
        """Stop loading, and give every servable back once its requests are done."""
        self._stopping.set()
        with self._changed:
            self._sources = ()
            self._changed.notify_all()
            leaving = [(model, dict(model.serving)) for model in self._models.values()]
            for model, _ in leaving:
                model.publish(_EMPTY)
        for _, serving in leaving:
            for servable in serving.values():
                servable.retire()
        self._pool.shutdown(cancel_futures=True)

    def _checked_labels(self, sources: Sequence[ModelSource]) -> Mapping[str, Mapping[str, int]]:
        for source in sources:
            model = self._models.get(source.name)
            for label, version in source.labels.items():
                known = self._labels.get(source.name, {}).get(label, version)
                if self._labels_for_unavailable and known == version:
                    continue
                if model is None or version not in model.serving:
                    raise ServingError(
                        Code.FAILED_PRECONDITION,
                        f"Request to assign label to version {version} of model {source.name}, "
                        "which is not currently available for inference",
                    )
        return {source.name: dict(source.labels) for source in sources}

    def _reconcile(self) -> None:
        with self._changed:
            for name, model in self._models.items():
                for version, folder in model.aspired.items():
                    self._want(name, model, version, folder)
                self._let_go(model)
            self._changed.notify_all()

    def _want(self, name: str, model: _Model, version: int, folder: Path) -> None:
        status = model.versions.setdefault(version, VersionStatus(version))
        unloaded = status.state is State.END and status.error is None
        if status.state is State.UNKNOWN or unloaded:
            status.change_state(State.START)
            self._pool.submit(self._bring_up, name, model, status, folder)

    def _let_go(self, model: _Model) -> None:
        replaced = not model.aspired or any(version in model.serving for version in model.aspired)
        leaving = [version for version in model.serving if version not in model.aspired]
        if not replaced or not leaving:
            return
        serving = dict(model.serving)
        for version in leaving:
            servable = serving.pop(version)
            model.versions[version].change_state(State.UNLOADING)
            self._pool.submit(self._take_down, servable, model.versions[version])
        model.publish(serving)

    def _bring_up(self, name: str, model: _Model, status: VersionStatus, folder: Path) -> None:
        with self._changed:
            status.change_state(State.LOADING)
        for attempt in range(self._retry.times + 1):
            if attempt:
                self._stopping.wait(self._retry.interval_seconds)
            if self._stopping.is_set() or status.version not in model.aspired:
                break
            try:
                servable = self._load(name, status.version, folder)
            except ServingError as error:
                log.error("%s version %d: load failed: %s", name, status.version, error.text)  # noqa: TRY400
                status.error = error
            else:
                self._publish(model, status, servable)
                return
        with self._changed:
            status.change_state(State.END, status.error)
        self._reconcile()

    def _publish(self, model: _Model, status: VersionStatus, servable: Servable) -> None:
        with self._changed:
            status.change_state(State.AVAILABLE)
            model.publish({**model.serving, status.version: servable})
        log.info(
            "Successfully loaded servable version {name: %s version: %d}", servable.name, servable.version
        )
        self._reconcile()

    def _take_down(self, servable: Servable, status: VersionStatus) -> None:
        servable.retire()
        with self._changed:
            status.change_state(State.END)
        log.info("Unloaded servable version {name: %s version: %d}", servable.name, servable.version)
        self._reconcile()

    def _settled(self, name: str) -> bool:
        model = self._models.get(name)
        return model is None or all(
            model.versions[version].state in {State.AVAILABLE, State.END}
            for version in model.aspired
            if version in model.versions
        )

    def _failures(self, name: str) -> list[str]:
        model = self._models.get(name)
        if model is None or not model.aspired:
            return [f"{{name: {name}}} due to error: NOT_FOUND: no versions of it were found"]
        return [
            f"{{name: {name} version: {version}}} due to error: {status.code.name}: {status.message}"
            for version, status in model.versions.items()
            if version in model.aspired and status.error is not None
        ]

    def _report(self, text: str) -> None:
        """Log what a poll would say again every second, once."""
        if text not in self._reported:
            self._reported.add(text)
            log.warning("%s", text)
