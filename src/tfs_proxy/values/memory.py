"""How much memory one request may become: a budget that readers of bodies ask before they allocate."""

from collections.abc import Callable
from typing import Protocol, Self

from tfs_proxy.values.errors import PayloadTooLarge

KILOBYTE, MEGABYTE, GIGABYTE = 1024, 1024**2, 1024**3
DEFAULT_BODY_BYTES = 100 * MEGABYTE
DEFAULT_DECODED_BYTES = 4 * DEFAULT_BODY_BYTES
SETTING = "TFS_PROXY_MAX_DECODED_MB"

STRING_BYTES = 64
"""A short string as an object, and its place in an array."""
RECORD_BYTES = 300
"""A record's own objects, whatever it holds."""
ELEMENT_BYTES = 32
"""A Python number and its place in a list, as all figures here as CPython 3.11 and orjson make them."""
LIST_BYTES = 64
OBJECT_BYTES = 200
QUOTE_BYTES = 16
KEY_BYTES = 90
LINE_BYTES = 50
WIDEST_CHARACTER_BYTES = 4
DENSEST_JSON = 100
"""More bytes than any one byte of JSON becomes as Python objects."""
SMALL_BYTES = 64 * MEGABYTE
"""What can't become more than this is not counted."""
RESERVED_FROM_BYTES = MEGABYTE
"""A reservation locks a file; small requests do without."""
TEXT_NUMBER_BYTES = 16
"""A number of a regular list or table, with its share of what the model server is sent."""
PARSED_NUMBER_BYTES = 96
"""A number in a piece of text that simdjson parses at once."""


class Ledger(Protocol):
    """Sum of the large requests of all processes."""

    def reserve(self, size_bytes: int, is_wanted: Callable[[], bool]) -> None:
        """Wait for ``size_bytes`` to be free, while the request is wanted; raises Overloaded without them."""

    def release(self, size_bytes: int) -> None:
        """Give them back."""


class MemoryBudget:
    """Rest of one request's memory, in bytes; used by one thread at a time.

    A context, at whose end everything is given back. ``is_wanted`` tells whether a client still waits for
    the answer, ``remedy`` how to avoid a refusal.
    """

    __slots__ = ("_is_wanted", "_ledger", "_remedy", "_reserved", "_taken", "_wanted", "limit_bytes")

    def __init__(
        self,
        limit_bytes: int = DEFAULT_DECODED_BYTES,
        ledger: Ledger | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
        remedy: str = f"{SETTING} sets this limit.",
    ) -> None:
        self.limit_bytes = limit_bytes
        self._ledger = ledger
        self._is_wanted = is_wanted
        self._remedy = remedy
        self._taken = self._wanted = self._reserved = 0

    @property
    def taken(self) -> int:
        """The bytes of values so far."""
        return self._taken

    def give_back(self, size_bytes: int) -> None:
        """Count ``size_bytes`` no longer as values, since they are not in use; they stay reserved."""
        self._taken -= size_bytes
        self._wanted -= size_bytes

    def require(self, size_bytes: int, subject: str = "The body") -> None:
        """Raise PayloadTooLarge, which names ``subject``, if less than ``size_bytes`` is left."""
        if self._taken + size_bytes > self.limit_bytes:
            raise PayloadTooLarge(
                f"{subject} becomes more than {_shown(self.limit_bytes)} of values: {self._remedy}"
            )

    def take(self, size_bytes: int, subject: str = "The body") -> None:
        """Count ``size_bytes`` that are about to be allocated; raises as `require` does, and Overloaded."""
        self.require(size_bytes, subject)
        self._taken += size_bytes
        self.reserve(size_bytes)

    def reserve(self, size_bytes: int, ahead_bytes: int = 0) -> None:
        """Reserve memory that is not for values, and ``ahead_bytes`` for what comes next; raises Overloaded.

        One request alone has no limit here.
        """
        self._wanted += size_bytes
        missing = self._wanted - self._reserved
        if self._ledger is not None and missing >= RESERVED_FROM_BYTES:
            self._ledger.reserve(missing + ahead_bytes, self._is_wanted)
            self._reserved += missing + ahead_bytes

    def take_json(self, body: bytes) -> None:
        """Count the Python objects that a body of JSON becomes, before it is parsed."""
        if not self._is_small(len(body) * DENSEST_JSON):
            self.take(json_bytes(body))

    def take_parsed(self, body: bytes) -> None:
        """Count what simdjson makes of a body of JSON, in which a value takes two bytes at least."""
        if not self._is_small(len(body) * (PARSED_NUMBER_BYTES // 2 + WIDEST_CHARACTER_BYTES)):
            wide = 0 if body.isascii() else len(body) * WIDEST_CHARACTER_BYTES
            self.take(body.count(b",") * PARSED_NUMBER_BYTES + wide)

    def take_table(self, body: bytes, delimiter: bytes, cell_bytes: int) -> None:
        """Count the cells of CSV; delimiters in quotes count, too."""
        if not self._is_small(len(body) * cell_bytes):
            cells = body.count(delimiter) + body.count(b"\n") + body.count(b"\r") + 1
            self.take(cells * cell_bytes)

    def _is_small(self, most_bytes: int) -> bool:
        """True if a body that can't become more than ``most_bytes`` need not be counted."""
        return most_bytes <= min(self.limit_bytes - self._taken, SMALL_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Give everything back."""
        if self._ledger is not None and self._reserved:
            self._ledger.release(self._reserved)
        self._taken = self._wanted = self._reserved = 0


def json_bytes(body: bytes) -> int:
    """An upper bound of the memory that a body of JSON takes as Python objects."""
    return (
        (0 if body.isascii() else len(body) * WIDEST_CHARACTER_BYTES)
        + body.count(b",") * ELEMENT_BYTES
        + body.count(b"[") * LIST_BYTES
        + body.count(b"{") * OBJECT_BYTES
        + body.count(b'"') * QUOTE_BYTES
        + body.count(b":") * KEY_BYTES
        + body.count(b"\n") * LINE_BYTES
    )


def _shown(size_bytes: int) -> str:
    return f"{size_bytes // MEGABYTE} MB" if size_bytes >= MEGABYTE else f"{size_bytes} bytes"
