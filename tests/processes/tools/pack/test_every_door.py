"""Each kind of model file, packed, through every door of a stack."""

import io
import json
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import pack as packed_struct
from typing import Any

import grpc
import numpy as np
import pytest

from support.grpc_calls import PREDICT, SECONDS
from support.predict_messages import request_bytes, response_arrays
from support.stack import Stack
from support.transform_command import transform
from tfs_proxy.wire.protos.predict import model_spec

pytestmark = pytest.mark.tensorflow

FILES = {
    "keras2": "keras2.keras",
    "keras2_hdf5": "keras2_hdf5.h5",
    "keras3": "keras3.keras",
    "keras3_hdf5": "keras3_hdf5.h5",
    "saved": "saved",
}
"""What is packed, by the name that the model has then."""

ROWS = np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 0.5]], np.float32)
ANSWERS = np.array([[4.5, 4.5], [1.0, -1.0]], np.float32)
OPEN = {"TFS_PROXY_GRPC_PORT": "0"}


@pytest.fixture(scope="module")
def archives(model_files: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("archives")
    written = {}
    for name, file in {**FILES, "picture": "picture"}.items():
        written[name] = folder / f"{name}.tar.gz"
        argv = [
            sys.executable,
            "-m",
            "tfs_proxy.cli",
            "pack",
            str(model_files / file),
            "-o",
            str(written[name]),
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=280)
        assert done.returncode == 0, done.stderr
    return written


@pytest.fixture(scope="module")
def stack(archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One stack with all that became SavedModels: what is in their archives, in one folder."""
    folder = tmp_path_factory.mktemp("models")
    for archive in archives.values():
        with tarfile.open(archive) as members:
            members.extractall(folder, filter="data")
    stack = Stack(str(folder), "--model-server", "embedded", env=OPEN)
    try:
        stack.wait_ready()
        yield stack
    finally:
        stack.kill()


@pytest.fixture(params=sorted(FILES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def attributes(name: str) -> dict[str, str]:
    return {"X_Amzn_SageMaker_Custom_Attributes": f"tfs-model-name={name}"}


def test_json(stack: Stack, name: str) -> None:
    answer = stack.invoke(json.dumps({"instances": ROWS.tolist()}), **attributes(name))

    assert answer.status == 200, answer.body
    np.testing.assert_allclose(answer.json["predictions"], ANSWERS, rtol=1e-5)


def test_csv(stack: Stack, name: str) -> None:
    answer = stack.invoke("1,2,3\n0,-1,0.5\n", "text/csv", **attributes(name))

    assert answer.status == 200, answer.body
    np.testing.assert_allclose(answer.json["predictions"], ANSWERS, rtol=1e-5)


def test_npy(stack: Stack, name: str) -> None:
    body = io.BytesIO()
    np.save(body, ROWS)

    answer = stack.invoke(
        body.getvalue(), "application/x-npy", Accept="application/x-npy", **attributes(name)
    )

    assert answer.status == 200, answer.body
    np.testing.assert_allclose(np.load(io.BytesIO(answer.body)), ANSWERS, rtol=1e-5)


def test_open_inference(stack: Stack, name: str) -> None:
    (described,) = stack.ask("GET", f"/v2/models/{name}").json["inputs"]
    tensor = {"name": described["name"], "shape": [2, 3], "datatype": "FP32", "data": ROWS.ravel().tolist()}

    answer = stack.ask("POST", f"/v2/models/{name}/infer", json.dumps({"inputs": [tensor]}))

    assert answer.status == 200, answer.body
    (output,) = answer.json["outputs"]
    np.testing.assert_allclose(output["data"], ANSWERS.ravel(), rtol=1e-5)


def test_serving_rest(stack: Stack, name: str) -> None:
    version = 7 if name == "saved" else 1
    path = f"/v1/models/{name}/versions/{version}:predict"

    answer = stack.ask("POST", path, json.dumps({"instances": ROWS.tolist()}))

    assert answer.status == 200, answer.body
    np.testing.assert_allclose(answer.json["predictions"], ANSWERS, rtol=1e-5)


def test_serving_grpc(stack: Stack, name: str) -> None:
    signatures = stack.ask("GET", f"/v1/models/{name}/metadata").json["metadata"]["signature_def"]
    (alias,) = signatures["signature_def"]["serving_default"]["inputs"]
    with grpc.insecure_channel(stack.grpc) as channel:
        message = channel.unary_unary(PREDICT)(
            request_bytes(model_spec(name), {alias: ROWS}), timeout=SECONDS, wait_for_ready=True
        )

    output: Any = next(iter(response_arrays(message).values()))
    np.testing.assert_allclose(output, ANSWERS, rtol=1e-5)


def test_batch_transform(archives: dict[str, Path], tmp_path: Path) -> None:
    """A file of rows becomes a file of answers; the archive is served for it alone."""
    (tmp_path / "rows.csv").write_text("1,2,3\n0,-1,0.5\n")
    words = ["--model", str(archives["keras3"]), "--model-server", "embedded", "--content-type", "text/csv"]

    done = transform(*words, "--input", str(tmp_path / "rows.csv"), "--output", str(tmp_path / "out"))

    assert done.status == 0, done.log
    answers = json.loads((tmp_path / "out" / "rows.csv.out").read_text())
    np.testing.assert_allclose(answers["predictions"], ANSWERS, rtol=1e-5)


def test_image(stack: Stack) -> None:
    answer = stack.invoke(png(200), "image/png", **attributes("picture"))

    assert answer.status == 200, answer.body
    np.testing.assert_allclose(answer.json["predictions"], [200.0])


def png(grey: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            packed_struct(">I", len(content))
            + kind
            + content
            + packed_struct(">I", zlib.crc32(kind + content))
        )

    header = packed_struct(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
    rows = 2 * bytes([0, grey, grey])
    image = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + image
