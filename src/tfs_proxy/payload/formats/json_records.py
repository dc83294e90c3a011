"""JSON bodies -> records: what bare values, lists, objects and JSON lines mean.

The rule (docs/reference/aws-container.md) is that of AWS's container: one document that is an object
is one record; a list of lists or of objects is one record per element; any other list is
one record, as is a bare value; but where the only input takes one string a record, each string of a
list is a record. ``{"b64": ...}`` is a value, not an object. In JSON lines, and if one body holds several
documents, each document is one record, whatever it looks like.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tfs_proxy.batch import Batch, Examples
from tfs_proxy.errors import BadInput
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.payload.shapes import fitted
from tfs_proxy.serving_json.columns import batch_of
from tfs_proxy.serving_json.documents import BYTE_ORDER_MARK, documents
from tfs_proxy.serving_json.numbers import is_numeric, json_array
from tfs_proxy.serving_json.requests import COLUMN, EXAMPLES, PREDICT, ROW, decode_serving_form, serving_form
from tfs_proxy.serving_json.text import is_base64
from tfs_proxy.signature import Signature


def decode_json(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """Decode application/json for predict; TF Serving's row and column form are read too."""
    fast = _numbers(body, signature, budget)
    if fast is not None:
        return fast
    values = documents(body, budget)
    form = serving_form(values, PREDICT)
    return decode_documents(values, signature) if form is None else decode_serving_form(form, signature)


def decode_documents(values: Sequence[Any], signature: Signature) -> Batch:
    """Decode documents of application/json that are not TF Serving's form."""
    return fitted(batch_of(_strings(values, signature) or records_of(values), signature), signature)


def examples_of(records: Sequence[Any]) -> Examples:
    """Records as feature dicts for classify and regress; raises BadInput for other values."""
    if not records:
        raise BadInput("The body has no records.")
    for number, record in enumerate(records, 1):
        if type(record) is not dict:
            raise BadInput(f"Record {number} is not an object: classify and regress take features by name.")
    return Examples(tuple(records))


def records_of(values: Sequence[Any]) -> Sequence[Any]:
    """The records that application/json documents stand for; raises BadInput for a mixed list."""
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
            "the values of one record, or one list or object per record."
        )
    return elements


def _strings(values: Sequence[Any], signature: Signature) -> Sequence[Any] | None:
    """The elements of a bare list, each a record, if the only input takes one string a record."""
    if len(values) != 1 or type(values[0]) is not list or any(map(_is_record, values[0])):
        return None
    taken = [(spec.dtype, spec.shape) for spec in signature.inputs.values()]
    if taken != [("DT_STRING", (None,))]:
        return None
    if not values[0]:
        raise BadInput("The body has no records.")
    return values[0]


def records_in(form: Mapping[str, Any]) -> int:
    """How many records an object holds that is TF Serving's form."""
    for key in (ROW, EXAMPLES):
        if type(form.get(key)) is list:
            return len(form[key])
    value = form.get(COLUMN)
    columns = value.values() if type(value) is dict else [value]
    return max((len(column) for column in columns if type(column) is list), default=1)


def _is_record(element: Any) -> bool:
    return type(element) in {list, dict} and not is_base64(element)


def _numbers(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch | None:
    """The fast way for lists of plain numbers; None if the long way has to be gone."""
    if len(signature.inputs) != 1:
        return None
    ((name, spec),) = signature.inputs.items()
    array = json_array(body.removeprefix(BYTE_ORDER_MARK), spec, budget) if is_numeric(spec) else None
    if array is None:
        return None
    array = array[None] if array.ndim == 1 else array
    return fitted(Batch({name: array}, len(array)), signature)
