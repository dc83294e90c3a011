"""Schemas and checks of JSON for the Python types that a script declares about its bodies."""

import dataclasses
import enum
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec
from msgspec import Struct, field

from tfs_proxy.values.errors import BadInput, from_client
from tfs_proxy.wire.media_types import JSON, best, parse, unreadable

Schema = dict[str, Any]

_PLAIN: Mapping[Any, Schema] = {
    Any: {},
    object: {},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {},
    None: {"type": "null"},
    types.NoneType: {"type": "null"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    dict: {"type": "object"},
}


def json_schema(declared: Any) -> Schema:
    """Schema of the JSON that a value of this type is written as; bytes are a body without a schema.

    A class with ``model_json_schema``, as pydantic has it, gives its own. Raises TypeError for any other
    type, and for one that contains itself.
    """
    try:
        return _schema(declared)
    except RecursionError:
        raise TypeError(f"describe: {declared!r} contains itself: give its JSON schema instead") from None


def _schema(declared: Any) -> Schema:
    if isinstance(declared, str | int) or _is_unhashable(declared):
        raise TypeError(f"describe: {declared!r} is not a type")
    if declared in _PLAIN:
        return dict(_PLAIN[declared])
    origin = get_origin(declared)
    if origin is not None:
        return _of_generic(declared, origin, get_args(declared))
    if hasattr(declared, "model_json_schema"):
        own: Schema = declared.model_json_schema()
        return own
    if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
        return msgspec.json.schema(declared)
    if isinstance(declared, type):
        return _of_class(declared)
    raise TypeError(f"describe: no JSON schema is known for {declared!r}: give one instead")


def json_check(declared: Any) -> Callable[[bytes], object]:
    """Make a function that raises ValueError or RecursionError for JSON that is not of this type.

    Classes with ``model_validate``, as pydantic has it, are checked by that. Raises TypeError for a type that
    can't be checked.
    """
    if hasattr(declared, "model_validate_json"):  # strict models accept more in JSON than in Python
        return lambda body: _by_own_validator(declared.model_validate_json, body)
    try:
        return msgspec.json.Decoder(declared, dec_hook=_model_of).decode
    except TypeError as error:
        raise TypeError(f"describe: validate=True can't check {declared!r}: {error}") from None


def _model_of(declared: Any, value: Any) -> Any:
    return _by_own_validator(declared.model_validate, value)


def _by_own_validator(validate: Callable[[Any], object], value: Any) -> object:
    """Make a pydantic model, which msgspec does not know; an error has no value of the client's."""
    try:
        return validate(value)
    except ValueError as error:
        errors: list[dict[str, Any]] = getattr(error, "errors", list)()
        found = [f"{'.'.join(map(str, each['loc'])) or 'the whole'}: {each['msg']}" for each in errors]
        raise ValueError("; ".join(found) or str(error)) from None


def _is_unhashable(declared: Any) -> bool:
    try:
        hash(declared)
    except TypeError:
        return True
    return False


def _of_generic(declared: Any, origin: Any, arguments: tuple[Any, ...]) -> Schema:
    if origin in {Union, types.UnionType}:
        return {"anyOf": [_schema(argument) for argument in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in {Required, NotRequired}:
        return _schema(arguments[0])
    if origin is tuple and arguments[-1:] != (...,):
        items = [_schema(argument) for argument in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    if isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset):
        return {"type": "array", "items": _schema(arguments[0])}
    raise TypeError(f"describe: no JSON schema is known for {declared!r}: give one instead")


def _of_class(declared: type) -> Schema:
    if is_typeddict(declared):
        required = sorted(getattr(declared, "__required_keys__", ()))
        return _object(get_type_hints(declared), required)
    if dataclasses.is_dataclass(declared):
        fields = dataclasses.fields(declared)
        missing = dataclasses.MISSING
        required = [
            each.name for each in fields if each.default is missing and each.default_factory is missing
        ]
        hints = get_type_hints(declared)
        return _object({each.name: hints[each.name] for each in fields}, required)
    if issubclass(declared, enum.Enum):
        return {"enum": [member.value for member in declared]}
    raise TypeError(f"describe: no JSON schema is known for {declared!r}: give one instead")


def _object(members: Mapping[str, Any], required: Sequence[str]) -> Schema:
    return {
        "type": "object",
        "properties": {name: _schema(declared) for name, declared in members.items()},
        "required": list(required),
    }


class Description(Struct, frozen=True):
    """JSON schemas by the media types that a script reads and writes, and a request's body for some of them.

    None means that it does not say. ``checks`` read a body of their media type, and raise for one that does
    not fit; without ``validate`` they are None.
    """

    accepts: Mapping[str, Mapping[str, Any]] | None = None
    returns: Mapping[str, Mapping[str, Any]] | None = None
    examples: Mapping[str, bytes] = field(default_factory=dict)
    checks: Mapping[str, Callable[[bytes], object]] | None = None

    def validated(self, body: bytes, content_type: str | None) -> object:
        """A body as its declared type, None if none is checked. Raises UnsupportedMediaType and BadInput."""
        if self.checks is None:
            return None
        kind = parse(content_type)
        if self.accepts and best(", ".join(self.accepts), (kind.type,)) is None:
            raise unreadable(kind, "a declaration of the script", self.accepts)
        check = self.checks.get(kind.type)
        try:
            return None if check is None else check(body)
        except (ValueError, RecursionError) as error:
            text = f"The body does not fit the type that the script declares: {from_client(error)}."
            raise BadInput(text) from None


class Described:
    """Last `describe` call of a script while it was imported."""

    description: Description | None = None


_importing: ContextVar[tuple[Described, Path] | None] = ContextVar("importing", default=None)


@contextmanager
def importing(script: Path) -> Iterator[Described]:
    """Collect what is described inside; paths are relative to the folder of ``script``."""
    described = Described()
    token = _importing.set((described, script.parent))
    try:
        yield described
    finally:
        _importing.reset(token)


def describe(
    *,
    accepts: Mapping[str, Any] | None = None,
    returns: Mapping[str, Any] | None = None,
    examples: Mapping[str, bytes | str | Path] | None = None,
    validate: bool = False,
) -> None:
    """Say, at the top of inference.py, what bodies it reads and writes, for ``GET /openapi.json``.

    ``accepts`` and ``returns`` map media types to a JSON schema or to a Python type (``list[float]``, a
    dataclass, a TypedDict, a pydantic model); None stands for a body that has no schema. ``examples`` maps
    media types of requests to a body in bytes, or to the path of a file in the script's folder. With
    ``validate`` a JSON body that does not fit its type is answered 400, a media type that is not named 415,
    and ``data.value`` is the object; schemas are refused, as are types that can't be checked. Outside of a
    script that is being loaded it only checks its arguments. Raises TypeError or ValueError for anything
    else, OSError for a file that can't be read.
    """
    importing_now = _importing.get()
    folder = Path() if importing_now is None else importing_now[1]
    description = Description(
        accepts=_schemas(accepts),
        returns=_schemas(returns),
        examples={_media_type(name): _bytes(body, folder) for name, body in (examples or {}).items()},
        checks=_checks(accepts or {}) if validate else None,
    )
    known = description.examples if description.accepts is None else description.accepts
    unread = description.examples.keys() - known.keys()
    if unread:
        raise ValueError(f"describe: there is an example of {min(unread)}, which accepts does not name")
    if importing_now is not None:
        importing_now[0].description = description


def _schemas(declared: Mapping[str, Any] | None) -> Mapping[str, Mapping[str, Any]] | None:
    if declared is None:
        return None
    return {_media_type(name): _written_schema(of_body) for name, of_body in declared.items()}


def _written_schema(of_body: Any) -> Mapping[str, Any]:
    if of_body is None:
        return {}
    if isinstance(of_body, Mapping):
        return dict(of_body)
    if isinstance(of_body, (type, types.GenericAlias, types.UnionType)) or hasattr(of_body, "__origin__"):
        return json_schema(of_body)
    raise TypeError(f"describe: {of_body!r} is neither a JSON schema nor a type")


def _checks(accepts: Mapping[str, Any]) -> dict[str, Callable[[bytes], object]]:
    """Checks by media type for bodies of JSON; bytes and text need none."""
    found = {}
    for name, declared in accepts.items():
        media_type = _media_type(name)
        cannot = f"describe: validate=True can't check {media_type}"
        if isinstance(declared, Mapping):
            raise TypeError(f"{cannot} by a JSON schema: give a Python type")
        if media_type == JSON or media_type.endswith("+json"):
            if declared not in {None, bytes}:
                found[media_type] = json_check(declared)
        elif declared not in {None, bytes, str}:
            raise TypeError(f"{cannot}, which is not JSON: give str, bytes or None")
    return found


def _media_type(name: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise TypeError(f"describe: {name!r} is not a media type")
    return parse(name).type


def _bytes(body: bytes | str | Path, folder: Path) -> bytes:
    return body if isinstance(body, bytes) else (folder / body).read_bytes()
