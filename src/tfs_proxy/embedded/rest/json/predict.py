"""A predict request's JSON to arrays by input name, row by row or column by column.

Every refusal has TF Serving's own text (docs/reference/tensorflow-serving.md).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tfs_proxy.embedded.core.servable import Array, Tensor
from tfs_proxy.embedded.errors import ServingError, invalid, shape_text
from tfs_proxy.embedded.rest.json import base64_rows
from tfs_proxy.embedded.rest.json import bulk as json_bulk
from tfs_proxy.embedded.rest.json import values as json_values
from tfs_proxy.embedded.rest.json.parse import parse
from tfs_proxy.embedded.rest.json.text import shown
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.serving_json.text import is_base64

Inputs = Mapping[str, Tensor]


class PredictCall(NamedTuple):
    """What a request asks for: a signature, its arrays, and whether the answer goes by rows."""

    signature: str
    by_row: bool
    arrays: dict[str, Array]


def decode(body: bytes, inputs_of: Callable[[str], Inputs], budget: MemoryBudget) -> PredictCall:
    """A body to a call; ``inputs_of`` gives a signature's inputs ("" is the default one).

    Raises ServingError for malformed JSON, and for whatever does not fit the signature, and what the
    budget does.
    """
    if len(body) >= json_bulk.WORTHWHILE_BYTES:
        call = decode_at_once(body, inputs_of, budget)
        if call is not None:
            return call
        found = json_bulk.decode(body, inputs_of, budget)
        if found is not None:
            return PredictCall(*found)
    document = parse(body, budget)
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {shown(document)} Is not object")
    signature = signature_name(document)
    inputs = inputs_of(signature)
    if not inputs:
        raise invalid(f"Failed to get input map for signature: {signature or 'DEFAULT'}")
    if "instances" in document:
        if "inputs" in document:
            raise invalid(
                f"JSON Value: {shown(document)} Not formatted correctly expecting only one of "
                "'inputs' or 'instances' keys to exist "
            )
        return PredictCall(signature, by_row=True, arrays=_rows(document, inputs))
    if "inputs" in document:
        return PredictCall(signature, by_row=False, arrays=_columns(document["inputs"], inputs))
    raise invalid("Missing 'inputs' or 'instances' key")


def decode_at_once(
    body: bytes, inputs_of: Callable[[str], Inputs], budget: MemoryBudget
) -> PredictCall | None:
    """The same for a large body that takes next to no time: one of base64. None for every other body."""
    found = base64_rows.decode(body, inputs_of, budget)
    return None if found is None else PredictCall(*found)


def signature_name(document: dict[str, Any]) -> str:
    """The signature that a request names, "" for none.

    Raises ServingError if it is not a string.
    """
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {shown(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return name


def _columns(value: Any, inputs: Inputs) -> dict[str, Array]:
    if isinstance(value, dict) and not is_base64(value):
        for name in inputs:
            if name not in value:
                raise invalid(f"Missing named input: {name} in 'inputs' object.")
        return {name: json_values.array_of(value[name], tensor) for name, tensor in inputs.items()}
    if len(inputs) > 1:
        raise invalid(
            "inputs is a plain value/list, but expecting an object as multiple input tensors required "
            "as per tensorinfo_map"
        )
    return {name: json_values.array_of(value, tensor) for name, tensor in inputs.items()}


def _rows(document: dict[str, Any], inputs: Inputs) -> dict[str, Array]:
    rows = document["instances"]
    if not isinstance(rows, list):
        raise invalid(f"JSON Value: {shown(document)} Excepting 'instances' to be an list/array")
    if not rows:
        raise invalid(f"JSON Value: {shown(document)} No values in 'instances' array")
    named = isinstance(rows[0], dict) and not is_base64(rows[0])
    if not isinstance(rows[0], dict) and len(inputs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors required "
            "as per tensorinfo_map"
        )
    quick = _regular_columns(rows, inputs) if named else _regular_column(rows, inputs)
    return quick if quick is not None else _Rows(inputs).read(rows, named=named)


def _regular_column(rows: list[Any], inputs: Inputs) -> dict[str, Array] | None:
    name = next(iter(inputs))
    array = json_values.regular_array(rows, inputs[name].data_type)
    return None if array is None else {name: array}


def _regular_columns(rows: list[Any], inputs: Inputs) -> dict[str, Array] | None:
    arrays = {}
    for name, tensor in inputs.items():
        try:
            column = [row[name] for row in rows if len(row) == len(inputs)]
        except (KeyError, TypeError):
            return None
        array = json_values.regular_array(column, tensor.data_type) if len(column) == len(rows) else None
        if array is None:
            return None
        arrays[name] = array
    return arrays


class _Rows:
    """Rows read value by value: of each input the first row sets size and shape."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._values: dict[str, list[Any]] = {}
        self._sizes: dict[str, int] = {}
        self._shapes: dict[str, list[int]] = {}

    def read(self, rows: list[Any], *, named: bool) -> dict[str, Array]:
        for index, row in enumerate(rows):
            is_object = isinstance(row, dict) and not is_base64(row)
            if named and not is_object:
                raise invalid(f"Expecting object but got list at item {index} of input list")
            if is_object and not named:
                raise invalid(f"Expecting value/list but got object at item {index} of input list")
            self._read_row(index, row, named=named)
        return {
            name: json_values.made(values, [len(rows), *self._shapes[name]], self._inputs[name])
            for name, values in self._values.items()
        }

    def _read_row(self, index: int, row: Any, *, named: bool) -> None:
        items = row.items() if named else ((next(iter(self._inputs)), row),)
        for name, value in items:
            try:
                self._add(name, value)
            except ServingError as error:
                where = f"{index} key: {name}" if named else f"{index}"
                raise invalid(
                    f"Failed to process element: {where} of 'instances' list. "
                    f"Error: {error.code.name}: {error.text}"
                ) from error
        if named and row.keys() != self._inputs.keys():
            raise invalid(
                f"Failed to process element: {index} of 'instances' list. JSON object: {shown(row)} "
                f"keys must be equal to: {','.join(sorted(self._inputs))}"
            )

    def _add(self, name: str, value: Any) -> None:
        if name not in self._inputs:
            raise invalid(f"JSON object: does not have named input: {name}")
        shape = json_values.shape_of(value)
        values = self._values.setdefault(name, [])
        before = len(values)
        json_values.fill(value, 0, shape, self._inputs[name].data_type, values)
        size = len(values) - before
        if name not in self._sizes:
            self._sizes[name], self._shapes[name] = size, shape
        elif self._sizes[name] != size:
            raise invalid(f"Expecting tensor size: {self._sizes[name]} but got: {size}")
        elif self._shapes[name] != shape:
            raise invalid(f"Expecting shape {shape_text(self._shapes[name])} but got: {shape_text(shape)}")
