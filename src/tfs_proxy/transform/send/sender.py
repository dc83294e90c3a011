"""Sends request bodies to /invocations: a bounded number at once, with retries where they may help."""

import threading
import time
from collections.abc import Mapping

from tfs_proxy.errors import ServerLost, UpstreamError, UpstreamTimeout
from tfs_proxy.transform.failures import RunStopped
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.run_statistics import RunStatistics
from tfs_proxy.transform.send.connection import EndpointAddress, EndpointNotReached
from tfs_proxy.transform.send.retries import Refused, with_retries
from tfs_proxy.wire.connections import ConnectionPool, Timeouts
from tfs_proxy.wire.exchange import Pieces
from tfs_proxy.wire.http_messages import HttpResponse

CONNECT_SECONDS = 10.0
_OK = range(200, 300)
_TOO_LATE = 504


class Sender:
    """Sends the requests of ``job`` for any number of threads, but never more than ``concurrent`` at once."""

    def __init__(
        self, endpoint: EndpointAddress, job: Job, concurrent: int, statistics: RunStatistics
    ) -> None:
        self._path = endpoint.path
        headers = {"Content-Type": job.content_type, "Accept": job.accept}
        self._headers = {name: value for name, value in headers.items() if value}
        self._max_retries = job.max_retries
        self.statistics = statistics
        self._stop = threading.Event()
        self._connections = ConnectionPool(
            endpoint.host,
            endpoint.port,
            Timeouts(job.timeout_seconds, CONNECT_SECONDS, job.timeout_seconds),
            idle=concurrent,
            connect=endpoint.connect,
            server=endpoint.authority,
        )
        self._free = threading.Semaphore(concurrent)

    def send(
        self, body: bytes | Pieces, headers: Mapping[str, str] | None = None, *, in_parts: bool = False
    ) -> bytes:
        """Send ``body``, with retries, and return the body of the answer; ``headers`` replace the job's.

        A body that can be sent ``in_parts`` is not repeated if it takes too long.

        Raises Refused, ServerLost if nothing listens there, and RunStopped after `stop`.
        """
        return with_retries(
            lambda: self._attempt(body, headers or {}),
            self._max_retries,
            self._stop.wait,
            lambda: self.statistics.add(retries=1),
            in_parts=in_parts,
        )

    def stop(self) -> None:
        """Let no further request begin; requests in flight go on."""
        self._stop.set()

    def close(self) -> None:
        """Close the idle connections; call it when no thread sends any more."""
        self._connections.close()

    def _attempt(self, body: bytes | Pieces, headers: Mapping[str, str]) -> "bytes | Refused | ServerLost":
        try:
            with self._free:
                response = self._post(body, headers)
        except EndpointNotReached as error:
            return ServerLost(f"{error}. Finished objects are kept: run the same command again to continue.")
        except UpstreamError as error:
            return Refused(None, str(error), timed_out=isinstance(error, UpstreamTimeout))
        return response.body if response.status in _OK else _refusal(response)

    def _post(self, body: bytes | Pieces, headers: Mapping[str, str]) -> HttpResponse:
        if self._stop.is_set():
            raise RunStopped
        started = time.monotonic()
        response = self._connections.request("POST", self._path, body, {**self._headers, **headers})
        self.statistics.add_request(time.monotonic() - started)
        return response


def _refusal(response: HttpResponse) -> Refused:
    message = " ".join(response.body[:2048].decode("utf-8", "replace").split())
    return Refused(
        response.status, message or "the answer's body is empty", timed_out=response.status == _TOO_LATE
    )
