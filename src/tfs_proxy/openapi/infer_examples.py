"""A signature -> requests of the Open Inference Protocol with one record, in JSON and with binary tensors."""

import json
import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tfs_proxy.errors import RequestError
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.open_inference.datatypes import Datatype, datatype_of, to_raw
from tfs_proxy.open_inference.infer_request import BINARY_DATA_OUTPUT, BINARY_DATA_SIZE
from tfs_proxy.open_inference.json_request import read_request
from tfs_proxy.openapi.examples import sample_array
from tfs_proxy.openapi.sample_records import json_string
from tfs_proxy.payload import media_types as media
from tfs_proxy.report.sample import sample_sizes, sample_value
from tfs_proxy.signature import DEFAULT_SIGNATURE, Signature, TensorSpec


class InferExample(Struct, frozen=True):
    """A body, which begins with so many bytes of JSON."""

    body: bytes
    json_bytes: int


def infer_examples(signature: Signature, string: bytes) -> Mapping[str, InferExample]:
    """Examples, with ``string`` for every string, by media type.

    Each has been read back, so a type that can't carry the inputs is missing.
    """
    datatypes = {name: datatype_of(spec) for name, spec in signature.inputs.items()}
    outputs = [datatype_of(spec) for spec in signature.outputs.values()]
    if not datatypes or None in datatypes.values() or None in outputs:
        return {}
    known = {name: datatype for name, datatype in datatypes.items() if datatype is not None}
    asked = _asked(signature, in_json=all(output is not None and output.has_json for output in outputs))
    binary = _binary(signature, known, asked, string)
    examples = {media.BYTES: binary} if _is_read(binary, signature) else {}
    if all(datatype.has_json for datatype in known.values()):
        text = json.dumps({**asked, "inputs": _inputs_of_json(signature, known, string)}).encode()
        example = InferExample(text, len(text))
        examples |= {media.JSON: example} if _is_read(example, signature) else {}
    return examples


def _asked(signature: Signature, *, in_json: bool) -> dict[str, Any]:
    """Parameters for a signature with another name, and for outputs that JSON does not carry."""
    named = {} if signature.name == DEFAULT_SIGNATURE else {"signature": signature.name}
    parameters = {**named, **({} if in_json else {BINARY_DATA_OUTPUT: True})}
    return {"parameters": parameters} if parameters else {}


def _inputs_of_json(
    signature: Signature, known: Mapping[str, Datatype], string: bytes
) -> list[dict[str, Any]]:
    values = {
        name: sample_value((math.prod(sample_sizes(spec)),), spec.dtype, json_string(string))
        for name, spec in signature.inputs.items()
    }
    return [
        {**_head(name, spec, known[name]), "data": values[name]} for name, spec in signature.inputs.items()
    ]


def _binary(
    signature: Signature, known: Mapping[str, Datatype], asked: Mapping[str, Any], string: bytes
) -> InferExample:
    arrays = {name: sample_array(spec, string) for name, spec in signature.inputs.items()}
    raws = {name: bytes(to_raw(array, known[name])) for name, array in arrays.items()}
    inputs = [
        {**_head(name, spec, known[name]), "parameters": {BINARY_DATA_SIZE: len(raws[name])}}
        for name, spec in signature.inputs.items()
    ]
    text = json.dumps({**asked, "inputs": inputs}).encode()
    return InferExample(text + b"".join(raws.values()), len(text))


def _head(name: str, spec: TensorSpec, datatype: Datatype) -> dict[str, Any]:
    return {"name": name, "shape": list(sample_sizes(spec)), "datatype": datatype.name}


def _is_read(example: InferExample, signature: Signature) -> bool:
    try:
        read_request(example.body, example.json_bytes, MemoryBudget()).batch(signature)
    except RequestError:
        return False
    return True
