"""A classify or regress request's JSON to tf.Examples. Every refusal has TF Serving's own text."""

from typing import Any

import numpy as np
from msgspec import Struct

from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.embedded.rest.json.parse import parse
from tfs_proxy.embedded.rest.json.predict import signature_name
from tfs_proxy.embedded.rest.json.text import shown
from tfs_proxy.embedded.rest.json.values import bytes_of, json_type
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.protos import Example, Feature, Input
from tfs_proxy.serving_json.text import is_base64

_MAX_INT64 = 2**63 - 1


class ExampleCall(Struct, frozen=True):
    """What a request asks for: a signature ("" is the default one) and its examples."""

    signature: str
    examples: Input


def decode(body: bytes, budget: MemoryBudget) -> ExampleCall:
    """A body to a call. Raises ServingError, and what the budget does."""
    document = parse(body, budget)
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {shown(document)} Is not object")
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
    if "examples" not in document:
        raise invalid(
            f"JSON Value: {shown(document)} When method is classify, key 'examples' is expected "
            "and was not found"
        )
    values = document["examples"]
    if not isinstance(values, list):
        raise invalid(f"JSON Value: {shown(document)} Expecting 'examples' value to be an list/array")
    if not values:
        raise invalid(f"JSON Value: {shown(document)} 'examples' value is an empty array")
    return values


def _fill(value: Any, example: Example) -> None:
    if not isinstance(value, dict):
        raise invalid(f"Example must be JSON object but got JSON {json_type(value)}")
    for name, content in value.items():
        feature = example.features.feature[_key(name)]
        feature.Clear()  # of two features with one name the last one counts
        for element in content if isinstance(content, list) else [content]:
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
        feature.bytes_list.value.append(bytes_of(value))
    else:
        raise _unexpected(value, name)


def _unexpected(value: Any, name: str) -> ServingError:
    return invalid(f"Feature: {name} has element with unexpected JSON type: {json_type(value)}")


def _kind(feature: Feature, name: str, wanted: str) -> None:
    """Raises ServingError if the feature holds another kind of element already."""
    holds = feature.WhichOneof("kind")
    if holds not in {None, wanted}:
        kind = str(holds).removesuffix("_list")
        raise invalid(f"Unexpected element type in feature: {name} expecting type: {kind}")
