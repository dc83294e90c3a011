"""Values that scripts get and make: headers by name in any case, answers, requests and errors."""

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from tfs_proxy.values.errors import RequestError
from tfs_proxy.values.signature import Target
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES

PREDICT = "predict"


class HeaderMap(MutableMapping[str, str]):
    """Headers whose names are the same in upper and lower case; they keep the form they were set in."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._entries = {name.lower(): (name, value) for name, value in (headers or {}).items()}

    def __getitem__(self, name: str) -> str:
        return self._entries[name.lower()][1]

    def __setitem__(self, name: str, value: str) -> None:
        self._entries[name.lower()] = name, value

    def __delitem__(self, name: str) -> None:
        del self._entries[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        """True if another mapping has the same values under the same names."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return self._values() == HeaderMap(other)._values()

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return repr(dict(self))

    def copy(self) -> "HeaderMap":
        """Copy the headers."""
        return HeaderMap(self)

    def _values(self) -> dict[str, str]:
        return {lower: value for lower, (_, value) in self._entries.items()}


STATUSES = range(400, 600)
ANSWER_STATUSES = range(200, 600)
FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that only the server writes: hop-by-hop ones (RFC 9110, 7.6.1), and the body's length and type."""

NGINX_PREFIX = "x-accel-"
LONGEST_ATTRIBUTES = 1024
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_VISIBLE = re.compile(r"[\x20-\x7e]*")


class HTTPError(RequestError):
    """Raise it in inference.py to answer a request with ``status`` and ``{"error": message}``.

    ``status`` is from 400 to 599: 4xx if the client has to change its request, 5xx if it may
    try again. Raises ValueError for any other.
    """

    def __init__(self, status: int, message: str) -> None:
        self.status = int(status)
        self.message = str(message)
        if self.status not in STATUSES:
            raise ValueError(f"HTTPError({self.status}, ...): an error's status is from 400 to 599")
        super().__init__(self.message)

    def __reduce__(self) -> tuple[type["HTTPError"], tuple[int, str]]:
        return type(self), (self.status, self.message)


@dataclass(frozen=True, slots=True)
class Response:
    """Return it from ``handler`` or ``output_handler``: a body with its type, status and headers.

    ``body`` is str, bytes, or an iterator or async iterator of them, which is streamed. Without a
    ``content_type`` it is the first that Accept names; without a ``status`` it is the model
    server's, 200 in ``handler``. Raises ValueError for a status outside 200 to 599, for headers
    that HTTP can't carry, and for those that the server writes itself.
    """

    body: Any = b""
    content_type: str | None = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status is not None and int(self.status) not in ANSWER_STATUSES:
            raise ValueError(f"Response(status={self.status}): a status is from 200 to 599")
        for name, value in self.headers.items():
            check_header(name, value)


@dataclass(frozen=True, slots=True)
class Request:
    """Return it from ``input_handler`` to ask the model server for more than a body can say.

    Fields other than the inputs, if they are given, win over the client's choice.
    """

    inputs: Any
    """TF Serving's JSON as str or bytes, an array for a model of one input, or arrays, bytes or lists by
    input name."""

    model_name: str | None = None
    """Name of the model."""

    version: int | str | None = None
    """Version number, which excludes a label."""

    label: str | None = None
    """Version label, which excludes a version."""

    signature: str | None = None
    """Name of the signature."""

    def __post_init__(self) -> None:
        check_version_or_label(self.version, self.label)


def check_version_or_label(version: int | str | None, label: str | None) -> None:
    """Raise ValueError if both are given."""
    if version is not None and label is not None:
        raise ValueError("version and label exclude each other: pass one of them")


def retargeted(
    target: Target,
    model_name: str | None,
    version: int | str | None,
    label: str | None,
    signature: str | None,
    method: str = PREDICT,
) -> Target:
    """Change ``target`` to the given names; another model has none of its version, label or signature.

    Raises ValueError if version and label are both named.
    """
    check_version_or_label(version, label)
    if model_name is not None and model_name != target.model:
        target = Target(model_name)
    if version is None and label is None:
        number = target.version
        label = target.label
    else:
        number = None if version is None else int(version)
    return Target(target.model, number, label, signature or target.signature, method)


def check_header(name: Any, value: Any) -> None:
    """Raise ValueError for a header that a script can't set."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not the name of a header")
    if name.lower() in FRAMING or name.lower().startswith(NGINX_PREFIX):
        raise ValueError(f"a script can't set the header {name}: the server writes it")
    if not isinstance(value, str) or _VALUE.fullmatch(value) is None:
        raise ValueError(f"the value of the header {name} must be a str of printable ASCII without line ends")
    if name.lower() == CUSTOM_ATTRIBUTES.lower():
        custom_attributes(value)


def custom_attributes(value: str | Mapping[str, str] | Iterable[str]) -> str:
    """Text of ``X-Amzn-SageMaker-Custom-Attributes``: as it is, or ``key=value`` and comma of a mapping.

    Raises ValueError for more than 1024 characters or any that is not visible ASCII: see
    docs/reference/sagemaker.md.
    """
    if isinstance(value, Mapping):
        value = [f"{key}={text}" for key, text in value.items()]
    text = value if isinstance(value, str) else ",".join(value)
    if len(text) > LONGEST_ATTRIBUTES:
        raise ValueError(
            f"custom attributes can have at most {LONGEST_ATTRIBUTES} characters, not {len(text)}"
        )
    if _VISIBLE.fullmatch(text) is None:
        raise ValueError("custom attributes must be visible ASCII, without line ends")
    return text
