"""`tfs-proxy warmup`: requests are recorded in a model, after a model server has answered them."""

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from support.archives import pack
from support.scraping import scrape
from support.stack import Stack, serving
from tfs_proxy.data.formats.framing import tfrecords
from tfs_proxy.values.layout import WARMUP_FILE
from tfs_proxy.worker.first_call import CALLS

CLI = (sys.executable, "-m", "tfs_proxy.cli")
HALVES = """\
def input_handler(data, context):
    row = [float(cell) for cell in data.read().decode().split(",")]
    return {"instances": row}.__repr__().replace("'", '"')
def output_handler(response, context):
    return response.content, "application/json"
"""


def warmup(*words: object, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, "warmup", *map(str, words)], env=environ, capture_output=True, text=True, check=False
    )


def records_in(file: Path) -> int:
    with file.open("rb") as stream:
        return len(list(tfrecords(stream)))


@pytest.fixture
def copied(saved_models: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A model of ours in a folder that a test may change."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(saved_models / name, tmp_path / name))

    return copy


def test_a_folder_is_warmed_up_in_place(copied: Callable[[str], Path]) -> None:
    folder = copied("half_plus_two")
    before = {path for path in folder.rglob("*") if path.is_file()}

    done = warmup(folder, "--batch-size", 1, "--batch-size", 4, "--fill", "random")

    assert done.returncode == 0, done.stderr
    assert "2 requests; the first request takes" in done.stdout
    added = {path for path in folder.rglob("*") if path.is_file()} - before
    assert {path.relative_to(path.parents[1]) for path in added} == {WARMUP_FILE}
    assert all(records_in(path) == 2 for path in added)


def test_an_archive_is_copied_and_serves(saved_models: Path, tmp_path: Path) -> None:
    """The new archive is served as the old one was, its requests answered before it is ready."""
    archive, warm = tmp_path / "model.tar.gz", tmp_path / "warm.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(saved_models / "half_plus_two", "half")

    assert warmup(archive).returncode == 2
    done = warmup(archive, "-o", warm)

    assert done.returncode == 0, done.stderr
    with tarfile.open(warm) as tar:
        assert f"half/1/{WARMUP_FILE}" in tar.getnames()
    stack = Stack(str(warm))
    try:
        stack.wait_ready()
        answer = stack.invoke('{"instances": [1.0]}')
    finally:
        stack.close()
    assert (answer.status, answer.json) == (200, {"predictions": [2.5]})


@pytest.mark.tensorflow
def test_workers_warm_themselves_up(copied: Callable[[str], Path]) -> None:
    """The model server answers the worker's own calls, without a request of a client."""
    folder = copied("half_plus_two")
    assert warmup(folder).returncode == 0

    with serving(str(folder), env={"SAGEMAKER_GUNICORN_WORKERS": "1"}) as stack:
        # A scrape may show what the model server said to the last one.
        stack.wait_until(lambda: _calls_of_workers(stack) == CALLS, "the worker's calls are counted")


def _calls_of_workers(stack: Stack) -> float:
    return scrape(stack).total("tensorflow_serving_request_count_total", status="OK")


def test_requests_of_clients_go_through_the_script(saved_models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(saved_models / "half_plus_two", folder / "half")
    (folder / "code").mkdir()
    (folder / "code" / "inference.py").write_text(HALVES)
    body = tmp_path / "body"
    body.write_text("1.0,2.0")

    done = warmup(folder, "--request", body, "--content-type", "text/csv")

    assert done.returncode == 0, done.stderr
    assert "1 request;" in done.stdout
    body.write_text("not a number")
    refused = warmup(folder, "--request", body, "--content-type", "text/csv")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Request 1 is refused with" in refused.stderr


@pytest.mark.parametrize("name", ["picture", "parsed", "bytes", "classifier"])
def test_strings_are_what_the_graph_takes(copied: Callable[[str], Path], name: str) -> None:
    """Pictures, tf.Examples and text are made so that the model answers; a classifier needs a request."""
    done = warmup(copied(name))

    if name == "classifier":
        assert done.returncode == 2
        assert "predict" in done.stderr
    else:
        assert done.returncode == 0, done.stderr


def test_a_request_that_the_model_refuses_is_not_written(copied: Callable[[str], Path]) -> None:
    """With it no version would load: the sentence names it, and the folder stays as it is."""
    folder = copied("picture_of_one_size")
    body = folder.parent / "body.png"
    body.write_bytes(b"no picture")

    done = warmup(folder, "--request", body, "--content-type", "image/png")

    assert done.returncode == 2
    assert "Request 1 is refused by the model:" in done.stderr
    assert not list(folder.rglob(WARMUP_FILE.name))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--version", "99"], "--version 99 is not there"),
        (["--signature", "nothing"], "--signature nothing is not a signature"),
        (["-o", "x.tar.gz"], "-o can't be used"),
        (["--batch-size", "0"], "is not a whole number from 1 up"),
    ],
)
def test_wrong_flags_are_named(copied: Callable[[str], Path], words: list[str], sentence: str) -> None:
    done = warmup(copied("half_plus_two"), *words)

    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_that_is_the_model_warms_itself_up(tmp_path: Path) -> None:
    archive = pack(tmp_path / "model.tar.gz", {"code/inference.py": "def model_fn(folder): return 1"})

    done = warmup(archive, "-o", tmp_path / "warm.tar.gz")

    assert done.returncode == 2
    assert "There is no SavedModel to warm up" in done.stderr
