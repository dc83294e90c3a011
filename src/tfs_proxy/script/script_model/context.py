"""What a script model's functions see of one request if they take one argument more (``context``)."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from tfs_proxy.memory import MemoryBudget
from tfs_proxy.observe.request_record import current_id
from tfs_proxy.open_inference.infer_codec import InferCodec
from tfs_proxy.payload.registry import decode_array, encode_array
from tfs_proxy.script.handlers.model_client import LOGGER
from tfs_proxy.script.header_map import HeaderMap
from tfs_proxy.script.values import custom_attributes
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, INFERENCE_ID


class ScriptModelRequest(Struct, frozen=True):
    """One request as web hands it to a script model: header values are raw, None if there was none."""

    body: bytes = b""
    content_type: str | None = None
    accept: str | None = None
    headers: Callable[[], Mapping[str, str]] = dict
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    codec: InferCodec | None = None
    """For a request of the Open Inference Protocol."""


class ScriptModelContext:
    """One request's context; ``model_fn`` gets one without a request.

    ``system_properties`` and ``get_request_header`` are named as in AWS's toolkits, the rest as in
    the context of a handler; ``request_id`` is what the log and the answer's ``X-Request-Id`` have.
    """

    __slots__ = ("_reply_attributes", "_request", "request_id", "system_properties")

    def __init__(self, model_dir: str, request: ScriptModelRequest | None = None) -> None:
        self._request = request or ScriptModelRequest()
        self._reply_attributes: str | None = None
        self.request_id = current_id()
        self.system_properties: Mapping[str, str | None] = {"model_dir": model_dir, "gpu_id": None}

    @property
    def model_dir(self) -> str:
        """The folder that is served, which ``model_fn`` gets."""
        return self.system_properties["model_dir"] or ""

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers; upper and lower case in a name are the same."""
        return HeaderMap(self._request.headers())

    def get_request_header(self, _index: int, name: str) -> str | None:
        """One header of the request; there is one request, whatever the index."""
        return self.headers.get(name)

    def get_all_request_header(self, _index: int) -> Mapping[str, str]:
        """The request's headers; there is one request, whatever the index."""
        return self.headers

    @property
    def request_content_type(self) -> str | None:
        """The Content-Type as it was sent, with its parameters."""
        return self._request.content_type

    @property
    def accept_header(self) -> str | None:
        """The Accept as it was sent."""
        return self._request.accept

    @property
    def custom_attributes(self) -> str | None:
        """``X-Amzn-SageMaker-Custom-Attributes`` of the request."""
        return self.headers.get(CUSTOM_ATTRIBUTES)

    @property
    def inference_id(self) -> str | None:
        """The client's id of this request, None if it gave none (docs/reference/sagemaker.md)."""
        return self.headers.get(INFERENCE_ID)

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose records carry ``inference_id``."""
        return logging.LoggerAdapter(LOGGER, {"model_name": None, "inference_id": self.inference_id})

    @property
    def reply_attributes(self) -> str | None:
        """What `set_custom_attributes` was given, as the header has it."""
        return self._reply_attributes

    def default_input(self, data: Any) -> Any:
        """A body as the default ``input_fn`` reads it: an array.

        Of the Open Inference Protocol it is a dict of arrays by input name. Raises BadInput (400), and
        UnsupportedMediaType (415).
        """
        if self._request.codec is not None:
            return self._request.codec.arrays(data.encode() if isinstance(data, str) else data)
        return decode_array(data, self._request.content_type, self._request.budget)

    def default_output(self, prediction: Any, accept: str = "application/json") -> tuple[bytes, str]:
        """An array, or arrays by output name, as the default ``output_fn`` writes it: body and type."""
        if self._request.codec is not None:
            return self._request.codec.encode(prediction)
        return encode_array(prediction, accept), accept

    def set_custom_attributes(self, value: str | Mapping[str, str] | Iterable[str]) -> None:
        """Set ``X-Amzn-SageMaker-Custom-Attributes`` on the answer: text, or a mapping.

        Raises ValueError for more than 1024 characters or any that is not visible ASCII.
        """
        self._reply_attributes = custom_attributes(value)
