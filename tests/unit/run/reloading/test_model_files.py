"""What counts as a change of what is served."""

from pathlib import Path

import pytest

from tfs_proxy.run.reloading.files import changed_files, model_source, snapshot_of_models


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model of one version, and a script."""
    put(tmp_path / "m" / "1" / "saved_model.pb")
    put(tmp_path / "m" / "1" / "variables" / "variables.index")
    put(tmp_path / "code" / "inference.py")
    return tmp_path


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


@pytest.mark.parametrize(
    "name", ["README", "code/inference.py", "code/lib/model.tflite", "m/.2/saved_model.pb", "m/2/variables/x"]
)
def test_what_belongs_to_no_model_is_no_change(folder: Path, name: str) -> None:
    """Code, files beside the models, hidden copies, and a version whose graph is not there yet."""
    before = model_source(str(folder)).look()
    put(folder / name)
    (folder / "code" / "inference.py").write_text("x = 1")

    assert changed_files(before, model_source(str(folder)).look()) == ()


@pytest.mark.parametrize("name", ["m/2/saved_model.pb", "deep/in/n/1/model.tflite", "m/1/assets/labels.txt"])
def test_files_of_new_and_old_models_are_changes(folder: Path, name: str) -> None:
    """A version at any depth, and what is put into one."""
    before = snapshot_of_models(folder)
    put(folder / name)

    assert changed_files(before, snapshot_of_models(folder)) == (folder / name,)


def test_a_folder_with_an_archive_is_that_archive(folder: Path) -> None:
    """`fetch` serves the archive, whatever lies beside it."""
    archive = folder / "model.tar.gz"
    archive.touch()
    source = model_source(str(folder))
    before = source.look()
    put(folder / "m" / "2" / "saved_model.pb")
    assert source.look() == before
    (folder / "new").write_text("2")
    (folder / "new").rename(archive)

    assert changed_files(before, source.look()) == (archive,)


def test_what_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert model_source(str(tmp_path / "missing")).look() == {}
