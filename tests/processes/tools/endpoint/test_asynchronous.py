"""InvokeEndpointAsync as boto3 makes it: objects in moto's S3, files and failures."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from support.endpoints import Endpoint, described, of_image, refusal, running_endpoint, variant
from support.remote_container import RemoteContainer, remote_container
from support.transform_command import S3_SETTINGS, s3_server
from support.waiting import wait_until

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

TOPIC = "arn:aws:sns:us-east-1:123456789012:answered"
IN_S3 = {"S3OutputPath": "s3://bucket/out/", "S3FailurePath": "s3://bucket/failed"}


@pytest.fixture(scope="module")
def s3() -> "Iterator[S3Client]":
    with s3_server() as address, pytest.MonkeyPatch.context() as environment:
        for name, value in {**S3_SETTINGS, "AWS_ENDPOINT_URL": address}.items():
            environment.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        client.put_object(Bucket="bucket", Key="in.csv", Body=b"abc")
        yield client


@pytest.fixture(scope="module")
def container() -> Iterator[RemoteContainer]:
    with remote_container(headers={"Content-Type": "text/plain"}) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("endpoint")


@pytest.fixture(scope="module")
def endpoint(s3: "S3Client", container: RemoteContainer, folder: Path) -> Iterator[Endpoint]:
    """Asynchronous endpoints on S3 and on files, and one that is not asynchronous."""
    outputs = {
        "objects": {**IN_S3, "NotificationConfig": {"SuccessTopic": TOPIC}},
        "files": {"S3OutputPath": "out"},
    }
    configs: dict[str, Any] = {
        name: {"AsyncInferenceConfig": {"OutputConfig": output}} for name, output in outputs.items()
    }
    configs["direct"] = {}
    variants = [variant("v", "m")]
    content = {
        "CreateModel": {"ModelName": "m", **of_image(container.address)},
        "CreateEndpointConfig": [
            {"EndpointConfigName": name, "ProductionVariants": variants, **config}
            for name, config in configs.items()
        ],
        "CreateEndpoint": [{"EndpointName": name, "EndpointConfigName": name} for name in configs],
    }
    with running_endpoint(folder, content) as running:
        yield running


@pytest.fixture(autouse=True)
def _as_told(container: RemoteContainer) -> None:
    container.status, container.answer = 200, None
    container.requests.clear()


def object_at(s3: "S3Client", address: str) -> bytes:
    key = address.removeprefix("s3://bucket/")

    def read() -> bytes | None:
        try:
            return s3.get_object(Bucket="bucket", Key=key)["Body"].read()
        except s3.exceptions.NoSuchKey:
            return None

    return wait_until(read, 30, f"{address} is there") or b""


def test_an_object_in_s3_becomes_another(
    endpoint: Endpoint, s3: "S3Client", container: RemoteContainer
) -> None:
    """The call is answered with 202, the id and both places; the container gets the client's headers."""
    answer = endpoint.runtime.invoke_endpoint_async(
        EndpointName="objects",
        InputLocation="s3://bucket/in.csv",
        ContentType="text/csv",
        Accept="text/plain",
        InferenceId="first",
        RequestTTLSeconds=3600,
        InvocationTimeoutSeconds=30,
    )
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 202
    assert answer["InferenceId"] == "first"
    assert answer["FailureLocation"].startswith("s3://bucket/failed/")
    assert answer["OutputLocation"].startswith("s3://bucket/out/")
    assert object_at(s3, answer["OutputLocation"]) == b"cba"
    (request,) = container.requests
    headers = {"Content-Type": "text/csv", "Accept": "text/plain", "X-Amzn-SageMaker-Inference-Id": "first"}
    assert headers.items() <= dict(request.headers).items()


def test_a_refusal_goes_to_the_place_of_failures(
    endpoint: Endpoint, s3: "S3Client", container: RemoteContainer
) -> None:
    container.status, container.answer = 500, b"out of memory"
    answer = endpoint.runtime.invoke_endpoint_async(EndpointName="objects", Body=b"abc")
    assert object_at(s3, answer["FailureLocation"]) == b"out of memory"
    missing = endpoint.runtime.invoke_endpoint_async(EndpointName="objects", InputLocation="s3://bucket/none")
    assert b"There is no s3://bucket/none" in object_at(s3, missing["FailureLocation"])


def test_files_do_instead_of_s3(endpoint: Endpoint, folder: Path) -> None:
    """Nobody needs S3 on a laptop: the config's path may be a folder, and the client's input a file."""
    (folder / "in.txt").write_bytes(b"file")
    answer = endpoint.runtime.invoke_endpoint_async(
        EndpointName="files", InputLocation=(folder / "in.txt").as_uri(), Filename="answer.txt"
    )
    assert answer["OutputLocation"] == (folder / "out" / "answer.txt").as_uri()
    assert "FailureLocation" not in answer
    written = folder / "out" / "answer.txt"
    wait_until(written.is_file, 30, "the answer is written")
    assert written.read_bytes() == b"elif"


@pytest.mark.parametrize(
    ("name", "call", "text"),
    [
        ("direct", "invoke_endpoint_async", "no AsyncInferenceConfig"),
        ("objects", "invoke_endpoint", "call InvokeEndpointAsync"),
        ("objects", "invoke_endpoint_with_response_stream", "call InvokeEndpointAsync"),
    ],
)
def test_each_kind_of_endpoint_takes_its_own_call(
    endpoint: Endpoint, name: str, call: str, text: str
) -> None:
    code, message = refusal(getattr(endpoint.runtime, call), EndpointName=name, Body=b"abc")
    assert (code, text in message) == ("ValidationError", True)


def test_what_waits_is_answered_before_the_end(tmp_path: Path) -> None:
    """SIGTERM comes while the container has a request of the queue: the answer is written nevertheless."""
    with remote_container() as container:
        outputs = {
            "OutputConfig": {"S3OutputPath": "out"},
            "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 1},
        }
        config = described(
            {"m": of_image(container.address)}, [variant("v", "m")], AsyncInferenceConfig=outputs
        )
        with running_endpoint(tmp_path, config) as running:
            container.open.clear()
            for name in ("first", "second"):
                running.runtime.invoke_endpoint_async(EndpointName="shop", Body=b"abc", Filename=name)
            container.arrived.wait(30)
            running.process.send_signal(signal.SIGTERM)
            container.open.set()
            assert running.wait(60) == 0
    assert [(tmp_path / "out" / name).read_bytes() for name in ("first", "second")] == [b"cba"] * 2
