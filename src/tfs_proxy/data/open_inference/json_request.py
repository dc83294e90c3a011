"""Reader of a request's body, JSON and the raw bytes behind it (the binary tensor extension)."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from tfs_proxy.data.open_inference.datatypes import Datatype, datatype_named, from_raw
from tfs_proxy.data.open_inference.infer_request import (
    BASE64_TYPE,
    BINARY_DATA,
    BINARY_DATA_OUTPUT,
    BINARY_DATA_SIZE,
    CLASSIFICATION,
    CONTENT_TYPE,
    InferInput,
    InferRequest,
    Parameters,
    RequestedOutput,
    check_once,
    checked_shape,
    named,
)
from tfs_proxy.data.serving_json.columns import Irregular, flattened, whole_numbers
from tfs_proxy.data.serving_json.documents import BASE64, BYTE_ORDER_MARK, base64_bytes
from tfs_proxy.data.serving_json.numbers import JSONArray, JSONObject, numbers_of, parse
from tfs_proxy.values.batch import BYTES
from tfs_proxy.values.errors import BadInput, from_client
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.wire.dtypes import MAX_DIMENSIONS

MOST_TENSORS = 10_000
"""Most inputs, and most outputs, that one request may name."""

MOST_PARAMETERS = 1_000
"""Most parameters of a request, or of one of its tensors."""

_SHOWN_CHARACTERS = 100


def read_request(body: bytes, json_size: int | None, budget: MemoryBudget) -> InferRequest:
    """Read a body whose first ``json_size`` bytes are JSON; None: all of it.

    The arrays may share the body's memory. Raises BadInput that names the tensor and what is wrong, and
    PayloadTooLarge if the values are more than the budget has left.
    """
    if json_size is None:
        return _RequestReader(body, memoryview(b""), budget).read()
    if json_size > len(body):
        raise BadInput(f"The body has {len(body)} bytes, but its JSON is said to have {json_size}.")
    return _RequestReader(body[:json_size], memoryview(body)[json_size:], budget).read()


def is_request(body: bytes, budget: MemoryBudget) -> bool:
    """True if JSON has tensors as this protocol has them; no record and no form of TF Serving's has."""
    if b'"datatype"' not in body:  # few other bodies have it
        return False
    taken = budget.taken
    budget.take_parsed(body)
    budget.give_back(budget.taken - taken)  # its reader parses it anew
    try:
        document = parse(body.removeprefix(BYTE_ORDER_MARK))
    except ValueError:
        return False
    inputs = document.get("inputs") if isinstance(document, JSONObject) else None
    first = inputs[0] if isinstance(inputs, JSONArray) and len(inputs) else None
    return isinstance(first, JSONObject) and {"name", "shape", "datatype"} <= set(first.keys())


class _RequestReader:
    """Reader of one request; ``raw`` are the raw bytes behind its JSON that no tensor has taken yet."""

    def __init__(self, text: bytes, raw: memoryview, budget: MemoryBudget) -> None:
        self._text = text.removeprefix(BYTE_ORDER_MARK)
        self._raw = raw
        self._budget = budget
        self._has_counted = False

    def read(self) -> InferRequest:
        self._budget.take_parsed(self._text)
        try:
            # simdjson makes no object for each value.
            document = parse(self._text)
        except ValueError:
            self._count_objects()
            document = _parsed_anew(self._text)
        if not isinstance(document, JSONObject):
            raise BadInput('The body must be a JSON object with "inputs".')
        parameters = _parameters(document, "The request")
        inputs = tuple(self._input(element) for element in _elements(document, "inputs"))
        if not inputs:
            raise BadInput('The request needs "inputs": a list of tensors.')
        if self._raw:
            raise BadInput(f"The body has {len(self._raw)} bytes behind the binary data of its inputs.")
        binary = parameters.get(BINARY_DATA_OUTPUT) is True
        outputs = tuple(_output(element, binary) for element in _elements(document, "outputs"))
        check_once((output.name for output in outputs), "output", "is asked for")
        request_id = document.get("id")
        if request_id is not None and not isinstance(request_id, str):
            raise BadInput('"id" must be a string.')
        return InferRequest(inputs, outputs, request_id or "", parameters)

    def _count_objects(self) -> None:
        """Count the text's Python objects, once, before the first list of them is made.

        Counting takes longer than parsing, and numbers become no objects.
        """
        if not self._has_counted:
            self._has_counted = True
            self._budget.take_json(self._text)

    def _input(self, element: Any) -> InferInput:
        name = _name(element, "input")
        subject = named("input", name)
        parameters = _parameters(element, subject)
        datatype = datatype_named(element.get("datatype"), subject)
        shape = checked_shape(_listed(element.get("shape")), subject)
        data = element.get("data")
        size = parameters.get(BINARY_DATA_SIZE)
        if (data is None) == (size is None):
            which = "both" if size is not None else "neither"
            raise BadInput(f'{subject} has {which} of "data" and {BINARY_DATA_SIZE}: give one of them.')
        if size is None:
            array = array_of(data, datatype, shape, subject, self._count_objects)
            if array.dtype == BYTES and parameters.get(CONTENT_TYPE) == BASE64_TYPE:
                _decode_base64(array, subject)
            return InferInput(name, datatype, array)
        return InferInput(
            name, datatype, from_raw(self._taken(size, subject), datatype, shape, subject, self._budget)
        )

    def _taken(self, size: object, subject: str) -> memoryview:
        if type(size) is not int or size < 0:
            raise BadInput(f"{subject}: {BINARY_DATA_SIZE} must be a whole number that is not negative.")
        if size > len(self._raw):
            raise BadInput(f"{subject} has {size} bytes of binary data, but only {len(self._raw)} are left.")
        taken = self._raw[:size]
        self._raw = self._raw[size:]
        return taken


def _output(element: Any, binary: bool) -> RequestedOutput:
    name = _name(element, "output")
    subject = named("output", name)
    parameters = _parameters(element, subject)
    if CLASSIFICATION in parameters:
        raise BadInput(f'{subject}: the parameter "{CLASSIFICATION}" is not supported.')
    wanted = parameters.get(BINARY_DATA, binary)
    if not isinstance(wanted, bool):
        raise BadInput(f"{subject}: {BINARY_DATA} must be true or false.")
    as_base64 = parameters.get(CONTENT_TYPE) == BASE64_TYPE
    return RequestedOutput(name, wanted, as_base64)


def _elements(document: Any, key: str) -> Iterator[Any]:
    """Yield the objects of a list; nothing if there is none."""
    elements = document.get(key)
    if elements is None:
        return
    if not isinstance(elements, JSONArray):
        raise BadInput(f'"{key}" must be a list.')
    if len(elements) > MOST_TENSORS:
        raise BadInput(f'"{key}" has more than {MOST_TENSORS} tensors.')
    for number, element in enumerate(elements, 1):
        if not isinstance(element, JSONObject):
            raise BadInput(f'Element {number} of "{key}" is not an object.')
        yield element


def _name(element: Any, kind: str) -> str:
    name = element.get("name")
    if not isinstance(name, str):
        raise BadInput(f'Each {kind} needs a "name".')
    return name


def _parameters(element: Any, subject: str) -> Parameters:
    given = element.get("parameters")
    if given is None:
        return {}
    if not isinstance(given, JSONObject):
        raise BadInput(f'{subject} has "parameters" that are not an object.')
    if len(given) > MOST_PARAMETERS:
        raise BadInput(f"{subject} has more than {MOST_PARAMETERS} parameters.")
    parameters: Mapping[str, Any] = dict(given.items())
    for name, value in parameters.items():
        if not isinstance(value, (bool, int, float, str)):
            shown = from_client(name[:_SHOWN_CHARACTERS])
            raise BadInput(f'{subject}: the parameter "{shown}" must be a string, a number, true or false.')
    return parameters


def _listed(shape: Any) -> Any:
    """Convert a shape; lists in it stay simdjson's: they may be large."""
    return list(islice(shape, MAX_DIMENSIONS + 1)) if isinstance(shape, JSONArray) else shape


def _parsed_anew(text: bytes) -> Any:
    """Parse whole numbers over 64 bits, which simdjson refuses, as floats, like orjson.

    Raises BadInput for all else.
    """
    try:
        return parse(orjson.dumps(orjson.loads(text)))
    except (ValueError, orjson.JSONEncodeError) as error:
        raise BadInput(f"The body is not JSON: {_reason(text, error)}.") from None


def _reason(text: bytes, error: Exception) -> str:
    """Describe the error and its place; orjson tells the place of everything but a byte that is not UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError as decoding:
        return f"byte {decoding.start} is not UTF-8"
    if isinstance(error, orjson.JSONDecodeError):
        place = len(error.doc[: error.pos].encode())
        return f"{error.msg}, at byte {place} (line {error.lineno})"
    return str(error)


_EXPECTED: Mapping[str, tuple[frozenset[type], str]] = {
    "f": (frozenset({int, float}), "a number"),
    "i": (frozenset({int}), "a whole number"),
    "u": (frozenset({int}), "a whole number"),
    "b": (frozenset({bool}), "true or false"),
    "O": (frozenset({str}), "a string"),
}
"""Python types of a value, and words for it, by the kind of an array's dtype."""

_SHOWN_VALUE_CHARACTERS = 40


def array_of(
    data: Any, datatype: Datatype, shape: Sequence[int], subject: str, count_objects: Callable[[], None]
) -> npt.NDArray[Any]:
    """Make the array ``shape`` of a list from simdjson, nested or flat; of a plain value for no dimension.

    ``count_objects`` is called before values become Python objects. Raises BadInput, beginning with
    ``subject``, for values of another type, numbers that the datatype can't hold, and more or fewer of them
    than the shape asks for.
    """
    if not datatype.has_json:
        raise BadInput(
            f"{subject} is {datatype.name}, which JSON does not carry: send it as binary data "
            "(binary_data_size, Inference-Header-Content-Length)."
        )
    if not shape and isinstance(data, bool | int | float | str):
        return _one_by_one([data], datatype, subject).reshape(())
    if not isinstance(data, JSONArray):
        raise BadInput(f'{subject} needs a list as "data".')
    values = _numbers(data, datatype) if datatype.array.kind in "fiu" and len(data) else None
    if values is None:
        count_objects()
        values = _one_by_one(data.as_list(), datatype, subject)
    if values.size != math.prod(shape):
        raise BadInput(
            f"{subject} has {values.size} values, but the shape {list(shape)} takes {math.prod(shape)}."
        )
    return values.reshape(shape)


def _numbers(data: Any, datatype: Datatype) -> npt.NDArray[Any] | None:
    """Convert numbers without a Python object each; None if one is not of the expected kind."""
    try:
        numbers = numbers_of(data, datatype.array)
    except (ValueError, TypeError):
        return None
    with np.errstate(over="ignore"):
        return None if numbers is None else numbers.astype(datatype.array, copy=False)


def _one_by_one(data: list[Any], datatype: Datatype, subject: str) -> npt.NDArray[Any]:
    """Convert strings, booleans, and numbers of which one is wrong."""
    try:
        leaves, _, types = flattened(data)
    except Irregular as error:
        raise BadInput(f"{subject} has {error.reason.value}.") from None
    expected, in_words = _EXPECTED[datatype.array.kind]
    if float in types and datatype.array.kind in "iu":
        leaves = whole_numbers(leaves)
        types = set(map(type, leaves))
    if not types <= expected:
        position = next(number for number, leaf in enumerate(leaves) if type(leaf) not in expected)
        shown = f"{subject}: value {position + 1} is {_shown(leaves[position])}"
        raise BadInput(f"{shown}, but {datatype.name} takes {in_words}.")
    if datatype.array == BYTES:
        array = np.empty(len(leaves), BYTES)
        try:
            for number, leaf in enumerate(leaves):
                array[number] = leaf.encode()
        except UnicodeEncodeError:
            raise BadInput(f"{subject}: value {number + 1} has half a surrogate pair.") from None
        return array
    if datatype.array.kind in "iu":
        limits = np.iinfo(datatype.array)
        for number, leaf in enumerate(leaves, 1):
            if not limits.min <= leaf <= limits.max:
                what = f"{_shown(leaf)}, which {datatype.name} can't hold"
                raise BadInput(f"{subject}: value {number} is {what}.")
    return np.array(leaves, datatype.array)


def _decode_base64(array: npt.NDArray[Any], subject: str) -> None:
    """Decode strings in place; raises BadInput for one that is not base64: MLServer takes it as it is."""
    flat = array.reshape(-1)
    for number, text in enumerate(flat):
        try:
            flat[number] = base64_bytes({BASE64: text.decode()})
        except ValueError:
            raise BadInput(f"{subject}: value {number + 1} is not base64.") from None


def _shown(value: Any) -> str:
    if isinstance(value, (JSONArray, JSONObject, list, dict)):
        return "a list or an object"
    text = {True: "true", False: "false", None: "null"}.get(value) if isinstance(value, bool | None) else None
    return from_client((text or repr(value))[:_SHOWN_VALUE_CHARACTERS])
