"""X-Amzn-SageMaker-Custom-Attributes -> Target: first thing that `web.invocations` reads of a request."""

import re
from collections.abc import Callable
from typing import Any

from tfs_proxy.errors import BadInput
from tfs_proxy.signature import Target

HEADER = "X-Amzn-SageMaker-Custom-Attributes"
HIGHEST_VERSION = 2**63 - 1
METHODS = ("predict", "classify", "regress")
_SHOWN_CHARACTERS = 80


def _matching(pattern: str, wanted: str) -> Callable[[str], str]:
    fits = re.compile(pattern, re.ASCII).fullmatch

    def parse(value: str) -> str:
        if fits(value) is None:
            raise ValueError(wanted)
        return value

    return parse


def _version(value: str) -> int:
    if re.fullmatch(r"[0-9]{1,19}", value, re.ASCII) is None or int(value) > HIGHEST_VERSION:
        raise ValueError("a version is a whole number of at most 63 bits")
    return int(value)


def _method(value: str) -> str:
    if value not in METHODS:
        raise ValueError(f"must be one of {', '.join(METHODS)}")
    return value


ATTRIBUTES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "tfs-model-name": (
        "model",
        _matching(
            r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}",
            "a name has up to 255 letters, digits, '.', '_' and '-', a letter or digit first",
        ),
    ),
    "tfs-model-version": ("version", _version),
    "tfs-model-label": ("label", _matching(r"[A-Za-z0-9_]{1,255}", "a label has letters, digits and '_'")),
    "tfs-signature-name": (
        "signature",
        _matching(r"[\x21-\x7e]{1,255}", "a signature's name is printable ASCII without blanks"),
    ),
    "tfs-method": ("method", _method),
}
"""Attribute -> field of Target and its parser (contract 2.4; label and signature are ours)."""


def parse_target(header: str | None, default_model: str) -> Target:
    """What the request is for: comma separated ``key=value`` among attributes that are not ours.

    A value may contain ``=``. Raises BadInput naming the attribute that is malformed, empty or
    there twice, or where a version and a label come together.
    """
    if header is None or "tfs-" not in header:
        return Target(default_model)
    fields: dict[str, Any] = {"model": default_model}
    seen: set[str] = set()
    for part in header.split(","):
        key, _, value = part.partition("=")
        key = key.strip()
        if key in ATTRIBUTES:
            if key in seen:
                raise BadInput(f"invalid {key}: it is there twice")
            seen.add(key)
            field, parse = ATTRIBUTES[key]
            fields[field] = _parsed(key, value.strip(), parse)
    if "version" in fields and "label" in fields:
        raise BadInput("tfs-model-version and tfs-model-label exclude each other: send one of them")
    return Target(**fields)


def _parsed(key: str, value: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        raise BadInput(f"invalid {key} {value[:_SHOWN_CHARACTERS]!r}: {error}") from None
