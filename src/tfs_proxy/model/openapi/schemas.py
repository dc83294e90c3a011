"""JSON schemas from signatures: of tensors, of TF Serving's forms, and of the Open Inference Protocol's."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfs_proxy.data.open_inference.datatypes import datatype_of
from tfs_proxy.data.registry import FORMATS
from tfs_proxy.data.shapes import shape_text
from tfs_proxy.model.report.served import answers_in_rows
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature, TensorSpec
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.dtypes import DTYPES, Kind

Schema = dict[str, Any]


def component(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


NESTED = component("Tensor")
"""Schema of a value, or nested lists of values, of any shape."""


def body_schema(media_type: str) -> Schema:
    """Schema of a body of a format that is not described by a signature."""
    row = FORMATS.get(media_type)
    if row is None or row.name == media.JSON:
        return {}
    return {"type": "string"} if row.is_text else {"contentMediaType": row.name}


def request_forms(signature: Signature, *, named: bool = False) -> list[Schema]:
    """Schemas of TF Serving's row and column forms; ``named`` ones must give the signature's name."""
    forms = {"inputs": _record(signature, from_axis=0)}
    if _has_rows(signature):
        rows = {"type": "array", "items": _record(signature, from_axis=1), "minItems": 1}
        forms = {"instances": rows, **forms}
    name = {"signature_name": {"const": signature.name}}
    required = tuple(name) if named else ()
    return [_form(signature, key, {**name, key: schema}, required) for key, schema in forms.items()]


def records_schema(signature: Signature) -> Schema:
    """Schema of one bare record, or a list of them."""
    if not _has_rows(signature):
        return NESTED
    record = _record(signature, from_axis=1)
    return {"anyOf": [{"type": "array", "items": record, "minItems": 1}, record]}


def answer_forms(signature: Signature) -> list[Schema]:
    """Schemas of TF Serving's answer to predict: rows for rows, columns for columns.

    A single output stands alone. A model server takes inputs of other shapes than declared, whose answers
    have other shapes, too: so these are only told.
    """
    values: dict[str, Schema] = {
        name: {"description": _declared(spec)} for name, spec in signature.outputs.items()
    }
    named: Schema = {"type": "object", "properties": values, "required": list(values)}
    value = next(iter(values.values())) if len(values) == 1 else named
    forms: dict[str, Schema] = {"outputs": value}
    if answers_in_rows(signature):
        forms = {"predictions": {"type": "array", "items": value}, **forms}
    return [_form(signature, key, {key: schema}) for key, schema in forms.items()]


def _form(signature: Signature, key: str, properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    """Schema of an object; generated clients name its class by the title."""
    title = f"{signature.name}.{key}"
    return {"title": title, "type": "object", "properties": properties, "required": [key, *required]}


def examples_schema(signature: Signature) -> Schema:
    """Schema of TF Serving's form for classify and regress."""
    properties = {
        "signature_name": {"const": signature.name},
        "context": component("Features"),
        "examples": {"type": "array", "items": component("Features")},
    }
    is_named = signature.name != DEFAULT_SIGNATURE
    return _form(signature, "examples", properties, ("signature_name",) if is_named else ())


def infer_schema(signature: Signature | None) -> Schema:
    """Schema of an inference of the Open Inference Protocol; of any tensors without a signature."""
    schema: Schema = component("OpenInferenceRequest")
    if signature is None:
        return schema
    tensors: list[Schema] = [
        {
            "allOf": [component("OpenInferenceTensor")],
            "properties": {"name": {"const": name}, "datatype": {"const": datatype.name}},
        }
        for name, spec in signature.inputs.items()
        if (datatype := datatype_of(spec)) is not None
    ]
    count = len(signature.inputs)
    inputs = {"type": "array", "minItems": count, "maxItems": count}
    return {
        "allOf": [schema],
        "properties": {"inputs": {**inputs, **({"items": {"anyOf": tensors}} if tensors else {})}},
    }


def _has_rows(signature: Signature) -> bool:
    return bool(signature.inputs) and all(spec.shape != () for spec in signature.inputs.values())


def _record(signature: Signature, *, from_axis: int) -> Schema:
    """Schema of inputs by name; a single input may also stand alone."""
    values = {name: _tensor(spec, from_axis) for name, spec in signature.inputs.items()}
    named: Schema = {
        "type": "object",
        "properties": {
            name: {**schema, "description": _declared(signature.inputs[name])}
            for name, schema in values.items()
        },
        "required": list(values),
        "additionalProperties": False,
    }
    return {"anyOf": [*values.values(), named]} if len(values) == 1 else named


def _declared(spec: TensorSpec) -> str:
    """Type and shape as text: ``DT_FLOAT [?, 3]``."""
    return f"{spec.dtype} {'of any shape' if spec.shape is None else shape_text(spec.shape)}"


def _tensor(spec: TensorSpec, from_axis: int) -> Schema:
    """Schema of nested lists of the declared shape from an axis on; of any shape if its rank is unknown."""
    if spec.shape is None:
        return NESTED
    # Types that text can't carry are never sent as JSON.
    kind, dtype = DTYPES.get(spec.dtype, (Kind.FLOAT, np.dtype(np.float32)))
    schema: Schema = component("Text") if kind is Kind.STRING else {"type": "boolean"}
    if kind is Kind.INTEGER:
        limits = np.iinfo(dtype)
        schema = {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}
    elif kind is Kind.FLOAT:
        limit = float(np.finfo(dtype).max)
        schema = {"type": "number", "minimum": -limit, "maximum": limit}
    sizes: Sequence[int | None] = spec.shape[from_axis:]
    for size in reversed(sizes):
        schema = {"type": "array", "items": schema}
        if size is not None:
            schema |= {"minItems": size, "maxItems": size}
    return schema
