"""`tfs-proxy deploy` against moto's server, and what it prints without AWS against `tfs-proxy endpoint`."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from support.endpoints import ROLE, Endpoint
from support.multi_model import saying, script_model
from support.transform_command import s3_server

SECONDS = 300
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nowhere",
    "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
}
FLAGS = (
    *("--name", "shop", "--role", ROLE, "--instance-type", "ml.m5.large"),
    *("--image", "image:1", "--bucket", "s3://models/prod"),
)


@pytest.fixture(scope="module")
def aws() -> Iterator[dict[str, str]]:
    """The variables that lead to a stand-in for AWS, with a bucket."""
    with s3_server() as address:
        environ = {**CREDENTIALS, "AWS_ENDPOINT_URL": address}
        client_of("s3", environ).create_bucket(Bucket="models")
        yield environ


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return script_model(tmp_path / "model.tar.gz", saying("hello"))


def client_of(service: str, environ: Mapping[str, str]) -> Any:
    return botocore.session.get_session().create_client(
        service,
        endpoint_url=environ["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def deploy(environ: Mapping[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "tfs_proxy.cli", "deploy", *map(str, words)]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=SECONDS, env={**plain, **environ}
    )


def test_archive_becomes_an_endpoint(aws: dict[str, str], archive: Path) -> None:
    first = deploy(aws, archive, *FLAGS, "--env", "A=b", "--count", "2", "--wait")
    again = deploy(aws, archive, *FLAGS)

    assert first.returncode == 0, first.stderr
    assert "shop: InService" in first.stderr
    assert again.returncode == 2
    assert "The endpoint shop exists" in again.stderr
    client = client_of("sagemaker", aws)
    config = client.describe_endpoint(EndpointName="shop")["EndpointConfigName"]
    (variant,) = client.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
    assert (variant["InstanceType"], variant["InitialInstanceCount"]) == ("ml.m5.large", 2)
    container = client.describe_model(ModelName=variant["ModelName"])["PrimaryContainer"]
    key = container["ModelDataUrl"].removeprefix("s3://models/")
    body = client_of("s3", aws).get_object(Bucket="models", Key=key)["Body"].read()
    assert body == archive.read_bytes()


def test_what_was_tried_here_is_deployed_and_updated(
    aws: dict[str, str], archive: Path, tmp_path: Path
) -> None:
    """The printed requests are an endpoint on this machine, which a changed archive then updates through S3."""
    printed = deploy({"AWS_CONFIG_FILE": "/nowhere"}, archive, *FLAGS, "--dry-run")
    assert printed.returncode == 0, printed.stderr
    (tmp_path / "config.json").write_text(printed.stdout)
    changed = script_model(tmp_path / "changed.tar.gz", saying("changed"))
    endpoint = Endpoint(str(tmp_path / "config.json"), env=aws)
    try:
        endpoint.wait_ready()
        before = endpoint.invoke_endpoint("x", ContentType="text/plain")["Body"].read()
        here = {**aws, "AWS_ENDPOINT_URL_SAGEMAKER": f"http://127.0.0.1:{endpoint.port}"}
        updated = deploy(here, changed, *FLAGS, "--update", "--wait")
        assert updated.returncode == 0, updated.stderr
        after = endpoint.invoke_endpoint("x", ContentType="text/plain")["Body"].read()
        assert (before.split()[0], after.split()[0]) == (b"hello", b"changed")
    finally:
        endpoint.close()


@pytest.mark.parametrize(
    ("words", "changes", "says"),
    [
        (("--bucket", "s3://missing/a"), {}, "There is no s3://missing/a/other-"),
        (("--role", "nobody"), {}, "refuse CreateModel: Invalid length for parameter ExecutionRoleArn"),
        (("--env", "A"), {}, "--env A can't be used"),
        (("--update", "--name", "none"), {}, "There is no endpoint none to update"),
        ((), {"AWS_ACCESS_KEY_ID": ""}, "without credentials"),
        ((), {"AWS_DEFAULT_REGION": "", "AWS_ENDPOINT_URL": ""}, "without a region"),
    ],
)
def test_what_can_not_be_is_one_sentence(
    aws: dict[str, str], archive: Path, words: tuple[str, ...], changes: dict[str, str], says: str
) -> None:
    done = deploy({**aws, **changes}, archive, *FLAGS, "--name", "other", *words)

    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_broken_archive_is_not_deployed(aws: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "model.tar.gz").write_bytes(b"no archive")

    done = deploy(aws, tmp_path / "model.tar.gz", *FLAGS, "--name", "broken")

    assert done.returncode == 2
    assert "model.tar.gz" in done.stderr
