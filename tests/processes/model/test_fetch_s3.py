"""Fetching from S3, against moto's server in a process of its own."""

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest

from support.archives import archive_bytes
from support.http_servers import Quiet, listening
from support.transform_command import S3_SETTINGS, s3_server
from tfs_proxy.model.fetch import fetch
from tfs_proxy.values.errors import ArchiveError
from tfs_proxy.values.layout import Workspace

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> "S3Client":
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    for name, value in S3_SETTINGS.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="models")
    return client


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "run"
    root.mkdir()
    return Workspace(root)


def test_an_archive_in_s3(s3: "S3Client", workspace: Workspace) -> None:
    """It is fetched, unpacked, and the packed file is gone."""
    s3.put_object(Bucket="models", Key="a/resnet.tar.gz", Body=archive_bytes())
    folder = fetch("s3://models/a/resnet.tar.gz", workspace)
    assert (folder / "half/1/saved_model.pb").is_file()
    assert not list(workspace.root.rglob("*.tar.gz"))


def test_a_download_that_is_cancelled(s3: "S3Client", workspace: Workspace) -> None:
    """Nothing of it stays."""
    s3.put_object(Bucket="models", Key="c/resnet.tar.gz", Body=archive_bytes())
    cancelled = threading.Event()
    cancelled.set()

    with pytest.raises(CancelledError):
        fetch("s3://models/c/resnet.tar.gz", workspace, cancelled)

    assert list(workspace.root.iterdir()) == []


@pytest.mark.parametrize("address", ["s3://models/tree/", "s3://models/tree"])
def test_a_prefix_in_s3(s3: "S3Client", workspace: Workspace, address: str) -> None:
    """Keys become paths, large objects in several parts; a missing last slash is forgiven."""
    large = bytes(range(256)) * 80_000
    s3.put_object(Bucket="models", Key="tree/", Body=b"")
    s3.put_object(Bucket="models", Key="tree/half/1/saved_model.pb", Body=b"pb")
    s3.put_object(Bucket="models", Key="tree/half/1/variables/v", Body=large)
    s3.put_object(Bucket="models", Key="tree2/other", Body=b"")
    folder = fetch(address, workspace)
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files == {"half/1/saved_model.pb": b"pb", "half/1/variables/v": large}


def test_a_prefix_with_an_archive(s3: "S3Client", workspace: Workspace) -> None:
    """As in a local folder, the model.tar.gz is what gets served."""
    s3.put_object(Bucket="models", Key="job/output/model.tar.gz", Body=archive_bytes())
    s3.put_object(Bucket="models", Key="job/output/log", Body=b"x")
    assert fetch("s3://models/job/output/", workspace) == workspace.model


def refused(address: str, workspace: Workspace) -> str:
    with pytest.raises(ArchiveError) as caught:
        fetch(address, workspace)
    assert not [path for path in workspace.root.rglob("*") if path.is_file()]
    assert not workspace.model.exists()
    return str(caught.value)


def test_what_is_not_there(s3: "S3Client", workspace: Workspace) -> None:
    """A missing key, prefix and bucket are each named."""
    assert "There is no s3://models/none.tar.gz" in refused("s3://models/none.tar.gz", workspace)
    assert "There is no s3://models/none/" in refused("s3://models/none/", workspace)
    assert "There is no s3://no-such-bucket/a" in refused("s3://no-such-bucket/a", workspace)


def test_no_credentials(s3: "S3Client", workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says which variables to set."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    assert "set AWS_ACCESS_KEY_ID" in refused("s3://models/a.tar.gz", workspace)


def test_no_endpoint(s3: "S3Client", workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing listens, the sentence says what to look at."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    assert "AWS_ENDPOINT_URL_S3" in refused("s3://models/a.tar.gz", workspace)


class _Refusing(Quiet):
    """Answers every listing with the error code that the bucket's name carries."""

    def do_GET(self) -> None:  # noqa: N802 - as http.server has it
        code = {"denied": "AccessDenied", "expired": "ExpiredToken"}.get(
            self.path.split("?")[0].strip("/"), "Odd"
        )
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        self.answer(403, body, {})


@pytest.mark.parametrize(
    ("bucket", "advice"),
    [("denied", "need s3:GetObject"), ("expired", "renew"), ("other", "S3 answered Odd")],
)
def test_refusals_say_what_to_do(
    s3: "S3Client", workspace: Workspace, monkeypatch: pytest.MonkeyPatch, bucket: str, advice: str
) -> None:
    """Missing rights, old credentials and unknown answers are told apart."""
    with listening(_Refusing) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        text = refused(f"s3://{bucket}/models/", workspace)
    assert advice in text
