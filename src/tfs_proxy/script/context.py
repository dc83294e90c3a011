"""What a script's functions see of one request: the fields of AWS's Context, by the same names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tfs_proxy.deployment import Instance
from tfs_proxy.script.channels import Channels
from tfs_proxy.signature import Target
from tfs_proxy.upstream.rest import model_path

DEFAULT_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """One request as web hands it to the script: header values are raw, None where there was none."""

    target: Target
    body: bytes
    content_type: str | None = None
    accept: str | None = None
    custom_attributes: str | None = None
    content_length: int | None = None


class Context:
    """One request's context, with the names, types and order of AWS's namedtuple (contract 2.5).

    ``model_name``, ``method`` and ``channel`` are always filled; ``model_version`` is the version as
    text where the client named one. ``rest_uri`` and ``channel`` lead to the same instance of the
    model server. ``custom_attributes``, ``request_content_type`` and ``accept_header`` are the raw
    headers, the latter two ``application/json`` where the client sent none. ``timeout`` is in seconds.
    It unpacks, indexes and prints like a namedtuple; ``channel`` is opened when it is first read.
    """

    __slots__ = (
        "_channels",
        "_instance",
        "accept_header",
        "content_length",
        "custom_attributes",
        "grpc_port",
        "method",
        "model_name",
        "model_version",
        "request_content_type",
        "rest_uri",
        "timeout",
    )

    _fields: ClassVar[tuple[str, ...]] = (
        "model_name",
        "model_version",
        "method",
        "rest_uri",
        "grpc_port",
        "channel",
        "custom_attributes",
        "request_content_type",
        "accept_header",
        "content_length",
        "timeout",
    )

    def __init__(
        self,
        request: ScriptRequest,
        instance: Instance,
        channels: Channels,
        timeout_seconds: float,
    ) -> None:
        target = request.target
        self._channels = channels
        self._instance = instance
        self.model_name = target.model
        self.model_version = None if target.version is None else str(target.version)
        self.method = target.method
        self.rest_uri = f"http://localhost:{instance.rest_port}{model_path(target)}:{target.method}"
        self.grpc_port = str(instance.grpc_port)
        self.custom_attributes = request.custom_attributes
        self.request_content_type = request.content_type or DEFAULT_TYPE
        self.accept_header = request.accept or DEFAULT_TYPE
        self.content_length = request.content_length
        self.timeout = timeout_seconds

    @property
    def channel(self) -> Any:
        """The ``grpc.Channel`` to the instance that ``rest_uri`` leads to."""
        return self._channels.get(self._instance)

    def _asdict(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in self._fields}

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return tuple(getattr(self, name) for name in self._fields[index])
        return getattr(self, self._fields[index])

    def __repr__(self) -> str:
        shown = ((name, getattr(self, name)) for name in self._fields if name != "channel")
        return f"Context({', '.join(f'{name}={value!r}' for name, value in shown)})"
