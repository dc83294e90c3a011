"""What is served right now: the servable lifecycle writes it, every request reads it.

Reading takes no lock that a load could hold: the versions being served are replaced as a whole,
never changed.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field

from tfs_proxy.embedded.core.servable import LoadedServable
from tfs_proxy.embedded.core.states import VersionStatus
from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.wire.grpc_codes import GrpcCode


def still_loading() -> ServingError:
    """The answer before the first models are loaded."""
    return ServingError(GrpcCode.UNAVAILABLE, "The model server is still loading its models")


class Model(Struct):
    """One model: the version folders that are wanted, every version's state, and what serves."""

    aspired: dict[int, Path] = field(default_factory=dict)
    versions: dict[int, VersionStatus] = field(default_factory=dict)
    serving: Mapping[int, LoadedServable] = field(default_factory=dict)
    latest: LoadedServable | None = None

    def publish(self, serving: Mapping[int, LoadedServable]) -> None:
        """Serve exactly these versions from now on."""
        self.serving = serving
        self.latest = serving[max(serving)] if serving else None

    def aspire(self, folders: dict[int, Path]) -> None:
        """Want exactly these versions: others are called off; one that failed and is new gets another try."""
        for version in self.aspired.keys() - folders.keys():
            if version in self.versions:
                self.versions[version].called_off = True
        self.aspired = folders

    @property
    def untried(self) -> bool:
        """Whether a wanted version has neither been loaded nor failed yet."""
        return any(version not in self.versions or self.versions[version].untried for version in self.aspired)

    @property
    def settled(self) -> bool:
        """Whether every wanted version is loaded, or failed: for good, unless another one serves."""
        if self.serving:
            return not self.untried
        return all(version in self.versions and self.versions[version].failed for version in self.aspired)


class Catalog:
    """Models by name, and the labels of their versions. ``changed`` guards what is written.

    ``starting`` is true until the models of the start are loaded, or have failed once. TF Serving
    opens its ports only then; until then a client gets UNAVAILABLE here, as one that
    finds no port there.
    """

    def __init__(self) -> None:
        self.models: dict[str, Model] = {}
        self.labels: Mapping[str, Mapping[str, int]] = {}
        self.names: frozenset[str] = frozenset()
        self.starting = True
        self.changed = threading.Condition(threading.RLock())

    def acquire(self, name: str, version: int | None = None, label: str | None = None) -> LoadedServable:
        """The servable that a request is for, counted as used: `LoadedServable.leave` it afterwards.

        Raises ServingError as TF Serving does: no name, an unknown label, or nothing to serve.
        """
        if not name:
            raise invalid("ModelSpec has no name specified.")
        if label is not None:
            version = self._labelled(name, label)
        model = self.models.get(name)
        while model is not None:
            servable = model.latest if version is None else model.serving.get(version)
            if servable is None:
                break
            if servable.enter():
                return servable
        if self.starting:
            raise still_loading()
        wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise ServingError(GrpcCode.NOT_FOUND, f"Servable not found for request: {wanted}")

    @contextmanager
    def using(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Iterator[LoadedServable]:
        """`acquire` and `LoadedServable.leave` around a block."""
        servable = self.acquire(name, version, label)
        try:
            yield servable
        finally:
            servable.leave()

    def statuses(self, name: str, version: int | None = None) -> list[VersionStatus]:
        """The state of one version, or of all, newest first.

        Raises ServingError if there is none.
        """
        with self.changed:
            known = self.models[name].versions if name in self.models else {}
            if version is None and not known:
                raise ServingError(GrpcCode.NOT_FOUND, f"Could not find any versions of model {name}")
            if version is not None and version not in known:
                raise ServingError(GrpcCode.NOT_FOUND, f"Could not find version {version} of model {name}")
            chosen = sorted(known, reverse=True) if version is None else [version]
            return [known[number].copy() for number in chosen]

    def _labelled(self, name: str, label: str) -> int:
        version = self.labels.get(name, {}).get(label)
        if version is None:
            raise invalid(f"Unrecognized servable version label: {label}")
        return version
