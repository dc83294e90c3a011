"""Asynchronous requests' objects in S3: moto's server in a process of its own."""

from collections.abc import Iterator

import boto3
import pytest

from support.transform_command import S3_SETTINGS, s3_server
from tfs_proxy.tools.endpoint.delivery import LocationFailed, read_location, write_location


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_objects_are_read_and_written_at_the_users_s3(
    moto: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**S3_SETTINGS, variable: moto}.items():
        monkeypatch.setenv(name, value)
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="bucket")
    write_location("s3://bucket/out/a b.json", b"{}", "application/json")
    written = s3.get_object(Bucket="bucket", Key="out/a b.json")
    assert (written["Body"].read(), written["ContentType"]) == (b"{}", "application/json")
    assert read_location("s3://bucket/out/a b.json") == b"{}"
    with pytest.raises(LocationFailed, match="There is no s3://bucket/none"):
        read_location("s3://bucket/none")
