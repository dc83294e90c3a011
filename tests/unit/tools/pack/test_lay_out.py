"""A model and its script are laid out as SageMaker wants them."""

import os
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from support.archives import SAVED_MODEL
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.pack.lay_out import LayoutOptions, lay_out
from tfs_proxy.values.errors import ArchiveError, DiscoveryError, NoArchive, SettingsError, StopServing


def saved_model(folder: Path) -> Path:
    (folder / "variables").mkdir(parents=True)
    (folder / "assets.extra").mkdir()
    for name, content in {
        "saved_model.pb": SAVED_MODEL,
        "fingerprint.pb": b"f",
        "variables/variables.index": b"v",
        "assets.extra/tf_serving_warmup_requests": b"w",
        ".DS_Store": b"junk",
        "old.tar.gz": b"junk",
    }.items():
        (folder / name).write_bytes(content)
    return folder


def laid_out(tmp_path: Path, **options: Any) -> dict[str, bytes]:
    root = Path(mkdtemp(dir=tmp_path)) / "laid out"
    lay_out(LayoutOptions(**options), root, Settings.from_env({}))
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


PARTS = (
    "assets.extra/tf_serving_warmup_requests",
    "fingerprint.pb",
    "saved_model.pb",
    "variables/variables.index",
)


@pytest.mark.parametrize(
    ("folder", "given", "options", "where"),
    [
        ("export", "export", {}, "export/1"),
        ("export/4", "export", {}, "export/4"),
        ("export/4", "export/4", {}, "export/4"),
        ("export/4", "export", {"name": "m", "version": 9}, "m/9"),
        ("root/deep/m/2", "root", {}, "m/2"),
        ("two words", "two words", {}, "model/1"),
        ("code", "code", {}, "model/1"),
        ("0", "0", {"name": "m"}, "m/0"),
    ],
)
def test_folders(tmp_path: Path, folder: str, given: str, options: dict[str, Any], where: str) -> None:
    """A SavedModel, a version of one, a folder of versions, or models further below; without leftovers."""
    saved_model(tmp_path / "in" / folder)

    files = laid_out(tmp_path, model=tmp_path / "in" / given, **options)

    assert sorted(files) == sorted(f"{where}/{part}" for part in PARTS)


def test_a_missing_script_is_told_before_the_export(tmp_path: Path) -> None:
    (tmp_path / "net.keras").write_bytes(b"no model")

    with pytest.raises(ArchiveError, match=r"no file or folder .*missing.py"):
        laid_out(tmp_path, model=tmp_path / "net.keras", script=tmp_path / "missing.py")


def test_versions_and_models(tmp_path: Path) -> None:
    for folder in ("a/1", "a/2", "b/1"):
        saved_model(tmp_path / "in" / folder)

    files = laid_out(tmp_path, model=tmp_path / "in")
    assert [name for name in files if name.endswith("/saved_model.pb")] == [
        "a/1/saved_model.pb",
        "a/2/saved_model.pb",
        "b/1/saved_model.pb",
    ]
    with pytest.raises(SettingsError, match="--model-name can't be used: a, b are in"):
        laid_out(tmp_path, model=tmp_path / "in", name="m")
    with pytest.raises(SettingsError, match="--version can't be used: 2 SavedModels"):
        laid_out(tmp_path, model=tmp_path / "in" / "a", version=3)


def test_script_folder(tmp_path: Path) -> None:
    for name in ("inference.py", "lib/own.py", "data/words.txt", "__pycache__/x.pyc", ".git/config"):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_text(name)

    files = laid_out(tmp_path, model=saved_model(tmp_path / "m"), script=tmp_path / "src")

    assert [name for name in files if name.startswith("code/")] == [
        "code/data/words.txt",
        "code/inference.py",
        "code/lib/own.py",
    ]


def test_a_whole_model_folder(tmp_path: Path) -> None:
    """What was unpacked from an archive can be packed again, its script included, unless another is given."""
    saved_model(tmp_path / "in" / "m" / "1")
    (tmp_path / "in" / "code").mkdir()
    (tmp_path / "in" / "code" / "inference.py").write_text("old")
    (tmp_path / "new.py").write_text("new")

    assert laid_out(tmp_path, model=tmp_path / "in")["code/inference.py"] == b"old"
    again = laid_out(tmp_path, model=tmp_path / "in", script=tmp_path / "new.py")
    assert again["code/inference.py"] == b"new"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model.onnx", "is an ONNX model: make a SavedModel of it first, with onnx2tf"),
        (
            "model.tflite",
            "is TensorFlow Lite's format, which TensorFlow has moved to LiteRT and which is not",
        ),
        ("model.pt", "is a PyTorch model"),
        ("model.tar.gz", "is an archive already"),
        ("saved_model.pb", "only the graph of a SavedModel: give its folder"),
        ("frozen.pb", "frozen.pb is a frozen graph, as TensorFlow 1 writes it"),
        ("model.pkl", "is a pickle, which runs code"),
        ("variables.index", "is a checkpoint"),
        ("notes.txt", "is none of the kinds that can be packed"),
    ],
)
def test_other_kinds(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / name).write_bytes(b"x")

    with pytest.raises(DiscoveryError, match=says):
        laid_out(tmp_path, model=tmp_path / name)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NoArchive, match="There is no file or folder"):
        laid_out(tmp_path, model=tmp_path / "no")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "m.keras").touch()
    with pytest.raises(DiscoveryError, match=r"m\.keras is Keras's own format: .*`tfs-proxy pack FILE`"):
        laid_out(tmp_path, model=tmp_path / "in")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "code"}, "--model-name code can't be a model's name"),
        ({"name": "a b"}, "--model-name a b can't be"),
        ({"version": -1}, "--version -1 is not between 0 and"),
        ({"version": 2**63}, "is not between 0 and"),
        ({"requirements": "file"}, "--requirements are those of a script"),
        ({"requirements": "no"}, "There is no file .*no"),
        ({"script": "no"}, "There is no file or folder"),
        ({"script": "empty"}, r"There is no inference\.py in .*empty, so it would not be used\."),
        ({"script": "above"}, r"no inference\.py in .*above.* Give .*above/code instead"),
        ({"script": "both", "requirements": "file"}, "has a requirements.txt, too"),
        ({"script": "vendored", "requirements": "file"}, "would be ignored: the script's folder has lib/"),
    ],
)
def test_flags_that_do_not_fit(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    (tmp_path / "file").write_text("x")
    for name in (
        "empty/x",
        "above/code/inference.py",
        "both/inference.py",
        "both/requirements.txt",
        "vendored/inference.py",
        "vendored/lib/x",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    paths = {key: tmp_path / value for key, value in options.items() if key in {"script", "requirements"}}

    with pytest.raises(StopServing, match=says) as caught:
        laid_out(tmp_path, model=saved_model(tmp_path / "m"), **{**options, **paths})
    assert caught.value.exit_status == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    (saved_model(tmp_path / "m") / "fingerprint.pb").chmod(0)

    with pytest.raises(StopServing, match=r"fingerprint\.pb can't be read by user"):
        laid_out(tmp_path, model=tmp_path / "m")
