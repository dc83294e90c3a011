"""The export process: what it writes, and what it refuses, with real files of both generations of Keras."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from tfs_proxy.model.saved_model import read_saved_model
from tfs_proxy.tools.export.child import ExportRequest, export
from tfs_proxy.values.errors import ExportError
from tfs_proxy.values.installation import how_to_install

pytestmark = pytest.mark.tensorflow


def refusal(source: Path, target: Path) -> str:
    with pytest.raises(ExportError) as caught:
        export(ExportRequest(source, target))
    assert not target.exists()
    return str(caught.value)


@pytest.mark.parametrize("file", ["keras3.keras", "keras2_hdf5.h5"])
def test_the_same_bytes(model_files: Path, tmp_path: Path, file: str) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        export(ExportRequest(model_files / file, folder))

    first, second = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in folders
    )
    assert first == second
    assert Path("saved_model.pb") in first


def test_both_generations(model_files: Path, tmp_path: Path) -> None:
    """Each file is read by the library that wrote it, and strings of a vocabulary come along."""
    reports = {
        file: export(ExportRequest(model_files / file, tmp_path / file)).exporter.split(" ")[0]
        for file in ("keras2.keras", "words.keras")
    }

    assert reports == {"keras2.keras": "tf-keras", "words.keras": "Keras"}
    summary = read_saved_model(tmp_path / "words.keras")
    assert summary is not None
    assert [spec.dtype for spec in summary.signatures["serving_default"].inputs.values()] == ["DT_STRING"]


@pytest.mark.parametrize(
    ("file", "inputs", "outputs"),
    [
        ("dicts.keras", {"age", "income_USD"}, {"risk", "of-group"}),
        ("lists.keras", {"x1", "x2"}, {"left", "right"}),
        ("keras3.keras", {"x"}, {"dropout"}),
        ("keras2_hdf5.h5", {"x"}, {"dropout"}),
    ],
)
def test_names_are_the_authors(
    model_files: Path, tmp_path: Path, file: str, inputs: set[str], outputs: set[str]
) -> None:
    """Keys of dicts, else those of inputs and layers, in one signature; what was renamed is said."""
    report = export(ExportRequest(model_files / file, tmp_path / "model"))

    summary = read_saved_model(tmp_path / "model")
    assert summary is not None
    ((name, signature),) = summary.signatures.items()
    assert (name, set(signature.inputs), set(signature.outputs)) == ("serving_default", inputs, outputs)
    assert report.own_names == ({"income (USD)": "income_USD"} if "income_USD" in inputs else {})
    assert [
        text.startswith("The input 'income (USD)' is called income_USD by /v1") for text in report.warnings
    ] == [True] * len(report.own_names)


def test_two_names_that_become_one(model_files: Path, tmp_path: Path) -> None:
    said = refusal(model_files / "colliding.keras", tmp_path / "m")
    assert "inputs 'a b', 'a-b' would have the same name in a SavedModel" in said


def test_a_layer_with_a_name_that_no_graph_has(model_files: Path, tmp_path: Path) -> None:
    assert "'out put' is not a valid scope name" in (
        said := refusal(model_files / "spaced.keras", tmp_path / "m")
    )
    assert said.endswith("set its name to letters, digits and _, and save the model again.")


@pytest.mark.parametrize("ending", [".keras", ".h5"])
def test_code(model_files: Path, tmp_path: Path, ending: str) -> None:
    """A Lambda layer is refused, until the user allows it; .h5 is as safe as .keras."""
    source = model_files / "refused" / f"lambda{ending}"

    text = refusal(source, tmp_path / "out")
    assert "layer code (Lambda) is a Lambda layer" in text
    assert "--allow-code" in text

    export(ExportRequest(source, tmp_path / "out", allow_code=True))
    assert (tmp_path / "out" / "saved_model.pb").is_file()


@pytest.mark.parametrize("ending", [".keras", ".h5"])
def test_classes_of_ones_own(model_files: Path, tmp_path: Path, ending: str) -> None:
    text = refusal(model_files / "refused" / f"class{ending}", tmp_path / "out")

    assert "its own classes (mine>Twice)" in text
    assert "model.export(FOLDER)" in text


def test_a_model_without_shapes(model_files: Path, tmp_path: Path) -> None:
    assert "keras.Input(SHAPE)" in refusal(model_files / "refused" / "unbuilt.keras", tmp_path / "out")


def edited(source: Path, target: Path, **edits: Callable[[bytes], bytes]) -> Path:
    """A copy of a .keras file with other JSON files in it."""
    with zipfile.ZipFile(source) as good, zipfile.ZipFile(target, "w") as bad:
        for name in good.namelist():
            edit = edits.get(name.partition(".json")[0], bytes)
            bad.writestr(name, edit(good.read(name)))
    return target


def test_classes_of_a_library(model_files: Path, tmp_path: Path) -> None:
    """Keras 2 does not say in an .h5 file whose they are; a subclassed model does not say its inputs."""
    layers = [
        {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 3], "name": "x"}},
        {"class_name": "KerasLayer", "config": {"name": "y"}},
    ]
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": layers}}
    with h5py.File(tmp_path / "old.h5", "w") as file:
        file.attrs.update({"model_config": json.dumps(config), "keras_version": "2.11.0"})
    subclassed = edited(
        model_files / "keras2.keras",
        tmp_path / "subclassed.keras",
        config=lambda content: content.replace(b'"Sequential"', b'"Ranking"'),
    )
    texts = [refusal(source, tmp_path / "out") for source in (tmp_path / "old.h5", subclassed)]

    assert ["try it with that version" in text for text in texts] == [False, False]
    for text in texts:
        assert "write model.export(FOLDER) in the program" in text
        assert "for a subclassed model with input_signature=[tf.TensorSpec(SHAPE, DTYPE)]" in text


@pytest.mark.slow
def test_terabytes_of_weights(model_files: Path, tmp_path: Path) -> None:
    """A configuration that asks for them ends its process, and this machine is none the worse."""

    def hugely(content: bytes) -> bytes:
        config = json.loads(content)
        config["config"]["layers"][1]["config"]["units"] = 10**9
        return json.dumps(config).encode()

    hostile = edited(model_files / "keras3.keras", tmp_path / "huge.keras", config=hugely)
    text = refusal(hostile, tmp_path / "out")
    assert str(hostile) in text
    assert "memory" in text


def test_a_newer_keras(model_files: Path, tmp_path: Path) -> None:
    newer = edited(
        model_files / "keras3.keras",
        tmp_path / "newer.keras",
        metadata=lambda _: b'{"keras_version": "4.1.0"}',
        config=lambda content: content.replace(b'"Dense"', b'"DenseOfTomorrow"'),
    )
    text = refusal(newer, tmp_path / "out")
    assert "DenseOfTomorrow" in text
    assert "Keras 4.1.0" in text


def test_without_tensorflow(model_files: Path, tmp_path: Path) -> None:
    """As in our images with the official model server: the command says what to install, and ends with 2."""
    hidden = "import sys; sys.modules['tensorflow'] = None; from tfs_proxy.cli import main; sys.exit(main())"
    words = ["pack", str(model_files / "keras3.keras"), "-o", str(tmp_path / "model.tar.gz")]

    done = subprocess.run(
        [sys.executable, "-c", hidden, *words], capture_output=True, text=True, check=False, timeout=120
    )

    assert done.returncode == 2
    assert how_to_install("embedded") in done.stderr
    assert list(tmp_path.iterdir()) == []
