"""Reads a file, gzipped or plain, and gives its unpacked bytes in pieces; `tar` reads from it.

Python's gzip module reads 8 KB at a time (3.11) and does not tell the packed position, which progress
lines need.
"""

import zlib
from pathlib import Path
from types import TracebackType
from typing import Self

GZIP_MAGIC = b"\x1f\x8b"
READ_BYTES = 256 * 1024
PIECE_BYTES = 1024 * 1024
GZIP_WINDOW = 31


class DamagedArchive(Exception):
    """The bytes are not an intact gzip or tar; the text completes 'ARCHIVE can't be unpacked: …'."""


class ByteStream:
    """The unpacked bytes of one file, from its beginning, in pieces of at most 1 MB.

    ``packed_position`` counts the bytes read from the file, ``position`` the unpacked bytes returned.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self.packed_position = 0
        self.position = 0
        self._piece = memoryview(b"")
        self._packed = b""
        magic = self._file.read(len(GZIP_MAGIC))
        self._file.seek(0)
        self._inflater = zlib.decompressobj(GZIP_WINDOW) if magic == GZIP_MAGIC else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def take(self, most: int) -> memoryview:
        """Return the next bytes: at least one and at most ``most``; none at the end.

        Raises DamagedArchive if the gzip data are corrupt or cut short.
        """
        if not self._piece:
            self._piece = memoryview(self._inflate() if self._inflater else self._read(PIECE_BYTES))
        taken, self._piece = self._piece[:most], self._piece[most:]
        self.position += len(taken)
        return taken

    def exactly(self, count: int) -> bytes:
        """Return the next ``count`` bytes, or fewer at the end; for small counts."""
        parts: list[memoryview] = []
        while count and (part := self.take(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _read(self, most: int) -> bytes:
        data = self._file.read(most) or b""
        self.packed_position += len(data)
        return data

    def _inflate(self) -> bytes:
        while True:
            if self._inflater is None or (self._inflater.eof and not self._next_gzip_member()):
                return b""
            if not self._packed and not (packed := self._read(READ_BYTES)):
                raise DamagedArchive("its gzip data end too early, so the file is cut short")
            self._packed = self._packed or packed
            try:
                data = self._inflater.decompress(self._packed, PIECE_BYTES)
            except zlib.error as error:
                raise DamagedArchive(f"its gzip data are corrupt ({error})") from None
            self._packed = self._inflater.unused_data or self._inflater.unconsumed_tail
            if data:
                return data

    def _next_gzip_member(self) -> bool:
        """Begin the next gzip member, if there is one: a file may hold any number of them (RFC 1952 2.2)."""
        while not (rest := self._packed.lstrip(b"\0")):
            self._packed = self._read(READ_BYTES)
            if not self._packed:
                return False
        self._packed = rest
        self._inflater = zlib.decompressobj(GZIP_WINDOW)
        return True
