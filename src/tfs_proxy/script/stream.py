"""What a script yields, as the bytes of a streamed answer: iterated by the WSGI server, piece by piece."""

import errno
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from typing import Any

from tfs_proxy.errors import ScriptFailure
from tfs_proxy.script.deadline import Abandoned
from tfs_proxy.script.runner import ScriptRunner

log = logging.getLogger(__name__)

_END = object()
EXPECTED = "what it yields must be str or bytes"


class Stream:
    """The pieces of one answer, as bytes; the first is made at once, so that an error in it is an answer.

    An error in a later piece, when the status has been sent, is raised as ConnectionResetError: the
    server then breaks the connection, and the client knows that the answer is not whole. Each piece
    has the deadline of a whole call. ``close``
    closes the script's generator, at its end and if the client is gone.
    """

    def __init__(
        self, pieces: Iterator[Any] | AsyncIterator[Any], function: str, runner: ScriptRunner
    ) -> None:
        self._pieces = pieces
        self._function = function
        self._runner = runner
        self._closed = False
        self._connection = runner.watch.connection
        self._first: bytes | None = None
        try:
            self._first = self._next()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        first, self._first = self._first, b""
        if first is None:
            raise StopIteration
        if first:
            return first
        try:
            with self._deadline():
                piece = self._next()
        except Abandoned:
            raise
        except Exception as error:
            raise self._broken(error) from error
        if piece is None:
            raise StopIteration
        return piece

    def close(self) -> None:
        """Close the script's generator, whose ``finally`` runs; idempotent, and never raises."""
        if self._closed:
            return
        self._closed = True
        close = getattr(self._pieces, "aclose", None) or getattr(self._pieces, "close", None)
        if close is None:
            return
        try:
            with self._deadline():
                self._runner.call(self._function, close)
        except Exception as error:  # noqa: BLE001 - the answer is over; the runner has logged it
            log.debug("closing what %s yields failed: %s", self._function, error)

    def _deadline(self) -> AbstractContextManager[None]:
        """One more, on whichever thread the server makes this piece."""
        self._runner.watch.serve(self._connection)
        return self._runner.watch.call(streaming=True)

    def _next(self) -> bytes | None:
        """The next piece that is not empty, None at the end: an empty one would end a chunked answer."""
        while True:
            if isinstance(self._pieces, Iterator):
                piece = self._runner.call(self._function, next, self._pieces, _END)
            else:
                piece = self._runner.call(self._function, anext, self._pieces, _END)
            if piece is _END:
                return None
            read = encoded(piece, self._function, EXPECTED)
            if read:
                return read

    def _broken(self, error: Exception) -> ConnectionResetError:
        log.warning("%s failed in the middle of its answer: %s", self._function, error)
        return ConnectionResetError(errno.ECONNRESET, "a streamed answer could not be completed")


def encoded(body: object, function: str, expected: str) -> bytes:
    """``body`` as bytes, text as UTF-8. Raises ScriptFailure for anything that is neither."""
    match body:
        case bytes():
            return body
        case str():
            try:
                return body.encode()
            except UnicodeEncodeError as error:
                raise ScriptFailure(
                    f"{function} returned text that UTF-8 can't encode: {error.reason}"
                ) from None
        case bytearray() | memoryview():
            return bytes(body)
        case _:
            raise ScriptFailure(f"{function} returned {named(body)}: {expected}")


def named(value: object) -> str:
    """``value`` as an error text calls it."""
    return "None" if value is None else f"a value of type {type(value).__name__}"
