"""InvokeEndpointAsync: what it takes, by botocore's model, and its queue, with a function as the container."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tfs_proxy.tools.endpoint import asynchronous
from tfs_proxy.tools.endpoint.asynchronous import AsyncQueue, InvokeWithin
from tfs_proxy.tools.endpoint.aws_api import AwsError
from tfs_proxy.tools.endpoint.delivery import (
    INLINE_BYTES,
    AsyncConfig,
    AsyncRequest,
    async_config,
    async_request,
)
from tfs_proxy.values.errors import Overloaded, SettingsError, UpstreamTimeout
from tfs_proxy.values.layout import ANYWHERE
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

INLINE = HttpRequest("POST", "/", {"x-amzn-sagemaker-content-type": "text/csv"}, b"1,2")


async def shout(_: Mapping[str, str], body: bytes, seconds: float) -> HttpResponse:
    return HttpResponse(200, body.upper())


def config_in(folder: Path) -> AsyncConfig:
    return AsyncConfig((folder / "out").as_uri(), (folder / "failed").as_uri(), 2)


def answered(folder: Path, *requests: HttpRequest, invoke: InvokeWithin = shout) -> list[AsyncRequest]:
    """Have the requests answered to the end; how each was accepted."""

    async def scenario() -> list[AsyncRequest]:
        waiting = AsyncQueue(config_in(folder), 1, invoke, ANYWHERE)
        accepted = [waiting.accept(request) for request in requests]
        waiting.start()
        await waiting.stop(60)
        return accepted

    return asyncio.run(scenario())


def content(address: str | None) -> bytes:
    assert address is not None
    return Path(address.removeprefix("file://")).read_bytes()


def test_no_answer_in_time_is_a_failure(tmp_path: Path) -> None:
    async def sleep(_: Mapping[str, str], body: bytes, seconds: float) -> HttpResponse:
        raise UpstreamTimeout(f"did not answer within {seconds:g} seconds")

    headers = {"x-amzn-sagemaker-invocationtimeoutseconds": "7"}
    (accepted,) = answered(tmp_path, HttpRequest("POST", "/", headers, b"x"), invoke=sleep)
    assert content(accepted.failure) == b"did not answer within 7 seconds"


def test_a_request_that_waited_for_too_long_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"x-amzn-sagemaker-requestttlseconds": "60"}
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    (accepted,) = answered(tmp_path, HttpRequest("POST", "/", headers, b"x"))
    assert b"RequestTTLSeconds" in content(accepted.failure)


def test_no_more_run_at_once_than_the_config_says(tmp_path: Path) -> None:
    running: list[int] = []
    most: list[int] = []

    async def count(*_: object) -> HttpResponse:
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(0)
        running.pop()
        return HttpResponse(200)

    assert len(answered(tmp_path, *[INLINE] * 8, invoke=count)) == 8
    assert max(most) <= 2


@pytest.mark.parametrize(("limit", "most"), [("MOST_WAITING", 1), ("MOST_WAITING_BYTES", 5)])
def test_a_full_queue_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """A client may try again: neither their number nor their bodies fill the memory."""
    monkeypatch.setattr(asynchronous, limit, most)
    with pytest.raises(Overloaded, match="try again"):
        answered(tmp_path, INLINE, INLINE)


def test_a_failure_of_ours_is_a_failure_of_the_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> HttpResponse:
        raise ZeroDivisionError

    (accepted,) = answered(tmp_path, INLINE, invoke=fail)
    assert b"the endpoint failed" in content(accepted.failure)
    assert "ZeroDivisionError" in caplog.text


def test_the_log_says_how_many_are_lost_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def hang(*_: object) -> HttpResponse:
        await asyncio.Event().wait()
        return HttpResponse(200)

    async def scenario() -> None:
        waiting = AsyncQueue(config_in(tmp_path), 1, hang, ANYWHERE)
        waiting.start()
        for _ in range(3):
            waiting.accept(INLINE)
        await waiting.stop(0.05)

    asyncio.run(scenario())
    assert "lost, since the run ends: 3" in caplog.text


S3 = AsyncConfig("s3://bucket/out", "s3://bucket/failed")


def call(body: bytes = b"", **members: str) -> HttpRequest:
    """A call with these members, whose names are those of their headers."""
    headers = {f"x-amzn-sagemaker-{name.lower().replace('_', '-')}": text for name, text in members.items()}
    return HttpRequest("POST", "/endpoints/e/async-invocations", headers, body)


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
        (call(b"x", RequestTTLSeconds="59"), "RequestTTLSeconds is 59; 60 to 21600 are allowed"),
        (call(b"x", RequestTTLSeconds="soon"), "RequestTTLSeconds must be a number"),
        (call(b"x", Filename="../up"), "Filename does not match"),
        (call(b"x", S3OutputPathExtension="a/../../b"), "S3OutputPathExtension"),
        (call(b"x", Inference_Id="i" * 65), "InferenceId has 65 characters"),
    ],
)
def test_what_aws_refuses_is_refused_by_its_member(request_: HttpRequest, text: str) -> None:
    with pytest.raises(AwsError, match=text):
        async_request(request_, S3, ANYWHERE)


@pytest.mark.parametrize("output", [{}, {"S3OutputPath": "http://x/y"}, {"S3OutputPath": "s3:///key"}])
def test_answers_need_a_place(output: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"S3OutputPath|take s3://|not an S3 address"):
        async_config({"AsyncInferenceConfig": {"OutputConfig": output}}, Path("/data"))
