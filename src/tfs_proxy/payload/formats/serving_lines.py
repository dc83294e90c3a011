"""JSON lines of which each is a record or a document of TF Serving's own form, with any number of records."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.batch import Batch, Outputs
from tfs_proxy.errors import BadInput, NotAcceptable
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.payload.formats.json_outputs import columns_of_outputs, json_of_outputs, lines_of_outputs
from tfs_proxy.payload.shapes import fitted, has_records, listed, one_record_only
from tfs_proxy.serving_json.columns import batch_of
from tfs_proxy.serving_json.documents import documents
from tfs_proxy.serving_json.messages import SIGNATURE_NAME
from tfs_proxy.serving_json.requests import COLUMN, PREDICT, ROW, decode_serving_form, serving_form
from tfs_proxy.signature import Signature

_WRITERS = {None: lines_of_outputs, ROW: json_of_outputs, COLUMN: columns_of_outputs}


class Documents(Batch, frozen=True, kw_only=True):
    """The records of all documents of a body, by document: its own batch, and the key of its form, if any."""

    parts: Sequence[Batch]
    keys: Sequence[str | None]

    def first(self, count: int) -> Batch:
        """The records of the first documents."""
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
        lines, start = [], 0
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
            error.args, error.reason = (f"Document {number}: {error}",), f"Document {number}: {error.reason}"
            raise
    inputs = {name: _joined([part.inputs[name] for part in parts], parts) for name in signature.inputs}
    return Documents(inputs, sum(part.records for part in parts), parts=parts, keys=keys)


def _key(value: Any, signature: Signature) -> str | None:
    form = serving_form([value], PREDICT) or {}
    return next((key for key in (ROW, COLUMN) if key in form and key not in signature.inputs), None)


def _decoded(value: Any, key: str | None, signature: Signature) -> Batch:
    if key is None:
        return listed(batch_of([value], signature), signature)
    name = value.get(SIGNATURE_NAME) or signature.name
    if name != signature.name:
        raise BadInput(f'It is for the signature "{name}": name it in tfs-signature-name, for all of them.')
    return decode_serving_form(value, signature)


def _joined(arrays: Sequence[npt.NDArray[Any]], parts: Sequence[Batch]) -> npt.NDArray[Any]:
    if len(arrays) == 1:
        return arrays[0]
    for number, (array, part) in enumerate(zip(arrays, parts, strict=True), 1):
        if array.shape != (part.records, *arrays[0].shape[1:]):
            raise BadInput(
                f"Document {number} has a tensor of the shape {list(array.shape)}, unlike those before it: "
                "send each by itself."
            )
    return np.concatenate(arrays)
