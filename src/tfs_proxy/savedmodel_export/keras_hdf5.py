"""Looks into the HDF5 files that hold Keras' weights, or, as .h5, whole models, before Keras reads them.

HDF5 can point to other files on this machine, and can declare arrays of any size that take no space: neither
is in a file that Keras wrote.
"""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfs_proxy.errors import ExportError
from tfs_proxy.savedmodel_export.keras_archive import (
    MOST_MEMBERS,
    SAVE_AGAIN,
    KerasDescription,
    refuse_large,
    refuse_other_file,
)

WEIGHTS_ALONE = (
    "holds weights alone, without the model they belong to: load them where the model is built "
    "(model.load_weights(FILE)), write model.export(FOLDER), and pack the folder"
)


def read_hdf5_model(path: Path, max_bytes: int) -> KerasDescription:
    """The description in an .h5 file. Raises ExportError if it is damaged, too large, or not a model."""
    import h5py

    refuse_other_file(path)
    try:
        with h5py.File(path, "r") as file:
            _check(path, file, max_bytes)
            if "model_config" not in file.attrs:
                raise ExportError(f"{path} {WEIGHTS_ALONE}.")
            config = json.loads(_text(file.attrs["model_config"]))
            version = _text(file.attrs.get("keras_version", ""))
    except RecursionError:
        raise ExportError(f"{path} is refused: its model_config is nested too deeply.") from None
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        raise ExportError(f"{path} is damaged ({error}). {SAVE_AGAIN}") from error
    return KerasDescription(version, config)


def check_weights(path: Path, max_bytes: int) -> None:
    """Look into every HDF5 file of a .keras file. Raises ExportError as `read_hdf5_model` does."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith(".h5"):
                _check_member(path, archive, member, max_bytes)


def _check_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, max_bytes: int) -> None:
    import h5py

    if member.compress_type != zipfile.ZIP_STORED:
        raise ExportError(
            f"{path} is refused: {member.filename} is compressed in it, as Keras does not do. {SAVE_AGAIN}"
        )
    try:
        with archive.open(member) as contents, h5py.File(contents, "r") as file:
            _check(path, file, max_bytes)
    except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        raise ExportError(f"{path} is damaged: its {member.filename} ({error}). {SAVE_AGAIN}") from error


def _check(path: Path, file: Any, max_bytes: int) -> None:
    """Raises ExportError for links, for data in other files, and for too much of it."""
    unpacked = 0
    for dataset in _datasets(path, file):
        if dataset.external or dataset.is_virtual:
            raise ExportError(f"{path} is refused: {dataset.name} in it lies in another file. {SAVE_AGAIN}")
        unpacked += dataset.nbytes
        refuse_large(path, unpacked, max_bytes)


def _datasets(path: Path, file: Any) -> Iterator[Any]:
    import h5py

    waiting, members = [file], 0
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
