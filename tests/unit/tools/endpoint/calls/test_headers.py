"""Headers go through as AWS's service model names them, and no others."""

import pytest

from tfs_proxy.tools.endpoint.aws_api import AwsError, client_headers, container_headers, given_members
from tfs_proxy.wire.http_messages import HttpResponse

STREAM = "InvokeEndpointWithResponseStream"


def test_container_gets_the_headers_of_the_api_and_no_others() -> None:
    sent = {
        "content-type": "text/csv",
        "x-amzn-sagemaker-accept": "text/plain",
        "x-amzn-sagemaker-custom-attributes": "a=b ",
        "x-amzn-sagemaker-inference-id": "id",
        "authorization": "secret",
        "traceparent": "00-1",
        "user-agent": "boto3",
    }

    assert container_headers(given_members(STREAM, sent)) == {
        "Content-Type": "text/csv",
        "Accept": "text/plain",
        "X-Amzn-SageMaker-Custom-Attributes": "a=b ",
        "X-Amzn-SageMaker-Inference-Id": "id",
    }


def test_client_gets_the_members_of_the_answer_and_no_others() -> None:
    """The variant is the platform's word; of sessions only what the operation has."""
    answer = HttpResponse(
        200,
        headers={
            "content-type": "text/csv",
            "X-Own": "1",
            "x-amzn-sagemaker-new-session-id": "a; Expires=2026-01-01T00:00:00Z",
            "x-Amzn-Invoked-Production-Variant": "forged",
        },
    )

    assert client_headers("InvokeEndpoint", answer, "v") == {
        "Content-Type": "text/csv",
        "x-Amzn-Invoked-Production-Variant": "v",
        "X-Amzn-SageMaker-New-Session-Id": "a; Expires=2026-01-01T00:00:00Z",
    }
    assert client_headers(STREAM, answer, "v") == {
        "X-Amzn-SageMaker-Content-Type": "text/csv",
        "x-Amzn-Invoked-Production-Variant": "v",
    }


@pytest.mark.parametrize(
    ("header", "value", "member"),
    [
        ("x-amzn-sagemaker-custom-attributes", "a" * 1025, "CustomAttributes"),
        ("x-amzn-sagemaker-target-variant", "a_b", "TargetVariant"),
        ("x-amzn-sagemaker-inference-id", "", "InferenceId"),
        ("x-amzn-sagemaker-session-id", "a b", "SessionId"),
    ],
)
def test_values_that_aws_refuses_are_refused(header: str, value: str, member: str) -> None:
    with pytest.raises(AwsError, match=member) as refused:
        given_members("InvokeEndpoint", {header: value})

    assert refused.value.code == "ValidationError"
