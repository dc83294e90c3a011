"""InvokeEndpointWithResponseStream as boto3 reads it, unchanged: parts as they come, errors in the middle."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, EventStreamError

from support.endpoints import Endpoint, described, of_image, running_endpoint, variant
from support.remote_container import RemoteContainer, remote_container
from support.waiting import wait_until


@pytest.fixture(scope="module")
def container() -> Iterator[RemoteContainer]:
    with remote_container() as running:
        yield running


@pytest.fixture(scope="module")
def first_stage() -> Iterator[RemoteContainer]:
    with remote_container(headers={"Content-Type": "text/csv"}) as running:
        yield running


@pytest.fixture(scope="module")
def endpoint(
    container: RemoteContainer, first_stage: RemoteContainer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoint]:
    """A variant of one container, one of two in a row, and one that takes a request at a time."""
    stages = [{"Image": first_stage.address}, {"Image": container.address}]
    models: dict[str, Any] = {"one": of_image(container.address), "two": {"Containers": stages}}
    serverless = {
        "VariantName": "few",
        "ModelName": "one",
        "ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1},
    }
    variants = [variant("one", "one"), variant("two", "two", InitialVariantWeight=0), serverless]
    folder = tmp_path_factory.mktemp("endpoint")
    with running_endpoint(folder, described(models, variants)) as running:
        yield running


@pytest.fixture(autouse=True)
def _as_told(container: RemoteContainer) -> None:
    container.status, container.answer, container.chunks, container.headers = 200, None, (), {}
    container.requests.clear()


def stream(endpoint: Endpoint, **members: str) -> Any:
    return endpoint.runtime.invoke_endpoint_with_response_stream(
        EndpointName="shop", Body=b"abc", **{"TargetVariant": "one", **members}
    )


def payload(events: Any) -> bytes:
    return b"".join(event["PayloadPart"]["Bytes"] for event in events)


def test_a_client_has_a_part_before_the_container_makes_the_next(
    endpoint: Endpoint, container: RemoteContainer
) -> None:
    has_first = threading.Event()
    container.chunks = (b"one ", has_first, b"two")
    container.headers = {
        "Content-Type": "text/plain", "X-Amzn-SageMaker-Custom-Attributes": "said=yes",
        "X-Amzn-SageMaker-New-Session-Id": "id; Expires=2030-01-01T00:00:00Z",
    }  # fmt: skip

    answer = stream(endpoint, CustomAttributes="a=b", ContentType="text/csv", Accept="text/plain")
    events = iter(answer["Body"])
    assert next(events) == {"PayloadPart": {"Bytes": b"one "}}
    has_first.set()

    assert payload(events) == b"two"
    assert (answer["ContentType"], answer["CustomAttributes"]) == ("text/plain", "said=yes")
    assert answer["InvokedProductionVariant"] == "one"
    assert "x-amzn-sagemaker-new-session-id" not in answer["ResponseMetadata"]["HTTPHeaders"]
    (request,) = container.requests
    headers = {"Content-Type": "text/csv", "Accept": "text/plain"}
    assert headers.items() <= dict(request.headers).items()


def test_an_answer_in_one_piece_is_a_stream_too(endpoint: Endpoint) -> None:
    assert payload(stream(endpoint)["Body"]) == b"cba"


def test_the_last_of_a_pipeline_streams(
    endpoint: Endpoint, container: RemoteContainer, first_stage: RemoteContainer
) -> None:
    container.chunks = (b"x", b"y")
    assert payload(stream(endpoint, TargetVariant="two", Accept="text/plain")["Body"]) == b"xy"
    assert container.requests[-1].body == b"cba"
    assert container.requests[-1].headers["Content-Type"] == "text/csv"
    assert "Accept" not in first_stage.requests[-1].headers


def test_an_answer_that_breaks_off_is_a_model_stream_error(
    endpoint: Endpoint, container: RemoteContainer
) -> None:
    container.chunks = (b"some", None)
    body = stream(endpoint)["Body"]
    events = iter(body)
    assert next(events)["PayloadPart"]["Bytes"] == b"some"
    with pytest.raises(EventStreamError, match=r"ModelStreamError.*broke"):
        next(events)
    body.close()


@pytest.mark.parametrize(("status", "chunks"), [(400, (b"no",)), (500, ()), (200, (None,))])
def test_an_error_before_the_first_part_is_a_model_error(
    endpoint: Endpoint, container: RemoteContainer, status: int, chunks: tuple[bytes | None, ...]
) -> None:
    container.status, container.chunks = status, chunks
    with pytest.raises(ClientError) as raised:
        stream(endpoint)
    error: Any = raised.value.response
    assert error["Error"]["Code"] == "ModelError"
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert error["OriginalStatusCode"] == (0 if status == 200 else status)


def test_a_client_that_leaves_frees_its_instance(endpoint: Endpoint, container: RemoteContainer) -> None:
    """A serverless variant takes its next request once the stream of the client that left has ended."""

    def is_free() -> bool:
        try:
            endpoint.invoke_endpoint(TargetVariant="few")
        except ClientError as error:
            if error.response["Error"]["Code"] != "ThrottlingException":
                raise
            return False
        return True

    has_left = threading.Event()
    container.chunks = (b"x", has_left, *[b"y" * 65536] * 200)
    answer = stream(endpoint, TargetVariant="few")["Body"]
    next(iter(answer))
    container.chunks = ()
    assert not is_free()
    answer.close()
    has_left.set()
    wait_until(is_free, 30, "the stream of the client that left has ended")
