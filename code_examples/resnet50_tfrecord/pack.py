"""Pack build/model.tar.gz: the network of ../resnet50_jpeg with this folder's script; and build/records.

The records are the photographs of ../resnet50_jpeg/build/photographs as tf.Examples (`image/encoded`), a
hundred in each TFRecord file, in their order.
"""

import runpy
import sys
import tarfile
import tempfile
from pathlib import Path

from tfs_proxy.data.formats.framing import tfrecord_frame

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
JPEG = HERE.parent / "resnet50_jpeg"
RECORDS_PER_FILE = 100


def main() -> None:
    """Pack the archive, unless it is newer than its sources, and the records."""
    runpy.run_path(str(JPEG / "export.py"))["main"]()
    BUILD.mkdir(exist_ok=True)
    archive, network = BUILD / "model.tar.gz", JPEG / "build" / "model.tar.gz"
    newest = max(path.stat().st_mtime for path in (network, HERE / "inference.py"))
    if not archive.exists() or archive.stat().st_mtime < newest:
        pack_archive(network, archive)
    photographs = sorted((JPEG / "build" / "photographs").glob("*.jpg"))
    if not photographs:
        sys.exit("make photographs first: python ../resnet50_jpeg/photographs.py 100")
    pack_records(photographs, BUILD / "records")
    print(f"packed {archive} and {len(photographs)} records")


def pack_archive(network: Path, archive: Path) -> None:
    """The same network, another script; in place only when it is whole."""
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        with tarfile.open(network) as source:
            source.extractall(folder, filter="data")
        packed = Path(folder) / archive.name
        with tarfile.open(packed, "w:gz", compresslevel=1) as target:
            target.add(Path(folder) / "resnet50", "resnet50")
            target.add(HERE / "inference.py", "code/inference.py")
        packed.replace(archive)


def pack_records(photographs: list[Path], folder: Path) -> None:
    """TFRecord files of a hundred photographs each."""
    folder.mkdir(exist_ok=True)
    for begin in range(0, len(photographs), RECORDS_PER_FILE):
        part = photographs[begin : begin + RECORDS_PER_FILE]
        records = b"".join(tfrecord_frame(example(path.read_bytes())) for path in part)
        (folder / f"photographs-{begin:05}.tfrecord").write_bytes(records)


def example(image: bytes) -> bytes:
    """A serialized tf.Example with the one feature image/encoded."""
    feature = field(2, field(1, field(1, image)))
    return field(1, field(1, field(1, b"image/encoded") + feature))


def field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    size, length = len(content), bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


if __name__ == "__main__":
    main()
