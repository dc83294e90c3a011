"""Objects with equal keys in a request's JSON: found at little cost, and kept member by member.

TF Serving looks members of some objects up, where the first of equal keys counts, and goes through
those of others, where each does. orjson keeps the last one only.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

_KEY = re.compile(rb'"[ \t\n\r]*:')
_SPACES = (b"\n", b"\r", b"\t", b" ")
_LONG = 256
"""Bytes for each colon from which on it costs less to go through the document than through its text."""

Members = list[tuple[str, Any]]


class RepeatingObject(dict[str, Any]):
    """An object with equal keys: a key's value is the first one; its items and its length are all members."""

    def __init__(self, members: Iterable[tuple[str, Any]]) -> None:
        self._members = list(members)
        super().__init__(reversed(self._members))

    def add(self, key: str, value: Any) -> None:
        """One more member at the end."""
        self._members.append((key, value))
        self.setdefault(key, value)

    def items(self) -> Members:  # type: ignore[override]
        """All members, in their order."""
        return self._members

    def __len__(self) -> int:
        return len(self._members)


class _Repeated(Exception):
    """A key is there twice."""


def repeats_a_key(body: bytes, document: Any) -> bool:
    """Whether any object of a body, which has been parsed to this document, has equal keys.

    PERF: each of these steps settles nearly all bodies that come to it, the dearer ones last. A text has
    as many keys as colons at most; where the document has as many, none was lost.
    """
    if type(document) is not dict:
        return False
    colons = body.count(b":")
    if colons == len(document) or colons == (rows := _keys_of_rows(document)):
        return False
    if len(body) > _LONG * colons and colons == _keys_within(document):
        return False
    most = _most_keys(body, colons)
    return most != rows and most != _keys_within(document) and _found(body)


def _most_keys(body: bytes, colons: int) -> int:
    """As many as a JSON text has keys, or more: few of the colons in its strings count with them."""
    quoted = body.count(b'":')
    if quoted < colons and any(space in body and space + b":" in body for space in _SPACES):
        return len(_KEY.findall(body))
    if b"\\" in body and b'\\\\":' not in body:
        # No key ends with a backslash, so a quote behind one is inside a string.
        return quoted - body.count(b'\\":')
    return quoted


def _keys_of_rows(document: dict[str, Any]) -> int:
    """The keys of a document, of its members, and of their elements where all are objects."""
    count = len(document)
    for value in document.values():
        if type(value) is dict:
            count += len(value)
        elif type(value) is list and value and type(value[0]) is dict and set(map(type, value)) == {dict}:
            count += sum(map(len, value))
    return count


def _keys_within(document: dict[str, Any]) -> int:
    """The keys of a document; those in lists that begin with something plain are left out."""
    count = 0
    waiting: list[Any] = [document]
    while waiting:
        holder = waiting.pop()
        if type(holder) is dict:
            count += len(holder)
            waiting.extend(each for each in holder.values() if type(each) is dict or type(each) is list)
        elif holder and (type(holder[0]) is dict or type(holder[0]) is list):
            waiting.extend(each for each in holder if type(each) is dict or type(each) is list)
    return count


def _found(body: bytes) -> bool:
    """Read key by key; a body that Python's own reader does not take may have any."""
    try:
        json.loads(body, object_pairs_hook=_looked_at)
    except (_Repeated, ValueError, RecursionError):
        return True
    return False


def _looked_at(members: Members) -> None:
    if len(dict(members)) < len(members):
        raise _Repeated
