"""Conversion of NumPy's npy format (NEP 1), and of npz: read from the bytes alone, never unpickled.

The header is matched against a pattern, not evaluated. The bytes that follow must be as many as it declares
before an array is made of them.
"""

import io
import math
import re
import zipfile
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.data.arrays import batch_of_arrays
from tfs_proxy.data.shapes import is_possible
from tfs_proxy.values.batch import BYTES, Batch, Outputs
from tfs_proxy.values.errors import BadInput, NotAcceptable, from_client
from tfs_proxy.values.memory import STRING_BYTES, MemoryBudget
from tfs_proxy.values.signature import Signature
from tfs_proxy.wire import media_types as media

MAGIC = b"\x93NUMPY"
_HEAD_BYTES = {1: 10, 2: 12, 3: 12}
MAX_HEADER_BYTES = 65536
"""Longest header: more than any without field names, padded to a multiple of a page."""
_MAX_DIGITS = 18
_ENTRY = re.compile(
    r"\s*'(?P<key>descr|fortran_order|shape)'\s*:\s*"
    r"(?:(?P<fields>\[)|(?:'(?P<descr>[^']*)'|(?P<bool>True|False)|\((?P<shape>[0-9L,\s]*)\))\s*(?:,|(?=\})))",
    re.ASCII,
)
_DESCR = re.compile(r"[<>|=]?([biufcSU])([0-9]{1,9})", re.ASCII)


def npy_batch(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """Decode a body for predict: the one input of a model; raises BadInput."""
    if len(signature.inputs) > 1:
        raise BadInput(
            f"An npy body holds one array, but the model takes {len(signature.inputs)} inputs "
            f"({', '.join(sorted(signature.inputs))}): send npz, with an array for each of them."
        )
    return batch_of_arrays({"": read_npy(body, budget)}, signature, budget)


def npy_of_outputs(outputs: Outputs) -> bytes:
    """Write a model's only output; raises NotAcceptable if there are more."""
    if len(outputs) != 1:
        raise NotAcceptable(
            f"The model has {len(outputs)} outputs ({', '.join(sorted(outputs))}) and {media.NPY} holds one "
            f"array: ask for {media.NPZ}."
        )
    (array,) = outputs.values()
    return write_npy(array)


def read_npy(
    body: bytes | memoryview, budget: MemoryBudget | None = None, name: str = "The body"
) -> npt.NDArray[Any]:
    """Read an npy file; text and bytes of fixed width become objects that are ``bytes``.

    Numbers share the body's memory. Raises BadInput, beginning with ``name`` and saying at which
    byte, for pickled objects, structured types, and contents that do not fit the header.
    """
    descr, fortran, shape, start = _header(body, name)
    dtype = _dtype(descr, name)
    count = math.prod(shape)
    held = len(body) - start
    if count * dtype.itemsize != held:
        raise BadInput(
            f"{name} declares {count} values of {dtype.itemsize} bytes ({count * dtype.itemsize} bytes), "
            f"but {held} bytes follow its header, at byte {start}."
        )
    if count and dtype.itemsize:
        values = np.frombuffer(body, dtype, count, start)
    elif count:
        raise BadInput(f"{name} declares values of zero width.")
    else:
        values = np.empty(0, dtype)
    if dtype.kind in "SU":
        (budget or MemoryBudget()).take(count * (STRING_BYTES + dtype.itemsize), name)
        try:
            texts = values if dtype.kind == "S" else [text.encode() for text in values.tolist()]
            values = np.array(texts, BYTES)
        except (ValueError, SystemError):
            # NOTE: SystemError is what numpy raises for code points past the last.
            raise BadInput(f"{name} has text that is not Unicode.") from None
    return values.reshape(shape, order="F" if fortran else "C")


def write_npy(array: npt.NDArray[Any]) -> bytes:
    """Write an npy file, in little-endian C order; strings are of fixed width.

    Strings are ``U`` if all are UTF-8, else ``S``. Either would drop zero bytes at a string's end: raises
    NotAcceptable.
    """
    if array.dtype == BYTES:
        array = _fixed_width(array)
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    shape = f"({', '.join(map(str, array.shape))}{',' if array.ndim == 1 else ''})"
    header = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(_HEAD_BYTES[1] + len(header) + 1) % 64) + "\n"
    return b"".join((MAGIC, b"\x01\x00", len(header).to_bytes(2, "little"), header.encode(), array.tobytes()))


def _header(body: bytes | memoryview, name: str) -> tuple[str, bool, list[int], int]:
    """Read the header: descr, Fortran order, shape; and the position of the values."""
    if bytes(body[: len(MAGIC)]) != MAGIC:
        raise BadInput(f"{name} is not an npy file: it doesn't start with \\x93NUMPY.")
    version = body[len(MAGIC)] if len(body) > len(MAGIC) else 0
    size = _HEAD_BYTES.get(version)
    if size is None or len(body) < size:
        raise BadInput(f"{name} is an npy file cut off, or of a version that isn't known, at byte 6.")
    length = int.from_bytes(body[8:size], "little")
    if length > min(MAX_HEADER_BYTES, len(body) - size):
        raise BadInput(
            f"{name} declares a header of {length} bytes, more than there are or may be, at byte 8."
        )
    text = bytes(body[size : size + length]).decode("latin-1").strip()
    entries = _entries(text)
    if entries is None or entries["fields"]:
        what = "of a structured type" if entries else "that can't be read"
        raise BadInput(f"{name} has a header {what}, at byte {size}: send arrays of numbers or strings.")
    written = [text for text in re.split(r"[\s,L]+", entries["shape"]) if text]
    shape = [int(text) for text in written if len(text) <= _MAX_DIGITS]
    if len(shape) < len(written) or not is_possible(shape):
        raise BadInput(f"{name} declares a shape that no array has, at byte {size}.")
    return entries["descr"], entries["bool"] == "True", shape, size + length


def _entries(text: str) -> dict[str, str] | None:
    """Entries of the header, all three, by their pattern's group; None for anything else."""
    entries: dict[str, str] = {"fields": ""}
    keys: list[str] = []
    position = 1
    while match := _ENTRY.match(text, position):
        keys.append(match["key"])
        entries |= {group: value for group, value in match.groupdict().items() if value is not None}
        position = match.end()
        if entries["fields"]:
            return entries
    whole = text.startswith("{") and text[position:].strip() == "}"
    complete = (
        sorted(keys) == ["descr", "fortran_order", "shape"] and {"descr", "bool", "shape"} <= entries.keys()
    )
    return entries if whole and complete else None


def _dtype(descr: str, name: str) -> np.dtype[Any]:
    if "O" in descr:
        raise BadInput(f"{name} holds pickled objects, which are never read: send numbers or strings.")
    try:
        dtype = np.dtype(descr) if _DESCR.fullmatch(descr) else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None:
        raise BadInput(f"{name} has the type '{from_client(descr[:40])}', which no input takes.")
    return dtype


def _fixed_width(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    flat = array.ravel().tolist()
    if any(value.endswith(b"\0") for value in flat):
        raise NotAcceptable(
            f"A string of the answer ends in a zero byte, which {media.NPY} and {media.NPZ} would drop: "
            f"ask for {media.JSON_LINES}."
        )
    try:
        return np.array([value.decode() for value in flat], np.str_).reshape(array.shape)
    except UnicodeDecodeError:
        return np.array(flat, np.bytes_).reshape(array.shape)


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
    LookupError,
)
"""Exceptions of zipfile and its callees for bytes that are not an archive."""


def npz_batch(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """Decode a body for predict: an array for each input; raises as `read_npz` does."""
    return batch_of_arrays(read_npz(body, budget), signature, budget)


def read_npz(body: bytes, budget: MemoryBudget) -> dict[str, npt.NDArray[Any]]:
    """Read arrays by name, stored or deflated; unpacked, all together count against the budget.

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
        budget.take(sum(member.file_size for member in members), "The npz archive")
        if len({_name(member) for member in members}) != len(members):
            raise BadInput("The npz archive has two members with the same name.")
        for member in members:
            if member.compress_type not in _METHODS or member.flag_bits & _ENCRYPTED:
                what = "is encrypted or compressed by a method that can't be read: use deflate"
                raise BadInput(f"{_place(member)} {what}.")
        return {_name(member): _array(archive, member, budget) for member in members}


def write_npz(outputs: Outputs) -> bytes:
    """Write an npz archive, not compressed; the same arrays give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in outputs.items():
            archive.writestr(zipfile.ZipInfo(f"{name}{_SUFFIX}", _MADE), write_npy(array))
    return buffer.getvalue()


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: MemoryBudget) -> npt.NDArray[Any]:
    """Read one member; no more is unpacked than its header declares, which has been checked."""
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
