"""Requests of predict, classify and regress over REST: bodies in TF Serving's JSON, runs, and answers.

Reading and running are two steps, so that the application can choose which thread runs the second one.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from tfs_proxy.data.serving_json import answer_text
from tfs_proxy.data.serving_json.answer_text import NoRows, NoText
from tfs_proxy.data.serving_json.documents import base64_bytes, first_document, is_base64
from tfs_proxy.data.serving_json.numbers import is_numeric, json_array
from tfs_proxy.data.serving_json.requests import COLUMN, EXAMPLES, ROW, decode_serving_form, lone_list
from tfs_proxy.embedded.core.catalog import Catalog
from tfs_proxy.embedded.core.examples import ExampleRun
from tfs_proxy.embedded.core.predict import check_method, outputs_of, with_defaults
from tfs_proxy.embedded.core.servable import (
    DEFAULT_SIGNATURE,
    Array,
    LoadedServable,
    Runner,
    ServableSignature,
    Tensor,
    type_name,
)
from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.embedded.rest.requests import Route
from tfs_proxy.values.errors import BadInput
from tfs_proxy.values.memory import (
    DEFAULT_DECODED_BYTES,
    RESERVED_FROM_BYTES,
    STRING_BYTES,
    MemoryBudget,
    nested_bytes,
)
from tfs_proxy.values.signature import CLASSIFY_METHOD, PREDICT_METHOD, REGRESS_METHOD, Signature, TensorSpec
from tfs_proxy.wire.data_types import DataType, data_type_name
from tfs_proxy.wire.dtypes import JSON_TYPES
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.protos import Example, Feature, Input
from tfs_proxy.wire.protos.tensors import numpy_type

_SHOWN_PIECES = 1000
_SHOWN_CHARACTERS = 1000


def read_object(body: bytes, budget: MemoryBudget) -> dict[str, Any]:
    """The object that a body is. Raises ServingError, and what the budget does."""
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    budget.take_json(body)
    if len(body) >= RESERVED_FROM_BYTES:
        # Each string becomes bytes in an array, while the parsed document is kept.
        budget.take(body.count(b'"') // 2 * STRING_BYTES)
    try:
        document = first_document(body)
    except BadInput as error:
        raise invalid(f"JSON Parse error: {error}") from error
    if type(document) is not dict:
        raise invalid(f"JSON Value: {shown(document)} Is not object")
    return document


def signature_name(document: dict[str, Any]) -> str:
    """The signature that a request names, "" for none. Raises ServingError if it is not a string."""
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise invalid(
            f"JSON Value: {shown(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return name


def shown(value: Any) -> str:
    """A JSON value as error texts show it: objects indented, lists on one line, long ones cut."""
    encoder = json.JSONEncoder(indent=4 if type(value) is dict else None)
    text = "".join(islice(encoder.iterencode(value), _SHOWN_PIECES))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


_WORTHWHILE_BYTES = 4096
"""Least size from which a body is worth the attempt to read it as one array of numbers."""
_WRAPPED = {DataType.DT_INT16, DataType.DT_INT8, DataType.DT_UINT8}
"""Types that take any number of 32 bits, and keep its low ones."""

Inputs = Mapping[str, Tensor]


class PredictCall(NamedTuple):
    """Contents of a predict request: a signature, its arrays, and True if the answer goes by rows."""

    signature: str
    by_row: bool
    arrays: Mapping[str, Array]


def decode_predict(body: bytes, inputs_of: Callable[[str], Inputs], budget: MemoryBudget) -> PredictCall:
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
    spec = _own_spec(inputs[0])
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
        raise invalid(f"JSON Value: {shown(document)} Expecting 'instances' to be an list/array")
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
    try:
        arrays = decode_serving_form(document, _signature(inputs, _spec)).inputs
        if any(arrays[tensor.alias].size for tensor in unread):
            raise BadInput("a value of a type without JSON")  # noqa: TRY301 (a list of no values is read)
    except BadInput as error:
        raise _refused(document, inputs, unread, error) from error
    return {
        name: array.astype(numpy_type(inputs[name].data_type), copy=False) for name, array in arrays.items()
    }


def _refused(
    document: dict[str, Any], inputs: Inputs, unread: Sequence[Tensor], error: BadInput
) -> ServingError:
    text = f"Conversion of JSON Value to type: {type_name(unread[0].data_type)}" if unread else str(error)
    if unread and COLUMN in document:
        return ServingError(GrpcCode.UNIMPLEMENTED, text)
    if not unread:
        try:  # once more, for the name of each input's own type
            decode_serving_form(document, _signature(inputs, _own_spec))
        except BadInput as own:
            text = str(own)
    return invalid(f"Failed to process element: {text}" if ROW in document else text)


def _signature(inputs: Inputs, spec_of: Callable[[Tensor], TensorSpec]) -> Signature:
    specs = {name: spec_of(tensor) for name, tensor in inputs.items()}
    return Signature("", PREDICT_METHOD, specs, {}, own_names={name: name for name in specs})


def _spec(tensor: Tensor) -> TensorSpec:
    """The spec by which values are read: wider where TF Serving wraps, any for a type without JSON."""
    name = data_type_name(DataType.DT_INT32 if tensor.data_type in _WRAPPED else tensor.data_type)
    return TensorSpec(tensor.alias, name if name in JSON_TYPES else "DT_FLOAT", None)


def _own_spec(tensor: Tensor) -> TensorSpec:
    """The spec as the signature has it."""
    return TensorSpec(tensor.alias, data_type_name(tensor.data_type), None)


_MAX_INT64 = 2**63 - 1
_KINDS = {dict: "Object", list: "Array", str: "String", type(None): "Null"}


def decode_examples(body: bytes, budget: MemoryBudget) -> tuple[str, Input]:
    """A body to a call. Raises ServingError, and what the budget does."""
    document = read_object(body, budget)
    signature = signature_name(document)
    examples = Input()
    has_context = "context" in document
    if has_context:
        _fill(document["context"], examples.example_list_with_context.context)
        examples.example_list_with_context.context.SetInParent()
    listed = examples.example_list_with_context.examples if has_context else examples.example_list.examples
    if EXAMPLES not in document:
        raise invalid(
            f"JSON Value: {shown(document)} When method is classify, key 'examples' is expected "
            "and was not found"
        )
    values = document[EXAMPLES]
    if type(values) is not list:
        raise invalid(f"JSON Value: {shown(document)} Expecting 'examples' value to be an list/array")
    if not values:
        raise invalid(f"JSON Value: {shown(document)} 'examples' value is an empty array")
    for value in values:
        _fill(value, listed.add())
    return signature, examples


def _fill(value: Any, example: Example) -> None:
    if type(value) is not dict:
        raise invalid(f"Example must be JSON object but got JSON {_KINDS.get(type(value), 'Number')}")
    for name, content in value.items():
        if not name.isascii():  # a name that is not UTF-8 becomes another, which no model has
            name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # noqa: PLW2901
        feature = example.features.feature[name]
        feature.Clear()  # of two features with one name the last one counts
        for element in content if type(content) is list else [content]:
            _add(element, name, feature)


def _add(value: Any, name: str, feature: Feature) -> None:
    if isinstance(value, float):
        _kind(feature, name, "float_list")
        with np.errstate(over="ignore"):
            feature.float_list.value.append(float(np.float32(value)))
    elif isinstance(value, int):
        _kind(feature, name, "int64_list")
        if value > _MAX_INT64:
            raise invalid(f"Feature: {name} has uint64 element. Only int64 is supported.")
        feature.int64_list.value.append(int(value))
    elif isinstance(value, str):
        _kind(feature, name, "bytes_list")
        feature.bytes_list.value.append(value.encode("utf-8", "surrogateescape"))
    elif is_base64(value):
        _kind(feature, name, "bytes_list")
        try:
            feature.bytes_list.value.append(base64_bytes(value))
        except ValueError as error:
            raise invalid("Unable to base64 decode") from error
    else:
        raise invalid(f"Feature: {name} has element with unexpected JSON type: {_KINDS[type(value)]}")


def _kind(feature: Feature, name: str, wanted: str) -> None:
    """Raises ServingError if the feature holds another kind of element already."""
    holds = feature.WhichOneof("kind")
    if holds not in {None, wanted}:
        kind = str(holds).removesuffix("_list")
        raise invalid(f"Unexpected element type in feature: {name} expecting type: {kind}")


class Handler(ABC):
    """One request; it holds its servable from `read` to `close`."""

    def __init__(self, catalog: Catalog, route: Route) -> None:
        self._catalog = catalog
        self._route = route
        self._servable: LoadedServable | None = None
        self._runner: Runner | None = None

    @property
    def quick(self) -> bool:
        """True if the second step may run on the event loop's thread, where it holds up everything else."""
        return self._runner is not None and self._runner.quick

    @abstractmethod
    def read(self, body: bytes, budget: MemoryBudget) -> None:
        """The first step: understand the body. Raises ServingError, and what the budget does."""

    @abstractmethod
    def answer(self) -> bytes:
        """The second step: run it and write the answer. Raises ServingError."""

    def close(self) -> None:
        if self._servable is not None:
            self._servable.leave()

    def _acquire(self) -> LoadedServable:
        if self._servable is None:
            self._servable = self._catalog.acquire(self._route.model, self._route.version, self._route.label)
        return self._servable


class Predict(Handler):
    _signature: ServableSignature
    _call: PredictCall
    _arrays: Mapping[str, Array]

    def read(self, body: bytes, budget: MemoryBudget) -> None:
        """Decode the body against the signature that it names. Raises ServingError."""
        self._call = decode_predict(body, self._inputs, budget)
        check_method(self._signature)
        self._arrays = with_defaults(self._signature, self._call.arrays)
        self._runner = self._acquire().runner(self._signature, self._signature.aliases)

    def _inputs(self, name: str) -> Mapping[str, Tensor]:
        signature = self._acquire().signatures.get(name or DEFAULT_SIGNATURE)
        if signature is None:
            raise invalid(f'Serving signature name: "{name or DEFAULT_SIGNATURE}" not found in signature def')
        self._signature = signature
        return signature.inputs

    def answer(self) -> bytes:
        """Rows or columns. Raises ServingError."""
        assert self._runner is not None  # noqa: S101 (read comes first)
        outputs = outputs_of(self._runner, self._signature.aliases, self._arrays)
        if not outputs:
            raise invalid("Cannot convert empty tensor map to JSON")
        for alias, array in outputs.items():
            if not array.size and nested_bytes(array.shape) > DEFAULT_DECODED_BYTES:
                raise invalid(f'The tensor "{alias}" has too many lists without a value: {array.shape}')
        try:
            return answer_text.rows(outputs) if self._call.by_row else answer_text.columns(outputs)
        except NoRows as error:
            raise invalid(str(error)) from error
        except NoText as error:
            kind = type_name(error.data_type)
            raise invalid(f"Failed to write JSON value for tensor type: {kind}") from error


class ExampleHandler(Handler):
    """``POST …:classify`` and ``…:regress``: both read examples."""

    method: str
    _run: ExampleRun

    def read(self, body: bytes, budget: MemoryBudget) -> None:
        """Decode the examples, then look at the signature. Raises ServingError."""
        signature, examples = decode_examples(body, budget)
        self._run = ExampleRun(self._acquire(), signature, self.method, examples, budget)
        self._runner = self._run.runner


class Classify(ExampleHandler):
    method = CLASSIFY_METHOD

    def answer(self) -> bytes:
        """Labels with scores. Raises ServingError."""
        return answer_text.classes(self._run.classes())


class Regress(ExampleHandler):
    method = REGRESS_METHOD

    def answer(self) -> bytes:
        """One number per example. Raises ServingError."""
        return answer_text.regressions([line.value for line in self._run.regression().regressions])


HANDLERS: Mapping[str, type[Handler]] = {"predict": Predict, "classify": Classify, "regress": Regress}
"""The handler of each method of the REST API."""
