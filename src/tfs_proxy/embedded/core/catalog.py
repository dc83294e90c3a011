"""States of model versions, as GetModelStatus tells them: set by the servable lifecycle."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.embedded.core.servable import LoadedServable
from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.protos import GetModelMetadataResponse, GetModelStatusResponse, ModelSpec, SignatureDefMap


class VersionState(IntEnum):
    """ModelVersionStatus.State, by number."""

    UNKNOWN = 0
    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


class VersionStatus(Struct):
    """One version's state and the error of its last load, if it had one.

    It is ``called_off`` once it is no longer wanted, until it starts over: a load under way is discarded.
    """

    version: int
    state: VersionState = VersionState.UNKNOWN
    error: ServingError | None = None
    called_off: bool = False

    def change_state(self, state: VersionState, error: ServingError | None = None) -> None:
        """Go on to the next state; an error stays until a load ends well or starts over."""
        self.state = state
        self.error = error
        self.called_off &= state is not VersionState.START

    @property
    def may_start(self) -> bool:
        """True if it is not loaded, and has not failed since it was wanted."""
        ended = self.state is VersionState.END and (self.error is None or self.called_off)
        return self.state is VersionState.UNKNOWN or ended

    @property
    def failed(self) -> bool:
        return self.state is VersionState.END and not self.may_start

    @property
    def untried(self) -> bool:
        """True if it is being loaded, and no attempt has failed so far."""
        return self.state < VersionState.AVAILABLE and self.error is None

    @property
    def code(self) -> GrpcCode:
        """The gRPC code that the status carries: OK until the version has ended, whatever tries it takes."""
        return self.error.code if self.error and self.state is VersionState.END else GrpcCode.OK

    @property
    def message(self) -> str:
        """The text that goes with `code`."""
        return self.error.text if self.error and self.state is VersionState.END else ""


def still_loading() -> ServingError:
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
        """True if a wanted version has neither been loaded nor failed yet."""
        return any(version not in self.versions or self.versions[version].untried for version in self.aspired)

    @property
    def settled(self) -> bool:
        """True if every wanted version is loaded, or failed: for good, unless another one serves."""
        if self.serving:
            return not self.untried
        return all(version in self.versions and self.versions[version].failed for version in self.aspired)


class Catalog:
    """Models by name, and the labels of their versions. ``changed`` guards what is written.

    ``starting`` is true until the models of the start are loaded, or have failed once. TF Serving
    opens its ports only then; here REST's, while a client of gRPC gets UNAVAILABLE.
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
            version = self.labels.get(name, {}).get(label)
            if version is None:
                raise invalid(f"Unrecognized servable version label: {label}")
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
        """Calls `acquire` before a block and `LoadedServable.leave` after it."""
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
            return [replace(known[number]) for number in chosen]


SIGNATURE_DEF = "signature_def"
"""The only metadata field there is."""


def status(catalog: Catalog, name: str, version: int | None = None) -> GetModelStatusResponse:
    """The state of a model's versions. Raises ServingError if there is none.

    A request by label gets all versions, too: TF Serving looks only at a version's number.
    """
    answer = GetModelStatusResponse()
    for version_status in catalog.statuses(name, version):
        line = answer.model_version_status.add(
            version=version_status.version, state=int(version_status.state)
        )
        line.status.error_code = int(version_status.code)  # type: ignore[assignment]
        line.status.error_message = version_status.message
        line.status.SetInParent()
    return answer


def spec_of(servable: LoadedServable, signature: str = "") -> ModelSpec:
    """The ModelSpec of an answer: the version that it came from."""
    spec = ModelSpec(name=servable.name, signature_name=signature)
    spec.version.value = servable.version
    return spec


def signatures(servable: LoadedServable) -> SignatureDefMap:
    message = SignatureDefMap()
    for name, signature in servable.signatures.items():
        message.signature_def[name].CopyFrom(signature.message)
    return message


def metadata(servable: LoadedServable) -> GetModelMetadataResponse:
    answer = GetModelMetadataResponse(model_spec=spec_of(servable))
    answer.metadata[SIGNATURE_DEF].Pack(signatures(servable))
    return answer
