"""Paths of TF Serving's REST API to what they ask for (docs/reference/tensorflow-serving.md)."""

import re
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from tfs_proxy.embedded.errors import invalid
from tfs_proxy.names import HIGHEST_VERSION

_CHOICE = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_PREDICTION = re.compile(
    rf"/v1/models/(?P<model>[^/:]+){_CHOICE}:(?P<method>classify|regress|predict)", re.IGNORECASE
)
_STATUS = re.compile(rf"/v1/models(?:/(?P<model>[^/:]+))?{_CHOICE}(?P<metadata>/metadata)?", re.IGNORECASE)
_API = re.compile(r"/v1/.*", re.IGNORECASE | re.DOTALL)
_URI = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
"""Path and query by RFC 3986: everything else is to be percent-encoded."""

_METHODS = {"classify", "regress", "predict"}
PREFLIGHT = "preflight"


class Route(Struct, frozen=True):
    """One request's target: what to do with which version, or which label, of which model."""

    action: str
    model: str
    version: int | None = None
    label: str | None = None


def is_uri(path: str) -> bool:
    """Whether a path with its query is written as the standard says; others are plain 400s."""
    return _URI.fullmatch(path) is not None


def is_api(path: str) -> bool:
    """Whether a path is the API's at all; others are plain 404s."""
    return _API.fullmatch(path) is not None


def match(method: str, path: str) -> Route:
    """What a request asks for. Raises ServingError if the path means nothing."""
    if method == "OPTIONS":
        return Route(PREFLIGHT, "")
    matched = None
    if method == "POST":
        matched = _PREDICTION.fullmatch(path)
    elif method == "GET":
        matched = _STATUS.fullmatch(path)
    parts = matched.groupdict() if matched else {}
    if matched is None or (method == "POST" and parts["method"] not in _METHODS):
        raise invalid(f"Malformed request: {method} {path}")
    version = _version(parts["version"])
    action = (
        parts["method"]
        if method == "POST"
        else ("metadata" if parts["metadata"] == "/metadata" else "status")
    )
    if not parts["model"]:
        raise invalid("Missing model name in request.")
    return Route(
        action,
        _decoded(parts["model"]),
        version,
        _decoded(parts["label"]) if parts["label"] is not None else None,
    )


def _version(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(HIGHEST_VERSION)) or int(digits) > HIGHEST_VERSION:
        raise invalid(f"Failed to convert version: {text} to numeric.")
    return int(digits)


def _decoded(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "replace")
