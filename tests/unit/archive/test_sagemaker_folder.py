"""An archive's files at the path where SageMaker unpacks them."""

from pathlib import Path

import pytest

from tfs_proxy.archive.extract import appear_at_sagemaker_folder


def test_links_appear_beside_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dangling links of an earlier run are replaced, files are left alone."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    root, folder = tmp_path / "run" / "model", tmp_path / "opt" / "ml" / "model"
    for each in (root, folder):
        each.mkdir(parents=True)
    for name in ("vocab.json", "labels.txt"):
        (root / name).write_text("new")
    (folder / "labels.txt").write_text("own")
    (folder / "vocab.json").symlink_to(tmp_path / "gone")

    appear_at_sagemaker_folder(root, folder)

    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "vocab.json": "new",
        "labels.txt": "own",
    }


@pytest.mark.parametrize("mount", ["/opt/ml/model", "/opt/ml"])
def test_nothing_is_put_into_a_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str) -> None:
    """Neither where the folder is a mount, nor within one; a folder that is not there is not made."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (tmp_path / "file").touch()
    folder = tmp_path / "opt/ml/model"
    appear_at_sagemaker_folder(tmp_path, folder)
    assert not folder.exists()
    folder.mkdir(parents=True)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == Path(f"{tmp_path}{mount}"))

    appear_at_sagemaker_folder(tmp_path, folder)

    assert list(folder.iterdir()) == []
