"""Sends request bodies to /invocations: a bounded number at once, with retries where they may help."""

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
from tfs_proxy.transform.send.retries import Refused, with_retries
from tfs_proxy.wire.http_answer import Reply

_OK = range(200, 300)


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._head = _head(endpoint, request_options)
        self._request_options = request_options
        self._statistics = statistics
        self._clock = clock
        self._stop = threading.Event()
        self._connections = [Connection(endpoint, request_options.timeout_seconds) for _ in range(concurrent)]
        self._idle: SimpleQueue[Connection] = SimpleQueue()
        for connection in self._connections:
            self._idle.put(connection)

    def send(self, body: Body) -> bytes:
        """Send ``body``, with retries, and return the body of the answer.

        Raises Refused, ServerLost if nothing listens there, and RunStopped after `stop`.
        """
        return with_retries(
            lambda: self._attempt(body),
            self._request_options.max_retries,
            self._stop.wait,
            lambda: self._statistics.add(retries=1),
        )

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


def _refusal(answer: Reply) -> Refused:
    message = " ".join(answer.body[:2048].decode("utf-8", "replace").split())
    return Refused(answer.status, message or "the answer's body is empty")


def _head(endpoint: Endpoint, request_options: RequestOptions) -> bytes:
    lines = [f"POST {endpoint.path} HTTP/1.1", f"Host: {endpoint.authority}"]
    if request_options.content_type:
        lines.append(f"Content-Type: {request_options.content_type}")
    if request_options.accept:
        lines.append(f"Accept: {request_options.accept}")
    return ("\r\n".join(lines) + "\r\n").encode("latin-1")
