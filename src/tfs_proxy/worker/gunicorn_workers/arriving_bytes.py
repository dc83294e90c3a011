"""Bytes of a request's body as they come from the socket, out of whatever a worker class reads requests with.

gunicorn's own ``read`` waits for as many bytes as it is asked for.
"""

from typing import Any, Protocol, runtime_checkable

from tfs_proxy.worker.gunicorn_workers.gunicorn_parts import ChunkedReader, LengthReader, SocketUnreader


@runtime_checkable
class ArrivingBytes(Protocol):
    """Reader of a body, without its framing."""

    def receive(self, most_bytes: int) -> bytes:
        """Read what has come, about as much; waits for the first byte, and is empty at the end."""

    def is_dry(self) -> bool:
        """True if the next `receive` needs bytes that may not have come yet."""

    def read_from(self, connection: Any) -> None:
        """Receive what has not come yet from another object with ``recv``."""


def arriving_bytes(stream: Any) -> ArrivingBytes:
    """Read the ``wsgi.input`` of a request, from which nobody has read, or another file.

    Its connection must take no other request: gunicorn could not tell where that begins.
    """
    if isinstance(stream, ArrivingBytes):
        return stream
    reader = getattr(stream, "reader", None)
    if isinstance(reader, ChunkedReader):
        return _Chunks(reader)
    return _OfLength(reader) if isinstance(reader, LengthReader) else _OfFile(stream)


class _OfFile:
    """File that may wait for as much as it is asked for: in a test of a script, or behind a session."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def receive(self, most_bytes: int) -> bytes:
        return bytes(self._file.read(most_bytes))

    def is_dry(self) -> bool:
        return False

    def read_from(self, connection: Any) -> None:
        """Do nothing: no answer begins while this is read."""


class _OfLength:
    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def receive(self, most_bytes: int) -> bytes:
        if not self._reader.length:
            return b""
        unreader = self._reader.unreader
        piece = unreader.read(None, read_ahead=min(most_bytes, self._reader.length))
        unreader.unread(piece)
        return bytes(self._reader.read(len(piece)))

    def is_dry(self) -> bool:
        held = self._reader.unreader.take_buffered()
        self._reader.unreader.unread(held)
        return not held

    def read_from(self, connection: Any) -> None:
        self._reader = LengthReader(_unreader(self._reader.unreader, connection), self._reader.length)


class _Chunks:
    """Chunks as gunicorn's parser reads them; this is its source, and knows what the parser has not used."""

    def __init__(self, reader: Any) -> None:
        self._unreader = reader.req.unreader
        self._parser = ChunkedReader(reader.req, self).parser
        self._last = self._piece = b""

    def receive(self, _most_bytes: int) -> bytes:
        for piece in self._parser:
            self._piece = piece
            if piece:
                return bytes(piece)
        return b""

    def is_dry(self) -> bool:
        return self._last.endswith((self._piece, self._piece + b"\r\n"))

    def read_from(self, connection: Any) -> None:
        self._unreader = _unreader(self._unreader, connection)

    def read(self, size: int | None = None, read_ahead: int | None = None) -> bytes:
        """Read for the parser."""
        self._last = self._unreader.read(size, read_ahead)
        return self._last

    def unread(self, data: bytes) -> None:
        """Take back what the parser did not need."""
        self._unreader.unread(data)


def _unreader(before: Any, connection: Any) -> Any:
    """Make an unreader with the bytes that another one holds, then those of ``connection``."""
    after = SocketUnreader(connection)
    after.unread(before.take_buffered())
    return after
