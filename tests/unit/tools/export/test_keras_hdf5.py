"""HDF5 files that are damaged, or point elsewhere, are refused before Keras reads them."""

import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tfs_proxy.tools.export.keras_archive import check_weights, read_hdf5_model
from tfs_proxy.values.errors import ExportError

CONFIG = json.dumps({"class_name": "Sequential", "config": {"name": "m"}})


def hdf5_file(path: Path, **attributes: Any) -> Path:
    with h5py.File(path, "w") as file:
        file.create_group("model_weights").create_dataset("kernel", data=np.ones((3, 2), np.float32))
        file.attrs.update(attributes)
    return path


def whole(path: Path) -> Path:
    return hdf5_file(path, model_config=CONFIG, keras_version="2.15.0")


def refusal(path: Path) -> str:
    with pytest.raises(ExportError) as caught:
        read_hdf5_model(path)
    return str(caught.value)


def test_weights_alone(tmp_path: Path) -> None:
    text = refusal(hdf5_file(tmp_path / "m.h5"))

    assert "holds weights alone" in text
    assert "model.export(FOLDER)" in text


@pytest.mark.parametrize("keep", [0.2, 0.6, 0.9])
def test_truncated(tmp_path: Path, keep: float) -> None:
    path = whole(tmp_path / "m.h5")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])

    assert "is damaged" in (text := refusal(path))
    assert "Copy it again" in text


def test_other_files(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.h5", "w") as archive:
        archive.writestr("config.json", "{}")

    assert "rename it to m.keras" in refusal(tmp_path / "m.h5")


def test_links(tmp_path: Path) -> None:
    for number, link in enumerate([h5py.ExternalLink("/etc/passwd", "/x"), h5py.SoftLink("/model_weights")]):
        path = whole(tmp_path / f"{number}.h5")
        with h5py.File(path, "a") as file:
            file["model_weights"]["link"] = link

        assert "/model_weights/link in it is a link" in refusal(path)


def test_data_of_other_files(tmp_path: Path) -> None:
    path = whole(tmp_path / "m.h5")
    with h5py.File(path, "a") as file:
        file.create_dataset("secret", (8,), "u1", external=[("/etc/passwd", 0, 8)])

    assert "/secret in it lies in another file" in refusal(path)


@pytest.mark.parametrize(("length", "says"), [(10**12, "4000000000000 bytes"), (10**10, "zip bomb")])
def test_arrays_of_any_size(tmp_path: Path, length: int, says: str) -> None:
    path = whole(tmp_path / "m.h5")
    with h5py.File(path, "a") as file:
        file.create_dataset("huge", (length,), np.float32, chunks=(1024,), compression="gzip")

    assert says in refusal(path)


def test_nested_without_end(tmp_path: Path) -> None:
    assert "nested too deeply" in refusal(hdf5_file(tmp_path / "m.h5", model_config="[" * 60_000))


def test_within_a_keras_file(tmp_path: Path) -> None:
    """The weights of a .keras file are looked into, too; Keras does not compress them."""
    bad = whole(tmp_path / "bad.h5")
    with h5py.File(bad, "a") as file:
        file["link"] = h5py.ExternalLink("/etc/passwd", "/x")
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "m.keras", "w", method) as archive:
            archive.write(bad, "model.weights.h5")

        with pytest.raises(
            ExportError, match="is a link" if method == zipfile.ZIP_STORED else "is compressed"
        ):
            check_weights(tmp_path / "m.keras")
