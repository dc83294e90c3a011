"""A model's graph -> strings and features that it takes, for the examples of its document."""

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfs_proxy.archive.graphs.graph_inputs import GraphInputs
from tfs_proxy.archive.graphs.parsed_features import Features
from tfs_proxy.batch import BYTES, Outputs
from tfs_proxy.openapi.pictures import PNG
from tfs_proxy.protos import Example
from tfs_proxy.report.sample import SAMPLE_TEXT, sample_sizes
from tfs_proxy.signature import Signature, TensorSpec
from tfs_proxy.wire.dtypes import array_type

ANY_STRING = SAMPLE_TEXT.encode()


def sample_string(signature: Signature, graph: GraphInputs) -> bytes | None:
    """What a string among the inputs may be; None if nothing is known to work."""
    if [spec.dtype for spec in signature.inputs.values()] != ["DT_STRING"]:
        return ANY_STRING
    features = graph.features_of(signature)
    if features is None:
        return _text_or_picture(graph)
    arrays = _arrays(features, graph)
    return None if arrays is None else example_of(arrays)


def sample_features(signature: Signature, graph: GraphInputs) -> Outputs | None:
    """One tf.Example for classify or regress, ``[1, values]`` by name; None if none is known to work."""
    features = graph.features_of(signature)
    return None if features is None else _arrays(features, graph)


def feature_values(arrays: Outputs) -> Mapping[str, Any]:
    """The same as TF Serving's JSON has it: a list of values by name."""
    return {
        name: [json_string(value) if isinstance(value, bytes) else value for value in array[0].tolist()]
        for name, array in arrays.items()
    }


def json_string(value: bytes) -> Any:
    """A string in TF Serving's JSON: text, or base64 in an object."""
    return value.decode() if value.isascii() else {"b64": base64.b64encode(value).decode()}


def example_of(arrays: Outputs) -> bytes:
    """A serialized tf.Example."""
    example = Example()
    for name, array in arrays.items():
        feature = example.features.feature[name]
        if array.dtype == BYTES:
            feature.bytes_list.value.extend(array.ravel().tolist())
        elif array.dtype.kind == "f":
            feature.float_list.value.extend(array.ravel().tolist())
        else:
            feature.int64_list.value.extend(array.ravel().tolist())
    return example.SerializeToString(deterministic=True)


def _arrays(features: Features, graph: GraphInputs) -> Outputs | None:
    string = _text_or_picture(graph)
    if string is None and any(spec.dtype == "DT_STRING" for spec in features.values()):
        return None
    return {name: _array(spec, string or ANY_STRING) for name, spec in features.items()}


def _array(spec: TensorSpec, string: bytes) -> Any:
    dtype = array_type(spec)
    return np.full((1, math.prod(sample_sizes(spec))), string if dtype == BYTES else 1, dtype)


def _text_or_picture(graph: GraphInputs) -> bytes | None:
    """None if pictures are not resized: then they have one size, which the graph does not tell."""
    if not graph.decodes_pictures:
        return ANY_STRING
    if not graph.resizes:
        return None
    return base64.urlsafe_b64encode(PNG) if graph.from_base64 else PNG
