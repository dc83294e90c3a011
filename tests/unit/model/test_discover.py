"""Which models and versions a folder holds, and what is said where that can't be told."""

from pathlib import Path

import pytest

from tfs_proxy.model.discover import DiscoveredModel, base_paths, default_model, discover
from tfs_proxy.model.extract import appear_at_sagemaker_folder
from tfs_proxy.values.errors import DiscoveryError


def saved_model(folder: Path) -> Path:
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").touch()
    return folder


def names(root: Path) -> dict[str, list[int]]:
    return {model.name: list(model.versions) for model in discover(root)}


LAYOUTS: dict[str, tuple[list[str], dict[str, list[int]]]] = {
    "versions ascending by number": (["half/10", "half/9", "half/00123"], {"half": [9, 10, 123]}),
    "several models": (["b/1", "a/2"], {"a": [2], "b": [1]}),
    "the Servo layout": (["export/Servo/1"], {"Servo": [1]}),
    "any depth": (["a/b/c/d/e/7"], {"e": [7]}),
    "no version folder": (["resnet"], {"resnet": [1]}),
    "a version at the root": (["1", "2"], {"root": [1, 2]}),
    "the root itself": (["."], {"root": [1]}),
    "nothing below code": (["half/1", "code/model/1"], {"half": [1]}),
    "code elsewhere": (["models/code/1"], {"code": [1]}),
    "no look into a SavedModel's own folders": (["half/1", "half/1/assets.extra/old/1"], {"half": [1]}),
    "hidden folders": (["half/1", ".cache/x/1"], {"half": [1]}),
}


@pytest.mark.parametrize("case", LAYOUTS, ids=str)
def test_layouts(tmp_path: Path, case: str) -> None:
    """Each layout that is served gives these names and versions."""
    folders, expected = LAYOUTS[case]
    for folder in folders:
        saved_model(tmp_path / "root" / folder)
    assert names(tmp_path / "root") == expected


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    """A link to a folder above it is walked once."""
    saved_model(tmp_path / "half/1")
    (tmp_path / "half/up").symlink_to("..")
    (tmp_path / "self").symlink_to(".")
    assert names(tmp_path) == {"half": [1]}


def test_a_version_may_be_a_link(tmp_path: Path) -> None:
    """A numbered link names a version; other names of the same folder are not served again."""
    saved_model(tmp_path / "store/abc")
    (tmp_path / "half").mkdir()
    (tmp_path / "half/1").symlink_to("../store/abc")
    (tmp_path / "half/2").symlink_to("1")
    (tmp_path / "half/latest").symlink_to("2")
    assert names(tmp_path) == {"half": [1, 2]}


def test_two_models_of_one_name_are_an_error_that_names_both(tmp_path: Path) -> None:
    saved_model(tmp_path / "a/half/1")
    saved_model(tmp_path / "b/half/2")
    with pytest.raises(DiscoveryError) as caught:
        discover(tmp_path)
    assert str(tmp_path / "a/half/1") in str(caught.value)
    assert str(tmp_path / "b/half/2") in str(caught.value)


@pytest.mark.parametrize("folders", [["half", "half/1"], ["half/1", "half/01"], [".", "1"]])
def test_one_version_twice_is_an_error(tmp_path: Path, folders: list[str]) -> None:
    """A SavedModel beside its own version folder, or one number written in two ways."""
    for folder in folders:
        saved_model(tmp_path / folder)
    with pytest.raises(DiscoveryError, match="Two models are called"):
        discover(tmp_path)


@pytest.mark.parametrize("folder", ["my model/1", "ünit/1", "_private", "a+b/3", "n" * 255 + "/1"])
def test_a_name_that_no_url_can_carry(tmp_path: Path, folder: str) -> None:
    """The error names the folder; a name of 255 characters is the longest."""
    saved_model(tmp_path / folder)
    if len(folder) > 200:
        assert names(tmp_path) == {"n" * 255: [1]}
        return
    with pytest.raises(DiscoveryError, match="Rename the folder") as caught:
        discover(tmp_path)
    assert folder.removesuffix("/1").removesuffix("/3") in str(caught.value)


def test_a_version_beyond_tf_serving(tmp_path: Path) -> None:
    """TF Serving's versions are 64-bit numbers."""
    saved_model(tmp_path / "half/9999999999999999999")
    with pytest.raises(DiscoveryError, match="at most"):
        discover(tmp_path)


def test_no_model_says_what_was_looked_at_and_what_is_expected(tmp_path: Path) -> None:
    """The sentence tells the layout, and what else lies there in a form that is not served."""
    (tmp_path / "some/where").mkdir(parents=True)
    (tmp_path / "some/net.keras").touch()
    (tmp_path / "model-v3.tar.gz").touch()
    saved_model(tmp_path / "code/net/1")
    with pytest.raises(DiscoveryError) as caught:
        discover(tmp_path)
    text = str(caught.value)
    assert "3 folders searched" in text
    assert f"{tmp_path}/NAME/1/saved_model.pb" in text
    assert "some/net.keras is Keras's own format" in text
    assert "model-v3.tar.gz is an archive" in text
    assert "below code/" in text


@pytest.mark.parametrize("folder", ["resnet", "."])
def test_staging_gives_a_version_folder_to_what_has_none(tmp_path: Path, folder: str) -> None:
    """TF Serving wants BASE/VERSION, so a link stands in."""
    real = saved_model(tmp_path / "in" / folder)
    (model,) = discover(tmp_path / "in")
    base = base_paths([model], tmp_path / "staged")[model.name]
    assert base == tmp_path / "staged" / model.name
    assert (base / "1").resolve() == real.resolve()
    assert (base / "1/saved_model.pb").is_file()


MODELS = (DiscoveredModel("b", {1: Path("b/1")}), DiscoveredModel("a", {1: Path("a/1")}))


def test_a_default_model_that_is_not_there() -> None:
    """The error names the setting, its value, and what there is."""
    with pytest.raises(DiscoveryError, match=r"SAGEMAKER_TFS_DEFAULT_MODEL_NAME=c .* a, b\."):
        default_model(MODELS, "c")


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
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (tmp_path / "file").touch()
    folder = tmp_path / "opt/ml/model"
    appear_at_sagemaker_folder(tmp_path, folder)
    assert not folder.exists()
    folder.mkdir(parents=True)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == Path(f"{tmp_path}{mount}"))

    appear_at_sagemaker_folder(tmp_path, folder)

    assert list(folder.iterdir()) == []


def test_staging_leaves_what_is_laid_out_already(tmp_path: Path) -> None:
    """A model in numbered folders is served from where it lies."""
    saved_model(tmp_path / "in/half/1")
    saved_model(tmp_path / "in/half/0002")
    assert base_paths(discover(tmp_path / "in"), tmp_path / "staged") == {"half": tmp_path / "in/half"}
    assert not (tmp_path / "staged").exists()


def test_a_model_server_reads_no_path_that_can_not_be_printed(tmp_path: Path) -> None:
    saved_model(tmp_path / "x\nserver: ready" / "half" / "1")
    links = tmp_path / "links"

    assert base_paths(discover(tmp_path), links) == {"half": links / "half"}
    assert (links / "half" / "1" / "variables").is_dir()
