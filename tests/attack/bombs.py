"""Small requests that ask for much: what a body unpacks to, declares, or becomes."""

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from tfs_proxy.data.formats.framing import recordio_frame
from tfs_proxy.wire.protobuf_writer import field, varint

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Bomb:
    """One request; ``is_heavy`` says that it is a good one, whose answer takes long: it is sent alone."""

    name: str
    make: Callable[[], bytes]
    kind: str = "application/json"
    attributes: str = ""
    coding: str = ""
    accept: str = ""
    is_heavy: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request; none that is not needed, since some keep a body off nginx's fast path."""
        named = {
            "Content-Type": self.kind,
            ATTRIBUTES: self.attributes,
            "Content-Encoding": self.coding,
            "Accept": self.accept,
        }
        return {name: value for name, value in named.items() if value}


def repeated(head: bytes, unit: bytes, count: int, tail: bytes) -> bytes:
    """``head``, ``unit`` so often, ``tail`` in gzip, without ever holding it."""
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    block = unit * 10_000
    parts = [packer.compress(head), *(packer.compress(block) for _ in range(count // 10_000))]
    return b"".join([*parts, packer.compress(tail), packer.flush()])


def sparse(shape: int) -> bytes:
    """A RecordIO-protobuf record of one feature: a float32 tensor of no keys and one declared size."""
    tensor = field(3, varint(shape)) + field(2, varint(0)) + field(1, struct.pack("<f", 1.0))
    entry = field(1, b"x") + field(2, field(2, tensor))
    return recordio_frame(field(1, entry))


def npy(shape: str, data: bytes = b"", descr: str = "<f4") -> bytes:
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    head = head.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


def features(count: int) -> bytes:
    return field(1, b"".join(field(1, field(1, b"%d" % number) + field(2, b"")) for number in range(count)))


@cache
def _large_npy() -> bytes:
    """Numbers of many digits: as text they take two to four times as much."""
    numbers = np.random.default_rng(1).random(25 * MILLION - 32, np.float32)
    return npy(f"({numbers.size},)", numbers.tobytes())


def _braces(brace: bytes) -> bytes:
    return brace * (3_900_000 // len(brace))


JSON, CSV, LINES, RECORDS, FORM = (
    "application/json",
    "text/csv",
    "application/jsonlines",
    "application/x-recordio-protobuf",
    "multipart/form-data; boundary=x",
)
CLASSIFY = "tfs-model-name=regress_classify,tfs-method=classify,tfs-signature-name=classify_x_to_y"
PACKED = {
    "50 million numbers": (JSON, b'{"instances":[0', b",0", 50, b"]}"),
    "CSV of 50 million numbers": (CSV, b"0", b",0", 50, b"\n"),
    "CSV of 50 million rows": (CSV, b"", b"0\n", 50, b""),
    "33 million empty lists": (JSON, b'{"a":[[]', b",[]", 33, b"]}"),
    "JSON lines, 40 million": (LINES, b"", b"0\n", 40, b""),
    "form of 10 million parts": (FORM, b"", b"--x\r\n\r\n\r\n", 10, b"--x--"),
    "form without an end": (FORM, b'--x\r\nContent-Disposition: form-data; name="x"\r\n\r\n', b"0", 90, b""),
    "1 GB": (JSON, b"", b"0", 1000, b""),
}
"""Media type, and what a body has: its head, a unit, how many millions of it, its tail."""


def bombs() -> Iterator[Bomb]:
    for name, (kind, head, unit, millions, tail) in PACKED.items():
        make = partial(repeated, head, unit, millions * MILLION, tail)
        yield Bomb(f"gzip: {name}", make, kind, coding="gzip")
    for brace in (b"{", b"[", b'{"a":'):
        yield Bomb(f"3.9 MB of {brace.decode()}", partial(_braces, brace))
    record = partial(sparse, 26 * MILLION)
    yield Bomb("sparse record of 26 million", record, RECORDS)
    yield Bomb("the same, classify", record, RECORDS, CLASSIFY)
    many = sparse(MILLION) * 1000
    yield Bomb("1,000 sparse records of a million", lambda: many, RECORDS)
    yield Bomb("npy header of 10^18", lambda: npy("(1000000000000000000,)"), "application/x-npy")
    yield Bomb(
        "npy header of 100 million empty strings",
        lambda: npy("(100000000,)", descr="|S0"),
        "application/x-npy",
    )
    for accept in (JSON, CSV, LINES):
        yield Bomb(
            f"npy of 100 MB, answered as {accept}",
            _large_npy,
            "application/x-npy",
            accept=accept,
            is_heavy=True,
        )
    yield Bomb("CSV of 100 MB", lambda: b"1.25\n" * (20 * MILLION), CSV, is_heavy=True)
    yield Bomb("tf.Example of 500,000 features", lambda: features(500_000), "application/x-tf-example")


BOMBS = tuple(bombs())
