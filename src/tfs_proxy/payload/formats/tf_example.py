"""tf.Example, alone or in TFRecords -> `Batch` or `Examples`, without TensorFlow.

A model with one input of strings takes the records as they are, serialized, as its graph parses
them; but if each has a feature of strings under that input's name, the feature is what it
takes. All other models take features by the names of their inputs.
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from tfs_proxy.batch import BYTES, Batch, Examples
from tfs_proxy.errors import BadInput
from tfs_proxy.memory import RECORD_BYTES, MemoryBudget
from tfs_proxy.payload.features import (
    Feature,
    Record,
    batch_of_features,
    examples_of_features,
    numbers_of,
    strings_of,
)
from tfs_proxy.payload.formats.framing import tfrecords
from tfs_proxy.payload.formats.raw_bytes import string_input, strings_batch
from tfs_proxy.protos import Example
from tfs_proxy.signature import PREDICT_METHOD, Signature


def decode_example(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """One serialized tf.Example for predict; raises BadInput if it is none, or lacks an input."""
    records = [_record(body, 1, budget)]
    return _serialized([body], records, signature) or batch_of_features(records, signature)


def decode_tfrecords(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """TFRecords for predict: strings of any kind for a model with one input of strings, else tf.Examples.

    Raises BadInput naming record and byte for damaged framing, record and feature for the rest.
    """
    payloads = _payloads(body, budget)
    if string_input(signature) is None:
        return batch_of_features(_records(payloads, budget), signature)
    try:
        records = _records(payloads, budget)
    except BadInput:
        records = []
    return _serialized(payloads, records, signature) or batch_of_features(records, signature)


def examples_of_example(body: bytes, budget: MemoryBudget) -> Examples:
    """One serialized tf.Example for classify and regress."""
    return examples_of_features([_record(body, 1, budget)], budget)


def examples_of_tfrecords(body: bytes, budget: MemoryBudget) -> Examples:
    """TFRecords of tf.Examples for classify and regress."""
    return examples_of_features(_records(_payloads(body, budget), budget), budget)


def _payloads(body: bytes, budget: MemoryBudget) -> list[bytes]:
    payloads = []
    for number, frame in enumerate(tfrecords(io.BytesIO(body)), 1):
        budget.take(RECORD_BYTES, f"TFRecord {number}, with those before it,")
        payloads.append(bytes(frame.payload))
    if not payloads:
        raise BadInput("The body has no records.")
    return payloads


def _serialized(payloads: Sequence[bytes], records: Sequence[Record], signature: Signature) -> Batch | None:
    """The records as strings, if that is what the model takes."""
    spec = string_input(signature)
    if spec is None:
        return None
    named = bool(records) and all(
        spec.name in record and record[spec.name].values.dtype == BYTES for record in records
    )
    if named and signature.method == PREDICT_METHOD:
        return None
    return strings_batch(payloads, signature)


def _records(payloads: Sequence[bytes], budget: MemoryBudget) -> list[Record]:
    return [_record(payload, number, budget) for number, payload in enumerate(payloads, 1)]


def _record(payload: bytes, number: int, budget: MemoryBudget) -> Record:
    try:
        example = Example.FromString(payload)
    except DecodeError:
        raise BadInput(f"Record {number} is not a serialized tf.Example.") from None
    return {
        name: Feature(_values(feature, budget, f'Record {number}, feature "{name}",'))
        for name, feature in example.features.feature.items()
    }


def _values(feature: Any, budget: MemoryBudget, subject: str) -> npt.NDArray[Any]:
    match feature.WhichOneof("kind"):
        case "bytes_list":
            return strings_of(feature.bytes_list.value, budget, subject)
        case "float_list":
            return numbers_of(feature.float_list.value, np.float32, budget, subject)
        case _:
            return numbers_of(feature.int64_list.value, np.int64, budget, subject)
