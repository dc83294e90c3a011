"""TensorFlow Lite models are found, and damaged ones are refused; what is read is compared in tests/processes."""

from pathlib import Path

import pytest

from support.archives import SAVED_MODEL
from support.lite_models import lite_model
from tfs_proxy.model.discover import discover
from tfs_proxy.model.lite_model import read_lite_model
from tfs_proxy.values.errors import DiscoveryError, NoModelFound


def lite(folder: Path, content: bytes = b"\x1c\0\0\0TFL3") -> Path:
    folder.mkdir(parents=True)
    (folder / "model.tflite").write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("folder", "name", "version"), [("m/3", "m", 3), ("3", "root", 3), ("m", "m", 1), (".", "root", 1)]
)
def test_found(tmp_path: Path, folder: str, name: str, version: int) -> None:
    path = lite(tmp_path / "root" / folder)

    (model,) = discover(tmp_path / "root")

    assert (model.name, dict(model.versions), model.lite) == (name, {version: path}, True)
    assert model.bytes_on_disk == 8


def test_mixed(tmp_path: Path) -> None:
    """One flag of the model server decides for all models, so both kinds in one archive are refused."""
    lite(tmp_path / "small" / "1")
    (tmp_path / "large" / "1").mkdir(parents=True)
    (tmp_path / "large" / "1" / "saved_model.pb").write_bytes(SAVED_MODEL)

    with pytest.raises(
        DiscoveryError, match=r"small/1 is a TensorFlow Lite model, and .*large/1 a SavedModel"
    ):
        discover(tmp_path)


def test_repeated(tmp_path: Path) -> None:
    """A file that names the same tensor a million times costs no more than one that doesn't."""
    with pytest.raises(DiscoveryError, match="more of its tensors than a model would"):
        read_lite_model(lite(tmp_path / "m", lite_model(("x",), repeated=1_000_001)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x1c\0\0\0",
        b"not a model at all",
        b"\x1c\0\0\0TFL3",
        b"\xff\xff\xff\xffTFL3" + bytes(100),
        b"\x08\0\0\0TFL3" + b"\xff" * 100,
        b"\x10\0\0\0TFL3" + bytes(range(200)),
    ],
)
def test_damaged(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DiscoveryError, match=r"model\.tflite"):
        read_lite_model(lite(tmp_path / "m", content))


def test_beside_a_saved_model(tmp_path: Path) -> None:
    """Another form of the same version is no model of its own."""
    (lite(tmp_path / "m" / "1") / "saved_model.pb").write_bytes(SAVED_MODEL)

    (model,) = discover(tmp_path)

    assert not model.lite


def test_another_name(tmp_path: Path) -> None:
    """The error says how a file of another name is served."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "small.tflite").touch()

    with pytest.raises(
        NoModelFound, match=r"m/1/small\.tflite is TensorFlow Lite's format: .*tfs-proxy pack FILE"
    ):
        discover(tmp_path)


def test_signatures(tmp_path: Path) -> None:
    summary = read_lite_model(lite(tmp_path / "m", lite_model(("serving_x:0", "y"))))

    (signature,) = summary.signatures.values()
    assert signature.name == "serving_default"
    assert {alias: (spec.dtype, spec.shape) for alias, spec in signature.inputs.items()} == {
        "serving_x": ("DT_FLOAT", (None, 2))
    }
    assert list(signature.outputs) == ["y"]
