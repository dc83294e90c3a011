"""A stage as a user serves it: no model server, the same container around it."""

from pathlib import Path

import pytest

from support.archives import has_nginx, pack, without_nginx
from support.stack import Stack
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
    """A stage with a model file, a module beside the script, and no SavedModel."""
    files = {"offset.txt": "0.5", "code/inference.py": script, "code/doubled.py": "FACTOR = 2\n"}
    return str(pack(folder / "stage.tar.gz", files))


@pytest.mark.parametrize("front", [pytest.param(True, marks=pytest.mark.nginx), False])
def test_a_stage_is_served_without_a_model_server(tmp_path: Path, front: bool) -> None:
    """Ready once a worker has its model; answers, refuses, says what a batch job may do, drains with 0."""
    if front and not has_nginx():
        pytest.skip("nginx is not installed")
    env = {"SAGEMAKER_GUNICORN_WORKERS": "1", **({} if front else without_nginx())}
    # A model server that can't be started: nobody may try to.
    stack = Stack(archive(tmp_path), "--model-server", "/nowhere", env=env)
    try:
        stack.wait_ready()
        answers = [
            stack.invoke("1,2\n3,4\n", "text/csv", Accept="text/csv"),
            stack.invoke("M,2\n", "text/csv"),
            stack.invoke(b"\x89PNG", "image/png"),
            stack.ask("GET", "/execution-parameters"),
        ]
        children = stack.children()
        assert stack.stop() == 0
    finally:
        stack.close()

    assert answers[0].body == b"2.5,4.5\n6.5,8.5\n"
    assert [each.status for each in answers] == [200, 500, 415, 200]
    assert answers[1].json == {"error": "ValueError: text where a number belongs: M"}
    assert set(answers[3].json) == {"MaxConcurrentTransforms", "MaxPayloadInMB"}
    assert not {"embedded", "model_server"} & set(children)
    assert "code/inference.py is the model itself" in stack.log
    assert "closed" in stack.log


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


def test_a_batch_transform_runs_through_a_stage(tmp_path: Path) -> None:
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
