"""Sends bodies to /invocations: a limited number at once, each again if that may help."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tfs_proxy.errors import ServerLost, UpstreamError
from tfs_proxy.transform.failures import RunStopped
from tfs_proxy.transform.send.connection import Endpoint, EndpointNotReached, connections
from tfs_proxy.transform.tally import Tally
from tfs_proxy.wire.backoff import growing_pause
from tfs_proxy.wire.exchange import Pieces
from tfs_proxy.wire.http_messages import HttpResponse

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 10.0
_SERVER_ERROR = 500
_OK = range(200, 300)


class Refused(Exception):
    """A request that got no good answer, after all its attempts; ``status`` None is no answer at all."""

    def __init__(self, status: int | None, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


@dataclass(frozen=True, slots=True)
class Manner:
    """How requests are sent: their headers' values, and the limits of ModelClientConfig."""

    content_type: str | None
    accept: str | None
    timeout_seconds: float
    max_retries: int


class Sender:
    """Sends requests for any number of threads, but never more than ``concurrent`` at once."""

    def __init__(
        self,
        endpoint: Endpoint,
        manner: Manner,
        concurrent: int,
        tally: Tally,
        *,
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = endpoint.path
        self._headers = _headers(manner)
        self._manner = manner
        self._tally = tally
        self._clock = clock
        self._stop = threading.Event()
        self._sleep = sleep or self._stop.wait
        self._connections = connections(endpoint, manner.timeout_seconds, idle=concurrent)
        self._free = threading.Semaphore(concurrent)

    def send(self, body: bytes | Pieces) -> bytes:
        """The body of the answer.

        Raises Refused, ServerLost if nothing accepts connections, or RunStopped once the run has been
        stopped.

        Connection failures, timeouts and 5xx are tried again after growing pauses, 4xx is not
        (docs/reference/sagemaker.md, ModelClientConfig).
        """
        attempt = 0
        while True:
            outcome = self._attempt(body)
            if isinstance(outcome, bytes):
                return outcome
            final = isinstance(outcome, Refused) and _is_final(outcome)
            if final or attempt >= self._manner.max_retries:
                raise outcome
            attempt += 1
            self._tally.add(retries=1)
            self._sleep(pause_seconds(attempt))

    def stop(self) -> None:
        """Let no further request begin; those in flight end."""
        self._stop.set()

    def close(self) -> None:
        """Close what is idle, once no thread sends any more."""
        self._connections.close()

    def _attempt(self, body: bytes | Pieces) -> "bytes | Refused | ServerLost":
        try:
            with self._free:
                response = self._post(body)
        except EndpointNotReached as error:
            return ServerLost(f"{error}. What is finished stays so: the same command goes on from there.")
        except UpstreamError as error:
            return Refused(None, str(error))
        return response.body if response.status in _OK else _refusal(response)

    def _post(self, body: bytes | Pieces) -> HttpResponse:
        if self._stop.is_set():
            raise RunStopped("the run was stopped")
        started = self._clock()
        response = self._connections.request("POST", self._path, body, self._headers)
        self._tally.answered(self._clock() - started)
        return response


def pause_seconds(attempt: int, chance: Callable[[], float] = random.random) -> float:
    """Seconds to wait after attempt ``attempt``: half of them are left to chance.

    So requests that failed together do not come back together.
    """
    return growing_pause(attempt, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS) * (0.5 + chance() / 2)


def _refusal(response: HttpResponse) -> Refused:
    words = " ".join(response.body[:2048].decode("utf-8", "replace").split())
    return Refused(response.status, words or "no words")


def _is_final(refused: Refused) -> bool:
    return refused.status is not None and refused.status < _SERVER_ERROR


def _headers(manner: Manner) -> dict[str, str]:
    headers = {"Content-Type": manner.content_type, "Accept": manner.accept}
    return {name: value for name, value in headers.items() if value}
