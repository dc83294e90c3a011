"""NumPy's npz format (a zip of npy files) <-> arrays by name: sizes are looked at before any is unpacked."""

import io
import zipfile
import zlib
from typing import Any

import numpy.typing as npt

from tfs_proxy.batch import Batch, Outputs
from tfs_proxy.errors import BadInput, from_client
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.payload.arrays import batch_of_arrays
from tfs_proxy.payload.formats.npy import read_npy, write_npy
from tfs_proxy.signature import Signature

MAX_MEMBERS = 1000
_SUFFIX = ".npy"
_ENTRY_MARK = b"PK\x01\x02"
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_ENCRYPTED = 0x1
_MADE = (1980, 1, 1, 0, 0, 0)
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
    OverflowError,
    IndexError,
    KeyError,
)
"""What zipfile and what it calls raise for bytes that are not an archive."""


def npz_batch(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """Decode a body for predict: an array for each input; raises as `read_npz` does."""
    return batch_of_arrays(read_npz(body, budget), signature, budget)


def read_npz(body: bytes, budget: MemoryBudget) -> dict[str, npt.NDArray[Any]]:
    """Arrays by name, stored or deflated; unpacked, all together count against the budget.

    Raises PayloadTooLarge for more, BadInput for anything else that can't be read, naming the member.
    """
    # NOTE: zipfile makes an object of each entry of the directory as it opens an archive.
    if body.count(_ENTRY_MARK) > MAX_MEMBERS:
        raise BadInput(f"The npz archive has over {MAX_MEMBERS} members.")
    try:
        archive = zipfile.ZipFile(io.BytesIO(body))
    except _BROKEN:
        raise BadInput("The body is not an npz archive: it is not a zip file, or it is cut off.") from None
    with archive:
        members = archive.infolist()
        _check(members, budget)
        return {_name(member): _array(archive, member, budget) for member in members}


def write_npz(outputs: Outputs) -> bytes:
    """Arrays by name as an npz archive, not compressed; the same arrays give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in outputs.items():
            archive.writestr(zipfile.ZipInfo(f"{name}{_SUFFIX}", _MADE), write_npy(array))
    return buffer.getvalue()


def _check(members: list[zipfile.ZipInfo], budget: MemoryBudget) -> None:
    budget.take(sum(member.file_size for member in members), "The npz archive")
    names = [_name(member) for member in members]
    if len(set(names)) != len(names):
        raise BadInput("The npz archive has two members with the same name.")
    for member in members:
        if member.compress_type not in _METHODS or member.flag_bits & _ENCRYPTED:
            raise BadInput(
                f"{_place(member)} is encrypted or compressed by a method that can't be read: use deflate."
            )


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: MemoryBudget) -> npt.NDArray[Any]:
    """One member; no more is unpacked than it declares, which has been checked."""
    try:
        with archive.open(member) as stream:
            body = stream.read(member.file_size)
    except _BROKEN:
        raise BadInput(f"{_place(member)} can't be unpacked: the archive is damaged.") from None
    if len(body) != member.file_size:
        raise BadInput(f"{_place(member)} declares {member.file_size} bytes and has {len(body)}.")
    return read_npy(body, budget, _place(member))


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(_SUFFIX)


def _place(member: zipfile.ZipInfo) -> str:
    return f'The member "{from_client(_name(member)[:100])}" of the npz archive'
