"""Whether a SavedModel's graph has an op: its bytes are searched, so that its size hardly matters."""

import mmap
from collections.abc import Iterable
from pathlib import Path

from tfs_proxy.archive.discover import SAVED_MODEL_FILES

BINARY_FILE = SAVED_MODEL_FILES[0]
PICTURE_OPS = ("DecodeJpeg", "DecodePng", "DecodeImage", "DecodeBmp", "DecodeAndCropJpeg")
RESIZING_OPS = (
    *("ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor"),
    *("CropAndResize", "ScaleAndTranslate"),
)
BASE64_OP = "DecodeBase64"
PARSING_OPS = ("ParseExample", "ParseExampleV2", "ParseSingleExample")


def ops_in(folder: Path, ops: Iterable[str]) -> frozenset[str]:
    """Those of ``ops`` that the graph below ``folder`` seems to have, its functions included."""
    path = folder / BINARY_FILE
    if not path.is_file() or not path.stat().st_size:
        return frozenset()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # A NodeDef's second field is the name of its op.
        return frozenset(op for op in ops if content.find(bytes((0x12, len(op))) + op.encode()) >= 0)
