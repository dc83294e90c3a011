"""Context of a script's handlers, and the models that it asks."""

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tfs_proxy.data.formats.form import FormPart, by_name, is_form, parts_of
from tfs_proxy.data.open_inference.infer_codec import InferCodec
from tfs_proxy.observe.request_record import client_watch, current_id
from tfs_proxy.serving.bodies import Body
from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.serving.script.values import HeaderMap, custom_attributes, retargeted
from tfs_proxy.serving.upstream.grpc_channels import Channels
from tfs_proxy.serving.upstream.rest import model_path
from tfs_proxy.values.deployment import Deployment, Instance
from tfs_proxy.values.errors import UpstreamRefused, UpstreamUnavailable
from tfs_proxy.values.memory import MEGABYTE, MemoryBudget
from tfs_proxy.values.signature import Signature, Target
from tfs_proxy.wire.header_names import INFERENCE_ID
from tfs_proxy.wire.media_types import JSON

Result = TypeVar("Result")

LOGGER = logging.getLogger("inference")
"""Logger for a script's own lines in the workers' log."""

LOAD_SECONDS = 600.0
LOAD_PAUSE_SECONDS = 0.05
LOADING = frozenset({404, 412, 503})
"""Statuses of a model server for a model that is not loaded yet (docs/reference/tensorflow-serving.md)."""


class WorkerModels(Struct, frozen=True):
    """Parts that all contexts of a worker share."""

    plane: DataPlane
    """Data plane, which asks the models."""

    deployment: Deployment
    """Models that are served, with their limits."""

    channels: Channels = field(default_factory=Channels)
    """Channels of gRPC to the model servers."""


class ModelClient:
    """Base of all contexts, that of ``init`` too; its methods may be called from several threads."""

    __slots__ = ("_target", "_worker")

    def __init__(self, worker: WorkerModels, target: Target) -> None:
        self._worker = worker
        self._target = target

    @property
    def models(self) -> Mapping[str, tuple[int, ...]]:
        """Version numbers, ascending, by model name."""
        return self._worker.deployment.models

    @property
    def model_dir(self) -> str:
        """Folder that is served: the unpacked archive, with ``code/`` in it."""
        return self._worker.deployment.model_dir

    @property
    def signature(self) -> Signature:
        """Signature that is asked for, of the model that is asked for: names, dtypes and shapes.

        Raises UpstreamRefused if there is no such model, and BadInput if it has no such signature.
        """
        return self._worker.plane.signature(self._target)

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """Logger whose records carry ``model_name`` and ``inference_id``."""
        return logging.LoggerAdapter(LOGGER, {"model_name": self._target.model, "inference_id": None})

    def predict(
        self,
        inputs: Any,
        *,
        model_name: str | None = None,
        version: int | str | None = None,
        label: str | None = None,
        signature: str | None = None,
        timeout_seconds: float | None = None,
    ) -> dict[str, npt.NDArray[Any]]:
        """Ask a model: arrays by input name in, by output name out; strings are bytes in object arrays.

        ``inputs`` may be one array for a model of one input, and instead of arrays bytes, str, numbers
        and lists of them. Without a ``model_name`` it is the context's model, and then its version,
        label and signature unless others are named. ``timeout_seconds`` replaces the run's own limit.

        Raises ScriptFailure if ``inputs`` don't fit the signature, UpstreamRefused (``status``,
        ``body``) for an error of the model server, UpstreamUnavailable and UpstreamTimeout: uncaught,
        each is an answer of its own.
        """
        target = retargeted(self._target, model_name, version, label, signature)
        return self._ask(target, inputs, timeout_seconds)

    async def predict_async(self, inputs: Any, **named: Any) -> dict[str, npt.NDArray[Any]]:
        """`predict` for ``async def`` functions: the event loop serves others meanwhile."""
        return await asyncio.to_thread(self.predict, inputs, **named)

    def _ask(self, target: Target, inputs: Any, timeout_seconds: float | None) -> dict[str, npt.NDArray[Any]]:
        return self._worker.plane.predict(target, inputs, "context.predict", timeout_seconds)


class WorkerContext(ModelClient):
    """Context of ``init(context)``: the models, and no request.

    ``init`` is called while the models load, so ``predict`` and ``signature`` wait until theirs is there.
    """

    __slots__ = ()

    def __init__(self, worker: WorkerModels) -> None:
        super().__init__(worker, Target(worker.deployment.default_model))

    @property
    def model_name(self) -> str:
        """Name of the default model."""
        return self._target.model

    @property
    def signature(self) -> Signature:
        """Signature ``serving_default`` of the default model."""
        return self._once_loaded(self._target, lambda: self._worker.plane.signature(self._target))

    def _ask(self, target: Target, inputs: Any, timeout_seconds: float | None) -> dict[str, npt.NDArray[Any]]:
        return self._once_loaded(
            target, lambda: super(WorkerContext, self)._ask(target, inputs, timeout_seconds)
        )

    def _once_loaded(self, target: Target, ask: Callable[[], Result]) -> Result:
        deadline = time.monotonic() + LOAD_SECONDS
        while True:
            try:
                return ask()
            except UpstreamUnavailable:
                if time.monotonic() > deadline:
                    raise
            except UpstreamRefused as refused:
                known = target.model in self._worker.deployment.models
                if refused.status not in LOADING or not known or time.monotonic() > deadline:
                    raise
            time.sleep(LOAD_PAUSE_SECONDS)


class ScriptRequest(Struct, frozen=True):
    """Request for the script: header values are raw, None if there was none."""

    target: Target
    """Model, version, signature and method that it asks for."""
    body: bytes
    """Whole body; empty if there is a ``file``."""
    content_type: str | None = None
    """Header Content-Type."""
    accept: str | None = None
    """Header Accept."""
    custom_attributes: str | None = None
    """Header of SageMaker with attributes of the client's own."""
    content_length: int | None = None
    """Size of the body in bytes; None if the client did not say."""
    headers: Callable[[], Mapping[str, str]] = dict
    """Function that gathers all headers by name, for scripts that ask."""
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    """Memory that the decoded body may take."""
    codec: InferCodec | None = None
    """Codec of a request of the Open Inference Protocol."""
    file: BinaryIO | None = None
    """The body, if it is read in parts; then ``body`` is empty."""
    hung_up: Callable[[], bool] = field(default_factory=client_watch)
    """Function that asks if the client has closed its connection."""


class RequestContext:
    """Parts of a context of one request that every script has."""

    __slots__ = ()
    _request: ScriptRequest
    _reply_attributes: str | None
    _form: Mapping[str, Sequence[FormPart]] | None

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the request; upper and lower case in a name are the same."""
        return HeaderMap(self._request.headers())

    @property
    def inference_id(self) -> str | None:
        """Id of this request from the client, None if it gave none (docs/reference/sagemaker.md)."""
        return self.headers.get(INFERENCE_ID)

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """Logger whose records carry ``inference_id``, and ``model_name`` if there is a model server."""
        known = {"model_name": getattr(self, "model_name", None), "inference_id": self.inference_id}
        return logging.LoggerAdapter(LOGGER, known)

    def is_disconnected(self) -> bool:
        """Return True once nobody waits for the answer: a handler that takes long may end then."""
        return self._request.hung_up()

    @property
    def form(self) -> Mapping[str, Sequence[FormPart]]:
        """Parts of a multipart/form-data body by name: ``data``, ``text``, ``filename``, ``content_type``.

        Empty for any other body. Raises BadInput (400) for a form that can't be read, and ValueError if the
        script reads bodies in parts.
        """
        request = self._request
        if request.file is not None:
            raise ValueError("context.form needs the whole body, but this script reads bodies in parts")
        if self._form is None:
            kind = request.content_type or ""
            parts = parts_of(request.body, kind, request.budget) if is_form(kind) else ()
            self._form = by_name(parts)  # type: ignore[misc]  # in the slots of both kinds
        return self._form

    @property
    def reply_attributes(self) -> str | None:
        """Value of the answer's header that `set_custom_attributes` has set."""
        return self._reply_attributes

    def set_custom_attributes(self, value: str | Mapping[str, str] | Iterable[str]) -> None:
        """Set ``X-Amzn-SageMaker-Custom-Attributes`` on the answer: text, or a mapping, as ``key=value,...``.

        Raises ValueError for more than 1024 characters or any that is not visible ASCII. Errors that
        the script raises go out without it.
        """
        self._reply_attributes = custom_attributes(value)  # type: ignore[misc]  # in the slots of both kinds


class Context(RequestContext, ModelClient):
    """Context of one request, with the names, types and order of AWS's namedtuple.

    Its fields are in docs/reference/aws-container.md.
    ``model_name``, ``method`` and ``channel`` are always filled; ``model_version`` is the version as
    text if the client named one. ``rest_uri`` and ``channel`` are those of one instance of the
    model server. ``custom_attributes``, ``request_content_type`` and ``accept_header`` are the raw
    headers, the latter two ``application/json`` if the client sent none. ``timeout`` is in seconds.
    It unpacks, indexes and prints like a namedtuple; ``channel`` is opened when it is first read.
    Additions to AWS's are not part of the tuple: ``request_id``, which the log and the answer's
    ``X-Request-Id`` have, `predict` and all else below.
    """

    __slots__ = (
        "_channel",
        "_form",
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
        self._reply_attributes = None
        self._form = None
        self.model_name = target.model
        self.model_version = None if target.version is None else str(target.version)
        self.method = target.method
        self.rest_uri = f"http://localhost:{instance.rest_port}{model_path(target)}:{target.method}"
        self.grpc_port = str(instance.grpc_port)
        self.custom_attributes = request.custom_attributes
        self.request_content_type = request.content_type or JSON
        self.accept_header = request.accept or JSON
        self.content_length = request.content_length
        self.timeout = worker.deployment.times.request_seconds
        self.request_id = current_id()

    @property
    def channel(self) -> Any:
        """``grpc.Channel`` to the instance of ``rest_uri``."""
        return self._channel or self._worker.channels.get(self._instance)

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the request; upper and lower case in a name are the same."""
        return HeaderMap({name.lower(): value for name, value in self._request.headers().items()})

    def default_input(self, data: Any) -> dict[str, npt.NDArray[Any]]:
        """Decode a body, or the file that a handler gets, to arrays by input name, as without a script.

        Their shape is the body's: only what goes to the model without a script must be as declared.

        Raises BadInput (400) if the body is malformed, and UnsupportedMediaType (415).
        """
        budget = self._request.budget
        if isinstance(data, bytes):
            body = data
        elif self._request.file is None:
            body = bytes(data.read())
        else:  # of a body in parts no more than its values may take
            pieces: list[bytes] = []
            while piece := data.read(MEGABYTE):
                budget.take(len(piece))
                pieces.append(piece)
            body = b"".join(pieces)
        if self._request.codec is not None:
            return dict(self._request.codec.batch(body, self._worker.plane.signature(self._target)).inputs)
        batch = self._worker.plane.decode(self._target, Body(body, self._request.content_type, budget))
        self._records = batch.records
        self._is_bare = batch.is_bare
        return dict(batch.inputs)

    def default_output(self, tensors: Any) -> tuple[bytes, str]:
        """Encode arrays by output name, or a response that has them, in the type that Accept asks for.

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
        """Make a context with other values in some fields; raises ValueError for an unknown name."""
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
