"""Checks .keras files, and HDF5 files in them or on their own, before Keras reads them.

HDF5 can refer to other files on this machine, and can declare huge arrays that take no space: Keras writes
neither.
"""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from stat import S_ISLNK
from typing import Any

from msgspec import Struct

from tfs_proxy.model.extract import MAX_ARCHIVE_BYTES
from tfs_proxy.values.errors import ExportError
from tfs_proxy.values.memory import MEGABYTE

CONFIG = "config.json"
METADATA = "metadata.json"
WEIGHTS = "model.weights.h5"
SHARDED_WEIGHTS = "model.weights.json"
MOST_JSON_BYTES = 64 * MEGABYTE
MOST_MEMBERS = 100_000
RATIO_FREE_BYTES = 1024 * MEGABYTE
MOST_RATIO = 100
ENCRYPTED = 1
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
LFS_BEGINNING = b"version https://git-lfs"
SAVE_AGAIN = "Copy it again from where it was saved, or save it again with model.save(FILE)."


class KerasDescription(Struct, frozen=True):
    """A Keras file's version of Keras ("" if unknown) and the model's configuration."""

    version: str
    config: Any

    @property
    def generation(self) -> int:
        """2 or 3: before Keras 3, TensorFlow's Keras wrote the files."""
        return 2 if self.version.startswith(("0.", "1.", "2.")) else 3


def read_keras_archive(path: Path) -> KerasDescription:
    """Raises ExportError if the file is damaged, too large, or not a .keras file."""
    refuse_other_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(path, archive.infolist())
            metadata = _json(path, archive, METADATA)
            config = _json(path, archive, CONFIG)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ExportError(f"{path} is damaged ({error}). {SAVE_AGAIN}") from error
    version = metadata.get("keras_version", "") if isinstance(metadata, dict) else ""
    return KerasDescription(str(version), config)


def refuse_other_file(path: Path) -> None:
    """Raises ExportError for an unreadable file, or one whose first bytes show another kind."""
    try:
        with path.open("rb") as file:
            beginning = file.read(64)
    except OSError as error:
        raise ExportError(f"{path} can't be read: {error.strerror}.") from error
    is_zip = beginning.startswith(b"PK\x03\x04")
    is_hdf5 = beginning.startswith(HDF5_MAGIC)
    wants_zip = path.suffix == ".keras"
    if not beginning:
        raise ExportError(f"{path} is empty. {SAVE_AGAIN}")
    if beginning.startswith(LFS_BEGINNING):
        raise ExportError(
            f"{path} is Git LFS's pointer to the file: get the file itself with `git lfs pull`."
        )
    if is_hdf5 and wants_zip:
        raise ExportError(f"{path} is an HDF5 file: rename it to {path.stem}.h5.")
    if is_zip and not wants_zip:
        raise ExportError(f"{path} is a zip archive, as .keras files are: rename it to {path.stem}.keras.")
    if not (is_zip if wants_zip else is_hdf5):
        raise ExportError(f"{path} is not a file that Keras has written. {SAVE_AGAIN}")


def refuse_large(path: Path, unpacked: int) -> None:
    """Raises ExportError for contents over the limit, and for a suspicious compression ratio."""
    packed = path.stat().st_size
    if unpacked > MAX_ARCHIVE_BYTES:
        raise ExportError(
            f"{path} is refused: it holds {unpacked} bytes, and {MAX_ARCHIVE_BYTES} are allowed."
        )
    if unpacked > RATIO_FREE_BYTES and unpacked > packed * MOST_RATIO:
        raise ExportError(
            f"{path} is refused: its {packed} bytes would become {unpacked}, over {MOST_RATIO} times as "
            "many, as in a zip bomb. Save the model again without compression."
        )


def _check_members(path: Path, members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MOST_MEMBERS:
        raise ExportError(f"{path} is refused: it has {len(members)} members, not {MOST_MEMBERS} at most.")
    refuse_large(path, sum(member.file_size for member in members))
    names = set[str]()
    for member in members:
        fault = _fault(member, names)
        if fault:
            raise ExportError(f"{path} is refused: its member {member.filename[:200]!r} {fault}.")
        names.add(member.filename)
    if not {CONFIG, METADATA} <= names:
        raise ExportError(
            f"{path} has no {CONFIG} or no {METADATA}, so it is not a model that model.save(FILE) wrote. "
            f"{SAVE_AGAIN}"
        )
    if not {WEIGHTS, SHARDED_WEIGHTS} & names:
        raise ExportError(f"{path} has no {WEIGHTS}, so the model's weights are missing. {SAVE_AGAIN}")


def _fault(member: zipfile.ZipInfo, names: set[str]) -> str | None:
    """A member's fault, as the end of a sentence; None without one."""
    parts = PurePosixPath(member.filename.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in member.filename:
        return "leads out of the file's own folder"
    if member.filename in names:
        return "appears twice"
    if S_ISLNK(member.external_attr >> 16):
        return "is a symbolic link"
    if member.flag_bits & ENCRYPTED:
        return "is encrypted"
    if member.filename in {CONFIG, METADATA} and member.file_size > MOST_JSON_BYTES:
        return f"has {member.file_size} bytes, not {MOST_JSON_BYTES} at most"
    return None


def _json(path: Path, archive: zipfile.ZipFile, name: str) -> Any:
    try:
        return json.loads(archive.read(name))
    except RecursionError:
        raise ExportError(f"{path} is refused: its {name} is nested too deeply.") from None


WEIGHTS_ALONE = (
    "holds weights alone, without the model they belong to: load them where the model is built "
    "(model.load_weights(FILE)), write model.export(FOLDER), and pack the folder"
)


def read_hdf5_model(path: Path) -> KerasDescription:
    """Raises ExportError if the file is damaged, too large, or not an .h5 model."""
    import h5py

    refuse_other_file(path)
    try:
        with h5py.File(path, "r") as file:
            _check(path, file)
            if "model_config" not in file.attrs:
                raise ExportError(f"{path} {WEIGHTS_ALONE}.")
            config = json.loads(_text(file.attrs["model_config"]))
            version = _text(file.attrs.get("keras_version", ""))
    except RecursionError:
        raise ExportError(f"{path} is refused: its model_config is nested too deeply.") from None
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        raise ExportError(f"{path} is damaged ({error}). {SAVE_AGAIN}") from error
    return KerasDescription(version, config)


def check_weights(path: Path) -> None:
    """Checks every HDF5 file in a .keras file. Raises ExportError as `read_hdf5_model` does."""
    import h5py

    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename
            if not name.endswith(".h5"):
                continue
            if member.compress_type != zipfile.ZIP_STORED:
                raise ExportError(
                    f"{path} is refused: {name} is compressed in it, as Keras does not do. {SAVE_AGAIN}"
                )
            try:
                with archive.open(member) as contents, h5py.File(contents, "r") as file:
                    _check(path, file)
            except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
                raise ExportError(f"{path} is damaged: its {name} ({error}). {SAVE_AGAIN}") from error


def _check(path: Path, file: Any) -> None:
    """Raises ExportError for links, for data in other files, and for too much data."""
    unpacked = 0
    for dataset in _datasets(path, file):
        if dataset.external or dataset.is_virtual:
            raise ExportError(f"{path} is refused: {dataset.name} in it lies in another file. {SAVE_AGAIN}")
        unpacked += dataset.nbytes
        refuse_large(path, unpacked)


def _datasets(path: Path, file: Any) -> Iterator[Any]:
    import h5py

    waiting = [file]
    members = 0
    while waiting:
        group = waiting.pop()
        for name in group:
            members += 1
            if members > MOST_MEMBERS:
                raise ExportError(f"{path} is refused: it has over {MOST_MEMBERS} members.")
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ExportError(f"{path} is refused: {group.name}/{name} in it is a link. {SAVE_AGAIN}")
            member = group[name]
            if isinstance(member, h5py.Dataset):
                yield member
            elif isinstance(member, h5py.Group):
                waiting.append(member)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
