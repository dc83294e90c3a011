"""The script for models that bring none: from S3, against moto's server, or from the image."""

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from support.archives import SAVED_MODEL
from support.transform_command import S3_SETTINGS, s3_server
from tfs_proxy.model.report.served import look_into
from tfs_proxy.model.report.startup import describe
from tfs_proxy.run.many_models import archives
from tfs_proxy.run.many_models.archives import universal_code
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ArchiveError
from tfs_proxy.values.layout import UNIVERSAL_CODE_DIRS, Workspace

BUCKET = "scripts"
ENVIRON = {
    "SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET": BUCKET,
    "SAGEMAKER_MULTI_MODEL_UNIVERSAL_PREFIX": "shared",
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of S3, with a bucket of scripts."""
    with s3_server() as address:
        yield address


@pytest.fixture(autouse=True)
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket with a script and its module below ``shared``, and two files of one name below ``twice``."""
    for name, value in {**S3_SETTINGS, "AWS_ENDPOINT_URL_S3": endpoint}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    for key in (
        "shared/inference.py",
        "shared/more/shapes.py",
        "twice/a/inference.py",
        "twice/b/inference.py",
    ):
        client.put_object(Bucket=BUCKET, Key=key, Body=b"def handler(data, context): ...\n")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """The folder of a run."""
    root = tmp_path / "run"
    root.mkdir()
    return Workspace(root)


def test_the_files_of_the_bucket_end_up_in_one_folder(workspace: Workspace) -> None:
    """Whatever their folders are called there."""
    code = universal_code(Settings.from_env(ENVIRON), workspace)

    assert code is not None
    assert sorted(path.name for path in Path(code).iterdir()) == ["inference.py", "shapes.py"]


def test_a_model_without_a_script_gets_it(workspace: Workspace, tmp_path: Path) -> None:
    """One that brings its own keeps that."""
    settings = Settings.from_env({})
    universal = tmp_path / "universal"
    universal.mkdir()
    (universal / "inference.py").write_text("def handler(data, context): ...\n")
    for name in ("bare", "own"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "saved_model.pb").write_bytes(SAVED_MODEL)
    (tmp_path / "own" / "code").mkdir()
    (tmp_path / "own" / "code" / "inference.py").write_text("def handler(data, context): ...\n")

    with_universal = settings.with_values(universal_code=str(universal))
    assert look_into(tmp_path / "bare", with_universal).script == str(universal / "inference.py")
    assert look_into(tmp_path / "bare", with_universal).import_paths == (str(universal),)
    served = look_into(tmp_path / "bare", with_universal)
    assert "defines handler" in "\n".join(describe(served, with_universal, {}).lines())
    assert look_into(tmp_path / "own", with_universal).script == str(tmp_path / "own/code/inference.py")
    assert look_into(tmp_path / "bare", settings).script is None


def test_names_that_meet_are_refused(workspace: Workspace) -> None:
    """Either of the two could be meant."""
    environ = {**ENVIRON, "SAGEMAKER_MULTI_MODEL_UNIVERSAL_PREFIX": "twice"}
    with pytest.raises(ArchiveError, match=r"s3://scripts/twice has several files called inference\.py"):
        universal_code(Settings.from_env(environ), workspace)


def test_a_bucket_without_the_script_is_refused(workspace: Workspace) -> None:
    """The error names the script, and the settings that say where it lies."""
    environ = {**ENVIRON, "SAGEMAKER_PROGRAM": "serve.py"}
    with pytest.raises(ArchiveError, match=r"has no serve\.py: SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET"):
        universal_code(Settings.from_env(environ), workspace)


def test_without_a_bucket_the_first_folder_that_has_the_script_is_taken(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older image of AWS had it in another folder than the newer one."""
    assert [str(folder) for folder in UNIVERSAL_CODE_DIRS] == ["/opt/ml/code", "/opt/ml/models/code"]
    newer, older = (tmp_path / name for name in ("newer", "older"))
    monkeypatch.setattr(archives, "UNIVERSAL_CODE_DIRS", (newer, older))
    assert universal_code(Settings.from_env({}), workspace) is None
    for folder in (older, newer):
        folder.mkdir()
        (folder / "inference.py").touch()
        assert universal_code(Settings.from_env({}), workspace) == str(folder)
