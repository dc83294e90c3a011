"""Python types -> JSON schemas and checks, for what a script declares about its bodies."""

import dataclasses
import enum
import types
from collections.abc import Callable, Mapping, Sequence
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
    """The schema of the JSON that a value of this type is written as; bytes are a body without a schema.

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
    """A function that raises ValueError or RecursionError for JSON that is not of this type.

    Classes with ``model_validate``, as pydantic has it, are checked by that. Raises TypeError for a type that
    can't be checked.
    """
    if hasattr(declared, "model_validate_json"):  # from JSON strict models take more than from Python values
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
