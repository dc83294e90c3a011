"""Measures each conversion in CPU milliseconds per body, and plain Python's.

``python benchmarks/conversions.py`` prints a table. It counts the thread's CPU time, because a shared machine
is noisy; each cell has the median and the best of its rounds, and the implementations alternate.
"""

import argparse
import csv
import io
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from tfs_proxy.data.formats.framing import recordio_frame, tfrecord_frame
from tfs_proxy.data.formats.npy import write_npy, write_npz
from tfs_proxy.data.formats.outputs import json_of_outputs
from tfs_proxy.data.registry import decode, encode, parse_media_type
from tfs_proxy.serving.upstream.binary import request_message
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, Target, TensorSpec
from tfs_proxy.wire.protos import Example, RecordIORecord

RANDOM = np.random.default_rng(0)
TABLE = RANDOM.normal(size=(1266, 100)).round(5).astype(np.float32)
IMAGE = RANDOM.random((1, 224, 224, 3), np.float32)


@dataclass
class Row:
    """One conversion by this package, and by plain Python if there is an equivalent."""

    name: str
    size: int
    ways: Sequence[Callable[[], object] | None]
    spent: dict[int, list[float]] = field(default_factory=dict)


def signature(array: Any) -> Signature:
    """A model that takes arrays such as this one."""
    return Signature(
        "serving_default", PREDICT_METHOD, {"x": TensorSpec("x", "DT_FLOAT", (None, *array.shape[1:]))}, {}
    )


def csv_of(array: Any, line: Callable[[list[float]], str]) -> bytes:
    """An array as rows of text."""
    return "".join(line(row) + "\n" for row in array.tolist()).encode()


def read(name: str, body: bytes, array: Any, media_type: str, plain: Callable[[bytes], object] | None) -> Row:
    """A row that decodes a body and writes the tensor that goes to the model server."""
    model, content_type = signature(array), parse_media_type(media_type)
    decoded = decode(body, content_type, model)
    np.testing.assert_allclose(decoded.inputs["x"], array, rtol=1e-5)
    ours = lambda: request_message(Target("m"), decode(body, content_type, model), model)  # noqa: E731
    return Row(name, len(body), (ours, None if plain is None else lambda: plain(body)))


def write(name: str, array: Any, media_type: str, plain: Callable[[], object] | None) -> Row:
    """A row that encodes an output."""
    outputs = {"y": array}
    if media_type == "application/json":
        return Row(name, len(json_of_outputs(outputs)), (lambda: json_of_outputs(outputs), plain))
    size = len(encode(outputs, len(array), media_type))
    return Row(name, size, (lambda: encode(outputs, len(array), media_type), plain))


def example(values: Any) -> bytes:
    """A tf.Example of one feature."""
    message = Example()
    message.features.feature["x"].float_list.value.extend(values.ravel().tolist())
    return message.SerializeToString()


def record(values: Any) -> bytes:
    """A record of SageMaker's with one feature."""
    message = RecordIORecord()
    message.features["x"].float32_tensor.values.extend(values.ravel().tolist())
    return message.SerializeToString()


def plain_csv(body: bytes) -> bytes:
    """What AWS's container does: cells to numbers to JSON."""
    rows = [[float(cell) for cell in row] for row in csv.reader(io.StringIO(body.decode()))]
    return json.dumps({"instances": rows}).encode()


def plain_json(body: bytes) -> object:
    """JSON by the standard library, and an array of it."""
    return np.array(json.loads(body), np.float32)


def rows() -> list[Row]:
    """Everything that is measured."""
    table = csv_of(TABLE, lambda row: ",".join(f"{cell:.5f}" for cell in row))
    quoted = csv_of(TABLE, lambda row: ",".join(f'"{cell:.5f}"' for cell in row))
    odd = table.replace(b"0.", b".")
    listed = b"[[" + table.rstrip().replace(b"\n", b"],[") + b"]]"
    small = TABLE[:, :20]
    as_json: Callable[[Any], str] = lambda array: json.dumps({"predictions": array.tolist()})  # noqa: E731
    text: Any = io.StringIO()
    plain_table = lambda: csv.writer(text).writerows(TABLE.tolist())  # noqa: E731
    return [
        read("CSV, plain numbers", table, TABLE, "text/csv", plain_csv),
        read("CSV, `.5` for `0.5`", odd, TABLE, "text/csv", plain_csv),
        read("CSV, every cell quoted", quoted, TABLE, "text/csv", plain_csv),
        read("JSON list of lists", listed, TABLE, "application/json", plain_json),
        read("JSON, 224x224x3", orjson.dumps(IMAGE.tolist()), IMAGE, "application/json", plain_json),
        read("npy, 224x224x3", write_npy(IMAGE), IMAGE, "application/x-npy", None),
        read("npz, 224x224x3", write_npz({"x": IMAGE}), IMAGE, "application/x-npz", None),
        read(
            "TFRecord of tf.Example",
            b"".join(tfrecord_frame(example(row)) for row in small),
            small,
            "application/x-tfrecord",
            None,
        ),
        read(
            "recordio-protobuf",
            b"".join(recordio_frame(record(row)) for row in small),
            small,
            "application/x-recordio-protobuf",
            None,
        ),
        write("to JSON", TABLE, "application/json", lambda: as_json(TABLE)),
        write("to JSON lines", TABLE, "application/jsonlines", None),
        write("to CSV", TABLE, "text/csv", plain_table),
        write("to npy", TABLE, "application/x-npy", None),
        write("to npz", TABLE, "application/x-npz", None),
    ]


def spent(work: Callable[[], object]) -> float:
    """Milliseconds on the CPU."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1000


def cell(times: list[float] | None) -> str:
    """Median and best."""
    return f"{statistics.median(times):.2f} ({min(times):.2f})" if times else ""


def main() -> None:
    """Measure in alternation and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print the best CPU ms of each row as JSON")
    given = parser.parse_args()
    rounds, measured = given.rounds, rows()
    for _ in range(rounds):
        for row in measured:
            for number, work in enumerate(row.ways[:1] if given.json else row.ways):
                if work is not None:
                    row.spent.setdefault(number, []).append(spent(work))
    if given.json:
        print(json.dumps({f"conversion: {row.name}": min(row.spent[0]) for row in measured}))
        return
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {rounds} rounds\n")
    print("| body | KB | this package, ms | plain Python, ms |\n|---|---|---|---|")
    for row in measured:
        here, plain = (cell(row.spent.get(number)) for number in (0, 1))
        print(f"| {row.name} | {row.size // 1024} | {here} | {plain} |")


if __name__ == "__main__":
    main()
