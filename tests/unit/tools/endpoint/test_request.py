"""What InvokeEndpointAsync takes: botocore's model of the operation is the judge."""

from pathlib import Path

import pytest

from tfs_proxy.tools.endpoint.aws_api import AwsError
from tfs_proxy.tools.endpoint.delivery import INLINE_BYTES, AsyncConfig, async_config, async_request
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import ANYWHERE, LocalFiles
from tfs_proxy.wire.http_messages import HttpRequest

S3 = AsyncConfig("s3://bucket/out", "s3://bucket/failed")


def call(body: bytes = b"", **members: str) -> HttpRequest:
    """A call with these members, whose names are those of their headers."""
    headers = {f"x-amzn-sagemaker-{name.lower().replace('_', '-')}": text for name, text in members.items()}
    return HttpRequest("POST", "/endpoints/e/async-invocations", headers, body)


def test_answers_have_a_name_of_their_own() -> None:
    first, second = (async_request(call(InputLocation="s3://b/k"), S3, ANYWHERE) for _ in range(2))
    assert first.output != second.output
    assert first.output.startswith("s3://bucket/out/")
    assert first.failure is not None
    assert first.failure.startswith("s3://bucket/failed/")
    assert first.failure.endswith("-error.out")


def test_a_client_names_the_output() -> None:
    """Filename and S3OutputPathExtension say where below the config's path an answer goes."""
    request = async_request(
        call(InputLocation="s3://b/k", Filename="answer.json", S3OutputPathExtension="a/b/"), S3, ANYWHERE
    )
    assert request.output == "s3://bucket/out/a/b/answer.json"
    assert request.failure == "s3://bucket/failed/a/b/answer-error.json"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (call(), "Either InputLocation or Body"),
        (call(b"x", InputLocation="s3://b/k"), "Either InputLocation or Body"),
        (call(b"x" * (INLINE_BYTES + 1)), "Body has 128001 bytes"),
        (call(InputLocation="https://b.s3.amazonaws.com/k"), "take s3://, file:// or a path"),
        (call(InputLocation="file:///etc/passwd"), "InputLocation /etc/passwd .* not below /data"),
        (call(b"x", RequestTTLSeconds="59"), "RequestTTLSeconds is 59; 60 to 21600 are allowed"),
        (call(b"x", RequestTTLSeconds="soon"), "RequestTTLSeconds must be a number"),
        (call(b"x", InvocationTimeoutSeconds="3601"), "InvocationTimeoutSeconds is 3601"),
        (call(b"x", Filename="../up"), "Filename does not match"),
        (call(b"x", Filename="f" * 33), "Filename has 33 characters"),
        (call(b"x", S3OutputPathExtension="a/../../b"), "S3OutputPathExtension"),
        (call(b"x", Inference_Id="i" * 65), "InferenceId has 65 characters"),
    ],
)
def test_what_aws_refuses_is_refused_by_its_member(request_: HttpRequest, text: str) -> None:
    with pytest.raises(AwsError, match=text):
        async_request(request_, S3, LocalFiles(("/data",)))


def test_the_config_is_read_from_its_request() -> None:
    asked = {
        "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 2},
        "OutputConfig": {
            "S3OutputPath": "s3://bucket/out/",
            "S3FailurePath": "failed",
            "NotificationConfig": {
                "SuccessTopic": "arn:aws:sns:us-east-1:123456789012:good",
                "ErrorTopic": "arn:aws:sns:us-east-1:123456789012:bad",
                "IncludeInferenceResponseIn": ["ERROR_NOTIFICATION_TOPIC"],
            },
        },
    }
    assert async_config({"AsyncInferenceConfig": asked}, Path("/data")) == AsyncConfig(
        "s3://bucket/out", "file:///data/failed", 2, "good", "bad", shows_success=False, shows_error=True
    )
    assert async_config({}, Path("/data")) is None


@pytest.mark.parametrize("output", [{}, {"S3OutputPath": "http://x/y"}, {"S3OutputPath": "s3:///key"}])
def test_answers_need_a_place(output: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"S3OutputPath|take s3://|not an S3 address"):
        async_config({"AsyncInferenceConfig": {"OutputConfig": output}}, Path("/data"))
