"""Codec of one request: its tensors to arrays and an answer's arrays to JSON or binary, in one call each."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.data.arrays import writable
from tfs_proxy.data.open_inference.datatypes import Datatype, Raw, datatype_of, datatype_of_array, to_raw
from tfs_proxy.data.open_inference.infer_request import (
    BASE64_TYPE,
    BINARY_DATA_SIZE,
    CONTENT_TYPE,
    InferRequest,
    check_once,
    named,
)
from tfs_proxy.data.open_inference.json_request import read_request
from tfs_proxy.data.serving_json.documents import base64_of
from tfs_proxy.values.batch import BYTES, Batch, Outputs
from tfs_proxy.values.errors import BadInput, ScriptFailure
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import Signature, Target
from tfs_proxy.wire import media_types as media

ONLY_OUTPUT: Final = "output_0"
"""Name of the output of a script that returns a single array."""


class InferCodec:
    """Codec of one request and its answer; ``json_size`` is that of the request's header, None without.

    ``model`` and ``version`` are those that the answer names, ``binary_type`` gives the content type of an
    answer with binary data whose JSON has this size. ``answer_json_size`` is that of the last answer that
    `encode` has made.
    """

    def __init__(
        self,
        json_size: int | None,
        model: str,
        version: str,
        budget: MemoryBudget,
        binary_type: Callable[[int], str],
    ) -> None:
        self.answer_json_size: int | None = None
        self._json_size = json_size
        self._budget = budget
        self._model = model
        self._version = version
        self._binary_type = binary_type
        self._request = InferRequest()
        self._body = b""

    @property
    def is_binary(self) -> bool:
        """True if the request says that raw tensors follow its JSON."""
        return self._json_size is not None

    def read(self, body: bytes) -> InferRequest:
        """Read the request, which is cached; raises as `read_request` does."""
        if not self._body or body != self._body:
            self._request = read_request(body, self._json_size, self._budget)
            self._body = body
        return self._request

    def timeout_seconds(self, body: bytes) -> float | None:
        """Time that a request may take, if it can be read and says so; raises BadInput."""
        if b'"timeout"' not in body:  # a script may read bodies in its own way
            return None
        try:
            request = self.read(body)
        except BadInput:
            return None
        return request.timeout_seconds

    def targeted(self, body: bytes, target: Target) -> Target:
        """Add the signature that a request names to the target, if the request can be read."""
        try:
            name = self.read(body).signature
        except BadInput:  # a script may know what to do with it
            return target
        return target if name is None else replace(target, signature=name)

    def batch(self, body: bytes, signature: Signature) -> Batch:
        """Tensors of a request by input name, as arrays that may be written to; raises BadInput."""
        return writable(self.read(body).batch(signature))

    def arrays(self, body: bytes) -> dict[str, npt.NDArray[Any]]:
        """Tensors of a request for a model without a signature; raises BadInput."""
        request = self.read(body)
        check_once(given.name for given in request.inputs)
        batch = Batch({given.name: given.array for given in request.inputs}, 1)
        return dict(writable(batch).inputs)

    def encode(
        self, outputs: Mapping[str, Any] | Any, signature: Signature | None = None
    ) -> tuple[bytes, str]:
        """Write body and content type of an answer with these outputs, arrays by name, or the only one.

        ``signature`` names their datatypes; without it they are those of the arrays. Raises BadInput for an
        output that can't travel as the request asks for it, ScriptFailure for values that are no tensor.
        """
        by_name = outputs if isinstance(outputs, Mapping) else {ONLY_OUTPUT: outputs}
        arrays = {str(name): as_array(value, str(name)) for name, value in by_name.items()}
        answer = write_answer(self._request, self._model, self._version, arrays, signature)
        self.answer_json_size = answer.json_size
        return answer.body, media.JSON if answer.json_size is None else self._binary_type(answer.json_size)


def as_array(value: Any, name: str) -> npt.NDArray[Any]:
    """Convert an output of a script with numpy; text becomes bytes.

    Raises ScriptFailure.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ScriptFailure(f"{named('output', name)} is not an array: {error}") from error
    if array.dtype.kind not in "SUO":
        return array
    strings = np.empty(array.size, BYTES)
    for number, element in enumerate(array.ravel()):
        if not isinstance(element, str | bytes):
            kind = type(element).__name__
            raise ScriptFailure(f"{named('output', name)} holds {kind}: it must be numbers, str or bytes")
        strings[number] = element.encode() if isinstance(element, str) else bytes(element)
    return strings.reshape(array.shape)


_ASK_FOR_BINARY = 'ask for it with the parameter "binary_data": true'


class InferAnswer(Struct, frozen=True):
    """Answer's body; its first ``json_size`` bytes are JSON, None if all of it is."""

    body: bytes
    json_size: int | None


def write_answer(
    request: InferRequest, model: str, version: str, outputs: Outputs, signature: Signature | None = None
) -> InferAnswer:
    """Write the answer to ``request`` of a model's ``version``, "" if that is not known.

    Raises BadInput for outputs that the model does not give, or that can't travel as they are asked for.
    """
    names = tuple(outputs) if signature is None else tuple(signature.outputs)
    tensors: list[Mapping[str, Any]] = []
    raws: list[Raw] = []
    for wanted in request.requested(names):
        datatype = output_datatype(wanted.name, outputs[wanted.name], signature)
        array = outputs[wanted.name]
        tensor = {"name": wanted.name, "datatype": datatype.name, "shape": list(array.shape)}
        if wanted.binary:
            raws.append(to_raw(array, datatype))
            tensors.append({**tensor, "parameters": {BINARY_DATA_SIZE: len(raws[-1])}})
        elif wanted.as_base64 and datatype.array == BYTES:
            values = array.ravel()
            texts = [base64_of(value if isinstance(value, bytes) else value.encode()) for value in values]
            tensors.append({**tensor, "parameters": {CONTENT_TYPE: BASE64_TYPE}, "data": texts})
        else:
            tensors.append({**tensor, "data": _json_data(wanted.name, array, datatype)})
    document: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id:
        document["id"] = request.id
    if request.own_parameters:
        document["parameters"] = request.own_parameters
    text = orjson.dumps({**document, "outputs": tensors}, option=orjson.OPT_SERIALIZE_NUMPY)
    return InferAnswer(b"".join((text, *raws)), len(text)) if raws else InferAnswer(text, None)


def output_datatype(name: str, array: npt.NDArray[Any], signature: Signature | None) -> Datatype:
    """Datatype of an output; raises BadInput if the protocol does not carry it."""
    known = datatype_of_array(array.dtype) if signature is None else datatype_of(signature.outputs[name])
    if known is None:
        dtype = array.dtype if signature is None else signature.outputs[name].dtype
        raise BadInput(f"{named('output', name)} is {dtype}, which this protocol does not carry.")
    return known


def _json_data(name: str, array: npt.NDArray[Any], datatype: Datatype) -> Any:
    """Values row by row, for orjson."""
    subject = named("output", name)
    if not datatype.has_json:
        raise BadInput(f"{subject} is {datatype.name}, which JSON does not carry: {_ASK_FOR_BINARY}.")
    if datatype.array == BYTES:
        try:
            return [value if isinstance(value, str) else value.decode() for value in array.ravel()]
        except UnicodeDecodeError:
            what = "is not UTF-8 text, so JSON does not carry it"
            raise BadInput(
                f'{subject} {what}: {_ASK_FOR_BINARY}, or "{CONTENT_TYPE}": "{BASE64_TYPE}".'
            ) from None
    flat = np.ascontiguousarray(array, datatype.array).reshape(-1)
    if datatype.array.kind == "f" and not np.isfinite(flat).all():
        raise BadInput(
            f"{subject} has values that are not finite, which JSON does not carry: {_ASK_FOR_BINARY}."
        )
    return flat
