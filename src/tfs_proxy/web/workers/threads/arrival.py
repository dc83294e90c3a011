"""A request while it arrives: between the poller and the thread that answers it.

Small bodies wait in memory; others in memory while there is room, else in a file that has no name.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import SpooledTemporaryFile

from gunicorn.http.errors import LimitRequestHeaders
from msgspec import Struct, field

from tfs_proxy.web.workers.threads.framing import (
    HEAD_END,
    Chunks,
    Framing,
    framing,
    has_bare_line_feed,
    without_expectation,
)
from tfs_proxy.wire.deadlines import HEAD_SECONDS, body_deadline

HEAD_BYTES = 64 * 1024
"""As much as nginx takes: four buffers of 16 KB."""

SMALL_BODY_BYTES = 64 * 1024
"""Bodies up to here wait in memory, uncounted: a thousand connections hold 64 MB of them."""

LARGE_BODY_BYTES = 4 * 1024 * 1024
"""Bodies from here on wait in a file: there memory for many is worth more than the time for one."""

MEMORY_BYTES = 64 * 1024 * 1024
"""For all bodies in between, of one worker."""

RECEIVE_BYTES = 256 * 1024

_CHUNK_OVERHEAD_BYTES = 1024 * 1024
"""What the framing of a small chunked body may take; that of a large one, as much as the body."""


class NoRoom(Exception):
    """The folder for bodies can't take another one now."""


class Budget:
    """Bytes that may be in use at once."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._lock = threading.Lock()

    def take(self, count: int) -> bool:
        """Use so many more, if they are left."""
        with self._lock:
            if count > self._left:
                return False
            self._left -= count
            return True

    def give_back(self, count: int) -> None:
        """Use so many less."""
        with self._lock:
            self._left += count


class Room(Struct, frozen=True):
    """Where bodies wait: the limit of one, and what there is for all. ``bodies`` is False behind nginx.

    nginx sends a request once it has all of it, so there only heads are waited for.
    """

    limit_bytes: int
    folder: Path
    disk: Budget
    bodies: bool = True
    memory: Budget = field(default_factory=lambda: Budget(MEMORY_BYTES))


class Arrival:
    """The bytes of one request, and until when the next must be there.

    ``head`` is complete once it ends with an empty line; ``rest`` is what came behind the request. After
    that it is read as a socket is.
    """

    def __init__(self, room: Room, clock: Callable[[], float] = time.monotonic) -> None:
        self._room = room
        self._clock = clock
        self._last_byte = self._stage_began = clock()
        self._framing: Framing | None = None
        self._chunks = Chunks()
        self._body = SpooledTemporaryFile(dir=str(room.folder))  # noqa: SIM115 - closed by `close`
        self._stored = 0
        self._budget: Budget | None = None
        self._reserved = 0
        self._unread_head = b""
        self.head = b""
        self.rest = b""
        self.asks_for_body = False

    @property
    def deadline(self) -> float:
        """When the client has taken too long, by the clock."""
        if self._framing is None:
            return self._stage_began + HEAD_SECONDS
        return body_deadline(self._stage_began, self._last_byte, self._stored)

    def add(self, data: bytes) -> bool:
        """Take in what the client sent; whether the request is whole, or all that its answer needs is here.

        Raises NoRoom if there is none for the body.
        """
        self._last_byte = self._clock()
        self.asks_for_body = False
        if self._framing is not None:
            return self._add_to_body(data, self._framing)
        self.head += data
        end = self.head.find(HEAD_END, max(0, len(self.head) - len(data) - len(HEAD_END)))
        if end < 0:
            # gunicorn refuses both, with what is here.
            return self._finish(b"", len(self.head) > HEAD_BYTES or has_bare_line_feed(self.head))
        return self._end_head(end + len(HEAD_END))

    def recv(self, size: int, _flags: int = 0) -> bytes:
        """The next bytes of the request, nothing at its end."""
        if self._unread_head:
            head, self._unread_head = self._unread_head, b""
            return head
        if self._framing is None:
            raise LimitRequestHeaders("the head does not end")
        piece: bytes = self._body.read(size)
        return piece

    def recv_into(self, buffer: memoryview, _size: int = 0, _flags: int = 0) -> int:
        """The same, straight into ``buffer``; how many bytes they are."""
        if self._unread_head or self._framing is None:
            piece = self.recv(len(buffer))
            buffer[: len(piece)] = piece
            return len(piece)
        return self._body.readinto(buffer)

    def skip_head(self) -> "Arrival":
        """Let `recv` begin with the body."""
        self._unread_head = b""
        return self

    def close(self) -> None:
        """Let go of memory and file; idempotent."""
        self._body.close()
        if self._budget is not None:
            self._budget.give_back(self._reserved)
            self._budget = None

    def _end_head(self, end: int) -> bool:
        head, data = self.head[:end], self.head[end:]
        says = framing(head) if self._room.bodies else Framing()
        self._framing = says
        self._stage_began = self._last_byte
        self.head = head
        if says.length > self._room.limit_bytes:
            return self._finish(b"", whole=True)
        if says.waits and (says.length or says.chunked):
            self.head = without_expectation(head)
            self.asks_for_body = not data
        if says.length > SMALL_BODY_BYTES:
            in_memory = says.length < LARGE_BODY_BYTES and self._use(self._room.memory, says.length)
            if not in_memory:
                self._use_disk(says.length)
        if says.length or says.chunked:
            return self._add_to_body(data, says)
        return self._finish(data, whole=True)

    def _add_to_body(self, data: bytes, says: Framing) -> bool:
        own = self._chunks.follow(data) if says.chunked else min(len(data), says.length - self._stored)
        while self._stored + own > max(SMALL_BODY_BYTES, self._reserved):  # chunks, whose sum nobody knows
            self._use_disk(LARGE_BODY_BYTES)
        self._store(data[:own] if own < len(data) else data)
        return self._finish(data[own:], self._ended if says.chunked else self._stored == says.length)

    @property
    def _ended(self) -> bool:
        """Whether the chunks have ended, or carry more than can be taken."""
        limit_bytes = self._room.limit_bytes
        return (
            self._chunks.ended
            or self._chunks.body_bytes > limit_bytes
            or self._stored > 2 * limit_bytes + _CHUNK_OVERHEAD_BYTES
        )

    def _store(self, data: bytes) -> None:
        try:
            self._body.write(data)
        except OSError as error:
            raise NoRoom from error
        self._stored += len(data)

    def _use(self, budget: Budget, count: int) -> bool:
        if not budget.take(count):
            return False
        self._budget, self._reserved = budget, self._reserved + count
        return True

    def _use_disk(self, count: int) -> None:
        if not self._use(self._room.disk, count):
            raise NoRoom
        try:
            self._body.rollover()
        except OSError as error:
            raise NoRoom from error

    def _finish(self, rest: bytes, whole: bool) -> bool:
        if whole:
            self.rest = rest
            self._unread_head = self.head
            self._body.seek(0)
        return whole
