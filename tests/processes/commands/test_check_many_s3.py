"""`tfs-proxy check --multi-model s3://PREFIX`, against moto's server in a process of its own."""

from pathlib import Path

import boto3
import pytest

from support.archives import SAVED_MODEL, pack
from support.transform_command import S3_SETTINGS, s3_server
from tfs_proxy.cli import main


def test_archives_below_a_prefix_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each is downloaded, by the names that serving the prefix would give them."""
    for name, value in S3_SETTINGS.items():
        monkeypatch.setenv(name, value)
    good = pack(tmp_path / "good.tar.gz", {"m/1/saved_model.pb": SAVED_MODEL})
    bad = pack(tmp_path / "bad.tar.gz", {"notes.txt": "x"})
    with s3_server() as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        client = boto3.client("s3")
        client.create_bucket(Bucket="models")
        for key, path in {"many/team/good.tar.gz": good, "many/bad.tar.gz": bad, "other.tar.gz": bad}.items():
            client.put_object(Bucket="models", Key=key, Body=path.read_bytes())

        assert main(["check", "--multi-model", "s3://models/many"]) == 1

    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("fails bad: No SavedModel was found")
    assert lines[1].startswith("ok team--good: m (version 1)")
    assert lines[2] == "1 of 2 would fail."
