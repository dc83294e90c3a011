"""A predict request's JSON to arrays by input name; refusals begin with TF Serving's words."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tfs_proxy.embedded.core.servable import Array, Tensor, type_name
from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.embedded.rest.json_body import read_object, shown, signature_name
from tfs_proxy.errors import BadInput
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.serving_json.documents import is_base64
from tfs_proxy.serving_json.numbers import is_numeric, json_array
from tfs_proxy.serving_json.requests import COLUMN, ROW, decode_serving_form, lone_list
from tfs_proxy.signature import PREDICT_METHOD, Signature, TensorSpec
from tfs_proxy.wire.data_types import DataType, data_type_name
from tfs_proxy.wire.dtypes import JSON_TYPES, NUMPY_TYPES
from tfs_proxy.wire.grpc_codes import GrpcCode

_WORTHWHILE_BYTES = 4096
"""From this size on a body is worth the attempt to read it as one array of numbers."""
_WRAPPED = {DataType.DT_INT16, DataType.DT_INT8, DataType.DT_UINT8}
"""Types that take any number of 32 bits, and keep its low ones."""

Inputs = Mapping[str, Tensor]


class PredictCall(NamedTuple):
    """What a request asks for: a signature, its arrays, and whether the answer goes by rows."""

    signature: str
    by_row: bool
    arrays: Mapping[str, Array]


def decode(body: bytes, inputs_of: Callable[[str], Inputs], budget: MemoryBudget) -> PredictCall:
    """A body to a call; ``inputs_of`` gives a signature's inputs ("" is the default one).

    Raises ServingError for malformed JSON, and for whatever does not fit the signature, and what the
    budget does.
    """
    numbers = _numbers(body, inputs_of, budget) if len(body) >= _WORTHWHILE_BYTES else None
    if numbers is not None:
        return numbers
    document = read_object(body, budget)
    name = signature_name(document)
    inputs = inputs_of(name)
    if not inputs:
        raise invalid(f"Failed to get input map for signature: {name or 'DEFAULT'}")
    if ROW in document and COLUMN in document:
        raise invalid(
            f"JSON Value: {shown(document)} Not formatted correctly expecting only one of "
            "'inputs' or 'instances' keys to exist "
        )
    if ROW in document:
        _check_rows(document, inputs)
    elif COLUMN in document:
        document = {COLUMN: _columns(document[COLUMN], inputs)}
    else:
        raise invalid("Missing 'inputs' or 'instances' key")
    return PredictCall(name, ROW in document, _arrays(document, inputs))


def _numbers(body: bytes, inputs_of: Callable[[str], Inputs], budget: MemoryBudget) -> PredictCall | None:
    """The call of a body that is a regular list of numbers, which become no Python objects."""
    found = lone_list(body)
    inputs = list(inputs_of(found.signature).values()) if found else []
    if found is None or len(inputs) != 1 or inputs[0].data_type in _WRAPPED:
        return None
    taken = budget.taken
    spec = _spec(inputs[0])
    readable = is_numeric(spec) and spec.dtype in JSON_TYPES
    array = json_array(body, spec, budget, found.start, found.end) if readable else None
    if array is None:
        budget.give_back(budget.taken - taken)
        return None
    return PredictCall(found.signature, found.by_row, {inputs[0].alias: array})


def _columns(value: Any, inputs: Inputs) -> Any:
    """The column form without the inputs that a signature does not have, which TF Serving overlooks."""
    if type(value) is not dict or is_base64(value):
        if len(inputs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required "
                "as per tensorinfo_map"
            )
        return value
    missing = [name for name in inputs if name not in value]
    if missing:
        raise invalid(f"Missing named input: {missing[0]} in 'inputs' object.")
    return {name: value[name] for name in inputs}


def _check_rows(document: dict[str, Any], inputs: Inputs) -> None:
    rows = document[ROW]
    if type(rows) is not list:
        raise invalid(f"JSON Value: {shown(document)} Excepting 'instances' to be an list/array")
    if not rows:
        raise invalid(f"JSON Value: {shown(document)} No values in 'instances' array")
    named = [type(row) is dict and not is_base64(row) for row in rows]
    if not named[0] and len(inputs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors required "
            "as per tensorinfo_map"
        )
    if not all(named) if named[0] else any(named):
        wanted, got = ("object", "list") if named[0] else ("value/list", "object")
        raise invalid(f"Expecting {wanted} but got {got} at item {named.index(not named[0])} of input list")


def _arrays(document: dict[str, Any], inputs: Inputs) -> Mapping[str, Array]:
    """The arrays of a form, by input. Raises ServingError."""
    unread = [tensor for tensor in inputs.values() if data_type_name(tensor.data_type) not in JSON_TYPES]
    text = f"Conversion of JSON Value to type: {type_name(unread[0].data_type)}" if unread else ""
    if unread and COLUMN in document:
        raise ServingError(GrpcCode.UNIMPLEMENTED, text)
    signature = Signature("", PREDICT_METHOD, {name: _spec(tensor) for name, tensor in inputs.items()}, {})
    try:
        if unread:
            raise BadInput(text)  # noqa: TRY301 (a row's refusal, in the words of one)
        arrays = decode_serving_form(document, signature).inputs
    except BadInput as error:
        raise invalid(f"Failed to process element: {error}" if ROW in document else str(error)) from error
    return {
        name: array.astype(NUMPY_TYPES[inputs[name].data_type], copy=False) for name, array in arrays.items()
    }


def _spec(tensor: Tensor) -> TensorSpec:
    data_type = DataType.DT_INT32 if tensor.data_type in _WRAPPED else tensor.data_type
    return TensorSpec(tensor.alias, data_type_name(data_type), None)
