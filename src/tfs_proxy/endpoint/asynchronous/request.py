"""A call of InvokeEndpointAsync -> a request for the queue, checked by botocore's model of the operation."""

import time
from collections.abc import Mapping
from uuid import uuid4

from msgspec import Struct, field

from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.endpoint.asynchronous.config import AsyncConfig
from tfs_proxy.endpoint.asynchronous.locations import FILE_SCHEME
from tfs_proxy.endpoint.calls.errors import refused
from tfs_proxy.endpoint.calls.headers import given_members
from tfs_proxy.names import printable
from tfs_proxy.wire.http_messages import HttpRequest

ASYNC = "InvokeEndpointAsync"
TTL_SECONDS, TIMEOUT_SECONDS = 21_600, 900
INLINE_BYTES = 128_000
"""Defaults and the limit of AWS's description of the operation."""


class AsyncRequest(Struct, frozen=True):
    """One request that waits: ``members`` are those of AWS's input shape that the client has given.

    ``output`` and ``failure`` are addresses, ``received`` is the time in seconds since 1970.
    """

    members: Mapping[str, str]
    body: bytes
    output: str
    failure: str | None
    received: float = field(default_factory=time.time)

    @property
    def inference_id(self) -> str:
        """The client's id for it, or one of ours."""
        return self.members["InferenceId"]

    @property
    def input_location(self) -> str | None:
        """Where the body is, None if the client has sent it."""
        return self.members.get("InputLocation")

    @property
    def timeout_seconds(self) -> float:
        """How long the container may take."""
        return float(self.members.get("InvocationTimeoutSeconds", TIMEOUT_SECONDS))

    def has_expired(self, now: float) -> bool:
        """Whether it has waited for longer than the client allows."""
        return now - self.received > float(self.members.get("RequestTTLSeconds", TTL_SECONDS))


def async_request(request: HttpRequest, config: AsyncConfig) -> AsyncRequest:
    """Check a call; raises AwsError that names AWS's member."""
    members = given_members(ASYNC, request.headers)
    location = members.get("InputLocation")
    if bool(request.body) == (location is not None):
        raise refused("Either InputLocation or Body is needed, and not both.")
    if len(request.body) > INLINE_BYTES:
        raise refused(f"Body has {len(request.body)} bytes; at most {INLINE_BYTES} go without InputLocation.")
    if location is not None:
        _check_location(location, config)
    name = members.get("Filename", f"{uuid4()}.out")
    extension = members.get("S3OutputPathExtension", "").strip("/")
    if ".." in extension.split("/"):
        raise refused(f"S3OutputPathExtension {extension!r} leaves the place of the answers.")
    failures = None if config.failures is None else _below(config.failures, extension, _failure_name(name))
    inference_id = members.get("InferenceId", str(uuid4()))
    return AsyncRequest(
        {**members, "InferenceId": inference_id},
        request.body,
        _below(config.outputs, extension, name),
        failures,
    )


def _check_location(location: str, config: AsyncConfig) -> None:
    if location.startswith(S3_SCHEME):
        return
    if not location.startswith(FILE_SCHEME):
        raise refused(f"InputLocation {printable(location)} can't be read here: take an s3:// address.")
    if not config.outputs.startswith(FILE_SCHEME):
        # A client may have this machine's files read only where its owner has chosen files.
        raise refused("InputLocation may be a file only where S3OutputPath of the endpoint's config is one.")


def _below(address: str, extension: str, name: str) -> str:
    return "/".join(part for part in (address, extension, name) if part)


def _failure_name(name: str) -> str:
    stem, dot, ending = name.rpartition(".")
    return f"{stem}-error.{ending}" if dot else f"{name}-error"
