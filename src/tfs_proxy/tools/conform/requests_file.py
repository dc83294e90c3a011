"""Reads the file of ``--requests``, which describes requests that the container takes, -> `KnownRequests`.

Its JSON schema is `schemas/conform-requests.json`: ``make schemas`` writes it from the table here.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tfs_proxy.tools.conform.target import Capability
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.media_types import JSON, JSON_LINES

JSON_TYPES = frozenset({JSON, JSON_LINES, "application/jsonl"})


METRICS_PATH = "/metrics"
WEBSOCKET_PATH = "/invocations-bidirectional-stream"
MAX_FILE_BYTES = 64 * 1024**2

REQUESTS = {
    "good": "A request that the container answers with 2xx.",
    "bad": "A request that it must answer with an error.",
    "slow": "A good request that takes a second or more: several of them keep every worker busy.",
    "streaming": "A good request whose answer comes in parts.",
    "records": "A good request of several records, one a line: text/csv or application/jsonlines.",
    "message": "A message that its bidirectional streams answer (default: the body of `good`).",
}
PATHS = {
    "metrics_path": f"The path of its metrics (default: {METRICS_PATH}).",
    "websocket_path": f"The path of its bidirectional streams (default: {WEBSOCKET_PATH}).",
}
CAPABILITIES = "Abilities that the container claims, as the labels of an image do."
REQUEST_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "content_type": {"description": "Its Content-Type.", "type": "string", "minLength": 1},
    "body": {"description": "Its body: text as it is, any other JSON value as JSON."},
    "file": {"description": "The file that is its body, relative to this file.", "type": "string"},
    "accept": {"description": "Its Accept (default: none).", "type": "string"},
    "expected_content_type": {"description": "The Content-Type of the answer.", "type": "string"},
}


class KnownRequest(Struct, frozen=True):
    content_type: str
    body: bytes
    accept: str | None = None
    expected_content_type: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        accept = {"Accept": self.accept} if self.accept else {}
        return {"Content-Type": self.content_type, **accept}

    @property
    def media_type(self) -> str:
        return self.content_type.partition(";")[0].strip().lower()


class KnownRequests(Struct, frozen=True):
    """The file's contents; fields that it leaves out are None, or the default."""

    good: KnownRequest | None = None
    bad: KnownRequest | None = None
    slow: KnownRequest | None = None
    streaming: KnownRequest | None = None
    records: KnownRequest | None = None
    message: KnownRequest | None = None
    capabilities: frozenset[Capability] = field(default_factory=frozenset)
    metrics_path: str = METRICS_PATH
    websocket_path: str = WEBSOCKET_PATH


def read_requests_file(path: Path) -> KnownRequests:
    """Raises SettingsError, which names file and field."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SettingsError(f"{path} is larger than {MAX_FILE_BYTES} bytes: give large bodies as files.")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path} can't be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not JSON: {error}.") from None
    return known_requests(document, path)


def known_requests(document: object, path: Path) -> KnownRequests:
    """Checked values of the JSON document; paths of bodies are relative to ``path``'s folder."""
    fields = _object(document, {*REQUESTS, *PATHS, "capabilities"}, str(path))
    values: dict[str, Any] = {"capabilities": _capabilities(fields.get("capabilities", []), path)}
    values |= {name: _request(fields[name], path, name) for name in REQUESTS if name in fields}
    values |= {name: _path(fields[name], path, name) for name in PATHS if name in fields}
    return KnownRequests(**values)


def _request(value: object, path: Path, name: str) -> KnownRequest:
    fields = _object(value, REQUEST_FIELDS, f"{path}: {name}")
    for key in set(fields) - {"body"}:
        if not isinstance(fields[key], str) or not _is_header_value(fields[key]):
            raise SettingsError(f"{path}: {name}.{key} must be a string of one line of ASCII.")
    if "content_type" not in fields:
        raise SettingsError(f"{path}: {name} has no content_type.")
    if ("body" in fields) == ("file" in fields):
        raise SettingsError(f"{path}: {name} must have either body or file.")
    body = _body(fields["body"]) if "body" in fields else _file_body(path.parent / fields["file"], path, name)
    return KnownRequest(
        fields["content_type"], body, fields.get("accept"), fields.get("expected_content_type")
    )


def _object(value: object, names: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingsError(f"{place} must be a JSON object.")
    known = sorted(map(str, names))  # type: ignore[call-overload]  # a set or a mapping of names
    for name in value:
        if name not in known:
            raise SettingsError(f"{place} has {name!r}, which is not one of {', '.join(known)}.")
    return value


def _is_header_value(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _path(value: object, path: Path, name: str) -> str:
    if not (
        isinstance(value, str) and value.startswith("/") and _is_header_value(value) and " " not in value
    ):
        raise SettingsError(f"{path}: {name} must be a path that begins with /.")
    return value


def _body(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _file_body(file: Path, path: Path, name: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: {name}.file {file} can't be read: {error.strerror}.") from None


def _capabilities(value: object, path: Path) -> frozenset[Capability]:
    names = [capability.value for capability in Capability]
    if not isinstance(value, list) or any(each not in names for each in value):
        raise SettingsError(f"{path}: capabilities must be a list with any of {', '.join(names)}.")
    return frozenset(map(Capability, value))


def padded(request: KnownRequest, length: int) -> tuple[bytes, bool]:
    """A body of at least ``length`` bytes, and True if it means the same as the original.

    JSON is padded with spaces. Any other body is repeated, which may make it another request, or a bad one.
    """
    body = request.body
    if len(body) >= length:
        return body, True
    if request.media_type in JSON_TYPES or request.media_type.endswith("+json"):
        return b" " * (length - len(body)) + body, True
    return (body or b"\n") * (length // max(len(body), 1) + 1), False
