"""`tfs-proxy pack --warmup`: requests are recorded in a model, after a model server has answered them."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from support.processes import descendants, wait_until_ended
from support.scraping import scrape
from support.stack import serving
from support.waiting import wait_until
from tfs_proxy.data.capture import CapturedRequest, line_of
from tfs_proxy.data.formats.framing import tfrecords
from tfs_proxy.values.layout import WARMUP_FILE
from tfs_proxy.worker.first_call import CALLS

HALVES = """\
def input_handler(data, context):
    row = [float(cell) for cell in data.read().decode().split(",")]
    return {"instances": row}.__repr__().replace("'", '"')
def output_handler(response, context):
    return response.content, "application/json"
"""


PACK = (sys.executable, "-m", "tfs_proxy.cli", "pack")


def pack(model: Path, output: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [*PACK, model, "-o", output, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture
def warm(tmp_path: Path) -> Path:
    return tmp_path / "warm.tar.gz"


def records_in(archive: Path) -> int:
    with tarfile.open(archive) as tar:
        (name,) = (name for name in tar.getnames() if name.endswith(str(WARMUP_FILE)))
        stream = tar.extractfile(name)
        assert stream is not None
        return len(list(tfrecords(stream)))


@pytest.mark.tensorflow
def test_a_packed_model_warms_up_its_server_and_its_workers(saved_models: Path, warm: Path) -> None:
    """The model server answers the worker's own calls, without a request of a client; then it serves as before."""
    done = pack(saved_models / "half_plus_two", warm, "--warmup")

    assert done.returncode == 0, done.stderr
    assert "1 request; the first request takes" in done.stdout
    with serving(str(warm), env={"SAGEMAKER_GUNICORN_WORKERS": "1"}) as stack:
        # A scrape may show what the model server said to the last one.
        stack.wait_until(
            lambda: scrape(stack).total("tensorflow_serving_request_count_total", status="OK") == CALLS,
            "the worker's calls are counted",
        )
        answer = stack.invoke('{"instances": [1.0]}')
    assert (answer.status, answer.json) == (200, {"predictions": [2.5]})


def test_a_pack_that_is_killed_leaves_no_model_server(saved_models: Path, warm: Path, tmp_path: Path) -> None:
    """By kill -9, while the model server loads the model."""
    argv: list[str | Path] = [*PACK, saved_models / "half_plus_two", "-o", warm, "--warmup"]
    packing = subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL)
    try:
        servers = wait_until(lambda: list(descendants(packing.pid)), 60, "the model server runs")
    finally:
        packing.kill()
        packing.wait()

    wait_until_ended(servers)


def test_requests_of_clients_go_through_the_script(saved_models: Path, warm: Path, tmp_path: Path) -> None:
    """They are bodies, whose endings are their types, or lines of data capture; what is recorded already goes."""
    script, body, capture = (tmp_path / name for name in ("halves.py", "body.csv", "captured.jsonl"))
    script.write_text(HALVES)
    body.write_text("1.0,2.0")
    capture.write_bytes(b"".join(2 * [line_of(CapturedRequest(b"3.0", "text/csv", None), b"", None, None)]))
    model = saved_models / "half_plus_two"

    done = pack(model, warm, "--script", script, "--request", body, "--request", capture)
    with tarfile.open(warm) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    again = pack(tmp_path / "unpacked", warm, "--warmup", "--request", body)

    assert done.returncode == 0, done.stderr
    assert "3 requests;" in done.stdout
    assert again.returncode == 0, again.stderr
    assert records_in(warm) == 1
    (recorded,) = (tmp_path / "unpacked").rglob(WARMUP_FILE.name)
    with recorded.open("rb") as stream:
        assert len(list(tfrecords(stream))) == 3
    body.write_text("not a number")
    refused = pack(model, warm, "--script", script, "--request", body)
    assert refused.returncode == 2
    assert "Request 1 is refused with" in refused.stderr


@pytest.mark.parametrize("name", ["picture", "parsed", "bytes"])
def test_strings_are_what_the_graph_takes(saved_models: Path, warm: Path, name: str) -> None:
    """Pictures, tf.Examples and text are made so that the model answers."""
    done = pack(saved_models / name, warm, "--warmup")

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "words", "sentence"),
    [
        ("classifier", ["--warmup"], "The model has no signature for predict"),
        ("picture_of_one_size", ["--request", "no.png"], "Request 1 is refused by the model:"),
        ("half_plus_two", ["--request", "missing"], "The request missing can't be read"),
    ],
)
def test_what_can_not_be_recorded_is_not_packed(
    saved_models: Path,
    warm: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    words: list[str],
    sentence: str,
) -> None:
    """With a request that a model refuses no version would load: the sentence names it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "no.png").write_bytes(b"no picture")

    done = pack(saved_models / name, warm, *words)

    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not warm.exists()
