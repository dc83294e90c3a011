"""Triton's perf_analyzer, unchanged, measures a real stack over both protocols and believes its statistics."""

import csv
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.judges import Judge
from support.stack import Stack, serving

pytestmark = [pytest.mark.tensorflow, pytest.mark.long]
MODEL = "half_plus_two"
TABLE = "report.csv"
ENV = {"TFS_PROXY_GRPC_PORT": "0"}
SERVER_SIDE = re.compile(r"(Inference|Execution|Successful request) count: (\d+)")


@pytest.fixture(scope="module")
def stack(saved_models: Path) -> Iterator[Stack]:
    with serving(str(saved_models / "half_plus_two"), "--model-server", "embedded", env=ENV) as running:
        yield running


def attempted(judge: Judge, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """How it ends: three short windows at two connections."""
    load = ("-m", MODEL, "--shape", "x:3", "--concurrency-range", "2", "--measurement-interval", "300")
    # The deviation that it allows: a busy machine has not failed.
    words = (*load, "-s", "1000", "-f", str(folder / TABLE), *words)
    return judge.attempt("perf_analyzer", *words, env={"LD_LIBRARY_PATH": str(judge.folder / "native")})


def measured(judge: Judge, folder: Path, *words: str) -> tuple[str, dict[str, str]]:
    ended = attempted(judge, folder, *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    with (folder / TABLE).open(newline="") as file:
        (row,) = csv.DictReader(file)
    return ended.stdout, row


@pytest.mark.parametrize(
    "words", [("-i", "http"), ("-i", "http", "--output-tensor-format", "json"), ("-i", "grpc")], ids=" ".join
)
def test_it_measures_the_open_inference_protocol(
    judges: Callable[[str], Judge], stack: Stack, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Every request succeeds, and the server has counted as many as the client has."""
    address = stack.grpc if "grpc" in words else f"{stack.host}:{stack.port}"

    printed, row = measured(judges("perf"), tmp_path, "-u", address, *words)

    counts = dict(SERVER_SIDE.findall(printed))
    (requests,) = re.findall(r"Request count: (\d+)", printed)
    assert float(row["Inferences/Second"]) > 0
    assert {name: int(count) > 0 for name, count in counts.items()} == {
        "Inference": True,
        "Execution": True,
        "Successful request": True,
    }
    assert int(counts["Inference"]) == pytest.approx(int(requests), rel=0.5)


def test_it_measures_streams(judges: Callable[[str], Judge], stack: Stack, tmp_path: Path) -> None:
    words = ("-u", stack.grpc, "-i", "grpc", "--streaming", "-x", "1")

    printed, row = measured(judges("perf"), tmp_path, *words)

    assert "Using asynchronous calls for inference" in printed
    assert float(row["Inferences/Second"]) > 0


def test_it_measures_tensorflow_serving(judges: Callable[[str], Judge], stack: Stack, tmp_path: Path) -> None:
    printed, row = measured(
        judges("perf"), tmp_path, "-u", stack.grpc, "-i", "grpc", "--service-kind", "tfserving"
    )

    assert "Service Kind: TensorFlow Serving" in printed
    assert float(row["Inferences/Second"]) > 0


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_shared_memory_is_refused(
    judges: Callable[[str], Judge], stack: Stack, tmp_path: Path, protocol: str
) -> None:
    address = stack.grpc if protocol == "grpc" else f"{stack.host}:{stack.port}"

    ended = attempted(judges("perf"), tmp_path, "-u", address, "-i", protocol, "--shared-memory", "system")

    assert ended.returncode != 0
    assert "shared memory is not supported: send tensors with the request" in ended.stderr
