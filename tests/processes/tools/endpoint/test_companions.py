"""Shadow variants and data capture of an endpoint, by what boto3's calls leave behind."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from support.endpoints import Endpoint, described, of_image, running_endpoint, variant
from support.remote_container import RemoteContainer, remote_container

Pair = tuple[RemoteContainer, RemoteContainer]
CAPTURE = {
    "InitialSamplingPercentage": 100,
    "DestinationS3Uri": "captured",
    "CaptureOptions": [{"CaptureMode": "InputAndOutput"}],
}


@pytest.fixture(scope="module")
def containers() -> Iterator[Pair]:
    kind = {"Content-Type": "application/json"}
    with remote_container(headers=kind) as live, remote_container(headers=kind) as shadow:
        yield live, shadow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("endpoint")


@pytest.fixture(scope="module")
def endpoint(containers: tuple[RemoteContainer, ...], folder: Path) -> Iterator[Endpoint]:
    models = {name: of_image(each.address) for name, each in zip("ls", containers, strict=True)}
    config = described(
        models,
        [variant("live", "l")],
        ShadowProductionVariants=[variant("shadow", "s")],
        DataCaptureConfig=CAPTURE,
    )
    with running_endpoint(folder, config, "--tolerance", "0.01") as running:
        yield running


def report(endpoint: Endpoint) -> Any:
    (shadow,) = endpoint.ask("GET", "/shadows").json["shadows"]
    return shadow


def ask(endpoint: Endpoint, containers: Pair, ours: str, theirs: str) -> bytes:
    """What the client gets if the variants answer so; returns once the answers are compared."""
    live, shadow = containers
    live.answer, shadow.answer = ours.encode(), theirs.encode()
    before = report(endpoint)["copied"]
    answer: bytes = endpoint.invoke_endpoint(InferenceId=f"{ours} {theirs}")["Body"].read()
    endpoint.wait_until(lambda: report(endpoint)["copied"] > before, "the copy is compared", 30)
    return answer


def test_a_shadow_gets_copies_and_the_client_the_variants_answer(
    endpoint: Endpoint, containers: Pair
) -> None:
    """Both get the same body and headers; numbers within the tolerance are no difference."""
    _, shadow = containers
    assert ask(endpoint, containers, '{"y": 1.0}', '{"y": 1.001}') == b'{"y": 1.0}'
    assert shadow.requests[-1].body == b"abc"
    assert shadow.requests[-1].headers["X-Amzn-SageMaker-Inference-Id"] == '{"y": 1.0} {"y": 1.001}'
    found = report(endpoint)
    assert (found["endpoint"], found["production"], found["shadow"]) == ("shop", "live", "shadow")
    assert (found["equal"], found["body_differences"]) == (1, 0)


def test_differences_are_reported(endpoint: Endpoint, containers: Pair) -> None:
    """By their place in the body, or by the statuses, also where production is the one that refuses."""
    ask(endpoint, containers, "[1, 2]", "[1, 3]")
    assert {"inferenceId": "[1, 2] [1, 3]", "difference": "$[1] is 2 and 3"} in report(endpoint)["examples"]
    containers[0].status = 400
    with pytest.raises(ClientError, match="ModelError"):
        ask(endpoint, containers, "no", "yes")
    containers[0].status = 200
    endpoint.wait_until(lambda: report(endpoint)["status_differences"], "the statuses are compared", 30)
    assert report(endpoint)["status_differences"] == [{"production": 400, "shadow": 200, "requests": 1}]


def test_requests_are_captured_by_variant(endpoint: Endpoint, containers: Pair, folder: Path) -> None:
    ask(endpoint, containers, '{"here": 1}', '{"there": 1}')

    def records() -> list[Any]:
        files = (folder / "captured" / "shop" / "live").glob(
            "2[0-9][0-9][0-9]/[0-9][0-9]/[0-9][0-9]/[0-9][0-9]/*.jsonl"
        )
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    found = endpoint.wait_until(
        lambda: [each for each in records() if "here" in json.dumps(each)], "the record is written", 30
    )
    (record,) = found
    assert record["captureData"]["endpointInput"]["observedContentType"] == ""
    assert record["captureData"]["endpointOutput"]["data"] == '{"here": 1}'
    assert record["eventMetadata"]["inferenceId"] == '{"here": 1} {"there": 1}'
    assert not list((folder / "captured").rglob("shadow"))


def test_an_update_ends_what_the_old_config_asked_for(
    endpoint: Endpoint, containers: Pair, folder: Path
) -> None:
    """Without a shadow in the new config nothing is copied any more, and the log has the report."""
    sagemaker = endpoint.control_plane
    sagemaker.create_endpoint_config(EndpointConfigName="second", ProductionVariants=[variant("live", "l")])
    sagemaker.update_endpoint(EndpointName="shop", EndpointConfigName="second")

    def is_updated() -> bool:
        found = sagemaker.describe_endpoint(EndpointName="shop")
        return bool(found["EndpointConfigName"] == "second" and found["EndpointStatus"] == "InService")

    endpoint.wait_until(is_updated, "the endpoint has the new config", 30)
    containers[1].requests.clear()
    assert endpoint.invoke_endpoint()["Body"].read() == containers[0].answer
    endpoint.wait_for_log("shadow variant shadow: ", 30)
    assert endpoint.ask("GET", "/shadows").json == {"shadows": []}
    assert containers[1].requests == []


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
