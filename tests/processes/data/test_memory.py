"""A million rows of CSV in bounded memory: measured in a process of its own, with a hard limit."""

import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "src"
ROWS, WIDTH = 1_000_000, 4

CONVERT = """
import resource, sys
from tfs_proxy.data.registry import decode
from tfs_proxy.data.registry import encode
from tfs_proxy.data.registry import parse_media_type
from tfs_proxy.values.signature import Signature, TensorSpec

sys.path.insert(0, {sources!r})
spec = TensorSpec("x", "DT_FLOAT", (None, 4))
signature = Signature("serving_default", "tensorflow/serving/predict", {{"x": spec}}, {{}})
csv = parse_media_type("text/csv")
decode(b"1,2,3,4\\n" * 10, csv, signature)

def resident():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith({peak!r}))

row = {row!r}
before = resident()
body = row * {rows}
batch = decode(body, csv, signature)
assert batch.records == {rows}, batch.records
print(len(body), batch.inputs["x"].nbytes, resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("row", "rows", "arrays"),
    [
        (b"5.125,3.5,-1.25,0.2\n", ROWS, 1),
        (b"+5.1,.5,-1.25,NaN\n", ROWS, 1),
        (b'"5.125","3.5","-1.25","0.2"\n', ROWS // 4, 2),
    ],
    ids=["plain", "odd", "quoted"],
)
def test_a_million_rows(row: bytes, rows: int, arrays: int) -> None:
    """Memory follows arrays, not cells: beside body and array there are another body and 24 MB at most."""
    code = CONVERT.format(sources=str(SOURCES), peak="VmHWM", row=row, rows=rows)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=240)
    body_bytes, array_bytes, used_bytes = map(int, done.stdout.split())
    assert array_bytes == rows * WIDTH * 4
    assert used_bytes < 2 * body_bytes + arrays * array_bytes + (24 << 20)
