"""A script that is the model, as a user serves it: no model server, the same container around it."""

from pathlib import Path

from support.archives import pack
from support.stack import serving

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


def archive(folder: Path) -> str:
    """A script model with a model file, a module beside the script, and no SavedModel."""
    files = {"offset.txt": "0.5", "code/inference.py": SCRIPT, "code/doubled.py": "FACTOR = 2\n"}
    return str(pack(folder / "model.tar.gz", files))


def test_a_script_model_is_served_without_a_model_server(tmp_path: Path) -> None:
    """With its model file and the module beside it, until its close(); none that can't be started is tried."""
    with serving(archive(tmp_path), "--model-server", "/nowhere") as stack:
        assert not {"embedded", "model_server"} & set(stack.children())
        assert "code/inference.py is the model itself" in stack.log
        assert stack.invoke("1,2\n3,4\n", "text/csv", Accept="text/csv").body == b"2.5,4.5\n6.5,8.5\n"
        answer = stack.invoke("M,2\n", "text/csv")
        assert (answer.status, answer.json) == (500, {"error": "ValueError: text where a number belongs: M"})
        assert stack.stop() == 0
        assert "closed" in stack.log
