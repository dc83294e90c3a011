"""Unpacks an untrusted model.tar.gz into a new folder.

Nothing in the archive can reach beyond the folder: names and links are checked against what the archive
itself has created so far, symbolic links are created last, so that no file is ever written through one,
and a refusal removes the whole folder.
"""

import errno
import os
import shutil
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from tfs_proxy.model.discover import unreadable
from tfs_proxy.model.tar import DamagedArchive, Member, MemberKind, TarReader
from tfs_proxy.values.errors import ArchiveError
from tfs_proxy.values.layout import SAGEMAKER_MODEL_DIR
from tfs_proxy.values.memory import GIGABYTE
from tfs_proxy.values.names import printable
from tfs_proxy.wire.shortages import NO_ROOM, TOO_LARGE

RATIO_FREE_BYTES = MAX_OVERHEAD_BYTES = GIGABYTE
MOST_MEMBERS = 100_000
MAX_ARCHIVE_BYTES = 100 * GIGABYTE
"""Largest size of an archive's contents, and of what is downloaded."""

HIGHEST_RATIO = 100
"""Of unpacked to packed size, beyond `RATIO_FREE_BYTES`: weights of zero compress 1000:1."""
MAX_PART_BYTES = 255
MAX_NAME_BYTES = 2048
MAX_LINK_BYTES = 4095
MAX_DEPTH = 100
MAX_LINKS_FOLLOWED = 40
MAX_STEPS = 5_000_000
FOLDER_MODE = 0o755
OPEN_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
SHOWN_CHARACTERS = 200

Progress = Callable[[int, int], None]


def extract(archive: Path, target: Path, progress: Progress | None = None) -> None:
    """Unpack ``archive`` (tar, gzipped or plain) into ``target``, which must be new.

    ``progress`` is called at each member and after each piece of one, with the bytes of the archive read so
    far and its size; what it raises ends the unpacking. Raises ArchiveError naming archive and member if it
    is refused or can't be unpacked. On any exception ``target`` is removed.
    """
    try:
        target.mkdir(mode=FOLDER_MODE)
    except OSError as error:
        raise ArchiveError(
            f"{target} can't be created to unpack {archive} into: {error.strerror}."
        ) from error
    try:
        with closing(TarReader(archive)) as reader:
            _Unpacking(archive, reader, target, progress).unpack()
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, DamagedArchive):
            raise ArchiveError(f"{archive} can't be unpacked: {error}.") from None
        if isinstance(error, OSError):
            raise ArchiveError(unreadable(archive, error)) from error
        raise


class _Unpacking:
    """State of one `extract`: ``_kinds`` has the tree so far, by normalised name; ``b""`` is its root."""

    def __init__(self, archive: Path, reader: TarReader, target: Path, progress: Progress | None) -> None:
        self._archive = archive
        self._target = target
        self._progress = progress or (lambda _read, _total: None)
        self._packed_bytes = archive.stat().st_size
        self._reader = reader
        self._kinds: dict[bytes, MemberKind] = {b"": MemberKind.FOLDER}
        self._implied: set[bytes] = {b""}
        self._links: dict[bytes, bytes] = {}
        self._bytes = 0
        self._members = 0

    def unpack(self) -> None:
        for member in self._reader.members():
            self._progress(self._reader.packed_position, self._packed_bytes)
            self._check_room(member)
            name = self._normalised(member)
            try:
                self._create(name, member)
            except OSError as error:
                raise self._refusal(member.name, _reason(error)) from error
        if not self._members:
            raise ArchiveError(f"{self._archive} has no files.")
        self._reader.drain(MAX_OVERHEAD_BYTES)
        steps_left = MAX_STEPS
        for name in self._links:
            steps_left -= self._follow(name, steps_left)
        for name, target in self._links.items():
            try:
                self._path(name).symlink_to(os.fsdecode(target))
            except OSError as error:
                raise self._refusal(name, _reason(error)) from error

    def _create(self, name: bytes, member: Member) -> None:
        self._claim(name, member)
        match member.kind:
            case MemberKind.FILE:
                mode = (member.mode & 0o111) | 0o644
                descriptor = os.open(self._path(name), OPEN_NEW, mode & FOLDER_MODE)
                with os.fdopen(descriptor, "wb") as file:
                    end = 0
                    for offset, piece in self._reader.contents(member):
                        if offset != end:
                            file.seek(offset)
                        end = offset + len(piece)
                        file.write(piece)
                        self._progress(self._reader.packed_position, self._packed_bytes)
                    if end != member.size:
                        file.truncate(member.size)
            case MemberKind.FOLDER:
                if name not in self._implied:
                    self._path(name).mkdir(FOLDER_MODE)
                self._implied.discard(name)
            case MemberKind.SYMLINK:
                if not member.link or b"\0" in member.link or len(member.link) > MAX_LINK_BYTES:
                    raise self._refusal(member.name, "is a symbolic link without a usable target")
                self._links[name] = member.link
            case MemberKind.HARDLINK:
                self._link_file(name, member)
            case _:
                raise self._refusal(member.name, f"is a {member.kind.value}, which no model needs")

    def _check_room(self, member: Member) -> None:
        """Enforce the limits before anything is written; `TarReader` never returns more than ``size``."""
        self._members += 1
        self._bytes += member.size
        unpacked = self._bytes
        if self._members > MOST_MEMBERS:
            raise self._refusal(member.name, f"is one more than the {MOST_MEMBERS} members allowed")
        if unpacked > MAX_ARCHIVE_BYTES:
            raise self._refusal(
                member.name, f"makes it {unpacked} bytes unpacked, more than the {MAX_ARCHIVE_BYTES} allowed"
            )
        if unpacked > RATIO_FREE_BYTES and unpacked > HIGHEST_RATIO * self._packed_bytes:
            raise self._refusal(
                member.name,
                f"makes it {unpacked / self._packed_bytes:.0f} times its packed size, "
                f"more than the {HIGHEST_RATIO} times allowed beyond 1 GB",
            )
        if self._reader.tell() - unpacked > MAX_OVERHEAD_BYTES:
            raise self._refusal(member.name, "follows more than 1 GB of headers")

    def _normalised(self, member: Member) -> bytes:
        name = member.name
        if name.startswith(b"/"):
            raise self._refusal(name, "has an absolute path")
        parts = [part for part in name.split(b"/") if part not in {b"", b"."}]
        if b".." in parts:
            raise self._refusal(name, "has '..' in its path")
        if b"\0" in name:
            raise self._refusal(name, "has a NUL byte in its name")
        if len(name) > MAX_NAME_BYTES or len(parts) > MAX_DEPTH:
            raise self._refusal(name, f"has a path of over {MAX_NAME_BYTES} bytes or {MAX_DEPTH} folders")
        if any(len(part) > MAX_PART_BYTES for part in parts):
            raise self._refusal(name, f"has a name of over {MAX_PART_BYTES} bytes")
        return b"/".join(parts)

    def _claim(self, name: bytes, member: Member) -> None:
        """Add the member to the tree, with the folders above it."""
        if name in self._kinds and not (name in self._implied and member.kind is MemberKind.FOLDER):
            raise self._refusal(member.name, "appears twice")
        parents: list[bytes] = []
        parent = name.rpartition(b"/")[0]
        while parent not in self._kinds:
            parents.append(parent)
            parent = parent.rpartition(b"/")[0]
        if (kind := self._kinds[parent]) is not MemberKind.FOLDER:
            raise self._refusal(member.name, f"lies below {_shown(parent)}, which is a {kind.value}")
        for folder in reversed(parents):
            self._path(folder).mkdir(FOLDER_MODE)
            self._kinds[folder] = MemberKind.FOLDER
            self._implied.add(folder)
        self._kinds[name] = member.kind

    def _link_file(self, name: bytes, member: Member) -> None:
        parts = [part for part in member.link.split(b"/") if part not in {b"", b"."}]
        original = b"/".join(parts)
        if member.link.startswith(b"/") or b".." in parts:
            raise self._refusal(
                member.name, f"is a hard link that leaves the folder, to {_shown(member.link)}"
            )
        if original == name or self._kinds.get(original) not in {MemberKind.FILE, MemberKind.HARDLINK}:
            raise self._refusal(
                member.name,
                f"is a hard link to {_shown(member.link)}, which is not a file before it in the archive",
            )
        if member.size:
            raise self._refusal(member.name, "is a hard link with contents of its own")
        self._path(name).hardlink_to(self._path(original))

    def _follow(self, name: bytes, most_steps: int) -> int:
        """Resolve a link as the kernel does it, through other links too, and return the number of steps.

        Raises ArchiveError for one that leaves the folder or is part of a loop.
        """
        at: list[bytes] = name.split(b"/")[:-1]
        ahead = deque(self._parts(name, self._links[name]))
        followed = steps = 0
        while ahead:
            steps += 1
            if steps > most_steps:
                raise self._refused_link(name, "is one of too many links to follow")
            part = ahead.popleft()
            if part == b"..":
                if not at:
                    raise self._refused_link(name, "leads out of the folder that the archive is unpacked in")
                at.pop()
                continue
            at.append(part)
            target = self._links.get(b"/".join(at))
            if target is not None:
                followed += 1
                if followed > MAX_LINKS_FOLLOWED:
                    raise self._refused_link(name, "leads back to itself")
                at.pop()
                ahead.extendleft(reversed(self._parts(name, target)))
        return steps

    def _parts(self, name: bytes, target: bytes) -> list[bytes]:
        if target.startswith(b"/"):
            raise self._refused_link(name, "points to an absolute path")
        return [part for part in target.split(b"/") if part not in {b"", b"."}]

    def _refused_link(self, name: bytes, reason: str) -> ArchiveError:
        return self._refusal(name, f"is a symbolic link that {reason}")

    def _path(self, name: bytes) -> Path:
        return self._target / os.fsdecode(name)

    def _refusal(self, name: bytes, reason: str) -> ArchiveError:
        return ArchiveError(f"{self._archive} is refused: its member {_shown(name)} {reason}.")


def _shown(name: bytes) -> str:
    """Shorten a member's name for a sentence, and make it printable."""
    text = printable(name.decode("utf-8", "backslashreplace"))
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"did not fit on the disk: {NO_ROOM}"
        case errno.EFBIG:
            return TOO_LARGE
        case errno.EEXIST:
            return "appears twice: this disk ignores the difference in letter case or form between two names"
        case _:
            return f"can't be written ({error.strerror or error})"


def appear_at_sagemaker_folder(root: Path, folder: Path = SAGEMAKER_MODEL_DIR) -> None:
    """Put a link into ``folder`` to each file and folder of ``root``, if it is there and no mount.

    Links rather than files: a container that starts again finds dangling ones, which are replaced. SageMaker
    runs containers as root: nothing is done for other users.
    """
    if os.geteuid() != 0 or any(path.is_mount() for path in (folder, *folder.parents[:2])):
        return
    with suppress(OSError):  # the folder is missing, or the root read-only
        for entry in root.iterdir():
            link = folder / entry.name
            if link.is_symlink() and not link.exists():
                link.unlink()
            if not link.exists():
                link.symlink_to(entry)
