"""The server of a batch job: its address, retries, and the connections that batches are sent over."""

import random
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from tfs_proxy.transform.job import Job
from tfs_proxy.transform.run_statistics import RunStatistics, RunStopped
from tfs_proxy.values.attributes import SIGNATURE_NAME
from tfs_proxy.values.errors import AnswerTooLarge, ServerLost, SettingsError, UpstreamError, UpstreamTimeout
from tfs_proxy.values.processes import growing_pause
from tfs_proxy.wire.connect import authority, connect_tcp, connect_tls, trusting
from tfs_proxy.wire.error_body import error_text
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, bearer
from tfs_proxy.wire.http_client import ConnectionPool, Pieces
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.media_types import bare, is_named
from tfs_proxy.wire.routes import INVOCATIONS


class EndpointAddress(Struct, frozen=True):
    """The address of a server."""

    host: str
    """Name or IP address."""

    port: int
    """Port of HTTP or HTTPS."""

    path: str
    """Path of /invocations."""

    tls: bool = False
    """True for HTTPS."""

    ca: str | None = None
    """File of CAs for the server's certificate; None for those of the system."""

    key: str | None = None
    """Key of the caller; None for none."""

    @classmethod
    def parse(cls, url: str, ca: str | None = None, key: str | None = None) -> "EndpointAddress":
        """Read ``http://HOST:PORT`` with or without a path; raises SettingsError."""
        parts: SplitResult = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = None
            parts = parts._replace(scheme="")
        fit = url.isascii() and url.isprintable() and " " not in url
        if not fit or parts.scheme not in {"http", "https"} or not parts.hostname:
            raise SettingsError(f"--endpoint {url} can't be used: it must be http://HOST:PORT.")
        tls = parts.scheme == "https"
        if ca is not None:
            try:
                trusting(ca)
            except ValueError as error:
                raise SettingsError(f"--ca {error}.") from error
        path = parts.path.rstrip("/") or INVOCATIONS.path
        return cls(parts.hostname, port or (443 if tls else 80), path, tls, ca, key)

    @property
    def authority(self) -> str:
        return authority(self.host, self.port)

    def connect(self, host: str, port: int, timeout_seconds: float | None) -> socket.socket:
        """Open a connection. Raises EndpointNotReached."""
        try:
            if self.tls:
                return connect_tls(host, port, timeout_seconds, self.ca)
            return connect_tcp(host, port, timeout_seconds)
        except OSError as error:
            reason = f" by TLS: {error}" if self.tls else f": {error.strerror or error}"
            raise EndpointNotReached(f"{authority(host, port)} can't be reached{reason}") from error

    def sibling(self, path: str) -> str:
        """The path of another page of the server, whose ``path`` follows what precedes /invocations."""
        return self.path.rpartition("/")[0] + path


class EndpointNotReached(Exception):
    """The endpoint accepts no connections, or TLS with it fails; the text has the reason."""


FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 10.0


class Refused(Exception):
    """A request failed; ``status`` is None if it got no whole answer, ``timed_out`` if not in time.

    It is ``is_final`` if to repeat the request would not help, as if the client is to blame (4xx).
    """

    def __init__(
        self, status: int | None, message: str, *, timed_out: bool = False, is_final: bool = False
    ) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.status = status
        self.message = message
        self.is_final = is_final or (status or HTTPStatus.BAD_GATEWAY) < HTTPStatus.INTERNAL_SERVER_ERROR


def pause_seconds(attempt: int) -> float:
    """The pause after attempt ``attempt`` (from 1): it doubles, and its second half is random.

    Without chance, requests that failed together would be repeated together.
    """
    return growing_pause(attempt, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS) * (0.5 + random.random() / 2)  # noqa: S311 - no secret


CONNECT_SECONDS = 10.0
_WITHOUT_ROWS = {204: "no body", 205: "no body", 206: "only a part of the rows"}
_HTML = "text/html"


class Sender:
    """Sends the requests of ``job`` for any number of threads, but never more than ``concurrent`` at once."""

    def __init__(
        self, endpoint: EndpointAddress, job: Job, concurrent: int, statistics: RunStatistics
    ) -> None:
        self._path = endpoint.path
        headers = {**bearer(endpoint.key), "Content-Type": job.content_type, "Accept": job.accept}
        headers[CUSTOM_ATTRIBUTES] = job.signature and f"{SIGNATURE_NAME.key}={job.signature}"
        self._headers = {name: value for name, value in headers.items() if value}
        self._max_retries = job.max_retries
        self.statistics = statistics
        self._stop = threading.Event()
        self._connections = ConnectionPool(
            endpoint.host,
            endpoint.port,
            job.timeout_seconds,
            connect_seconds=CONNECT_SECONDS,
            write_seconds=job.timeout_seconds,
            idle=concurrent,
            connect=endpoint.connect,
            server=endpoint.authority,
        )
        self._free = threading.Semaphore(concurrent)

    def send(
        self, body: bytes | Pieces, headers: Mapping[str, str] | None = None, *, in_parts: bool = False
    ) -> HttpResponse:
        """Send ``body`` and return the answer; ``headers`` replace the job's.

        Repeats it after growing pauses if the connection fails, time runs out or the status is 5xx, as
        SageMaker does (docs/reference/sagemaker.md), except that a body that took too long is not repeated if
        it can be sent ``in_parts``. Raises Refused, ServerLost if nothing listens there, and RunStopped after
        `stop`.
        """
        retries = 0
        while True:
            result = self._attempt(body, headers or {})
            if isinstance(result, HttpResponse):
                return result
            refused = isinstance(result, Refused) and (result.is_final or (in_parts and result.timed_out))
            if retries >= self._max_retries or refused:
                raise result
            retries += 1
            self.statistics.add(retries=1)
            self._stop.wait(pause_seconds(retries))

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        self._connections.close()

    def _attempt(
        self, body: bytes | Pieces, headers: Mapping[str, str]
    ) -> "HttpResponse | Refused | ServerLost":
        try:
            with self._free:
                if self._stop.is_set():
                    raise RunStopped
                started = time.monotonic()
                response = self._connections.request("POST", self._path, body, {**self._headers, **headers})
                self.statistics.add_request(time.monotonic() - started)
        except EndpointNotReached as error:
            return ServerLost(f"{error}. Finished objects are kept: run the same command again to continue.")
        except UpstreamError as error:
            timed_out = isinstance(error, UpstreamTimeout)
            too_large = isinstance(error, AnswerTooLarge)
            return Refused(None, str(error), timed_out=timed_out, is_final=too_large)
        return self._refusal(response) or response

    def _refusal(self, response: HttpResponse) -> Refused | None:
        """The failure in an answer; None if it has the rows that were asked for."""
        status = response.status
        encoding = response.header("Content-Encoding") or "identity"
        if status in _WITHOUT_ROWS:
            return Refused(status, f"the answer has {_WITHOUT_ROWS[status]}")
        if 300 <= status < 400:  # noqa: PLR2004
            return Refused(status, f"the server redirects to {response.header('Location')}: give its address")
        if status >= 400:  # noqa: PLR2004
            text = error_text(response.body) or response.body[:2048].decode("utf-8", "replace")
            message = " ".join(text[:2048].split()) or "the answer's body is empty"
            return Refused(status, message, timed_out=status == HTTPStatus.GATEWAY_TIMEOUT)
        if encoding.strip().lower() != "identity":
            return Refused(status, f"the answer has the Content-Encoding {encoding}, which nobody asked for")
        accept = self._headers.get("Accept")
        if bare(response.header("Content-Type")) == _HTML and not is_named(_HTML, accept):
            return Refused(status, "the answer is text/html: a login page, or a server names no type")
        return None
