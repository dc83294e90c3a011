"""Reader of the members of a tar archive, gzipped or plain; `extract` decides which of them it accepts.

`tarfile` knows the format, sparse members included. It takes a damaged header for the archive's end; here
the end mark is required, so that half an archive is never taken for a whole one, and the memory for headers
is bounded.
"""

import enum
import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from tarfile import EmptyHeaderError, EOFHeaderError, HeaderError, InvalidHeaderError, TruncatedHeaderError  # type: ignore[attr-defined]
from typing import Self

from msgspec import Struct

GZIP_MAGIC = b"\x1f\x8b"
READ_BYTES = 256 * 1024
PIECE_BYTES = 1024 * 1024
MAX_HEADER_BYTES = 16 * 1024 * 1024
"""Memory limit of one member's header, with its long names, attributes and map of a sparse file."""


class DamagedArchive(Exception):
    """The bytes are not an intact gzip or tar; the text completes 'ARCHIVE can't be unpacked: …'."""


class MemberKind(enum.Enum):
    """Kind of a member; the values complete 'is a …'."""

    FILE = "file"
    FOLDER = "folder"
    SYMLINK = "symbolic link"
    HARDLINK = "hard link"
    DEVICE = "device file"
    FIFO = "named pipe"
    OTHER = "member of an unknown kind"


KINDS = {
    **dict.fromkeys(tarfile.REGULAR_TYPES, MemberKind.FILE),
    tarfile.LNKTYPE: MemberKind.HARDLINK,
    tarfile.SYMTYPE: MemberKind.SYMLINK,
    tarfile.CHRTYPE: MemberKind.DEVICE,
    tarfile.BLKTYPE: MemberKind.DEVICE,
    tarfile.DIRTYPE: MemberKind.FOLDER,
    tarfile.FIFOTYPE: MemberKind.FIFO,
}
"""Kinds by the type in a member's header."""


Extent = tuple[int, int]


class Member(Struct, frozen=True):
    """Member of the archive."""

    name: bytes
    """Path within the archive."""

    kind: MemberKind
    """Kind of member, such as a file or a link."""

    size: int
    """Bytes of the unpacked file, holes included; 0 for a link or a folder."""

    mode: int
    """Permission bits."""

    link: bytes
    """Target of a link; empty for all else."""

    extents: tuple[Extent, ...]
    """Offset and length in bytes of each part that is stored; the rest of the file are holes."""


class TarReader:
    """Reader of the archive at ``path``; read the contents of a member before the next, and close it.

    To tarfile it is a file: read forwards only, and never more of it than a header may take. Every method
    raises DamagedArchive if the bytes are not an intact gzip or tar.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._packed = io.BufferedReader(self._file, READ_BYTES)
        is_gzip = self._packed.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
        self._unpacked = gzip.GzipFile(fileobj=self._packed) if is_gzip else self._packed
        self._position = 0
        self._header_end = MAX_HEADER_BYTES

    @property
    def packed_position(self) -> int:
        """Number of bytes of the file that have been read."""
        return self._file.tell()

    def members(self) -> Iterator[Member]:
        """Yield each member; contents that have not been read are skipped."""
        tar = tarfile.TarFile(
            fileobj=self,  # type: ignore[arg-type]  # it only reads, and skips forwards
            tarinfo=_StrictTarInfo,
            encoding="utf-8",
            errors="surrogateescape",
        )
        while (info := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # it would keep a value for each
            yield _member(info, tar.offset - info.offset_data)
            self.seek(tar.offset)

    def contents(self, member: Member) -> Iterator[tuple[int, bytes]]:
        """Yield the current member's contents in pieces, each with its offset in the file."""
        for start, length in member.extents:
            offset = start
            end = start + length
            while offset < end:
                piece = self.read_next(min(end - offset, PIECE_BYTES))
                if not piece:
                    raise DamagedArchive("it ends in the middle of a file, so it is cut short")
                yield offset, piece
                offset += len(piece)

    def drain(self, most: int) -> None:
        """Read on after the end mark, at most ``most`` bytes, so that gzip's check sum is verified."""
        while most > 0 and (piece := self.read_next(PIECE_BYTES)):
            most -= len(piece)
        if most <= 0:
            raise DamagedArchive("too many bytes follow its end mark")

    def tell(self) -> int:
        """Return the number of unpacked bytes that have been read."""
        return self._position

    def read(self, size: int) -> bytes:
        """Read the next bytes of a header, fewer at the end."""
        if self._position + size > self._header_end:
            raise DamagedArchive(f"the header of one member takes over {MAX_HEADER_BYTES} bytes")
        return self.read_next(size)

    def read_next(self, size: int) -> bytes:
        """Read the next bytes, fewer at the end."""
        try:
            piece = self._unpacked.read(size)
        except EOFError:
            raise DamagedArchive("its gzip data end too early, so the file is cut short") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise DamagedArchive(f"its gzip data are corrupt ({error})") from None
        self._position += len(piece)
        return piece

    def seek(self, position: int) -> None:
        """Skip to ``position``, where a header begins."""
        if position < self._position:
            raise DamagedArchive("a member's header contradicts itself")
        while self._position < position:
            if not self.read_next(min(position - self._position, PIECE_BYTES)):
                raise DamagedArchive("it ends in the middle of a member, so it is cut short")
        self._header_end = position + MAX_HEADER_BYTES

    def close(self) -> None:
        self._unpacked.close()
        self._packed.close()


class _StrictTarInfo(tarfile.TarInfo):
    """Header that raises an error if it is damaged; to tarfile it would be the archive's end."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tarfile)
        except EOFHeaderError:
            raise
        except (EmptyHeaderError, InvalidHeaderError, TruncatedHeaderError) as error:
            if tarfile.offset == 0:
                raise DamagedArchive(
                    "it is not a tar archive, neither plain nor gzipped: tfs-proxy pack MODEL writes one, "
                    "and --script inference.py puts a script into it"
                ) from None
            if isinstance(error, InvalidHeaderError):
                raise DamagedArchive(f"a member's header is damaged ({error})") from None
            raise DamagedArchive("it has no end mark, so it is cut short") from None
        except (HeaderError, ValueError, IndexError, OverflowError, RecursionError) as error:
            raise DamagedArchive(f"a member's header is malformed ({error})") from None


def _member(info: tarfile.TarInfo, stored: int) -> Member:
    """Convert ``info``, whose header ``stored`` bytes follow, with the padding of the last block."""
    # POSIX: the size of a link or a folder is a hint, no contents follow.
    size = 0 if info.issym() or info.isdir() else info.size
    extents: tuple[Extent, ...] = ((0, size),) if info.isreg() else ()
    if info.issparse():
        parts: Iterable[Extent] = info.sparse or ()  # type: ignore[assignment]  # its stub says bytes
        extents = tuple((start, length) for start, length in parts if length)
    end = 0
    for start, length in extents:
        if start < end or length < 0:
            raise DamagedArchive("a sparse member's map is out of order")
        end = start + length
    if size < 0 or end > size or sum(length for _, length in extents) > max(stored, 0):
        raise DamagedArchive("a member's size, or the map of a sparse one, contradicts what is stored")
    return Member(
        name=info.name.encode("utf-8", "surrogateescape"),
        kind=KINDS.get(info.type, MemberKind.OTHER),
        size=size,
        mode=info.mode & 0o7777,
        link=info.linkname.encode("utf-8", "surrogateescape"),
        extents=extents,
    )
