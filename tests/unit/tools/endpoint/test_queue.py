"""The queue of an asynchronous endpoint, with files as locations and a function as the container."""

import asyncio
import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tfs_proxy.tools.endpoint import asynchronous
from tfs_proxy.tools.endpoint.asynchronous import AsyncQueue, InvokeWithin
from tfs_proxy.tools.endpoint.delivery import AsyncConfig, AsyncRequest, Notifications
from tfs_proxy.values.errors import Overloaded, UpstreamTimeout
from tfs_proxy.values.layout import ANYWHERE
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

INLINE = HttpRequest("POST", "/", {"x-amzn-sagemaker-content-type": "text/csv"}, b"1,2")


async def shout(_: Mapping[str, str], body: bytes, seconds: float) -> HttpResponse:
    return HttpResponse(200, body.upper())


def config_in(folder: Path, **more: Any) -> AsyncConfig:
    return AsyncConfig((folder / "out").as_uri(), (folder / "failed").as_uri(), 2, "good", "bad", **more)


def answered(
    folder: Path, *requests: HttpRequest, config: AsyncConfig | None = None, invoke: InvokeWithin = shout
) -> list[AsyncRequest]:
    """Have the requests answered to the end; how each was accepted."""
    chosen = config or config_in(folder)

    async def scenario() -> list[AsyncRequest]:
        told = Notifications("e", chosen, folder / "told")
        waiting = AsyncQueue(chosen, 1, invoke, told, ANYWHERE)
        accepted = [waiting.accept(request) for request in requests]
        waiting.start()
        await waiting.stop(60)
        return accepted

    return asyncio.run(scenario())


def content(address: str | None) -> bytes:
    assert address is not None
    return Path(address.removeprefix("file://")).read_bytes()


def notification(folder: Path, topic: str) -> Any:
    (path,) = (folder / "told").glob(f"{topic}-*.json")
    return json.loads(path.read_text())


def test_a_refusal_is_kept_beside_and_shown_if_asked(tmp_path: Path) -> None:
    async def refuse(_: Mapping[str, str], body: bytes, seconds: float) -> HttpResponse:
        return HttpResponse(400, b"no: " + body, {"Content-Type": "text/plain"})

    (accepted,) = answered(tmp_path, INLINE, config=config_in(tmp_path, shows_error=True), invoke=refuse)
    assert content(accepted.failure) == b"no: 1,2"
    assert not (tmp_path / "out").exists()
    told = notification(tmp_path, "bad")
    assert told["invocationStatus"] == "Failed"
    assert "client error (400)" in told["failureReason"]
    assert base64.b64decode(told["responseBody"]["content"]) == b"no: 1,2"


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

    async def count(_: Mapping[str, str], body: bytes, seconds: float) -> HttpResponse:
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


def test_large_answers_are_not_in_notifications(tmp_path: Path) -> None:
    async def large(_: Mapping[str, str], body: bytes, seconds: float) -> HttpResponse:
        return HttpResponse(200, b"x" * (128 * 1024 + 1))

    answered(tmp_path, INLINE, config=config_in(tmp_path, shows_success=True), invoke=large)
    assert "responseBody" not in notification(tmp_path, "good")


def test_a_failure_of_ours_is_a_failure_of_the_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Mapping[str, str], body: bytes, seconds: float) -> HttpResponse:
        raise ZeroDivisionError

    (accepted,) = answered(tmp_path, INLINE, invoke=fail)
    assert b"the endpoint failed" in content(accepted.failure)
    assert "ZeroDivisionError" in caplog.text


def test_the_log_says_how_many_are_lost_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def hang(_: Mapping[str, str], body: bytes, seconds: float) -> HttpResponse:
        await asyncio.Event().wait()
        return HttpResponse(200)

    async def scenario() -> None:
        config = config_in(tmp_path)
        waiting = AsyncQueue(config, 1, hang, Notifications("e", config, None), ANYWHERE)
        waiting.start()
        for _ in range(3):
            waiting.accept(INLINE)
        await waiting.stop(0.05)

    asyncio.run(scenario())
    assert "lost, since the run ends: 3" in caplog.text


def test_a_folder_that_cannot_be_written_loses_only_the_notification(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "told").write_text("a file")
    (accepted,) = answered(tmp_path, INLINE)
    assert content(accepted.output) == b"1,2"
    assert "nobody is told" in caplog.text
