"""Sends requests to one stage over pooled connections; its errors name the stage."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial

from msgspec import Struct

from tfs_proxy.errors import NotReached, RequestError, UpstreamError, UpstreamTimeout
from tfs_proxy.latencies import Latencies
from tfs_proxy.observe.routes import INVOCATIONS
from tfs_proxy.pipeline.stage import Stage
from tfs_proxy.supervisor.host.sockets import LOOPBACK
from tfs_proxy.wire.connections import ConnectionPool, Timeouts
from tfs_proxy.wire.error_body import error_text
from tfs_proxy.wire.http_messages import HttpResponse

LONGEST_MESSAGE = 2048
"""The most characters of a stage's own error that reach the client, as in OriginalMessage
(docs/reference/sagemaker.md)."""

UNAVAILABLE, TIMED_OUT = 503, 504
SUCCESSES = range(200, 300)


class StageFailed(RequestError):
    """A stage of a pipeline did not give an answer that the next stage can take.

    ``status`` is the status of its answer, or stands for it; ``message`` is its own error text.
    """

    def __init__(self, text: str, status: int, message: str) -> None:
        super().__init__(text)
        self.status = status
        self.message = message


class Counts(Struct):
    """Requests that went wrong at one stage.

    ``refused`` ones it answered with an error, or with more than may go on to the next stage;
    ``unanswered`` ones it got and did not answer; ``not_reached`` ones it never got.
    """

    refused: int = 0
    unanswered: int = 0
    not_reached: int = 0


class StageClient:
    """Sends requests to one stage, with ``latencies`` of its answers and ``counts`` of its failures."""

    def __init__(self, stage: Stage, threads: Executor, timeout_seconds: float) -> None:
        self.stage = stage
        self.latencies = Latencies()
        self.counts = Counts()
        self._threads = threads
        self._connections = ConnectionPool(LOOPBACK, stage.port, Timeouts(timeout_seconds), server=stage.name)

    async def invoke(self, body: bytes, headers: Mapping[str, str], seconds: float) -> HttpResponse:
        """The stage's answer; raises StageFailed if there is none, or it is an error."""
        response = await self._exchange(body, headers, seconds)
        if response.status not in SUCCESSES:
            self.counts.refused += 1
            raise self.failed(f"answered {response.status}", response.status, message_of(response.body))
        return response

    async def _exchange(self, body: bytes, headers: Mapping[str, str], seconds: float) -> HttpResponse:
        """Any answer of the stage; errors of the connection become StageFailed."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        send = partial(self._connections.request, "POST", INVOCATIONS, body, headers, max(seconds, 0.001))
        try:
            response = await loop.run_in_executor(self._threads, send)
        except UpstreamTimeout as error:
            self.counts.unanswered += 1
            raise self.failed("did not answer", TIMED_OUT, "the time for the request is over") from error
        except NotReached as error:
            self.counts.not_reached += 1
            raise self.failed("can't be reached", UNAVAILABLE, "it is down, or being restarted") from error
        except UpstreamError as error:
            self.counts.unanswered += 1
            raise self.failed("gave no answer", UNAVAILABLE, "the connection to it broke") from error
        self.latencies.add(loop.time() - started)
        return response

    def failed(self, how: str, status: int, message: str) -> StageFailed:
        """The error to raise: how the stage failed, and its own error text."""
        return StageFailed(f"{self.stage.name} {how}: {message}", status, message)

    def close(self) -> None:
        """Close its connections."""
        self._connections.close()


def message_of(body: bytes) -> str:
    """The text under ``error`` in an error's body, or the body itself; of limited length."""
    text = error_text(body)
    message = body.decode(errors="replace") if text is None else text
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}..."
