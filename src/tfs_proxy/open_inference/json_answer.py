"""A model's outputs as an answer of the protocol: JSON, and behind it raw bytes if they are asked for."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from msgspec import Struct

from tfs_proxy.batch import BYTES, Outputs
from tfs_proxy.errors import BadInput
from tfs_proxy.open_inference.datatypes import Datatype, datatype_of, datatype_of_array
from tfs_proxy.open_inference.infer_request import BINARY_DATA_SIZE, InferRequest, named
from tfs_proxy.open_inference.raw import Raw, to_raw
from tfs_proxy.signature import Signature

_ASK_FOR_BINARY = 'ask for it with the parameter "binary_data": true'


class InferAnswer(Struct, frozen=True):
    """A body; its first ``json_size`` bytes are JSON, None if all of it is."""

    body: bytes
    json_size: int | None


def write_answer(
    request: InferRequest, model: str, version: str, outputs: Outputs, signature: Signature | None = None
) -> InferAnswer:
    """The answer to ``request`` of a model's ``version``, "" if that is not known.

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
        else:
            tensors.append({**tensor, "data": _json_data(wanted.name, array, datatype)})
    text = orjson.dumps(_document(request, model, version, tensors), option=orjson.OPT_SERIALIZE_NUMPY)
    return InferAnswer(b"".join((text, *raws)), len(text)) if raws else InferAnswer(text, None)


def output_datatype(name: str, array: npt.NDArray[Any], signature: Signature | None) -> Datatype:
    """The datatype of an output; raises BadInput if the protocol does not carry it."""
    known = datatype_of_array(array.dtype) if signature is None else datatype_of(signature.outputs[name])
    if known is None:
        dtype = array.dtype if signature is None else signature.outputs[name].dtype
        raise BadInput(f"{named('output', name)} is {dtype}, which this protocol does not carry.")
    return known


def _document(
    request: InferRequest, model: str, version: str, tensors: list[Mapping[str, Any]]
) -> Mapping[str, Any]:
    document: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id:
        document["id"] = request.id
    if request.own_parameters:
        document["parameters"] = request.own_parameters
    return {**document, "outputs": tensors}


def _json_data(name: str, array: npt.NDArray[Any], datatype: Datatype) -> Any:
    """The values row by row, for orjson."""
    subject = named("output", name)
    if not datatype.has_json:
        raise BadInput(f"{subject} is {datatype.name}, which JSON does not carry: {_ASK_FOR_BINARY}.")
    if datatype.array == BYTES:
        return _texts(subject, array)
    flat = np.ascontiguousarray(array, datatype.array).reshape(-1)
    if datatype.array.kind == "f" and not np.isfinite(flat).all():
        raise BadInput(
            f"{subject} has values that are not finite, which JSON does not carry: {_ASK_FOR_BINARY}."
        )
    return flat


def _texts(subject: str, array: npt.NDArray[Any]) -> list[str]:
    try:
        return [value if isinstance(value, str) else value.decode() for value in array.flat]
    except UnicodeDecodeError:
        raise BadInput(
            f"{subject} is not UTF-8 text, so JSON does not carry it: {_ASK_FOR_BINARY}."
        ) from None
