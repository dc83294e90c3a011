"""The way of one request through containers in a row: a pipeline's stages, or an instance of an endpoint."""

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from typing import Generic, Protocol, TypeVar

from tfs_proxy.values.errors import ClientGone, RequestError, UpstreamError
from tfs_proxy.wire.http_client import ConnectionPool
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.media_types import BYTES

SUCCESSES = range(200, 300)


class Container:
    """An HTTP server at ``host:port``, for whose answers ``threads`` wait; errors call it ``name``."""

    def __init__(self, name: str, host: str, port: int, threads: Executor) -> None:
        self.name = name
        self.host = host
        self.port = port
        self._threads = threads
        self._connections = ConnectionPool(host, port, 60.0, server=name)

    async def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], seconds: float
    ) -> HttpResponse:
        """Its answer of any status. Raises UpstreamError if there is none in ``seconds``.

        If this is cancelled, the connection ends, so that the container knows it, too.
        """
        is_cancelled = False

        def raise_if_cancelled() -> None:
            if is_cancelled:
                raise ClientGone

        send = partial(self._connections.request, method, path, body, headers, seconds, raise_if_cancelled)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, send)
        except asyncio.CancelledError:
            is_cancelled = True
            raise

    def close(self) -> None:
        self._connections.close()


class ContainerFailed(RequestError):
    """A container gave an answer that can't be passed on, or none, for the reason ``outcome``."""

    def __init__(self, container: str, outcome: HttpResponse | UpstreamError) -> None:
        super().__init__(container)
        self.container = container
        self.outcome = outcome


class Hop(Protocol):
    """A container as one request meets it."""

    @property
    def name(self) -> str: ...

    async def send(self, body: bytes, headers: Mapping[str, str], deadline: float) -> HttpResponse:
        """Its answer of any status. Raises UpstreamError if there is none until ``deadline``."""


AnyHop = TypeVar("AnyHop", bound=Hop)


class Passage(Generic[AnyHop]):
    """A request through ``hops``: each one's answer is the next one's request, of at most ``hop_bytes``.

    The last one's has at most ``answer_bytes``. All together have ``seconds`` from now on. ``headers`` go to
    each of them but Accept, which is for the last, and Content-Encoding, for the first. ``passed``
    has the hops that it has met, the seconds that each took, and its failure.
    """

    def __init__(
        self,
        hops: Sequence[AnyHop],
        headers: Mapping[str, str],
        seconds: float,
        hop_bytes: int,
        *,
        answer_bytes: float = math.inf,
    ) -> None:
        *self._others, self.last = hops
        self._headers = headers
        self._hop_bytes = hop_bytes
        self._answer_bytes = answer_bytes
        self.deadline = time.monotonic() + seconds
        self.passed: list[tuple[AnyHop, float, ContainerFailed | None]] = []

    async def through(self, body: bytes) -> HttpResponse:
        """The last container's answer. Raises ContainerFailed."""
        body, headers = await self.before_last(body)
        return await self._answer(self.last, body, headers, self._answer_bytes)

    async def before_last(self, body: bytes) -> tuple[bytes, Mapping[str, str]]:
        """Body and headers for the last container, from all others. Raises ContainerFailed."""
        headers = self._headers
        for hop in self._others:
            answer = await self._answer(hop, body, _without(headers, "accept"), self._hop_bytes)
            body = answer.body
            kind = answer.header("Content-Type") or BYTES
            headers = {**_without(headers, "content-type", "content-encoding"), "Content-Type": kind}
        return body, headers

    async def _answer(
        self, hop: AnyHop, body: bytes, headers: Mapping[str, str], most_bytes: float
    ) -> HttpResponse:
        with self.noted(hop):
            answer = await hop.send(body, headers, self.deadline)
            if answer.status not in SUCCESSES or len(answer.body) > most_bytes:
                raise ContainerFailed(hop.name, answer)
        return answer

    @contextmanager
    def noted(self, hop: AnyHop) -> Iterator[None]:
        """Notes the hop in the block, whose UpstreamError becomes a ContainerFailed."""
        began = time.monotonic()
        failed = None
        try:
            yield
        except UpstreamError as error:
            failed = ContainerFailed(hop.name, error)
            raise failed from error
        except ContainerFailed as error:
            failed = error
            raise
        except asyncio.CancelledError:
            failed = ContainerFailed(hop.name, UpstreamError("the client has gone"))
            raise
        finally:
            self.passed.append((hop, time.monotonic() - began, failed))


def _without(headers: Mapping[str, str], *names: str) -> Mapping[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


def seconds_until(deadline: float) -> float:
    """Seconds that a request may still take, which are never 0."""
    return max(deadline - time.monotonic(), 0.001)
