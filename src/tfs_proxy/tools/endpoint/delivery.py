"""Asynchronous requests and the delivery of answers: config, objects in S3 or files."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec import Struct, field

from tfs_proxy.tools.endpoint.aws_api import given_members, refused
from tfs_proxy.tools.endpoint.operations import located
from tfs_proxy.values.errors import ArchiveError, SettingsError, TfsProxyError
from tfs_proxy.values.layout import LocalFiles
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.names import printable
from tfs_proxy.wire.http_messages import HttpRequest
from tfs_proxy.wire.s3_client import S3_SCHEME, parse_address, s3_client, s3_errors

CONCURRENT = 4
"""Simultaneous requests per instance if the config does not say it; SageMaker chooses a number."""

MEMBER = "AsyncInferenceConfig"


class AsyncConfig(Struct, frozen=True):
    """AWS's AsyncInferenceConfig: addresses are ``s3://`` or ``file://``, without a slash at their end.

    ``failures`` is None if answers to failed requests are not kept.
    """

    outputs: str
    failures: str | None = None
    concurrent: int = CONCURRENT


def async_config(parameters: Mapping[str, Any], folder: Path) -> AsyncConfig | None:
    """None if the CreateEndpointConfig has no AsyncInferenceConfig.

    Relative paths start from ``folder``. Raises SettingsError that names AWS's member.
    """
    if MEMBER not in parameters:
        return None
    asked = parameters[MEMBER]
    outputs = asked["OutputConfig"]
    if "S3OutputPath" not in outputs:
        raise SettingsError(f"{MEMBER}.OutputConfig.S3OutputPath is missing: answers need a place to go to.")
    failures = outputs.get("S3FailurePath")
    return AsyncConfig(
        address_of("S3OutputPath", outputs["S3OutputPath"], folder),
        None if failures is None else address_of("S3FailurePath", failures, folder),
        asked.get("ClientConfig", {}).get("MaxConcurrentInvocationsPerInstance", CONCURRENT),
    )


MOST_BYTES = 1024 * MEGABYTE
"""Limit of asynchronous inference (docs/reference/sagemaker.md)."""


class LocationFailed(TfsProxyError):
    """An object or file can't be read or written; the text says which one, and why."""


def address_of(member: str, text: str, folder: Path) -> str:
    """An ``s3://`` or ``file://`` address without a slash at its end; a path starts from ``folder``.

    Raises SettingsError that names AWS's ``member`` for others.
    """
    if text.startswith(S3_SCHEME):
        try:
            parse_address(text)
        except ArchiveError as error:
            raise SettingsError(f"{member}: {error}") from None
        return text.rstrip("/")
    return Path(located(text, folder, member)).as_uri()


def read_location(address: str) -> bytes:
    """The bytes at an ``s3://`` or ``file://`` address. Raises LocationFailed."""
    if not address.startswith(S3_SCHEME):
        return _read_file(Path(located(address, Path("/"))))
    try:
        bucket, key = parse_address(address)
    except ArchiveError as error:
        raise LocationFailed(str(error)) from None
    with s3_errors(address, LocationFailed):
        answer = s3_client().get_object(Bucket=bucket, Key=key)
        _check_size(address, answer["ContentLength"])
        return answer["Body"].read()


def write_location(address: str, body: bytes, content_type: str) -> None:
    """Writes an object, or a file and its folder. Raises LocationFailed."""
    if not address.startswith(S3_SCHEME):
        path = Path(located(address, Path("/")))
        # Other programs wait for the file, and must not see a part.
        unfinished = path.with_name(f".{path.name}.unfinished")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(body)
            unfinished.replace(path)
        except OSError as error:
            raise LocationFailed(f"{path} can't be written: {error.strerror}.") from error
        return
    bucket, key = parse_address(address)
    with s3_errors(address, LocationFailed):
        s3_client().put_object(Bucket=bucket, Key=key, Body=body, ContentType=content_type)


def _read_file(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise LocationFailed(f"There is no file {path}.")
        _check_size(str(path), path.stat().st_size)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise LocationFailed(f"{printable(str(path))} can't be read: {error}.") from error


def _check_size(place: str, size: int) -> None:
    if size > MOST_BYTES:
        raise LocationFailed(f"{place} has {size} bytes, and a request at most {MOST_BYTES}.")


ASYNC = "InvokeEndpointAsync"
TTL_SECONDS = 21_600
TIMEOUT_SECONDS = 900
INLINE_BYTES = 128_000
"""Defaults and the limit in AWS's description of the operation."""


class AsyncRequest(Struct, frozen=True):
    """A request of an asynchronous endpoint that waits."""

    members: Mapping[str, str]
    """Members of AWS's input shape that the client has given, by name."""

    body: bytes
    """Body that the client has sent; empty if it lies at an address."""

    output: str
    """Address for the answer."""

    failure: str | None
    """Address for the reason of a failure; None if none was configured."""

    received: float = field(default_factory=time.time)
    """Time when it came, in seconds since 1970."""

    @property
    def inference_id(self) -> str:
        return self.members["InferenceId"]

    @property
    def input_location(self) -> str | None:
        """The address of the body; None if the client has sent the body itself."""
        return self.members.get("InputLocation")

    @property
    def timeout_seconds(self) -> float:
        return float(self.members.get("InvocationTimeoutSeconds", TIMEOUT_SECONDS))

    def has_expired(self, now: float) -> bool:
        """True if it has waited for longer than the client allows."""
        return now - self.received > float(self.members.get("RequestTTLSeconds", TTL_SECONDS))


def async_request(request: HttpRequest, config: AsyncConfig, files: LocalFiles) -> AsyncRequest:
    """Raises AwsError that names AWS's member, also for a file that is not one of ``files``."""
    members = given_members(ASYNC, request.headers)
    location = members.get("InputLocation")
    if bool(request.body) == (location is not None):
        raise refused("Either InputLocation or Body is needed, and not both.")
    if len(request.body) > INLINE_BYTES:
        raise refused(f"Body has {len(request.body)} bytes; at most {INLINE_BYTES} go without InputLocation.")
    name = members.get("Filename", f"{uuid4()}.out")
    extension = members.get("S3OutputPathExtension", "").strip("/")
    if ".." in extension.split("/"):
        raise refused(f"S3OutputPathExtension {extension!r} leaves the place of the answers.")
    failures = None if config.failures is None else _below(config.failures, extension, _failure_name(name))
    output = _below(config.outputs, extension, name)
    try:
        for member, address in (
            ("InputLocation", location),
            ("OutputLocation", output),
            ("FailureLocation", failures),
        ):
            if address is not None:
                files.check(member, located(address, Path("/"), member))
    except SettingsError as error:
        raise refused(str(error)) from None
    inference_id = members.get("InferenceId", str(uuid4()))
    return AsyncRequest({**members, "InferenceId": inference_id}, request.body, output, failures)


def _below(address: str, extension: str, name: str) -> str:
    return "/".join(part for part in (address, extension, name) if part)


def _failure_name(name: str) -> str:
    stem, dot, ending = name.rpartition(".")
    return f"{stem}-error.{ending}" if dot else f"{name}-error"


class AsyncOutcome(Struct, frozen=True):
    """The end of a request: ``failure`` is the reason, or None; ``body`` the container's answer, if any."""

    content_type: str
    body: bytes
    failure: str | None = None
