"""npy and npz, read without numpy's own reader and checked against its writer."""

import io
import struct
import zipfile
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from support.signatures import Shape, floats, signature_of
from tfs_proxy.data.arrays import batch_of_arrays
from tfs_proxy.data.formats.npy import read_npy, read_npz, write_npy, write_npz
from tfs_proxy.data.registry import decode, encode, parse_media_type
from tfs_proxy.values.errors import BadInput, PayloadTooLarge, RequestError
from tfs_proxy.values.memory import MemoryBudget

NPY, NPZ = map(parse_media_type, ("application/x-npy", "application/x-npz"))
LIMIT_BYTES = 1_000_000

numeric = st.one_of(
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    npst.boolean_dtypes(),
)
shapes = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def _saved(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _archive(**arrays: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _npy(header: str, values: bytes = b"", version: int = 1) -> bytes:
    text = header.encode()
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + values


@given(npst.arrays(numeric, shapes), st.booleans())
def test_what_numpy_saves_is_read(array: npt.NDArray[Any], fortran: bool) -> None:
    """Any numeric dtype, byte order, memory order and shape comes back equal."""
    array = np.asfortranarray(array) if fortran else array
    read = read_npy(_saved(array))
    assert read.shape == array.shape
    np.testing.assert_array_equal(read, array)


def test_strings_both_ways() -> None:
    """Text and bytes of fixed width become bytes; strings are written as text where they are UTF-8."""
    assert read_npy(_saved(np.array([["é", "b"]]))).tolist() == [["é".encode(), b"b"]]
    assert read_npy(_saved(np.array([b"\xff", b"ab"]))).tolist() == [b"\xff", b"ab"]
    for strings in ([b"\xff", b"ab"], [b"caf\xc3\xa9", b""]):
        array = np.array(strings, object)
        assert read_npy(write_npy(array)).tolist() == strings
    with pytest.raises(BadInput, match="not Unicode"):
        read_npy(_npy("{'descr': '<U1', 'fortran_order': False, 'shape': (1,), }", b"\xff\xff\xff\xff"))


@given(st.binary(max_size=60), st.integers(0, 200), st.booleans())
def test_damaged_npy_is_refused(junk: bytes, place: int, cut: bool) -> None:
    """Bytes changed or missing anywhere raise nothing but BadInput, or still make an array."""
    whole = _saved(np.arange(6, dtype=np.float32).reshape(2, 3))
    body = whole[:place] if cut else whole[:place] + junk + whole[place + len(junk) :]
    with suppress(BadInput):
        assert read_npy(body).nbytes <= len(body)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not an npy file"),
        (b"\x93NUMPY", "at byte 6"),
        (b"\x93NUMPY\x09\x00" + b" " * 20, "at byte 6"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "header of 4294967295 bytes"),
        (_saved(np.array([{}], object)), "pickled"),
        (_saved(np.zeros(2, [("a", "<f4")])), "structured"),
        (_saved(np.zeros(2, "M8[s]")), "which no input takes"),
        (_saved(np.zeros(2))[:-1], "declares 2 values of 8 bytes"),
        (_saved(np.zeros(2)) + b"\0", "17 bytes follow"),
        (_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999,), }"), "declares 99999"),
        (_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999999999,), }"), "no array has"),
        (
            _npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': (0, {10**18 - 1}, {10**18 - 1}), }}"),
            "no array has",
        ),
        (_npy(f"{{'descr': '|i1', 'fortran_order': False, 'shape': (0, {10**18 - 1}), }}"), "no array has"),
        (_npy(f"{{'descr': '|b1', 'fortran_order': False, 'shape': ({'0, ' * 65}), }}"), "no array has"),
        (_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }"), "can't be read"),
        (_npy("{'descr': '|S0', 'fortran_order': False, 'shape': (5,), }"), "zero width"),
        (_npy("{'descr': '<f7', 'fortran_order': False, 'shape': (5,), }"), "no input takes"),
        (_npy("{'descr': '<f4', 'shape': (5,), }"), "can't be read"),
        (_npy("__import__('os').abort()"), "can't be read"),
    ],
)
def test_bad_npy(body: bytes, says: str) -> None:
    with pytest.raises(BadInput, match=says.replace("'", ".")):
        read_npy(body)


@given(st.dictionaries(st.sampled_from(["a", "b", "é"]), npst.arrays(numeric, shapes)))
def test_npz_both_ways(arrays: dict[str, npt.NDArray[Any]]) -> None:
    body = write_npz(arrays)
    assert body == write_npz(arrays)
    read = read_npz(body, MemoryBudget(LIMIT_BYTES))
    with np.load(io.BytesIO(body), allow_pickle=False) as loaded:
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name], array)
            np.testing.assert_array_equal(loaded[name], array)
    assert read.keys() == arrays.keys()


@given(st.binary(min_size=1, max_size=8), st.integers(0, 600), st.booleans())
def test_damaged_npz_is_refused(junk: bytes, place: int, cut: bool) -> None:
    """Bytes changed or missing anywhere in an archive raise nothing but a RequestError."""
    whole = _archive(a=np.arange(50), b=np.ones((2, 2), np.float32))
    body = whole[:place] if cut else whole[:place] + junk + whole[place + len(junk) :]
    with suppress(RequestError):
        arrays = read_npz(body, MemoryBudget(LIMIT_BYTES))
        assert sum(array.nbytes for array in arrays.values()) <= LIMIT_BYTES


def test_zip_bombs_are_refused() -> None:
    bomb = _archive(a=np.zeros(LIMIT_BYTES, np.uint8), b=np.zeros(10))
    assert len(bomb) < LIMIT_BYTES / 100
    with pytest.raises(PayloadTooLarge, match="1000000 bytes"):
        read_npz(bomb, MemoryBudget(LIMIT_BYTES))
    lying = bomb.replace(struct.pack("<I", LIMIT_BYTES + 128), struct.pack("<I", 200))
    assert lying != bomb
    with pytest.raises(BadInput, match=r'member "a"'):
        read_npz(lying, MemoryBudget(LIMIT_BYTES))


def test_odd_archives_are_refused() -> None:
    """Too many members, two of one name, and other methods than deflate are a 400."""
    many, twice, packed = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(many, "w") as archive:
        for number in range(1001):
            archive.writestr(f"{number}.npy", b"")
    with zipfile.ZipFile(twice, "w") as archive:
        archive.writestr("a.npy", b"")
        archive.writestr("a", b"")
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", b"")
    for buffer, says in ((many, "1000 members"), (twice, "two members"), (packed, "use deflate")):
        with pytest.raises(BadInput, match=says):
            read_npz(buffer.getvalue(), MemoryBudget(LIMIT_BYTES))


def test_npz_names_inputs() -> None:
    """Members go to the inputs of their names, to the only input under any name."""
    both = signature_of(a="DT_FLOAT", b="DT_STRING")
    batch = decode(_archive(b=np.array(["x", "y"]), a=np.ones((2, 3))), NPZ, both)
    assert {name: array.shape for name, array in batch.inputs.items()} == {"a": (2, 3), "b": (2,)}
    assert decode(_archive(arr_0=np.ones(3)), NPZ, floats()).records == 3
    for arrays, says in (
        ({"a": np.ones(2)}, 'no array "b"'),
        ({"a": np.ones(2), "b": np.ones(2), "c": np.ones(2)}, 'an array "c"'),
        ({"a": np.ones(2), "b": np.array(["x"])}, '"a" has 2, "b" has 1'),
    ):
        with pytest.raises(BadInput, match=says):
            decode(_archive(**arrays), NPZ, both)
    with pytest.raises(BadInput, match="no records"):
        decode(_saved(np.zeros((0, 2))), NPY, floats())
    with pytest.raises(BadInput, match="there are none"):
        batch_of_arrays({}, signature_of(), MemoryBudget())


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 60_000), (np.uint8, 130_000)])
def test_arrays_count_as_messages_too(dtype: npt.DTypeLike, size: int) -> None:
    body = write_npz({"x": np.zeros(size // np.dtype(dtype).itemsize, dtype)})
    signature = floats(None)

    assert decode(body, NPZ, signature, MemoryBudget(10 * size)).records
    with pytest.raises(PayloadTooLarge):
        decode(body, NPZ, signature, MemoryBudget(size * 3 // 2))


def test_later_versions_are_read() -> None:
    """Versions 2 and 3 differ in the width of the header's length alone."""
    header = "{'shape': (2L,), 'fortran_order': False, 'descr': '>i2'}\n"
    for version in (2, 3):
        assert read_npy(_npy(header, b"\0\1\1\0", version)).tolist() == [1, 256]


@pytest.mark.parametrize(
    ("shape", "wanted", "records"),
    [((2, 3), (None, 3), 2), ((3,), (None, 3), 1), ((4,), (None, 3), 4), ((), (None,), 1), ((2, 3), None, 2)],
)
def test_one_record_may_come_without_its_axis(shape: tuple[int, ...], wanted: Shape, records: int) -> None:
    """An array of one axis less, and of the record's shape, is one record."""
    batch = decode(_saved(np.ones(shape)), NPY, signature_of(x=("DT_FLOAT", wanted)))
    assert batch.records == len(batch.inputs["x"]) == records


def test_npy_for_two_inputs() -> None:
    """One array is not enough for them: the inputs are named, and the format that takes several."""
    both = signature_of(b="DT_STRING", a="DT_FLOAT")
    with pytest.raises(BadInput, match=r"one array, but the model takes 2 inputs \(a, b\): send npz"):
        decode(_saved(np.ones(2)), NPY, both)


def test_several_outputs_are_no_npy() -> None:
    outputs = {"b": np.ones(2), "a": np.ones(2)}
    with pytest.raises(RequestError, match="ask for application/x-npz"):
        encode(outputs, 2, "application/x-npy")
