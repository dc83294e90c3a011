"""A script that is the model, as a user serves it: no model server, the same container around it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import pack, without_nginx
from support.stack import Stack, serving
from support.transform_command import transform

SCRIPT = """
import os, pathlib
import doubled

def model_fn(model_dir):
    assert doubled.FACTOR == 2
    return (pathlib.Path(model_dir) / "offset.txt").read_text()

def predict_fn(data, model):
    if data.dtype.kind != "f":
        raise ValueError(f"text where a number belongs: {data[0][0]}")
    return data * 2 + float(model)

def close():
    print("closed", flush=True)
"""


def archive(folder: Path, script: str = SCRIPT) -> str:
    """A script model with a model file, a module beside the script, and no SavedModel."""
    files = {"offset.txt": "0.5", "code/inference.py": script, "code/doubled.py": "FACTOR = 2\n"}
    return str(pack(folder / "model.tar.gz", files))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One worker with the script model, and a model server that can't be started: the run must not try to."""
    with serving(archive(tmp_path_factory.mktemp("model")), "--model-server", "/nowhere") as running:
        yield running


def test_a_script_model_is_served_without_a_model_server(stack: Stack) -> None:
    """It is ready once a worker has its model, and the log says what is served."""
    assert not {"embedded", "model_server"} & set(stack.children())
    assert "code/inference.py is the model itself" in stack.log


def test_a_script_model_answers(stack: Stack) -> None:
    """With its model file and the module beside it."""
    assert stack.invoke("1,2\n3,4\n", "text/csv", Accept="text/csv").body == b"2.5,4.5\n6.5,8.5\n"


def test_what_a_script_model_raises_is_a_500(stack: Stack) -> None:
    """The exception's name and text are in the answer."""
    answer = stack.invoke("M,2\n", "text/csv")
    assert (answer.status, answer.json) == (500, {"error": "ValueError: text where a number belongs: M"})


def test_a_type_that_a_script_model_does_not_read_is_a_415(stack: Stack) -> None:
    """Its default input_fn reads no images."""
    assert stack.invoke(b"\x89PNG", "image/png").status == 415


def test_a_script_model_says_what_a_batch_job_may_do(stack: Stack) -> None:
    """As every stack does."""
    answer = stack.ask("GET", "/execution-parameters")
    assert (answer.status, set(answer.json)) == (200, {"MaxConcurrentTransforms", "MaxPayloadInMB"})


def test_a_script_model_is_closed_when_the_run_stops(tmp_path: Path) -> None:
    """Its close() runs, and the exit status is 0."""
    with serving(archive(tmp_path), env=without_nginx()) as running:
        assert running.stop() == 0
        assert "closed" in running.log


def test_a_model_that_cannot_be_loaded_ends_the_start_with_3(tmp_path: Path) -> None:
    """The reason of model_fn stands in the log."""
    stack = Stack(
        archive(tmp_path, "def model_fn(model_dir): raise OSError('no weights')"), env=without_nginx()
    )
    try:
        assert stack.wait() == 3
    finally:
        stack.close()

    assert "failed: OSError: no weights" in stack.log


def test_a_batch_transform_runs_through_a_script_model(tmp_path: Path) -> None:
    """Rows come back one for one, in order."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.csv").write_text("".join(f"{number}\n" for number in range(200)))
    folders = ("--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"))
    types = ("--content-type", "text/csv", "--accept", "text/csv")
    lines = ("--split-type", "Line", "--assemble-with", "Line")

    done = transform("--model", archive(tmp_path), *folders, *types, *lines)

    assert done.status == 0, done.log
    written = (tmp_path / "out" / "rows.csv.out").read_text().splitlines()
    assert [float(line) for line in written] == [number * 2 + 0.5 for number in range(200)]
