"""Bodies of requests that a script declares by annotations: `declared_body` reads them as validated objects.

The first parameter of ``handler``, ``input_handler`` and ``input_fn`` may be annotated with a dataclass, a
TypedDict, or a class of msgspec or pydantic, or with ``list`` of one. msgspec names the first fault of a
record, pydantic all.
"""

import inspect
import io
import logging
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from types import NoneType, SimpleNamespace, UnionType
from typing import Any

import msgspec
from msgspec import Struct

from tfs_proxy.data.registry import as_utf8, parse_media_type
from tfs_proxy.data.serving_json.documents import BYTE_ORDER_MARK
from tfs_proxy.model.openapi.description import Description, Schema, json_schema
from tfs_proxy.model.script_syntax import STREAMS
from tfs_proxy.observe.request_record import note_records
from tfs_proxy.serving.bodies import LINES
from tfs_proxy.serving.script.context import ScriptRequest
from tfs_proxy.serving.script.values import Request, Response
from tfs_proxy.values.errors import BadInput, Fault, Place, ScriptLoadError, from_client
from tfs_proxy.wire import media_types as media

log = logging.getLogger(__name__)

Function = Callable[..., Any]
INPUT = "input_fn"
PYDANTIC = "__pydantic_validator__"
"""Attribute of pydantic's classes."""

MOST_FAULTS = 50
"""Faults of a body that a refusal names."""

LONGEST_STEP = 100
"""Characters of a key in a place: a body may choose the keys of a mapping."""

PYDANTIC_FAULT_BYTES = 400
"""Memory of a fault, of which pydantic collects one for each value that does not fit."""

MOST_LISTED = 1000
"""Faults of a record of which pydantic makes a list, at 1 KB each."""

_STEP = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]")
_FIELD = re.compile(r"field `(.+)`$")
"""Parts of msgspec's errors: steps of the path to a value, and a member that is missing or unknown."""


class Unfit(BadInput):
    """A body that is not of its declared type, with all ``faults`` that are known."""

    def __init__(self, declared: str, faults: Sequence[Fault]) -> None:
        shown = "; ".join(": ".join([*filter(None, [_path(each["loc"])]), each["msg"]]) for each in faults)
        super().__init__(f"The body does not fit {declared}: {from_client(shown)}.")
        self._faults = faults

    @property
    def details(self) -> Sequence[Fault]:
        """The faults."""
        return self._faults


def _path(loc: Place) -> str:
    return ".".join(map(str, loc))


class DeclaredBody(Struct, frozen=True):
    """Type of the body that a function takes."""

    name: str
    """Name of the type for people: that of a class, or ``list[...]`` of one."""

    accepts: Mapping[str, Schema]
    """Schemas by the media types that are read."""

    decode: Callable[[bytes], object]
    """Reader of one record in JSON; raises ValueError for one that does not fit, and RecursionError."""

    is_list: bool
    """True if a body is a list, or JSON lines."""

    fault_bytes: int = 0
    """Memory that each value may take if it does not fit."""

    def read(self, request: ScriptRequest) -> object:
        """Make the object of a request's body; raises BadInput, UnsupportedMediaType and PayloadTooLarge."""
        if request.codec is not None:
            raise BadInput(
                f"The script takes {self.name} as JSON, and no tensors: send it to /invocations, not by the "
                "Open Inference Protocol."
            )
        kind = parse_media_type(request.content_type)
        by_line = self.is_list and kind.type in LINES
        if not by_line and kind.type != media.JSON and not kind.type.endswith("+json"):
            raise media.unreadable(kind, f"as {self.name}", self.accepts)
        body = as_utf8(request.body, kind).removeprefix(BYTE_ORDER_MARK)
        if not (by_line or body.strip()):
            raise BadInput(f"The body is empty: send {self.name} as JSON.")
        request.budget.take_json(body)
        objects: list[object] = []
        faults: list[Fault] = []
        try:
            records = self._records(body, by_line=by_line)
        except (ValueError, RecursionError) as error:
            raise Unfit(self.name, list(_faults(error, ()))) from None
        for number, record in enumerate(records):
            request.budget.require(record.count(b",") * self.fault_bytes)
            try:
                objects.append(self.decode(record))
            except (ValueError, RecursionError) as error:
                faults += _faults(error, (number,) if self.is_list else ())
            if len(faults) >= MOST_FAULTS:
                break
        if faults:
            raise Unfit(self.name, faults[:MOST_FAULTS])
        if not self.is_list:
            return objects[0]
        note_records(len(objects))
        return objects

    def _records(self, body: bytes, *, by_line: bool) -> Sequence[bytes]:
        if by_line:
            return [line for line in body.split(b"\n") if line and not line.isspace()]
        return list(map(bytes, msgspec.json.decode(body, type=list[msgspec.Raw]))) if self.is_list else [body]


def _faults(error: Any, place: Place) -> Iterator[Fault]:
    """Faults that pydantic or msgspec name in a value at ``place``."""
    if hasattr(error, "errors"):
        if error.error_count() > MOST_LISTED:
            yield {"loc": place, "msg": f"{error.error_count()} values don't fit"}
            return
        for each in error.errors():
            steps = [step[:LONGEST_STEP] if isinstance(step, str) else step for step in each["loc"]]
            yield {"loc": (*place, *steps), "msg": each["msg"]}
        return
    text, _, path = str(error).partition(" - at `")
    steps = [name or int(number) for name, number in _STEP.findall(path)]
    field = _FIELD.search(text)
    loc = (*place, *steps, *(field.groups() if field else ()))
    if isinstance(error.__cause__, ValueError):  # of a class's own check, or of a pydantic class in another
        yield from _faults(error.__cause__, loc)
    else:
        yield {"loc": loc, "msg": text}


def declared_body(path: str, name: str, function: Function | None) -> DeclaredBody | None:
    """Type of the body that a script's function ``name`` takes; None if it gets the body as it is.

    Raises ScriptLoadError for one that reads bodies in parts, and for a class that no JSON can be read as.
    """
    annotation = Any if function is None else annotations_of(function)[0]
    is_list = typing.get_origin(annotation) is list
    item = typing.get_args(annotation)[0] if is_list else annotation
    if not is_declared(item):
        if not _is_of_a_plain_body(annotation, name):
            gets = "str or bytes" if name == INPUT else "a file"
            text = (
                "%s: %s gets the body as %s: %r is not used. To read JSON, annotate a dataclass, "
                "a TypedDict, a msgspec.Struct or a pydantic model, or a list of one."
            )
            log.warning(text, path, name, gets, annotation)
        return None
    shown = f"list[{item.__name__}]" if is_list else item.__name__
    if getattr(function, STREAMS, False):
        raise ScriptLoadError(
            f"{path}: {name} takes {shown}, and can't read bodies in parts: remove what sets its streams."
        )
    try:
        accepts = {media.JSON: json_schema(annotation)}
        if is_list:
            accepts[media.JSON_LINES] = {"type": "string"}
        is_pydantic = hasattr(item, PYDANTIC)
        if is_pydantic:
            decode = import_module("pydantic").TypeAdapter(item).validate_json
        else:
            decode = msgspec.json.Decoder(item, dec_hook=_inner).decode
    except Exception as error:  # classes of the script's may fail in any way
        raise ScriptLoadError(
            f"{path}: {name} takes {shown}, which can't be read as JSON: {error}"
        ) from error
    return DeclaredBody(shown, accepts, decode, is_list, PYDANTIC_FAULT_BYTES * is_pydantic)


def _inner(kind: Any, value: Any) -> object:
    """Make an object of a pydantic class within one of another kind."""
    return kind.model_validate(value)


def description_of(
    own: Description | None, body: DeclaredBody | None, answering: Function | None
) -> Description | None:
    """Description of a script by its annotations, with all else that it says itself.

    ``answering`` is the function that makes the answer.
    """
    returned = annotations_of(answering)[1] if answering is not None else Any
    is_list = typing.get_origin(returned) is list
    returns = {}
    item = typing.get_args(returned)[0] if is_list else returned
    if is_declared(item) or (typing.get_origin(item) or item) in (dict, int, float, bool):
        with suppress(Exception):  # numpy's types, which have no schema
            returns = {media.JSON: json_schema(returned)}
    if body is None and not returns:
        return own
    said = own or Description()
    accepts = said.accepts
    if body is not None:
        accepts = {**body.accepts, **(said.accepts or {})}
        for media_type in accepts.keys() - body.accepts.keys():
            raise ScriptLoadError(
                f"describe: accepts names {media_type}, but the script takes {body.name}, which is JSON."
            )
    return Description(accepts, {**returns, **(said.returns or {})} or None, said.examples)


def is_declared(kind: Any) -> bool:
    """True for a class whose objects have members of declared types, as JSON objects have."""
    kind = typing.get_origin(kind) or kind
    if not isinstance(kind, type) or issubclass(kind, (Request, Response)):
        return False
    marks = ("__required_keys__", "__dataclass_fields__", "__struct_fields__", PYDANTIC)
    return any(hasattr(kind, mark) for mark in marks)


def _is_of_a_plain_body(annotation: Any, name: str) -> bool:
    """True if an annotation says what functions get without one, as scripts for AWS's container have it."""
    if typing.get_origin(annotation) in {typing.Union, UnionType}:
        return all(_is_of_a_plain_body(each, name) for each in typing.get_args(annotation))
    kind = typing.get_origin(annotation) or annotation
    if kind in (Any, object, NoneType) or (name == INPUT and kind in (str, bytes)):
        return True
    return isinstance(kind, type) and issubclass(kind, (io.IOBase, typing.IO))


def annotations_of(function: Function) -> tuple[Any, Any]:
    """Annotations of a function's first parameter and of what it returns; Any for none.

    Each is resolved by itself. One that can't be stays text.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have none
        return Any, Any
    names = getattr(inspect.unwrap(function), "__globals__", {})
    first = next((each.annotation for each in signature.parameters.values()), Any)
    return _resolved(first, names), _resolved(signature.return_annotation, names)


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    if annotation is inspect.Signature.empty:
        return Any
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, names)["it"]
    except Exception:  # noqa: BLE001 - it is the script's code
        return annotation
