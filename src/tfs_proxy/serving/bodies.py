"""Decoding of bodies from clients and scripts to arrays, examples, or JSON for a model server."""

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.data.arrays import typed
from tfs_proxy.data.formats.csv_records import header_hint
from tfs_proxy.data.formats.form import FormPart, batch_of_form, by_name, is_form, parts_of
from tfs_proxy.data.formats.json_records import (
    Documents,
    batch_of_lines,
    decode_documents,
    examples_of,
    records_in,
    records_of,
)
from tfs_proxy.data.formats.raw_bytes import string_input
from tfs_proxy.data.registry import FORMATS, as_utf8, decode, decode_examples, parse_media_type, readable
from tfs_proxy.data.serving_json.documents import BYTE_ORDER_MARK, documents
from tfs_proxy.data.serving_json.requests import COLUMN, PREDICT, SIGNATURE_NAME, serving_form
from tfs_proxy.data.shapes import held
from tfs_proxy.values.batch import BYTES, Batch, Examples
from tfs_proxy.values.errors import BadInput, NotJson, ScriptFailure, WrongType
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import Signature, Target, TensorSpec
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.dtypes import array_type
from tfs_proxy.wire.media_types import MediaType

LINES = frozenset({media.JSON_LINES, media.JSONS})


class Body(Struct, frozen=True):
    """Body from a client: ``content_type`` is the raw header, None means JSON."""

    data: bytes
    content_type: str | None = None
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    """Limit of the memory that the body may take when it is decoded."""


class ServingForm(Struct, frozen=True):
    """Body that is TF Serving's JSON already; its values are not kept while the model server works."""

    data: bytes
    signature: str | None
    records: int
    by_column: bool


class BodyDecoder:
    """Decoder of bodies by the signatures of ``signature``; ``csv_columns`` has the columns by model."""

    def __init__(self, signature: Callable[[Target], Signature], csv_columns: Mapping[str, str]) -> None:
        self._signature = signature
        self._csv_columns = csv_columns

    def read(self, target: Target, body: Body) -> Batch | Examples | ServingForm:
        """Read the records of a body; raises BadInput, UnsupportedMediaType and PayloadTooLarge."""
        try:
            opened = self.open_form(target, body)
            if isinstance(opened, Batch):
                return _held(opened, self._signature(target))
            body = opened
            kind = self.media_type(target, opened)
            readable(kind)
            if kind.type in {media.JSON, *LINES}:
                text = as_utf8(body.data, kind).removeprefix(BYTE_ORDER_MARK)
                # TF Serving's form starts with a brace; lists, often large, are parsed just once.
                if text.lstrip().startswith(b"{"):
                    return self._read_objects(target, text, body.budget, by_line=kind.type in LINES)
            if target.method == PREDICT:
                signature = self._signature(target)
                batch = decode(body.data, kind, signature, body.budget)
                try:
                    return _held(batch, signature)
                except BadInput as error:
                    hint = header_hint(as_utf8(body.data, kind), kind) if kind.type == media.CSV else ""
                    raise BadInput(f"{error}{hint}", error.loc) from None
            return decode_examples(body.data, kind, body.budget)
        except NotJson as error:
            if body.content_type:
                raise
            hint = "There is no Content-Type, which means JSON: send the body's, such as image/jpeg."
            raise NotJson(f"{error} {hint}", error.loc) from None

    def open_form(self, target: Target, body: Body) -> Body | Batch:
        """The body itself; of a form its only file, or the records of its parts, if they have inputs' names.

        Raises BadInput and PayloadTooLarge.
        """
        if not is_form(body.content_type):
            return body
        parts = parts_of(body.data, body.content_type or "", body.budget)
        files = [part for part in parts if part.filename is not None]
        signature = self._signature(target)
        names = signature.by_alias(by_name(parts))
        if len(files) == 1 and (len(parts) == 1 or signature.inputs.keys().isdisjoint(names)):
            return replace(body, data=files[0].data, content_type=_type_of(files[0], signature))
        return batch_of_form(parts, signature, body.budget) if target.method == PREDICT else body

    def media_type(self, target: Target, body: Body) -> MediaType:
        """Type of the body; for CSV with the order of columns, unless it names another."""
        kind = parse_media_type(body.content_type)
        columns = self._csv_columns.get(target.model) if kind.type == media.CSV else None
        return kind if columns is None else replace(kind, parameters={"columns": columns, **kind.parameters})

    def _read_objects(
        self, target: Target, text: bytes, budget: MemoryBudget, *, by_line: bool
    ) -> Batch | Examples | ServingForm:
        """Read JSON that starts with an object: TF Serving's form, or records."""
        values = documents(text, budget)
        form = serving_form(values, target.method)
        if form is not None:
            name = form.get(SIGNATURE_NAME)
            # The model server itself refuses anything but text.
            name = name if isinstance(name, str) else None
            return ServingForm(text, name, records_in(form), COLUMN in form)
        if target.method != PREDICT:
            return examples_of(records_of(values))
        signature = self._signature(target)
        batch = batch_of_lines(values, signature) if by_line else decode_documents(values, signature)
        return _held(batch, signature)


def _type_of(file: FormPart, signature: Signature) -> str | None:
    """Type of a form's file; None means JSON. One that nothing names is bytes for a model of strings."""
    if file.has_type:
        return file.content_type
    guess = media.of_file(file.filename or "")
    if string_input(signature) is not None and (guess is None or parse_media_type(guess).type not in FORMATS):
        return media.BYTES
    return guess


def _held(batch: Batch, signature: Signature) -> Batch:
    is_serving_form = isinstance(batch, Documents) and all(batch.keys)
    return batch if is_serving_form else held(batch, signature)


FORMS = "an array, or a dict of input names to arrays, bytes, or lists"


def as_batch(inputs: Any, signature: Signature, caller: str) -> Batch:
    """Make arrays of one array for a model of one input, or of arrays, bytes, str, numbers and lists by name.

    Arrays keep their shape; their dtype becomes the signature's if no value can be lost but in
    precision (int to float, float64 to float32). A str or bytes for an input of rank 1 or more is
    one record, and a list of them fills up with axes of size 1 to the signature's rank. Raises
    ScriptFailure, which names ``caller`` and the input, and BadInput for a number out of the range of the
    input's dtype: most come from the client's body as they are.
    """
    named = _by_name(inputs, signature, caller)
    arrays = {name: _array(named[name], spec, caller) for name, spec in signature.inputs.items()}
    sizes = {len(array) if array.ndim else 1 for array in arrays.values()}
    return Batch(arrays, sizes.pop() if len(sizes) == 1 else 1)


def _by_name(inputs: Any, signature: Signature, caller: str) -> Mapping[str, Any]:
    names = ", ".join(signature.inputs) or "none"
    if not isinstance(inputs, Mapping):
        if len(signature.inputs) != 1:
            raise ScriptFailure(
                f"{caller}: one array can't feed signature {signature.name}, whose inputs are {names}: "
                "pass a dict of them"
            )
        return dict.fromkeys(signature.inputs, inputs)
    for name in inputs:
        if name not in signature.inputs:
            hint = ": return TensorFlow Serving's JSON as str" if name in {"instances", "inputs"} else ""
            raise ScriptFailure(
                f"{caller}: {name!r} is not an input of signature {signature.name} ({names}){hint}"
            )
    missing = [name for name in signature.inputs if name not in inputs]
    if missing:
        raise ScriptFailure(f"{caller}: the input {missing[0]!r} of signature {signature.name} is missing")
    return inputs


def _array(value: Any, spec: TensorSpec, caller: str) -> npt.NDArray[Any]:
    subject = f"{caller}: input {spec.name!r}"
    dtype = array_type(spec)
    if dtype == BYTES:
        if isinstance(value, (bytes, bytearray, memoryview, str)):
            one = _objects([value], subject)
            return one.reshape(()) if spec.shape == () else _filled_up(one, spec)
        # As objects: numpy would strip zeros at the end of bytes.
        nested = value if isinstance(value, np.ndarray) else np.array(value, BYTES)
        if nested.dtype.kind not in "OSU":
            raise ScriptFailure(f"{subject} is {nested.dtype}, but {spec.dtype} is needed: pass bytes or str")
        array = _objects(nested.ravel().tolist(), subject).reshape(nested.shape)
        return array if isinstance(value, np.ndarray) else _filled_up(array, spec)
    try:
        array = np.asarray(value)
        if array.dtype == dtype:
            return array
        if array.dtype == BYTES and all(isinstance(each, Real) for each in array.ravel()):
            # numpy has objects for all numbers of a list if one needs more than 64 bits.
            is_whole = dtype.kind in "iu" and isinstance(array.sum(), Integral)
            array = array.astype(dtype if is_whole else np.float64)
        # An empty list is float64 to numpy, whatever it is meant to be.
        return typed(array, spec, subject) if array.size else array.astype(dtype)
    except OverflowError:
        raise BadInput(f"{subject} has a number that is out of the range of {spec.dtype}.") from None
    except WrongType as error:
        raise ScriptFailure(str(error)) from None
    except ValueError as error:
        raise ScriptFailure(f"{subject} is not an array: {error}") from None


def _objects(values: list[Any], subject: str) -> npt.NDArray[Any]:
    for value in values:
        if not isinstance(value, str | bytes | bytearray | memoryview):
            raise ScriptFailure(
                f"{subject} is {type(value).__name__}, but DT_STRING is needed: pass bytes or str"
            )
    return np.array([value.encode() if isinstance(value, str) else bytes(value) for value in values], BYTES)


def _filled_up(array: npt.NDArray[Any], spec: TensorSpec) -> npt.NDArray[Any]:
    """Reshape ``[n]`` to ``[n, 1, ...]`` if that is the signature's rank, as Keras gives string inputs."""
    if spec.shape is None or len(spec.shape) <= array.ndim:
        return array
    added = spec.shape[array.ndim :]
    return array.reshape(array.shape + (1,) * len(added)) if set(added) <= {1, None} else array
