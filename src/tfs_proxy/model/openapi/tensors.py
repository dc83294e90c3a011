"""JSON schemas of tensors, of TF Serving's forms, and of bare records, from signatures."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfs_proxy.data.shapes import shape_text
from tfs_proxy.model.report.served import answers_in_rows
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature, TensorSpec
from tfs_proxy.wire.dtypes import DTYPES, Kind

Schema = dict[str, Any]

NESTED: Schema = {"$ref": "#/components/schemas/Tensor"}
"""Schema of a value, or nested lists of values, of any shape."""

TEXT: Schema = {"$ref": "#/components/schemas/Text"}


def element_schema(dtype: str) -> Schema:
    """Schema of a value of a TensorFlow type; types that text can't carry are never sent as JSON."""
    kind, array_type = DTYPES.get(dtype, (Kind.FLOAT, np.dtype(np.float32)))
    match kind:
        case Kind.STRING:
            return TEXT
        case Kind.BOOL:
            return {"type": "boolean"}
        case Kind.INTEGER:
            limits = np.iinfo(array_type)
            return {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}
        case Kind.FLOAT:
            limit = float(np.finfo(array_type).max)
            return {"type": "number", "minimum": -limit, "maximum": limit}


def tensor_schema(spec: TensorSpec, shape: Sequence[int | None] | None) -> Schema:
    """Schema of nested lists of this shape; of any shape if its rank is unknown."""
    if shape is None:
        return NESTED
    schema = element_schema(spec.dtype)
    for size in reversed(shape):
        schema = {"type": "array", "items": schema}
        if size is not None:
            schema |= {"minItems": size, "maxItems": size}
    return schema


def declared(spec: TensorSpec) -> str:
    """Type and shape as text: ``DT_FLOAT [?, 3]``."""
    return f"{spec.dtype} {'of any shape' if spec.shape is None else shape_text(spec.shape)}"


def request_schema(signature: Signature, *, name: str | None = None) -> Schema:
    """Schema of TF Serving's row and column forms; ``name`` is the signature_name that it must give."""
    forms = [_form("inputs", _columns(signature), name)]
    if _has_rows(signature):
        forms.insert(0, _form("instances", _rows(signature), name))
    return {"anyOf": forms}


def records_schema(signature: Signature) -> Schema:
    if not _has_rows(signature):
        return NESTED
    record = _record(signature)
    return {"anyOf": [{"type": "array", "items": record, "minItems": 1}, record]}


def answer_schema(signature: Signature) -> Schema:
    """Schema of TF Serving's answer to predict: rows for rows, columns for columns.

    A model server takes inputs of other shapes than declared, whose answers have other shapes, too.
    """
    specs = signature.outputs
    forms = [_answer("outputs", _outputs(specs, from_axis=0))]
    if answers_in_rows(signature):
        rows = {"type": "array", "items": _outputs(specs, from_axis=1)}
        forms.insert(0, _answer("predictions", {"anyOf": [rows, NESTED]} if len(specs) == 1 else rows))
    return {"anyOf": forms}


def _has_rows(signature: Signature) -> bool:
    return bool(signature.inputs) and all(spec.shape != () for spec in signature.inputs.values())


def _form(key: str, schema: Schema, name: str | None) -> Schema:
    named = {"const": DEFAULT_SIGNATURE} if name is None else {"const": name}
    required = [key] if name is None else [key, "signature_name"]
    return {"type": "object", "properties": {"signature_name": named, key: schema}, "required": required}


def _rows(signature: Signature) -> Schema:
    return {"type": "array", "items": _record(signature), "minItems": 1}


def _record(signature: Signature) -> Schema:
    specs = signature.inputs
    values = {name: tensor_schema(spec, _from(spec, 1)) for name, spec in specs.items()}
    return _alone_or_named(specs, values)


def _columns(signature: Signature) -> Schema:
    specs = signature.inputs
    values = {name: tensor_schema(spec, spec.shape) for name, spec in specs.items()}
    return _alone_or_named(specs, values)


def _alone_or_named(specs: Mapping[str, TensorSpec], values: Mapping[str, Schema]) -> Schema:
    """Schema of named values; a single input may also stand alone."""
    named: Schema = {
        "type": "object",
        "properties": {
            name: {**schema, "description": declared(specs[name])} for name, schema in values.items()
        },
        "required": list(values),
        "additionalProperties": False,
    }
    return {"anyOf": [*values.values(), named]} if len(values) == 1 else named


def _from(spec: TensorSpec, axis: int) -> Sequence[int | None] | None:
    return None if spec.shape is None else spec.shape[axis:]


def _answer(key: str, schema: Schema) -> Schema:
    return {"type": "object", "properties": {key: schema}, "required": [key]}


def _outputs(specs: Mapping[str, TensorSpec], *, from_axis: int) -> Schema:
    """Schema of values by name, or the value of a single output; shapes are those declared, or any."""
    values = {
        name: {
            "anyOf": [tensor_schema(spec, _from(spec, from_axis)), NESTED],
            "description": declared(spec),
        }
        for name, spec in specs.items()
    }
    if len(values) == 1:
        return next(iter(values.values()))
    return {"type": "object", "properties": values, "required": list(values)}
