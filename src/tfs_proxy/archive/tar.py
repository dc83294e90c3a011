"""Reads the members of a tar archive; `extract` decides which of them it accepts.

Understands ustar, GNU and pax archives (POSIX.1-2017 "pax", GNU tar manual, "Tar Internals"), including
the sparse members that GNU tar and macOS write. The standard library's reader takes a damaged header for
the archive's end; this one requires the end mark, so that half an archive is never taken for a whole one,
and it bounds the memory for headers.
"""

import enum
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tfs_proxy.archive.bytestream import PIECE_BYTES, ByteStream, DamagedArchive

BLOCK = 512
EMPTY_BLOCK = bytes(BLOCK)
MAX_EXTENSION_BYTES = 1024 * 1024
MAX_SPARSE_MAP_BYTES = 16 * 1024 * 1024


class MemberKind(enum.Enum):
    """The kind of a member; the values complete 'is a …'."""

    FILE = "file"
    FOLDER = "folder"
    SYMLINK = "symbolic link"
    HARDLINK = "hard link"
    DEVICE = "device file"
    FIFO = "named pipe"
    OTHER = "member of an unknown kind"


KINDS = {
    b"\0": MemberKind.FILE,
    b"0": MemberKind.FILE,
    b"7": MemberKind.FILE,
    b"S": MemberKind.FILE,
    b"1": MemberKind.HARDLINK,
    b"2": MemberKind.SYMLINK,
    b"3": MemberKind.DEVICE,
    b"4": MemberKind.DEVICE,
    b"5": MemberKind.FOLDER,
    b"6": MemberKind.FIFO,
}

Extent = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Member:
    """One member; ``size`` is its unpacked size in bytes, holes included, ``link`` the target of a link."""

    name: bytes
    kind: MemberKind
    size: int
    mode: int
    link: bytes


class TarReader:
    """The members of one archive, in order; read the contents of one before the next.

    Every method raises DamagedArchive if the bytes are not an intact tar.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._extents: list[Extent] = []
        self._left = 0
        self._padding = 0

    def next(self) -> Member | None:
        """The next member, or None at the archive's end; skips unread contents of the one before."""
        self._skip(self._left + self._padding)
        self._left = self._padding = 0
        pax: dict[bytes, bytes] = {}
        while (block := self._header()) is not None:
            kind = block[156:157]
            if kind in {b"x", b"X"}:
                pax |= _pax_records(self._extension(block))
            elif kind == b"g":
                _refuse_odd_defaults(_pax_records(self._extension(block)))
            elif kind == b"L":
                pax.setdefault(b"path", self._extension(block).split(b"\0", 1)[0])
            elif kind == b"K":
                pax.setdefault(b"linkpath", self._extension(block).split(b"\0", 1)[0])
            else:
                return self._member(block, pax)
        if pax:
            raise DamagedArchive("it ends in the middle of a member's header")
        return None

    def contents(self) -> Iterator[tuple[int, memoryview]]:
        """The current member's contents as pieces, each with its offset in the file."""
        for start, length in self._extents:
            offset, end = start, start + length
            while offset < end:
                piece = self._stream.take(min(end - offset, PIECE_BYTES))
                if not piece:
                    raise DamagedArchive("it ends in the middle of a file, so it is cut short")
                self._left -= len(piece)
                yield offset, piece
                offset += len(piece)

    def drain(self, most: int) -> None:
        """Read what follows the end mark, at most ``most`` bytes, so that gzip's check sum is verified."""
        while most > 0 and (piece := self._stream.take(PIECE_BYTES)):
            most -= len(piece)
        if most <= 0:
            raise DamagedArchive("too many bytes follow its end mark")

    def _header(self) -> bytes | None:
        at = self._stream.position
        block = self._stream.exactly(BLOCK)
        if block == EMPTY_BLOCK:
            return None
        if at == 0 and (len(block) < BLOCK or not _checksum_fits(block)):
            raise DamagedArchive("it is not a tar archive, neither plain nor gzipped")
        if len(block) < BLOCK:
            raise DamagedArchive("it has no end mark, so it is cut short")
        if not _checksum_fits(block):
            raise DamagedArchive(f"the member header at byte {at} of the tar data has a wrong check sum")
        return block

    def _extension(self, block: bytes) -> bytes:
        size = _number(block[124:136])
        if size > MAX_EXTENSION_BYTES:
            raise DamagedArchive(f"the name or attributes of one member take {size} bytes")
        data = self._stream.exactly(size)
        self._skip(_padding(size))
        if len(data) < size:
            raise DamagedArchive("it ends in the middle of a member's header")
        return data

    def _member(self, block: bytes, pax: dict[bytes, bytes]) -> Member:
        name, kind = _name_and_kind(block, pax)
        stored = _decimal(pax[b"size"]) if b"size" in pax else _number(block[124:136])
        if kind in {MemberKind.SYMLINK, MemberKind.FOLDER}:
            stored = 0  # POSIX: the size of such a member is a hint, no contents follow
        self._left, self._padding = stored, _padding(stored)
        self._extents, size = [(0, stored)], stored
        if block[156:157] == b"S":
            self._extents, size = self._gnu_sparse(block)
        elif any(key.startswith(b"GNU.sparse.") for key in pax):
            self._extents, size = self._pax_sparse(pax)
        _check_extents(self._extents, self._left, size)
        link = pax.get(b"linkpath", block[157:257].split(b"\0", 1)[0])
        return Member(name=name, kind=kind, size=size, mode=_number(block[100:108]) & 0o7777, link=link)

    def _gnu_sparse(self, block: bytes) -> tuple[list[Extent], int]:
        """Read GNU's old sparse map: four extents in the header, 21 in each block that follows."""
        table, more = block[386:482], block[482]
        while more:
            if len(table) > MAX_SPARSE_MAP_BYTES:
                raise DamagedArchive("a sparse member's map is too large")
            extension = self._stream.exactly(BLOCK)
            if len(extension) < BLOCK:
                raise DamagedArchive("it ends in the middle of a sparse member's map")
            table, more = table + extension[:504], extension[504]
        cells = [_number(table[at : at + 12]) for at in range(0, len(table), 12)]
        extents = [(start, length) for start, length in zip(cells[::2], cells[1::2], strict=True) if length]
        return extents, _number(block[483:495])

    def _pax_sparse(self, pax: dict[bytes, bytes]) -> tuple[list[Extent], int]:
        """Read a map of sparse format 1.0: decimal lines before the contents."""
        if pax.get(b"GNU.sparse.major") != b"1":
            raise DamagedArchive("a sparse member has an unsupported format; pack it without --sparse")
        lines = self._sparse_lines()
        count = next(lines)
        if count * 4 > MAX_SPARSE_MAP_BYTES:
            raise DamagedArchive("a sparse member's map is too large")
        cells = list(itertools.islice(lines, 2 * count))
        extents = [(start, length) for start, length in zip(cells[::2], cells[1::2], strict=True) if length]
        return extents, _decimal(pax.get(b"GNU.sparse.realsize", b""))

    def _sparse_lines(self) -> Iterator[int]:
        rest = b""
        while True:
            block = self._stream.exactly(BLOCK) if self._left >= BLOCK else b""
            if len(block) < BLOCK:
                raise DamagedArchive("it ends in the middle of a sparse member's map")
            self._left -= BLOCK
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > BLOCK:
                raise DamagedArchive("a sparse member's map is malformed")
            yield from (_decimal(line) for line in lines)

    def _skip(self, count: int) -> None:
        while count:
            piece = self._stream.take(min(count, PIECE_BYTES))
            if not piece:
                raise DamagedArchive("it ends in the middle of a member, so it is cut short")
            count -= len(piece)


def _padding(size: int) -> int:
    return -size % BLOCK


def _checksum_fits(block: bytes) -> bool:
    blanked = block[:148] + b" " * 8 + block[156:]
    try:
        wanted = _number(block[148:156])
    except DamagedArchive:
        return False
    # Some old programs summed the bytes as signed numbers.
    return wanted in {sum(blanked), sum(byte - 256 if byte > 127 else byte for byte in blanked)}  # noqa: PLR2004


def _number(field: bytes) -> int:
    """A header's number: octal text, or GNU's big-endian binary form marked by its highest bit."""
    if field[0] & 0x80:
        if field[0] & 0x40:
            raise DamagedArchive("a member header holds a negative number")
        return int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
    text = field.split(b"\0", 1)[0].strip(b" ")
    if not re.fullmatch(rb"[0-7]*", text):
        raise DamagedArchive("a member header holds a malformed number")
    return int(text or b"0", 8)


def _decimal(text: bytes) -> int:
    if not re.fullmatch(rb"[0-9]{1,19}", text):
        raise DamagedArchive("a member header holds a malformed number")
    return int(text)


def _pax_records(data: bytes) -> dict[bytes, bytes]:
    """The records ``LENGTH KEY=VALUE`` of a pax header; LENGTH includes itself and the newline."""
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        match = re.compile(rb"([0-9]{1,7}) ([^=]{1,255})=").match(data, at)
        end = at + int(match[1]) if match else 0
        if match is None or end <= match.end() or end > len(data) or data[end - 1 : end] != b"\n":
            raise DamagedArchive("a member's pax header is malformed")
        records[match[2]] = data[match.end() : end - 1]
        at = end
    return records


def _refuse_odd_defaults(records: dict[bytes, bytes]) -> None:
    for key in records:
        if key in {b"path", b"linkpath", b"size"} or key.startswith(b"GNU.sparse."):
            raise DamagedArchive("a global pax header gives every member the same name or size")


def _name_and_kind(block: bytes, pax: dict[bytes, bytes]) -> tuple[bytes, MemberKind]:
    name = block[:100].split(b"\0", 1)[0]
    prefix = block[345:500].split(b"\0", 1)[0]
    if block[257:263] == b"ustar\0" and prefix:
        name = prefix + b"/" + name
    name = pax.get(b"GNU.sparse.name", pax.get(b"path", name))
    kind = KINDS.get(block[156:157], MemberKind.OTHER)
    if kind is MemberKind.FILE and name.endswith(b"/"):
        kind = MemberKind.FOLDER  # before ustar, a folder was a file whose name ends in a slash
    return name, kind


def _check_extents(extents: list[Extent], stored: int, size: int) -> None:
    end = 0
    for start, length in extents:
        if start < end:
            raise DamagedArchive("a sparse member's map is out of order")
        end = start + length
    if end > size or sum(length for _, length in extents) != stored:
        raise DamagedArchive("a sparse member's map contradicts its size")
