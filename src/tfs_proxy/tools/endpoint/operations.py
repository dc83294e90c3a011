"""Models and endpoint configs as values, and the files of AWS's operations that make them."""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from tfs_proxy.tools.endpoint.aws_api import OURS
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.names import printable
from tfs_proxy.wire.s3_client import S3_SCHEME

log = logging.getLogger(__name__)

REGION = "local"
ACCOUNT = "000000000000"

SERIAL = "Serial"
DIRECT = "Direct"
IN_SERVICE = "InService"
UPDATING = "Updating"
LEAST_OUTSTANDING = "LEAST_OUTSTANDING_REQUESTS"
RANDOM = "RANDOM"
STARTUP_SECONDS = 480.0
"""Limit for the first 200 of /ping (docs/reference/sagemaker.md)."""


def arn(kind: str, name: str) -> str:
    hyphened = re.sub(r"\B(?=[A-Z])", "-", kind).lower()
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:{hyphened}/{name.lower()}"


class ContainerDefinition(Struct, frozen=True):
    """One container of a model, as AWS's type of that name."""

    name: str
    """ContainerHostname, or a name by its place."""

    image: str | None
    """Image to run; None if the request names none."""

    archive: str | None
    """Model: an ``s3://`` address or an absolute path; None if it needs none."""

    many_models: bool
    """True if it serves many models; then ``archive`` is the prefix of all of them."""

    caches_models: bool
    """True if models stay loaded between requests."""

    environment: Mapping[str, str]
    """Variables of the container."""


class HostedModel(Struct, frozen=True):
    """A model of CreateModel: its containers in order, and how requests go through several."""

    name: str
    containers: tuple[ContainerDefinition, ...]
    mode: str = SERIAL


class Variant(Struct, frozen=True):
    """A variant of an endpoint: a number of equal instances of one model."""

    name: str
    """Name of the variant."""

    model: str
    """Name of the model."""

    instance_count: int
    """Number of instances."""

    weight: float
    """Share of requests, relative to the weights of other variants."""

    routing: str
    """Choice of an instance: `LEAST_OUTSTANDING` or `RANDOM`."""

    startup_seconds: float
    """Time until an instance has to answer /ping with 200."""

    concurrency: int | None = None
    """Most requests at once of a serverless variant; None for any other."""


class EndpointConfig(Struct, frozen=True):
    """The config of an endpoint; ``parameters`` are all those of its request."""

    name: str
    variants: tuple[Variant, ...]
    parameters: Mapping[str, Any]
    folder: Path


NO_CAPTURE = "%s: DataCaptureConfig records nothing here: set TFS_PROXY_CAPTURE in a container's Environment"


def warn_of_capture(of: str, parameters: Mapping[str, Any]) -> None:
    """Logs that a request's DataCaptureConfig, which is taken all the same, has no effect."""
    if "DataCaptureConfig" in parameters:
        log.warning(NO_CAPTURE, of)


JOB = "TransformJob"
KINDS = {
    "Model": "ModelName",
    "EndpointConfig": "EndpointConfigName",
    "Endpoint": "EndpointName",
    JOB: "TransformJobName",
}
"""Members with the name of each kind of thing."""

OPERATIONS = tuple(f"Create{kind}" for kind in KINDS)
"""Operations in a file, in the order in which they are carried out."""

MOST_BYTES = 4 * 1024 * 1024


class OperationRequest(Struct, frozen=True):
    """A request to the control plane; relative paths in it start from ``folder``."""

    operation: str
    parameters: Mapping[str, Any]
    place: str
    folder: Path

    @property
    def name(self) -> str:
        return str(self.parameters.get(KINDS[self.operation.removeprefix("Create")]))


def read_operations(path: Path) -> list[OperationRequest]:
    """The requests of a file: an object keyed by operation, or one bare request.

    Raises SettingsError with the file's name if it can't be read, or is neither.
    """
    content = _content(path)
    if not isinstance(content, dict):
        raise SettingsError(f"{_shown(path)} can't be used: it must be a JSON object.")
    if any(name in OPERATIONS for name in content):
        return list(_keyed(content, path))
    return [OperationRequest(_operation_of(content, path), content, _shown(path), path.absolute().parent)]


def _content(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{_shown(path)} can't be read: {error.strerror}.") from error
    if len(text) > MOST_BYTES:
        raise SettingsError(f"{_shown(path)} can't be used: it has more than {MOST_BYTES} bytes.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{_shown(path)} is not JSON: {error}.") from error


def _keyed(content: Mapping[str, Any], path: Path) -> Iterator[OperationRequest]:
    unknown = [name for name in content if name not in OPERATIONS and not name.startswith("$")]
    if unknown:
        raise SettingsError(
            f"{_shown(path)} has {printable(unknown[0])}, which is not one of {', '.join(OPERATIONS)}."
        )
    for operation in OPERATIONS:
        entry = content.get(operation, [])
        requests = entry if isinstance(entry, list) else [entry]
        for number, request in enumerate(requests):
            place = f"{_shown(path)}: {operation}" + (f"[{number}]" if isinstance(entry, list) else "")
            if not isinstance(request, dict):
                raise SettingsError(f"{place} must be an object, or a list of objects.")
            yield OperationRequest(operation, request, place, path.absolute().parent)


def _operation_of(content: Mapping[str, Any], path: Path) -> str:
    """The operation of a bare request, by members that only one operation needs."""
    if "TransformJobName" in content:
        return "CreateTransformJob"
    if "ProductionVariants" in content:
        return "CreateEndpointConfig"
    if "EndpointName" in content:
        return "CreateEndpoint"
    if "ModelName" in content:
        return "CreateModel"
    raise SettingsError(
        f"{_shown(path)} can't be used: it has neither an operation ({', '.join(OPERATIONS)}) nor members of "
        "one, such as ModelName."
    )


def _shown(path: Path) -> str:
    return printable(str(path))


def located(address: str, folder: Path, member: str = "ModelDataUrl") -> str:
    """An ``s3://`` address unchanged; a ``file://`` address or a path as an absolute path.

    Raises SettingsError that names AWS's ``member`` for other schemes, and for files of other machines.
    """
    if address.startswith(S3_SCHEME):
        return address
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise SettingsError(f"{member} {printable(address)} can't be used: {error}.") from None
    if parts.scheme == "file":
        if parts.netloc not in {"", "localhost"}:
            raise SettingsError(
                f"{member} {printable(address)} can't be used: files of {printable(parts.netloc)} are not at "
                "hand, and those of this machine are file:///PATH."
            )
        address = unquote(parts.path)
    elif "://" in address:
        raise SettingsError(
            f"{member} {printable(address)} can't be used here: take s3://, file:// or a path."
        )
    return str((folder / address).absolute())


def with_addresses(value: Any, change: Callable[[str, str], str]) -> Any:
    """A request whose addresses, which may be paths here, are changed; ``change`` gets their member, too."""
    if isinstance(value, list):
        return [with_addresses(each, change) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {
        name: change(name, part) if name in OURS else with_addresses(part, change)
        for name, part in value.items()
    }
