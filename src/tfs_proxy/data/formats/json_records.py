"""Records of JSON bodies: the meaning of bare values, lists, objects and JSON lines.

The rule (docs/reference/aws-container.md) is that of AWS's container: one document that is an object
is one record; a list of lists or of objects is one record per element; any other list is
one record, as is a bare value; but where the only input takes one string a record, or a list of one
(``[?, 1]``), each value of a list is a record. ``{"b64": ...}`` is a value, not an object. In JSON lines,
and if one body holds several documents, each document is one record, whatever it looks like.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from tfs_proxy.data.formats.outputs import columns_of_outputs, json_of_outputs, lines_of_outputs
from tfs_proxy.data.serving_json import requests
from tfs_proxy.data.serving_json.columns import batch_of
from tfs_proxy.data.serving_json.documents import BYTE_ORDER_MARK, documents, is_base64
from tfs_proxy.data.serving_json.numbers import is_numeric, json_array
from tfs_proxy.data.shapes import fitted, has_records, listed, one_record_only, takes_one
from tfs_proxy.values.batch import Batch, Examples, Outputs
from tfs_proxy.values.errors import BadInput, NotAcceptable
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import Signature


def decode_json(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """Decode application/json for predict; TF Serving's row and column form are read too."""
    fast = _numbers(body, signature, budget)
    if fast is not None:
        return fast
    values = documents(body, budget)
    form = requests.serving_form(values, requests.PREDICT)
    return (
        decode_documents(values, signature) if form is None else requests.decode_serving_form(form, signature)
    )


def decode_documents(values: Sequence[Any], signature: Signature) -> Batch:
    """Decode documents of application/json that are not TF Serving's form."""
    _refuse_encoded_twice(values, signature)
    return fitted(batch_of(_one_each(values, signature) or records_of(values), signature), signature)


def examples_of(records: Sequence[Any]) -> Examples:
    """Make feature dicts for classify and regress; raises BadInput for other values."""
    if not records:
        raise BadInput("The body has no records.")
    for number, record in enumerate(records, 1):
        if type(record) is not dict:
            text = f"Record {number} is not an object: classify and regress take features by name."
            raise BadInput(text, (number - 1,))
    return Examples(tuple(records))


def records_of(values: Sequence[Any]) -> Sequence[Any]:
    """Records in application/json documents; raises BadInput for a mixed list."""
    if len(values) != 1 or type(values[0]) is not list:
        return values
    elements: list[Any] = values[0]
    containers = [_is_record(element) for element in elements]
    if not any(containers):
        return values
    if not all(containers):
        odd = containers.index(not containers[0])
        what = "a list or an object" if containers[odd] else "a plain value"
        raise BadInput(
            f"Element {odd + 1} of the list is {what}, unlike element 1: a list holds either "
            "the values of one record, or one list or object per record.",
            (odd,),
        )
    return elements


def _one_each(values: Sequence[Any], signature: Signature) -> Sequence[Any] | None:
    """Take the elements of a bare list as records, if the only input takes one value a record."""
    if len(values) != 1 or type(values[0]) is not list or any(map(_is_record, values[0])):
        return None
    specs = list(signature.inputs.values())
    if len(specs) != 1 or not takes_one(specs[0]):
        return None
    if not values[0]:
        raise BadInput("The body has no records.")
    return values[0]


def _refuse_encoded_twice(values: Sequence[Any], signature: Signature) -> None:
    """Raise BadInput for a string with JSON in it; for inputs of strings only if that names one of them."""
    if not values or type(values[0]) is not str:
        return
    try:
        held = orjson.loads(values[0])
    except orjson.JSONDecodeError:
        return
    known = {requests.ROW, requests.COLUMN, *signature.inputs}
    takes_strings = any(spec.dtype == "DT_STRING" for spec in signature.inputs.values())
    if (type(held) is dict and known & held.keys()) or (type(held) in {dict, list} and not takes_strings):
        raise BadInput(
            "The body is JSON encoded twice: a string that holds JSON. Encode it once: "
            "requests.post(json=...) and a JSONSerializer take the object, not what json.dumps makes of it."
        )


def records_in(form: Mapping[str, Any]) -> int:
    """Number of records in an object of TF Serving's form."""
    for key in (requests.ROW, requests.EXAMPLES):
        if type(form.get(key)) is list:
            return len(form[key])
    value = form.get(requests.COLUMN)
    columns = value.values() if type(value) is dict else [value]
    return max((len(column) for column in columns if type(column) is list), default=1)


def _is_record(element: Any) -> bool:
    return type(element) in {list, dict} and not is_base64(element)


def _numbers(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch | None:
    """Decode lists of plain numbers fast; None if the body needs the full decoder."""
    if len(signature.inputs) != 1:
        return None
    ((name, spec),) = signature.inputs.items()
    array = json_array(body.removeprefix(BYTE_ORDER_MARK), spec, budget) if is_numeric(spec) else None
    if array is None:
        return None
    if array.ndim == 1:
        array = array[:, None] if takes_one(spec) else array[None]
    return fitted(Batch({name: array}, len(array)), signature)


_WRITERS = {None: lines_of_outputs, requests.ROW: json_of_outputs, requests.COLUMN: columns_of_outputs}


class Documents(Batch, frozen=True, kw_only=True):
    """Records of several documents; for each its own batch, and the key of its form, if any."""

    parts: Sequence[Batch]
    keys: Sequence[str | None]

    def first(self, count: int) -> Batch:
        """Records of the first ``count`` documents."""
        records = sum(part.records for part in self.parts[:count])
        return Batch({name: array[:records] for name, array in self.inputs.items()}, records)

    def write(self, outputs: Outputs) -> bytes:
        """Write ``[records, ...]``: a line of TF Serving's JSON for each document of its form, else bare.

        Raises NotAcceptable for other outputs, whose documents can't be told.
        """
        if any(array.shape[:1] != (self.records,) for array in outputs.values()):
            raise NotAcceptable(
                "The model does not give one output record per input record, so several documents can't be "
                "answered each by a line of its own: send each in a request of its own."
            )
        lines = []
        start = 0
        for part, key in zip(self.parts, self.keys, strict=True):
            own = {name: array[start : start + part.records] for name, array in outputs.items()}
            start += part.records
            lines.append(_WRITERS[key](own).rstrip(b"\n") + b"\n")
        return b"".join(lines)


def decode_lines(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """Decode JSON lines: each document of the body is one record, unless it is of TF Serving's form."""
    return batch_of_lines(documents(body, budget), signature)


def batch_of_lines(values: Sequence[Any], signature: Signature) -> Batch:
    """Make a batch of documents, `Documents` if some are of TF Serving's form; raises BadInput.

    If a model has an input called as the form's key, such a document is a record. Several documents can't be
    joined for a model that has inputs without an axis of records.
    """
    _refuse_encoded_twice(values, signature)
    keys = [_key(value, signature) for value in values]
    if not any(keys):
        return fitted(batch_of(values, signature), signature)
    whole = [spec for spec in signature.inputs.values() if not has_records(spec)]
    if whole and len(values) > 1:
        raise one_record_only(whole[0], f"{len(values)} documents")
    parts = []
    for number, (value, key) in enumerate(zip(values, keys, strict=True), 1):
        try:
            parts.append(_decoded(value, key, signature))
        except BadInput as error:
            error.args = (f"Document {number}: {error}",)
            error.reason = f"Document {number}: {error.reason}"
            error.loc = (number - 1, *error.loc)
            raise
    inputs = {name: _joined([part.inputs[name] for part in parts], parts) for name in signature.inputs}
    return Documents(inputs, sum(part.records for part in parts), parts=parts, keys=keys)


def _key(value: Any, signature: Signature) -> str | None:
    form = requests.serving_form([value], requests.PREDICT) or {}
    return next(
        (key for key in (requests.ROW, requests.COLUMN) if key in form and key not in signature.inputs), None
    )


def _decoded(value: Any, key: str | None, signature: Signature) -> Batch:
    if key is None:
        return listed(batch_of([value], signature), signature)
    name = value.get(requests.SIGNATURE_NAME) or signature.name
    if name != signature.name:
        raise BadInput(f'It is for the signature "{name}": name it in tfs-signature-name, for all of them.')
    return requests.decode_serving_form(value, signature)


def _joined(arrays: Sequence[npt.NDArray[Any]], parts: Sequence[Batch]) -> npt.NDArray[Any]:
    if len(arrays) == 1:
        return arrays[0]
    for number, (array, part) in enumerate(zip(arrays, parts, strict=True), 1):
        if array.shape != (part.records, *arrays[0].shape[1:]):
            raise BadInput(
                f"Document {number} has a tensor of the shape {list(array.shape)}, unlike those before it: "
                "send each by itself.",
                (number - 1,),
            )
    return np.concatenate(arrays)
