"""Arrays by input name of TF Serving's requests to predict in JSON: its row form and its column form."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.data.serving_json.columns import batch_of, column
from tfs_proxy.data.serving_json.documents import (
    BASE64,
    BYTE_ORDER_MARK,
    base64_of,
    documents,
    dumps,
    is_base64,
    rows,
    text_of,
    whole,
)
from tfs_proxy.values.batch import Batch, Examples, Outputs
from tfs_proxy.values.errors import BadInput, UpstreamError, from_client
from tfs_proxy.values.signature import Signature, Target, TensorSpec

PREDICT = "predict"
ROW = "instances"
COLUMN = "inputs"
EXAMPLES = "examples"

_SPACE = rb"[ \t\r\n]*"
_NAME = rb'"signature_name"%b:%b"([^"\\]*)"' % (_SPACE, _SPACE)
_HEAD = re.compile(
    rb'%b\{%b(?:%b%b,%b)?"(instances|inputs)"%b:%b(?=\[)'
    % (_SPACE, _SPACE, _NAME, _SPACE, _SPACE, _SPACE, _SPACE)
)
_TAIL = re.compile(rb"%b(?:,%b%b%b)?\}%b\Z" % (_SPACE, _SPACE, _NAME, _SPACE, _SPACE))
_TAIL_BYTES = 4096


class LoneList(NamedTuple):
    """Body of a signature's name and one list: its bytes from ``start`` to ``end``."""

    signature: str
    by_row: bool
    start: int
    end: int


def lone_list(body: bytes) -> LoneList | None:
    """Find the only list of a body, without a look at its elements; None for every other body."""
    head = _HEAD.match(body)
    last = body.rfind(b"]", max(0, len(body) - _TAIL_BYTES)) + 1
    tail = _TAIL.match(body, last) if head and last else None
    if head is None or tail is None or (head[1] is not None and tail[1] is not None):
        return None
    try:
        signature = (head[1] or tail[1] or b"").decode()
    except UnicodeDecodeError:
        return None
    return LoneList(signature, head[2] == ROW.encode(), head.end(), last)


def serving_form(values: Sequence[Any], method: str) -> Mapping[str, Any] | None:
    """Object of TF Serving's own form, if these documents are that and nothing more.

    For predict that is one object with ``instances`` or ``inputs``, for classify and regress one
    with ``examples``. TF Serving would answer the first of several documents and drop the rest
    without a word, so several are never its form: ``{"instances": [1]}`` twice in one body is two
    records, and refused unless the model has an input called ``instances``.
    """
    if len(values) != 1 or type(values[0]) is not dict:
        return None
    keys = (ROW, COLUMN) if method == PREDICT else (EXAMPLES,)
    return values[0] if any(key in values[0] for key in keys) else None


def decode_serving_form(form: Mapping[str, Any], signature: Signature) -> Batch:
    """Decode an object that is TF Serving's form for predict; raises BadInput if it is malformed."""
    if ROW in form and COLUMN in form:
        raise BadInput(f"The body has both {ROW} and {COLUMN}: send one of them.")
    if ROW in form:
        if type(form[ROW]) is not list:
            raise BadInput(f"{ROW} must be a list.")
        return batch_of(form[ROW], signature, strict=True)
    value = form[COLUMN]
    by_name = signature.by_alias(value) if type(value) is dict and not is_base64(value) else None
    if by_name is None:
        if len(signature.inputs) != 1:
            raise BadInput(f"{COLUMN} must be an object: the model takes {', '.join(signature.inputs)}.")
        by_name = dict.fromkeys(signature.inputs, value)
    if by_name.keys() != signature.inputs.keys():
        raise BadInput(
            f"{COLUMN} has {from_client(', '.join(by_name))}; the model takes {', '.join(signature.inputs)}."
        )
    boxed = {name: column([by_name[name]], spec, strict=True) for name, spec in signature.inputs.items()}
    arrays = {name: array.reshape(array.shape[1:]) for name, array in boxed.items()}
    return Batch(arrays, max((len(array) for array in arrays.values() if array.ndim), default=1))


SIGNATURE_NAME = "signature_name"
INTERNAL_SIGNATURE = "__saved_model_init_op"


def request_body(records: Batch | Examples, signature_name: str | None) -> bytes:
    """Write decoded records in row form, or tensors that have no records in column form.

    int64 is exact, floats keep every digit of their own type, NaN and infinities are written as
    TF Serving reads them, bytes as base64.
    """
    named: dict[str, Any] = {} if signature_name is None else {SIGNATURE_NAME: signature_name}
    if isinstance(records, Examples):
        text = dumps({**named, "examples": records.features})
        # NOTE: orjson writes NaN and infinities as null; TF Serving reads them by their names.
        return text if b"null" not in text else json.dumps({**named, "examples": records.features}).encode()
    if any(array.shape[:1] != (records.records,) for array in records.inputs.values()):
        return column_body(records.inputs, signature_name)
    if len(records.inputs) == 1:
        (array,) = records.inputs.values()
        return dumps({**named, "instances": whole(array, as_base64=True)})
    by_record = [rows(array, as_base64=True) for array in records.inputs.values()]
    instances = [dict(zip(records.inputs, row, strict=True)) for row in zip(*by_record, strict=True)]
    return dumps({**named, "instances": instances})


def column_body(inputs: Mapping[str, npt.NDArray[Any]], signature_name: str | None) -> bytes:
    """Write tensors in column form."""
    named = {} if signature_name is None else {SIGNATURE_NAME: signature_name}
    return dumps({**named, "inputs": {name: whole(array, as_base64=True) for name, array in inputs.items()}})


def named_signature(body: bytes) -> str | None:
    """Signature that a body of TF Serving's JSON names, None if it names none."""
    return _signature_name(body) or None


def targeted(target: Target, body: bytes) -> Target:
    """Add the signature that a body of TF Serving's JSON names to the target."""
    return replace(target, signature=named_signature(body) or target.signature)


def with_signature(body: bytes, signature_name: str | None) -> bytes:
    """Add a signature name to TF Serving's JSON if it has none of its own.

    The body stays as it is if no name is given, if it names the same, and if it is not an object
    (TF Serving says so itself). Raises BadInput if it names another.
    """
    if signature_name is None:
        return body
    own = _signature_name(body)
    if own is None or own == signature_name:
        return body
    if own:
        raise BadInput(
            f'The body asks for signature "{from_client(own)}" and tfs-signature-name for '
            f'"{from_client(signature_name)}": name one signature.'
        )
    head, _, rest = body.removeprefix(BYTE_ORDER_MARK).partition(b"{")
    # NOTE: of equal names TF Serving takes the first, so an empty name further on does no harm.
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return head + b'{"signature_name":' + orjson.dumps(signature_name) + comma + rest


def _signature_name(body: bytes) -> str | None:
    """Read the name in a body; "" for none, None if TF Serving is to refuse the body."""
    try:
        read = documents(body)
    except BadInput:
        return None
    if not read or type(read[0]) is not dict:
        return None
    name = read[0].get(SIGNATURE_NAME, "")
    return name if type(name) is str else None


class Metadata(Struct, frozen=True):
    """Metadata of one model version from a model server; None for a version that it does not tell."""

    version: int | None
    signatures: Mapping[str, Signature]


def read_metadata(body: bytes) -> Metadata:
    """Read version and signatures by name from the answer to ``GET .../metadata``."""
    try:
        answer = orjson.loads(body)
        by_name = answer["metadata"]["signature_def"]["signature_def"]
        version = answer.get("model_spec", {}).get("version")
        signatures = {
            name: Signature(name, entry["method_name"], _specs(entry["inputs"]), _specs(entry["outputs"]))
            for name, entry in by_name.items()
            if name != INTERNAL_SIGNATURE
        }
        return Metadata(None if version is None else int(version), signatures)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UpstreamError("The model server's metadata can't be read.") from error


def _specs(entries: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """Read specs by name, in the order of the names: the map of a SignatureDef has none."""
    return {
        name: TensorSpec(name, entry["dtype"], _shape(entry.get("tensor_shape")))
        for name, entry in sorted(entries.items())
    }


def _shape(shape: Mapping[str, Any] | None) -> tuple[int | None, ...] | None:
    """Read a TensorShapeProto in JSON; None means an unknown rank, a scalar's has no dimensions."""
    if shape is None or shape.get("unknown_rank"):
        return None
    sizes = (int(dimension["size"]) for dimension in shape.get("dim", ()))
    return tuple(None if size < 0 else size for size in sizes)


def read_outputs(body: bytes, signature: Signature) -> Outputs:
    """Read arrays by output name from an answer to predict, in row or in column form.

    Bytes are those that the model gave, also if they are not UTF-8. Raises UpstreamError if
    the answer does not fit the signature.
    """
    answer = read_answer(body)
    try:
        by_row = "predictions" in answer
        columns = answer["predictions" if by_row else "outputs"]
        if len(signature.outputs) == 1:
            columns = dict.fromkeys(signature.outputs, columns)
        elif by_row:
            columns = {name: [row[name] for row in columns] for name in signature.outputs}
        arrays = {}
        for name, value in columns.items():
            spec = signature.outputs[name]
            # A column may be a scalar, so it is wrapped to be read.
            array = column(value, spec) if by_row else column([value], spec)[0]
            arrays[name] = np.asarray(array, object if spec.dtype == "DT_STRING" else None)
    except (KeyError, TypeError, BadInput) as error:
        raise UpstreamError(
            f"The model server's answer does not fit the signature {signature.name}."
        ) from error
    return arrays


def read_answer(body: bytes) -> Mapping[str, Any]:
    """Read a model server's answer; raises UpstreamError if it is not an object."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:  # with NaN or infinities, or with strings that are not UTF-8
            answer = json.loads(body.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError) as error:
            raise UpstreamError("The model server's answer is not JSON.") from error
    if not isinstance(answer, dict):
        raise UpstreamError("The model server's answer is not a JSON object.")
    return answer


def with_base64(body: bytes) -> bytes:
    """Write an answer anew whose strings are not all UTF-8: those become base64 in objects."""
    return json.dumps(_with_base64(read_answer(body))).encode()


def _with_base64(value: Any) -> Any:
    match value:
        case dict():
            return {name: _with_base64(element) for name, element in value.items()}
        case list():
            return [_with_base64(element) for element in value]
        case str() if not value.isascii():
            raw = value.encode("utf-8", "surrogateescape")
            return value if text_of(raw) is not None else {BASE64: base64_of(raw)}
    return value
