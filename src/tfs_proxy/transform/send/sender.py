"""Sends request bodies to /invocations: a bounded number at once, with retries where they may help."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from tfs_proxy.errors import ServerLost
from tfs_proxy.transform.failures import RunStopped
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.run_statistics import RunStatistics
from tfs_proxy.transform.send.connection import Body, Connection, Endpoint, NotAnswered, NotConnected
from tfs_proxy.wire.http_answer import Reply

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 10.0
_SERVER_ERROR = 500
_OK = range(200, 300)


class Refused(Exception):
    """A request failed after all its attempts; ``status`` is None if it got no answer at all."""

    def __init__(self, status: int | None, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What all requests of a job share: their headers, and the limits of its ModelClientConfig."""

    content_type: str | None
    accept: str | None
    timeout_seconds: float
    max_retries: int

    @classmethod
    def of_job(cls, job: Job) -> "RequestOptions":
        """The options that ``job`` asks for."""
        return cls(job.content_type, job.accept, job.timeout_seconds, job.max_retries)


class Sender:
    """``concurrent`` connections that threads share, so that never more requests are in flight."""

    def __init__(
        self,
        endpoint: Endpoint,
        request_options: RequestOptions,
        concurrent: int,
        statistics: RunStatistics,
        *,
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._head = _head(endpoint, request_options)
        self._request_options = request_options
        self._statistics = statistics
        self._clock = clock
        self._stop = threading.Event()
        self._sleep = sleep or self._stop.wait
        self._connections = [Connection(endpoint, request_options.timeout_seconds) for _ in range(concurrent)]
        self._idle: SimpleQueue[Connection] = SimpleQueue()
        for connection in self._connections:
            self._idle.put(connection)

    def send(self, body: Body) -> bytes:
        """Send ``body`` and return the body of the answer.

        Retries connection failures, timeouts and 5xx after growing pauses, but not 4xx, as SageMaker does
        (docs/reference/sagemaker.md). Raises Refused, ServerLost if nothing listens there, and RunStopped
        after `stop`.
        """
        attempt = 0
        while True:
            outcome = self._attempt(body)
            if isinstance(outcome, bytes):
                return outcome
            final = isinstance(outcome, Refused) and _is_final(outcome)
            if final or attempt >= self._request_options.max_retries:
                raise outcome
            attempt += 1
            self._statistics.add(retries=1)
            self._sleep(pause_seconds(attempt))

    def stop(self) -> None:
        """Let no further request begin; requests in flight go on."""
        self._stop.set()

    def close(self) -> None:
        """Close all connections; call it when no thread sends any more."""
        for connection in self._connections:
            connection.close()

    def _attempt(self, body: Body) -> "bytes | Refused | ServerLost":
        connection = self._idle.get()
        try:
            if self._stop.is_set():
                raise RunStopped("the run was stopped")
            began = self._clock()
            answer = connection.post(self._head, body)
            self._statistics.add_request(self._clock() - began)
        except NotConnected as error:
            return ServerLost(f"{error}. Finished objects are kept: run the same command again to continue.")
        except (NotAnswered, TimeoutError) as error:
            return Refused(None, str(error))
        finally:
            self._idle.put(connection)
        return answer.body if answer.status in _OK else _refusal(answer)


def pause_seconds(attempt: int, chance: Callable[[], float] = random.random) -> float:
    """The pause after attempt ``attempt`` (from 1): doubling, and random so that callers spread out."""
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * (1 << (attempt - 1)))
    return longest * (0.5 + chance() / 2)


def _refusal(answer: Reply) -> Refused:
    message = " ".join(answer.body[:2048].decode("utf-8", "replace").split())
    return Refused(answer.status, message or "the answer's body is empty")


def _is_final(refused: Refused) -> bool:
    return refused.status is not None and refused.status < _SERVER_ERROR


def _head(endpoint: Endpoint, request_options: RequestOptions) -> bytes:
    lines = [f"POST {endpoint.path} HTTP/1.1", f"Host: {endpoint.authority}"]
    if request_options.content_type:
        lines.append(f"Content-Type: {request_options.content_type}")
    if request_options.accept:
        lines.append(f"Accept: {request_options.accept}")
    return ("\r\n".join(lines) + "\r\n").encode("latin-1")
