"""Which model a call of TF Serving's API is for, read off the request's bytes: pure.

The rest of the message is skipped, not parsed. As protobuf has it, the last of several values counts, and
several occurrences of one message are merged.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.errors import BadInput
from tfs_proxy.wire.protobuf_reader import LENGTH, VARINT, MalformedProtobuf, read_fields, read_varint, text

MULTI_INFERENCE: Final = "MultiInference"
MOST_FIELDS: Final = 10_000
"""Fields that are read of one message: each costs a microsecond, in which no other call goes on."""

NO_SPEC: Final = "Missing ModelSpec"
NO_NAME: Final = "ModelSpec has no name specified."
SEVERAL_MODELS: Final = "All ModelSpecs in a MultiInferenceRequest must access the same model name."
"""As TF Serving says it, like the two above."""

_SPEC, _TASKS = 1, 1
_NAME, _VERSION, _LABEL = 1, 2, 4
_VALUE = 1


class AskedModel(Struct, frozen=True):
    """The model that a call names, and the version's number or its label, if it names one of them."""

    name: str
    number: int | None = None
    label: str = ""

    @property
    def version(self) -> str:
        """Number or label as text, "" without either."""
        return self.label if self.number is None else str(self.number)


def asked_model(method: str, message: bytes) -> AskedModel:
    """The model of a call of ``method``, such as ``Predict``.

    Raises BadInput if the message is broken, has more than `MOST_FIELDS`, or does not name one model.
    """
    try:
        return _asked_model(method, _Fields(), memoryview(message))
    except MalformedProtobuf:
        raise BadInput(f"The request is not a message of {method}") from None


class _Fields:
    """Reads the fields of a message and of those in it, and gives up if there are too many."""

    def __init__(self) -> None:
        self._left = MOST_FIELDS

    def of(self, message: memoryview, wanted_kind: int = LENGTH) -> Iterator[tuple[int, memoryview]]:
        """Number and content of each field of a kind: by default those that have a length."""
        for number, kind, content in read_fields(message):
            self._left -= 1
            if self._left < 0:
                raise BadInput(f"The request has more than {MOST_FIELDS} fields")
            if kind == wanted_kind:
                yield number, content


def _asked_model(method: str, fields: _Fields, message: memoryview) -> AskedModel:
    if method != MULTI_INFERENCE:
        return _named(_spec(fields, message))
    tasks = [_named(_spec(fields, content)) for number, content in fields.of(message) if number == _TASKS]
    if not tasks:
        raise BadInput(NO_NAME)
    if len({task.name for task in tasks}) > 1:
        raise BadInput(SEVERAL_MODELS)
    return tasks[0]


def _named(spec: AskedModel | None) -> AskedModel:
    if spec is None:
        raise BadInput(NO_SPEC)
    if not spec.name:
        raise BadInput(NO_NAME)
    return spec


def _spec(fields: _Fields, message: memoryview) -> AskedModel | None:
    """The ModelSpec of a message, which is the first field of each that has one; None without it."""
    spec = None
    for number, content in fields.of(message):
        if number == _SPEC:
            spec = _merged(spec or AskedModel(""), fields, content)
    return spec


def _merged(spec: AskedModel, fields: _Fields, message: memoryview) -> AskedModel:
    for number, content in fields.of(message):
        if number == _NAME:
            spec = replace(spec, name=text(content))
        elif number == _VERSION:
            values = [read_varint(value) for field, value in fields.of(content, VARINT) if field == _VALUE]
            spec = replace(spec, number=values[-1] if values else spec.number or 0, label="")
        elif number == _LABEL:
            spec = replace(spec, number=None, label=text(content))
    return spec
