"""Writer of a model.tar.gz whose bytes depend on nothing but the files in it; the end of `pack`."""

import gzip
import os
import stat
import tarfile
import tempfile
from pathlib import Path

from tfs_proxy.model.extract import FOLDER_MODE, Progress
from tfs_proxy.values.errors import ArchiveError

TIME = 315_532_800
"""Modification time of every member: the beginning of 1980, before which zip files have no dates."""

LEVEL = 1
"""Level of compression: the highest saves 0.3 % of weights, which hardly compress."""

FILE_MODE = 0o644
PROGRAM_MODE = 0o755
ARCHIVE_MODE = 0o666
PIECE_BYTES = 1024 * 1024


def write_archive(folder: Path, target: Path, progress: Progress | None = None) -> int:
    """Write the files below ``folder`` to ``target``, which appears whole or not at all; returns its bytes.

    ``progress`` is called with the bytes packed so far and their sum; its exceptions end the writing.
    Raises ArchiveError if ``target`` can't be written.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
    except OSError as error:
        raise ArchiveError(f"{target} can't be written: {error.strerror}.") from error
    partial = Path(name)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - mkstemp has opened it
            paths = sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts)
            total = sum(path.stat().st_size for path in paths if path.is_file())
            done = 0
            # Without a name and a time in its header, gzip writes the same bytes for the same contents.
            with (
                gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=file, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
            ):
                for path in paths:
                    status = path.stat()
                    member = tarfile.TarInfo(path.relative_to(folder).as_posix())
                    member.mtime = TIME
                    if stat.S_ISDIR(status.st_mode):
                        member.type = tarfile.DIRTYPE
                        member.mode = FOLDER_MODE
                    else:
                        member.size = status.st_size
                        member.mode = PROGRAM_MODE if status.st_mode & stat.S_IXUSR else FILE_MODE
                    if not member.isreg():
                        archive.addfile(member)
                        continue
                    with path.open("rb") as contents:
                        archive.addfile(member, contents)
                    done += member.size
                    if progress is not None:
                        progress(done, total)
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(file.fileno(), ARCHIVE_MODE & ~mask)
        partial.replace(target)
        return target.stat().st_size
    except OSError as error:
        raise ArchiveError(f"{target} can't be written: {error.strerror or error}.") from error
    finally:
        partial.unlink(missing_ok=True)
