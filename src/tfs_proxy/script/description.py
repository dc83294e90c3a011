"""What a script says of its bodies with ``tfs_proxy.describe``, for the OpenAPI document."""

import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tfs_proxy.errors import BadInput, from_client
from tfs_proxy.payload.media_types import JSON, parse
from tfs_proxy.script.declared_types import json_check, json_schema

Schema = Mapping[str, Any]
"""A JSON schema (draft 2020-12); an empty one takes anything."""


class Description(Struct, frozen=True):
    """JSON schemas by the media types that a script reads and writes, and a request's body for some of them.

    None means that it does not say. ``checks`` raise for bodies of requests, by their media type.
    """

    accepts: Mapping[str, Schema] | None = None
    returns: Mapping[str, Schema] | None = None
    examples: Mapping[str, bytes] = field(default_factory=dict)
    checks: Mapping[str, Callable[[bytes], object]] = field(default_factory=dict)

    def refuse_unfit(self, body: bytes, content_type: str | None) -> None:
        """Raise BadInput for a body that does not fit the type declared for its media type."""
        check = self.checks.get(parse(content_type).type) if self.checks else None
        try:
            if check is not None:
                check(body)
        except (ValueError, RecursionError) as error:
            text = f"The body does not fit the type that the script declares: {from_client(error)}."
            raise BadInput(text) from None


class Described:
    """What a script has described while it was imported: the last call counts."""

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
    media types of requests to a body in bytes, or to the path of a file beside the script. With ``validate``
    a JSON body that does not fit its type is answered 400, and schemas are refused, as are types that can't
    be checked. Elsewhere than
    in a script that is being loaded it only checks what it gets. Raises TypeError or ValueError for anything
    else, OSError for a file that can't be read.
    """
    importing_now = _importing.get()
    folder = Path() if importing_now is None else importing_now[1]
    description = Description(
        accepts=_schemas(accepts),
        returns=_schemas(returns),
        examples={_media_type(name): _bytes(body, folder) for name, body in (examples or {}).items()},
        checks=_checks(accepts or {}) if validate else {},
    )
    known = description.examples if description.accepts is None else description.accepts
    unread = description.examples.keys() - known.keys()
    if unread:
        raise ValueError(f"describe: there is an example of {min(unread)}, which accepts does not name")
    if importing_now is not None:
        importing_now[0].description = description


def _schemas(declared: Mapping[str, Any] | None) -> Mapping[str, Schema] | None:
    if declared is None:
        return None
    return {_media_type(name): _schema(of_body) for name, of_body in declared.items()}


def _schema(of_body: Any) -> Schema:
    if of_body is None:
        return {}
    if isinstance(of_body, Mapping):
        return dict(of_body)
    if isinstance(of_body, (type, types.GenericAlias, types.UnionType)) or hasattr(of_body, "__origin__"):
        return json_schema(of_body)
    raise TypeError(f"describe: {of_body!r} is neither a JSON schema nor a type")


def _checks(accepts: Mapping[str, Any]) -> dict[str, Callable[[bytes], object]]:
    """A check for each media type whose bodies are JSON; bytes and text are what they are."""
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
