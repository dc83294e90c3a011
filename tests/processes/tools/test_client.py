"""`tfs-proxy ask` and `tfs_proxy.Client` against a running stack."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.stack import Stack, serving
from tfs_proxy import Client


def url_of(stack: Stack) -> str:
    return f"http://127.0.0.1:{stack.port}"


def ask(*words: str, body: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    argv = [sys.executable, "-m", "tfs_proxy.cli", "ask", *words]
    return subprocess.run(argv, input=body, capture_output=True, timeout=60, check=False)


def test_arrays_go_and_come_without_a_lost_digit(served: Stack) -> None:
    with Client(url_of(served)) as client:
        assert client.is_ready()
        exact = np.array([0.1, 1 / 3, 16777217.0], np.float32)
        answer = client.predict(exact)
    assert isinstance(answer, np.ndarray)
    assert answer.tolist() == (exact / np.float32(2) + np.float32(2)).tolist()


def test_inputs_by_name_are_answered_by_name(served: Stack) -> None:
    with Client(url_of(served)) as client:
        answer = client.predict({"x": np.array([2.0], np.float32)})
    assert {name: array.tolist() for name, array in dict(answer).items()} == {"y": [3.0]}


def test_strings_may_be_objects(saved_models: Path) -> None:
    """As pandas' columns and numpy's arrays of objects hold them; others are named."""
    pandas = pytest.importorskip("pandas")
    texts = [["good", "böse", ""], [b"\xff", "é"]]
    frame = pandas.DataFrame({"text": texts[0]})
    with (
        serving(str(saved_models / "bytes"), "--model-server", "embedded") as stack,
        Client(url_of(stack)) as client,
    ):
        for array in (frame["text"], frame["text"].to_numpy(object), np.array(texts[0], object)):
            assert dict(client.predict(array))["length"].tolist() == [4, 5, 0]
        assert dict(client.predict({"image_bytes": np.array(texts[1], object)}))["length"].tolist() == [1, 2]
        with pytest.raises(ValueError, match=r"element 1 is nan: an array of objects holds str"):
            client.predict(pandas.Series(["a", None]))
        with pytest.raises(ValueError, match="end in no zero byte"):
            client.predict(np.array([b"a\0"], object))


def test_ask_measures_repeated_requests(served: Stack, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1.0\n")
    done = ask(url_of(served), str(tmp_path / "rows.csv"), "--repeat", "40", "--concurrency", "4")
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("40 of 40 requests answered in ")
    assert [line.split()[-1] for line in lines[1:]] == ["requests/s", "p50", "p90", "p99", "longest"]


def test_ask_can_be_stopped(served: Stack, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1.0\n")
    words = ["ask", url_of(served), str(tmp_path / "rows.csv"), "--repeat", "10000000"]
    with subprocess.Popen([sys.executable, "-m", "tfs_proxy.cli", *words], stderr=subprocess.PIPE) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
