"""SageMaker's SDKs, unchanged, with our image, in their local modes and at `tfs-proxy endpoint`.

moto stands in for what else they ask of AWS.
"""

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest

from support.containers import EMBEDDED
from support.endpoints import Endpoint
from support.judges import CLIENTS, judge
from support.transform_command import s3_server


@pytest.fixture(scope="module")
def aws() -> Iterator[Mapping[str, str]]:
    with s3_server() as address:
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }


def saw(name: str, aws: Mapping[str, str], *words: str | Path, client: str = "local") -> dict[str, Any]:
    """What a client saw, in the environment of an SDK: it prints JSON between the lines of containers."""
    printed = judge(name).run("python", CLIENTS / f"{name}_{client}.py", *words, env=aws)
    (line,) = [line for line in printed.splitlines() if line.startswith('{"answer"')]
    seen: dict[str, Any] = json.loads(line)
    return seen


def has_compose() -> bool:
    """Whether the SDK 2 finds what it starts containers by."""
    if shutil.which("docker") is None:
        return False
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return plugin.returncode == 0 or shutil.which("docker-compose") is not None


def test_sdk_3_asks_at_port_8501(aws: Mapping[str, str], scripted: Path, tmp_path: Path) -> None:
    with tarfile.open(scripted) as archive:
        archive.extractall(tmp_path, filter="data")

    seen = saw("sagemaker3", aws, EMBEDDED, tmp_path)

    assert seen["answer"] == {"predictions": [2.5]}


@pytest.mark.skipif(not has_compose(), reason="docker compose is not installed")
def test_sdk_2_has_an_endpoint_and_a_transform_job(
    aws: Mapping[str, str], plain: Path, tmp_path: Path
) -> None:
    seen = saw("sagemaker2", aws, EMBEDDED, plain, tmp_path)

    assert seen["answer"] == {"predictions": [2.5]}
    assert list(seen["transformed"]) == ["rows.csv.out"]


def test_sdk_2_creates_all_of_an_endpoint_by_calls(aws: Mapping[str, str], plain: Path) -> None:
    """Model, config and endpoint, where `tfs-proxy endpoint` has started empty."""
    session = boto3.Session("test", "test", region_name="us-east-1")
    client = session.client("s3", endpoint_url=aws["AWS_ENDPOINT_URL"])
    client.create_bucket(Bucket="local")
    client.upload_file(str(plain), "local", "model.tar.gz")
    with closing(Endpoint(env=aws)) as endpoint:
        endpoint.wait_ready()
        address = f"http://{endpoint.host}:{endpoint.port}"
        calls = {f"AWS_ENDPOINT_URL_SAGEMAKER{service}": address for service in ("", "_RUNTIME")}
        words = (EMBEDDED, "s3://local/model.tar.gz")
        seen = saw("sagemaker2", {**aws, **calls}, *words, client="endpoint")

    assert seen == {"answer": {"predictions": [2.5]}, "left": []}
