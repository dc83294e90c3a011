"""Interface of a model server for workers and scripts, and its answers: JSON or tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Protocol, TypedDict, Unpack

import numpy as np

from tfs_proxy.data.serving_json import answer_text as serving_text
from tfs_proxy.data.serving_json.requests import read_outputs
from tfs_proxy.values.batch import Batch, Examples, Outputs
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import UpstreamError, UpstreamRefused
from tfs_proxy.values.signature import Signature, Target
from tfs_proxy.wire.media_types import JSON
from tfs_proxy.wire.protobuf_writer import Piece
from tfs_proxy.wire.protos.predict import Predicted, read_response

JSON_HEADERS: Mapping[str, str] = {"Content-Type": JSON}

Records = Batch | Examples | bytes
"""Records for a model server: arrays for predict, features for classify and regress, or its own JSON."""


@dataclass
class ModelAnswer:
    """Answer of a model server, an error of its own included."""

    status: int
    """HTTP status."""

    body: bytes
    """JSON of the answer."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers by name."""

    url: str = ""
    """Address that was asked; "" if it was no URL."""

    version: int | None = None
    """Version of the model that answered; None if that is not known."""

    @classmethod
    def refused(cls, error: UpstreamRefused) -> "ModelAnswer":
        return cls(error.status, error.body, JSON_HEADERS)

    @property
    def ok(self) -> bool:
        """True if it is not an error."""
        return self.status == HTTPStatus.OK

    def outputs(self, signature: Signature) -> Outputs:
        """Tensors of an answer to predict; raises UpstreamError if it does not fit."""
        return read_outputs(self.body, signature)


class CallOptions(TypedDict, total=False):
    """Options of `Upstream.predict`."""

    instance: Instance | None
    """Instance to ask first; the least busy one without it."""

    timeout_seconds: float | None
    """Time that the call may take; the pool's own without it."""

    as_json: bool
    """True if the caller wants the answer's JSON alone, whichever way is quicker there."""


class Upstream(Protocol):
    """A pool of model servers that serve the same models.

    Every method raises UpstreamUnavailable if no instance could be reached and UpstreamTimeout
    if none answered in time. An error answer of the model server is a `ModelAnswer`, not raised,
    except by `signature` and `signatures_of`, which raise UpstreamRefused.
    """

    def choose(self) -> Instance:
        """Choose the instance for a request: once per request."""

    def signature(self, target: Target) -> Signature:
        """Signature of the target, from the model server's metadata, cached per model version.

        Raises BadInput if the model has no signature of that name.
        """

    def signatures_of(self, target: Target) -> Mapping[str, Signature]:
        """Signatures of the target's model version, by name; raises as `signature` does."""

    def predict(self, target: Target, records: Records, **options: Unpack[CallOptions]) -> ModelAnswer:
        """Send records; the answer's JSON is TF Serving's, in row form for decoded ones.

        TF Serving's JSON is sent untouched, except that the target's signature is added if it names none.
        Raises BadInput for arrays that no tensor can be made of, and for JSON that names another signature
        than the target.
        """

    def close(self) -> None:
        """Give connections back; idempotent."""


_AS_NUMBERS = {np.dtype(np.float16): np.float32, np.dtype(np.uint16): np.int32}
"""Types of numbers that TF Serving's JSON does not know, and the types that they are written as."""


class TensorAnswer(ModelAnswer):
    """Tensors of a model as its answer.

    `outputs` are its tensors as they are: no JSON between, no digit lost. ``body`` and ``status`` are
    those with which TF Serving's REST side would have answered in row form, an error if the outputs do not
    follow the batch; ``ok`` is True all the same, since the model did answer.
    """

    def __init__(self, predicted: Predicted, url: str = "") -> None:
        self.headers = JSON_HEADERS
        self.url = url
        self.version = predicted.version
        self.tensors = predicted.outputs

    @classmethod
    def read(cls, message: Piece, url: str = "") -> "TensorAnswer":
        """Read ``message``; raises UpstreamError if it can't be read."""
        try:
            return cls(read_response(message), url)
        except ValueError as error:
            raise UpstreamError(f"The model server's answer can't be read: {error}.") from error

    @property
    def ok(self) -> bool:
        """True: the model answered."""
        return True

    @cached_property
    def status(self) -> int:  # type: ignore[override]
        """HTTP status that goes with ``body``; known from shapes and types, without writing it."""
        try:
            serving_text.row_count(self.tensors)
        except serving_text.NoRows:
            return HTTPStatus.BAD_REQUEST
        is_complex = any(array.size and array.dtype.kind == "c" for array in self.tensors.values())
        return HTTPStatus.BAD_REQUEST if is_complex else HTTPStatus.OK

    @cached_property
    def body(self) -> bytes:  # type: ignore[override]
        """TF Serving's JSON, in which outputs are in the order of their names; made when it is first read."""
        arrays = {
            name: array.astype(_AS_NUMBERS.get(array.dtype, array.dtype), copy=False)
            for name, array in sorted(self.tensors.items())
        }
        try:
            return serving_text.rows(arrays)
        except serving_text.NoRows as error:
            return serving_text.error(str(error))
        except serving_text.NoText:
            name = next(array.dtype.name for array in arrays.values() if array.dtype.kind == "c")
            return serving_text.error(f"Failed to write JSON value for tensor type: {name}")

    def outputs(self, signature: Signature) -> Outputs:
        """Tensors of the signature; raises UpstreamError if one is missing."""
        missing = signature.outputs.keys() - self.tensors.keys()
        if missing:
            raise UpstreamError(f"The model server's answer has no output {', '.join(sorted(missing))}.")
        return self.tensors
