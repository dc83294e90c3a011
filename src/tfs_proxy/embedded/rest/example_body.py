"""A classify or regress request's JSON to tf.Examples. Every refusal has TF Serving's own text."""

from typing import Any

import numpy as np
from msgspec import Struct

from tfs_proxy.embedded.errors import invalid
from tfs_proxy.embedded.rest.json_body import read_object, shown, signature_name
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.protos import Example, Feature, Input
from tfs_proxy.serving_json.documents import base64_bytes, is_base64
from tfs_proxy.serving_json.requests import EXAMPLES

_MAX_INT64 = 2**63 - 1
_KINDS = {dict: "Object", list: "Array", str: "String", type(None): "Null"}


class ExampleCall(Struct, frozen=True):
    """What a request asks for: a signature ("" is the default one) and its examples."""

    signature: str
    examples: Input


def decode(body: bytes, budget: MemoryBudget) -> ExampleCall:
    """A body to a call. Raises ServingError, and what the budget does."""
    document = read_object(body, budget)
    signature = signature_name(document)
    examples = Input()
    has_context = "context" in document
    if has_context:
        _fill(document["context"], examples.example_list_with_context.context)
        examples.example_list_with_context.context.SetInParent()
    listed = examples.example_list_with_context.examples if has_context else examples.example_list.examples
    for value in _example_values(document):
        _fill(value, listed.add())
    return ExampleCall(signature, examples)


def _example_values(document: dict[str, Any]) -> list[Any]:
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
    return values


def _fill(value: Any, example: Example) -> None:
    if type(value) is not dict:
        raise invalid(f"Example must be JSON object but got JSON {_KINDS.get(type(value), 'Number')}")
    for name, content in value.items():
        feature = example.features.feature[_key(name)]
        feature.Clear()  # of two features with one name the last one counts
        for element in content if type(content) is list else [content]:
            _add(element, name, feature)


def _key(name: str) -> str:
    """A feature's name as protobuf takes it: one that is not UTF-8 becomes another, which no model has."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


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
        feature.bytes_list.value.append(_bytes(value))
    else:
        raise invalid(f"Feature: {name} has element with unexpected JSON type: {_KINDS[type(value)]}")


def _bytes(value: dict[str, str]) -> bytes:
    try:
        return base64_bytes(value)
    except ValueError as error:
        raise invalid("Unable to base64 decode") from error


def _kind(feature: Feature, name: str, wanted: str) -> None:
    """Raises ServingError if the feature holds another kind of element already."""
    holds = feature.WhichOneof("kind")
    if holds not in {None, wanted}:
        kind = str(holds).removesuffix("_list")
        raise invalid(f"Unexpected element type in feature: {name} expecting type: {kind}")
