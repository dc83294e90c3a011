"""Limits of the memory that one request takes: a budget that readers of bodies ask before they allocate."""

from collections.abc import Iterable
from itertools import takewhile
from math import prod
from typing import Protocol, Self

from tfs_proxy.values.errors import PayloadTooLarge

KILOBYTE = 1024
MEGABYTE = 1024**2
GIGABYTE = 1024**3
DEFAULT_BODY_BYTES = 100 * MEGABYTE
DEFAULT_DECODED_BYTES = 4 * DEFAULT_BODY_BYTES

STRING_BYTES = 64
"""Size of a short string as an object, with its place in an array."""
RECORD_BYTES = 300
"""Size of a record's own objects, without its values."""
ELEMENT_BYTES = 32
"""Size of a Python number and its place in a list; all figures here are those of CPython 3.11 and orjson."""
LIST_BYTES = 64
OBJECT_BYTES = 200
QUOTE_BYTES = 16
KEY_BYTES = 90
LINE_BYTES = 50
WIDEST_CHARACTER_BYTES = 4
DENSEST_JSON = 100
"""Upper bound of the bytes of Python objects for one byte of JSON."""
SMALL_BYTES = 64 * MEGABYTE
"""Largest memory of a body that is not counted."""
RESERVED_FROM_BYTES = MEGABYTE
"""Least size of a reservation, which locks a file; smaller requests make none."""
TEXT_NUMBER_BYTES = 16
"""Size of a number of a regular list or table, with its share of the message to the model server."""
PARSED_NUMBER_BYTES = 96
"""Size of a number in text that simdjson parses at once."""


class Ledger(Protocol):
    """Sum of the large requests of all processes."""

    def reserve(self, size_bytes: int) -> None:
        """Wait for ``size_bytes`` to be free; raises Overloaded if they are not, and ClientGone."""

    def release(self, size_bytes: int) -> None:
        """Give ``size_bytes`` back."""


class MemoryBudget:
    """Memory that one request may still take, in bytes; used by one thread at a time.

    A context, at whose end everything is given back. ``remedy`` says how to avoid a refusal.
    """

    __slots__ = ("_ledger", "_remedy", "_reserved", "_taken", "_wanted", "limit_bytes")

    def __init__(
        self,
        limit_bytes: int = DEFAULT_DECODED_BYTES,
        ledger: Ledger | None = None,
        remedy: str = "TFS_PROXY_MAX_DECODED_TOTAL_MB sets how much; unset, it is half of what models and "
        "workers leave of the memory.",
    ) -> None:
        self.limit_bytes = limit_bytes
        self._ledger = ledger
        self._remedy = remedy
        self._taken = self._wanted = self._reserved = 0

    @property
    def taken(self) -> int:
        return self._taken

    def give_back(self, size_bytes: int) -> None:
        """Count ``size_bytes`` of values as no longer in use; they stay reserved."""
        self._taken -= size_bytes
        self._wanted -= size_bytes

    def require(self, size_bytes: int, subject: str = "The body") -> None:
        """Raise PayloadTooLarge, which names ``subject``, if less than ``size_bytes`` is left."""
        needed = self._taken + size_bytes
        limit = self.limit_bytes
        if needed > limit:
            large = limit >= MEGABYTE
            shown = f"{-(-needed // MEGABYTE)} MB" if large else f"{needed} bytes"
            there = f"{limit // MEGABYTE} MB" if large else f"{limit} bytes"
            raise PayloadTooLarge(f"{subject} needs {shown} of memory, and {there} are there: {self._remedy}")

    def take(self, size_bytes: int, subject: str = "The body", ahead_bytes: int = 0) -> None:
        """Count ``size_bytes`` that are about to be allocated; raises as `require` does, and Overloaded.

        ``ahead_bytes``, as far as they are there, are reserved for later.
        """
        self.require(size_bytes, subject)
        self._taken += size_bytes
        self.reserve(size_bytes, min(ahead_bytes, self.limit_bytes - self._taken))

    def reserve(self, size_bytes: int, ahead_bytes: int = 0) -> None:
        """Reserve memory for other things than values, with ``ahead_bytes`` for later; raises Overloaded.

        A request that is alone has no limit here.
        """
        self._wanted += size_bytes
        missing = self._wanted - self._reserved
        if self._ledger is not None and missing >= RESERVED_FROM_BYTES:
            self._ledger.reserve(missing + ahead_bytes)
            self._reserved += missing + ahead_bytes

    def take_json(self, body: bytes) -> None:
        """Count the Python objects of a body of JSON, before it is parsed."""
        if not self._is_small(len(body) * DENSEST_JSON):
            self.take(json_bytes(body))

    def take_parsed(self, body: bytes) -> None:
        """Count the memory of a body of JSON that simdjson parses; a value takes two bytes at least."""
        if not self._is_small(len(body) * (PARSED_NUMBER_BYTES // 2 + WIDEST_CHARACTER_BYTES)):
            wide = 0 if body.isascii() else len(body) * WIDEST_CHARACTER_BYTES
            self.take(body.count(b",") * PARSED_NUMBER_BYTES + wide)

    def take_table(self, body: bytes, delimiter: bytes, cell_bytes: int) -> None:
        """Count the cells of CSV; delimiters in quotes count, too."""
        if not self._is_small(len(body) * cell_bytes):
            cells = body.count(delimiter) + body.count(b"\n") + body.count(b"\r") + 1
            self.take(cells * cell_bytes)

    def _is_small(self, most_bytes: int) -> bool:
        """True if a body that takes at most ``most_bytes`` need not be counted."""
        return most_bytes <= min(self.limit_bytes - self._taken, SMALL_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ledger is not None and self._reserved:
            self._ledger.release(self._reserved)
        self._taken = self._wanted = self._reserved = 0


def nested_bytes(shape: Iterable[int]) -> int:
    """Memory that an array without elements takes as lists in lists, which may be any number."""
    return LIST_BYTES * prod(takewhile(bool, shape))


def json_bytes(body: bytes) -> int:
    """Upper bound of the bytes that a body of JSON takes as Python objects."""
    return (
        (0 if body.isascii() else len(body) * WIDEST_CHARACTER_BYTES)
        + body.count(b",") * ELEMENT_BYTES
        + body.count(b"[") * LIST_BYTES
        + body.count(b"{") * OBJECT_BYTES
        + body.count(b'"') * QUOTE_BYTES
        + body.count(b":") * KEY_BYTES
        + body.count(b"\n") * LINE_BYTES
    )
