"""Description of a script's bodies, which it gives itself, with schemas and checks by Python types."""

import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import Struct, field

from tfs_proxy.wire.media_types import parse

Schema = dict[str, Any]


def json_schema(declared: Any) -> Schema:
    """Schema of a body by its Python type; bytes and None have none, and a schema stays what it is.

    A class with ``model_json_schema``, as pydantic has it, gives its own. Raises TypeError for anything else.
    """
    if isinstance(declared, Mapping):
        return dict(declared)
    if declared in {None, bytes, object}:
        return {}
    if get_origin(declared) in {Union, types.UnionType}:  # msgspec takes one type of objects in a union
        members = get_args(declared)
        return {
            "anyOf": [{"type": "null"} if each is types.NoneType else json_schema(each) for each in members]
        }
    try:
        return msgspec.json.schema(declared, schema_hook=_own_schema)
    except TypeError as error:
        raise TypeError(f"{declared!r} is neither a JSON schema nor a type of JSON: {error}") from None


def _own_schema(declared: Any) -> Schema:
    if hasattr(declared, "model_json_schema"):
        own: Schema = declared.model_json_schema()
        return own
    raise TypeError(f"no schema is known for {declared!r}")


class Description(Struct, frozen=True):
    """JSON schemas by the media types that a script reads and writes, and a request's body for some of them.

    None means that it does not say.
    """

    accepts: Mapping[str, Mapping[str, Any]] | None = None
    returns: Mapping[str, Mapping[str, Any]] | None = None
    examples: Mapping[str, bytes] = field(default_factory=dict)


class Described:
    """Last `describe` call of a script in ``folder`` while it was imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.description: Description | None = None


_importing: ContextVar[Described | None] = ContextVar("importing", default=None)


@contextmanager
def importing(script: Path) -> Iterator[Described]:
    """Collect what is described inside; paths are relative to the folder of ``script``."""
    described = Described(script.parent)
    token = _importing.set(described)
    try:
        yield described
    finally:
        _importing.reset(token)


def describe(
    *,
    accepts: Mapping[str, Any] | None = None,
    returns: Mapping[str, Any] | None = None,
    examples: Mapping[str, bytes | str | Path | dict[str, Any] | list[Any]] | None = None,
) -> None:
    """Say, at the top of inference.py, what bodies it reads and writes, for ``GET /openapi.json``.

    ``accepts`` and ``returns`` map media types to a JSON schema or to a Python type (``list[float]``, a
    dataclass, a TypedDict, a pydantic model); None stands for a body that has no schema. ``examples`` maps
    media types of requests to a body in bytes, to a dict or list for its JSON, or to the path of a file in
    the script's folder. Outside of a script that is being loaded it only checks its arguments. Raises
    TypeError or ValueError for anything else, OSError for a file that can't be read.
    """
    described = _importing.get() or Described(Path())
    bodies = {_media_type(name): _body(described.folder, each) for name, each in (examples or {}).items()}
    accepted, returned = (
        None
        if declared is None
        else {_media_type(name): json_schema(each) for name, each in declared.items()}
        for declared in (accepts, returns)
    )
    unread = () if accepted is None else bodies.keys() - accepted.keys()
    if unread:
        raise ValueError(f"describe: there is an example of {min(unread)}, which accepts does not name")
    described.description = Description(accepted, returned, bodies)


def _body(folder: Path, example: bytes | str | Path | dict[str, Any] | list[Any]) -> bytes:
    if isinstance(example, dict | list):
        return msgspec.json.encode(example)
    return example if isinstance(example, bytes) else (folder / example).read_bytes()


def _media_type(name: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise TypeError(f"describe: {name!r} is not a media type")
    return parse(name).type
