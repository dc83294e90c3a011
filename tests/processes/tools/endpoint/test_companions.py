"""Data capture and the queue of an endpoint, by what boto3's calls leave behind."""

import json
import signal
from pathlib import Path

from support.endpoints import described, of_image, running_endpoint, variant
from support.remote_container import remote_container

CAPTURE = {
    "InitialSamplingPercentage": 100,
    "DestinationS3Uri": "captured",
    "CaptureOptions": [{"CaptureMode": "InputAndOutput"}],
}


def test_requests_are_captured_by_variant(tmp_path: Path) -> None:
    with remote_container(headers={"Content-Type": "application/json"}) as container:
        container.answer = b'{"here": 1}'
        config = described(
            {"m": of_image(container.address)}, [variant("live", "m")], DataCaptureConfig=CAPTURE
        )
        with running_endpoint(tmp_path, config) as endpoint:
            endpoint.invoke_endpoint(InferenceId="one")
    (record,) = [
        json.loads(line)
        for path in (tmp_path / "captured" / "shop" / "live").rglob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert record["captureData"]["endpointInput"]["observedContentType"] == ""
    assert record["captureData"]["endpointOutput"]["data"] == '{"here": 1}'
    assert record["eventMetadata"]["inferenceId"] == "one"


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
