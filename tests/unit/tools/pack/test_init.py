"""`tfs-proxy init`: what it writes for a model, and that it overwrites nothing."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.archives import pack
from support.signature_models import tensor, write_signature_model
from tfs_proxy import testing
from unit.conftest import Command

FLOATS = {"x": tensor("DT_FLOAT", None, 4)}
OUTPUTS = {"y": tensor("DT_FLOAT", None, 2)}
FILES = {"README.md", "code/inference.py", "code/requirements.txt", "request.json", "tests/test_inference.py"}


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_without_a_model(tmp_path: Path, run: Command) -> None:
    """A script for a model that is put beside it later, with all that belongs to it."""
    assert f"Next: put a model into {tmp_path}/new/model/1" in run("init", tmp_path / "new").out

    assert files_below(tmp_path / "new") == FILES


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_from_a_model(tmp_path: Path, kind: str, run: Command) -> None:
    """The script names the model's tensors, and the example request is answered from the folder as it stands."""
    model = write_signature_model(tmp_path / "m" / "iris" / "7", FLOATS, OUTPUTS)
    given = model.parents[1]
    if kind == "archive":
        given = pack(tmp_path / "model.tar.gz", {}, {"iris": model.parent})

    run("init", tmp_path / "new", "--model", given)

    assert files_below(tmp_path / "new") == {*FILES, "iris/7/saved_model.pb"}
    script = (tmp_path / "new" / "code" / "inference.py").read_text()
    assert '"x": inputs["x"],  # float32, shape (None, 4)' in script
    assert '"y": outputs["y"],  # float32, shape (None, 2)' in script
    with testing.load(tmp_path / "new") as loaded:
        reply = loaded.post((tmp_path / "new" / "request.json").read_bytes())
    assert reply.json == {"predictions": [[0, 0]]}


@pytest.mark.parametrize(
    ("inputs", "outputs", "file_name"),
    [
        ({"n": tensor("DT_INT64", None), "s": tensor("DT_STRING", None)}, OUTPUTS, "request.json"),
        ({"x": tensor("DT_FLOAT", None, 224, 224, 3)}, OUTPUTS, "request.npy"),
        ({"a": tensor("DT_HALF", None, 9999), "b": tensor("DT_HALF", None)}, OUTPUTS, "request.npz"),
        (FLOATS, {"h": tensor("DT_HALF", None)}, "request.json"),
        (
            {'it\'s "x"': tensor("DT_FLOAT", None), "größe\n": tensor("DT_BOOL", None)},
            OUTPUTS,
            "request.json",
        ),
    ],
)
def test_the_example_request_fits_the_model(
    tmp_path: Path,
    run: Command,
    inputs: dict[str, testing.TensorSpec],
    outputs: dict[str, testing.TensorSpec],
    file_name: str,
) -> None:
    """Large inputs, and types that JSON lacks, go into files of numpy's; any name is written as Python has it."""
    write_signature_model(tmp_path / "m" / "1", inputs, outputs)

    run("init", tmp_path / "new", "--model", tmp_path / "m")

    assert (tmp_path / "new" / file_name).is_file()
    compile((tmp_path / "new" / "code" / "inference.py").read_text(), "inference.py", "exec")
    compile((tmp_path / "new" / "tests" / "test_inference.py").read_text(), "test_inference.py", "exec")


TYPED = {
    "x": tensor("DT_FLOAT", None, 4),
    "words": tensor("DT_STRING", None),
    "flags": tensor("DT_BOOL", None, 2, 1),
}


@pytest.mark.parametrize("inputs", [FLOATS, TYPED, None])
def test_typed(tmp_path: Path, inputs: dict[str, testing.TensorSpec] | None, run: Command) -> None:
    """A class has the model's inputs, another its outputs, and both are in the document."""
    new = tmp_path / "new"
    words = ["init", str(new), "--typed"]
    if inputs is not None:
        outputs = {"y": tensor("DT_FLOAT", None, 2), "label": tensor("DT_STRING", None)}
        write_signature_model(tmp_path / "m" / "1", inputs, outputs)
        words += ["--model", str(tmp_path / "m")]

    run(*words)

    tested = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(new / "tests")]
    assert "2 passed" in subprocess.run(tested, capture_output=True, text=True, check=False).stdout
    if inputs is None:
        return
    with testing.load(new, outputs={"y": np.array([[0.1, 2]], np.float32), "label": [b"cat"]}) as loaded:
        reply = loaded.post((new / "request.json").read_bytes())
        schemas = loaded.openapi().json["components"]["schemas"]
    assert reply.json == [{"y": [0.1, 2.0], "label": "cat"}]
    assert list(schemas["Record"]["properties"]) == sorted(inputs)


@pytest.mark.parametrize(
    "spec", [tensor("DT_FLOAT", 1, 4), tensor("DT_COMPLEX64", None)], ids=["one record", "complex"]
)
@pytest.mark.parametrize("name", ["x", "a b", "class"])
def test_what_no_class_can_have(tmp_path: Path, run: Command, spec: testing.TensorSpec, name: str) -> None:
    """A name that is none of Python's, an input without records, a type that JSON lacks."""
    given = spec if name == "x" else tensor("DT_FLOAT", None)
    write_signature_model(tmp_path / "m" / "1", {name: given}, OUTPUTS)

    said = run("init", tmp_path / "new", "--typed", "--model", tmp_path / "m", ends=2).err
    assert f"--typed can't write a class with {name}" in said


def test_a_model_that_is_there_already_is_not_copied(tmp_path: Path, run: Command) -> None:
    write_signature_model(tmp_path / "iris" / "1", FLOATS, OUTPUTS)

    run("init", tmp_path, "--model", tmp_path)

    assert files_below(tmp_path) == {*FILES, "iris/1/saved_model.pb"}


@pytest.mark.parametrize("existing", ["README.md", "code/inference.py", "tests", "iris/1/saved_model.pb"])
def test_nothing_is_overwritten(tmp_path: Path, run: Command, existing: str) -> None:
    write_signature_model(tmp_path / "m" / "iris" / "1", FLOATS, OUTPUTS)
    new = tmp_path / "new"
    (new / existing).parent.mkdir(parents=True)
    (new / existing).write_text("mine")

    assert (
        f"{new / existing} exists already, and init overwrites nothing"
        in run("init", new, "--model", tmp_path / "m", ends=2).err
    )
    assert {name: (new / name).read_text() for name in files_below(new)} == {existing: "mine"}


def test_a_folder_that_can_not_be_used(tmp_path: Path, run: Command) -> None:
    (tmp_path / "file").write_text("")
    assert f"{tmp_path}/file is a file" in run("init", tmp_path / "file", ends=2).err
    said = run("init", tmp_path / "missing" / "new", ends=2).err
    assert f"There is no folder {tmp_path}/missing to make new in" in said
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_models_that_no_script_can_be_written_for(tmp_path: Path, run: Command) -> None:
    """No serving_default, a type that no format has, no model at all: a sentence, and nothing is written."""
    other = write_signature_model(tmp_path / "other" / "1", FLOATS, OUTPUTS, name="encode")
    odd = write_signature_model(tmp_path / "odd" / "1", {"x": tensor("DT_QINT8", None)}, OUTPUTS)
    pack(tmp_path / "script.tar.gz", {"code/inference.py": "def model_fn(model_dir): ..."})
    new = tmp_path / "new"

    assert (
        "has no signature serving_default for predict (it has encode)"
        in run("init", new, "--model", other.parent, ends=2).err
    )
    assert (
        "No example request can be made for the signature serving_default"
        in run("init", new, "--model", odd.parent, ends=2).err
    )
    assert (
        "has no model but its script" in run("init", new, "--model", tmp_path / "script.tar.gz", ends=2).err
    )
    assert not new.exists()
