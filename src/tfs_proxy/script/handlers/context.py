"""What a script's functions see of one request: the fields of AWS's Context, by the same names, and more."""

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tfs_proxy.dataplane.bodies import Body
from tfs_proxy.deployment import Instance
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.observe.request_record import current_id
from tfs_proxy.open_inference.infer_codec import InferCodec
from tfs_proxy.script.handlers.model_client import LOGGER, ModelClient, WorkerModels
from tfs_proxy.script.header_map import HeaderMap
from tfs_proxy.script.values import custom_attributes
from tfs_proxy.signature import Target
from tfs_proxy.upstream.rest import model_path
from tfs_proxy.wire.header_names import INFERENCE_ID

DEFAULT_TYPE = "application/json"


class ScriptRequest(Struct, frozen=True):
    """One request as web hands it to the script: header values are raw, None if there was none.

    ``headers`` gathers all of them.
    """

    target: Target
    body: bytes
    content_type: str | None = None
    accept: str | None = None
    custom_attributes: str | None = None
    content_length: int | None = None
    headers: Callable[[], Mapping[str, str]] = dict  # PERF: gathered only for scripts that ask
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    codec: InferCodec | None = None
    """For a request of the Open Inference Protocol."""


class Context(ModelClient):
    """One request's context, with the names, types and order of AWS's namedtuple.

    Its fields are in docs/reference/aws-container.md.
    ``model_name``, ``method`` and ``channel`` are always filled; ``model_version`` is the version as
    text if the client named one. ``rest_uri`` and ``channel`` lead to the same instance of the
    model server. ``custom_attributes``, ``request_content_type`` and ``accept_header`` are the raw
    headers, the latter two ``application/json`` if the client sent none. ``timeout`` is in seconds.
    It unpacks, indexes and prints like a namedtuple; ``channel`` is opened when it is first read.
    What AWS's lacks is not part of the tuple: ``request_id``, which the log and the answer's ``X-Request-Id``
    have, `predict` and all else below.
    """

    __slots__ = (
        "_channel",
        "_instance",
        "_is_bare",
        "_records",
        "_reply_attributes",
        "_request",
        "accept_header",
        "content_length",
        "custom_attributes",
        "grpc_port",
        "method",
        "model_name",
        "model_version",
        "request_content_type",
        "request_id",
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

    def __init__(self, request: ScriptRequest, instance: Instance, worker: WorkerModels) -> None:
        target = request.target
        super().__init__(worker, target)
        self._request = request
        self._instance = instance
        self._channel: Any = None
        self._records: int | None = None
        self._is_bare = False
        self._reply_attributes: str | None = None
        self.model_name = target.model
        self.model_version = None if target.version is None else str(target.version)
        self.method = target.method
        self.rest_uri = f"http://localhost:{instance.rest_port}{model_path(target)}:{target.method}"
        self.grpc_port = str(instance.grpc_port)
        self.custom_attributes = request.custom_attributes
        self.request_content_type = request.content_type or DEFAULT_TYPE
        self.accept_header = request.accept or DEFAULT_TYPE
        self.content_length = request.content_length
        self.timeout = worker.timeout_seconds
        self.request_id = current_id()

    @property
    def channel(self) -> Any:
        """The ``grpc.Channel`` to the instance that ``rest_uri`` leads to."""
        return self._channel or self._worker.channels.get(self._instance)

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers; upper and lower case in a name are the same."""
        return HeaderMap({name.lower(): value for name, value in self._request.headers().items()})

    @property
    def inference_id(self) -> str | None:
        """The client's id of this request, None if it gave none (docs/reference/sagemaker.md)."""
        return self.headers.get(INFERENCE_ID)

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose records carry ``model_name`` and ``inference_id``."""
        known = {"model_name": self.model_name, "inference_id": self.inference_id}
        return logging.LoggerAdapter(LOGGER, known)

    @property
    def reply_attributes(self) -> str | None:
        """What `set_custom_attributes` was given, as the header has it."""
        return self._reply_attributes

    def set_custom_attributes(self, value: str | Mapping[str, str] | Iterable[str]) -> None:
        """Set ``X-Amzn-SageMaker-Custom-Attributes`` on the answer: text, or a mapping, as ``key=value,...``.

        Raises ValueError for more than 1024 characters or any that is not visible ASCII. Errors that
        the script raises go out without it.
        """
        self._reply_attributes = custom_attributes(value)

    def default_input(self, data: Any) -> dict[str, npt.NDArray[Any]]:
        """A body, or the file that a handler gets, as arrays by input name: what is done without a script.

        Raises BadInput (400) if the body is malformed, and UnsupportedMediaType (415).
        """
        body = data if isinstance(data, bytes) else data.read()
        if self._request.codec is not None:
            return dict(self._request.codec.batch(body, self._worker.plane.signature(self._target)).inputs)
        batch = self._worker.plane.decode(
            self._target, Body(body, self._request.content_type, self._request.budget)
        )
        self._records, self._is_bare = batch.records, batch.is_bare
        return dict(batch.inputs)

    def default_output(self, tensors: Any) -> tuple[bytes, str]:
        """Arrays by output name, or a response that has them, in the type that Accept asks for.

        Returns body and content type, to be returned by a handler as they are. Raises
        NotAcceptable (406) if Accept can't be met.
        """
        outputs = getattr(tensors, "outputs", tensors)
        if self._is_bare:
            outputs = {name: np.asarray(array)[None] for name, array in outputs.items()}
        if self._request.codec is not None:
            return self._request.codec.encode(outputs)
        return self._worker.plane.encode(outputs, self._request.accept, self._records)

    def _asdict(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in self._fields}

    def _replace(self, **fields: Any) -> Self:
        """A context with other values in some fields; raises ValueError for a name that is none of them."""
        unexpected = [name for name in fields if name not in self._fields]
        if unexpected:
            raise ValueError(f"Got unexpected field names: {unexpected!r}")
        context = copy.copy(self)
        context._channel = fields.pop("channel", self._channel)  # noqa: SLF001 - a copy of its own
        for name, value in fields.items():
            setattr(context, name, value)
        return context

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
