"""One container behind an endpoint that has an address: it is pinged, asked, and stopped at the end."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from typing import Self

from tfs_proxy.errors import UpstreamError
from tfs_proxy.supervisor.process import ChildProcess, ProcessState
from tfs_proxy.wire.connections import ConnectionPool, Timeouts, get_async
from tfs_proxy.wire.http_answer import ComingAnswer
from tfs_proxy.wire.http_messages import HttpResponse, StreamedResponse

PING_SECONDS = 2.0
"""How long /ping may take (docs/reference/sagemaker.md)."""

HTTP_OK = 200


class ComingParts:
    """The parts of an answer that ``threads`` wait for."""

    def __init__(self, answer: ComingAnswer, threads: Executor) -> None:
        self._answer, self._threads = answer, threads

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        loop = asyncio.get_running_loop()
        part = await loop.run_in_executor(self._threads, next, self._answer.parts, None)
        if part is None:
            raise StopAsyncIteration
        return part

    async def aclose(self) -> None:
        """Close the connection; what the container still sends is lost."""
        self._answer.close()


class HostedContainer:
    """A container at ``host:port``; ``child`` is None if this process has not started it.

    ``name`` is what errors call it. ``mounts_models`` says that it sees the models' folder elsewhere.
    ``held`` has its ports, and is closed at the end.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        threads: Executor,
        child: ChildProcess | None = None,
        *,
        mounts_models: bool = False,
        held: ExitStack | None = None,
    ) -> None:
        self.name, self.host, self.port = name, host, port
        self.child, self.mounts_models = child, mounts_models
        self._threads, self._held = threads, held or ExitStack()
        self._connections = ConnectionPool(host, port, Timeouts(60.0), server=name)

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended for good."""
        return self.child is not None and self.child.state in {ProcessState.GAVE_UP, ProcessState.EXITED}

    @property
    def last_lines(self) -> str:
        """The end of its log."""
        return "" if self.child is None else "\n".join(list(self.child.last_lines)[-5:])

    async def is_healthy(self) -> bool:
        """Whether /ping is answered with 200 in time."""
        try:
            return (await get_async(self.host, self.port, "/ping", PING_SECONDS)).status == HTTP_OK
        except UpstreamError:
            return False

    async def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], seconds: float
    ) -> HttpResponse:
        """Its answer, whatever the status; raises UpstreamError if there is none in ``seconds``."""
        send = partial(self._connections.request, method, path, body, headers, seconds)
        return await asyncio.get_running_loop().run_in_executor(self._threads, send)

    async def stream(
        self, path: str, body: bytes, headers: Mapping[str, str], seconds: float
    ) -> StreamedResponse:
        """Its answer to a POST as it comes, whatever the status; raises UpstreamError, as do the parts."""
        send = partial(self._connections.stream, path, body, headers, seconds)
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, send)
        return StreamedResponse(answer.status, ComingParts(answer, self._threads), answer.headers)

    async def stop(self, seconds: float) -> None:
        """SIGTERM, then SIGKILL after ``seconds``; one that this process has not started goes on."""
        self._connections.close()
        if self.child is not None:
            await self.child.stop(seconds)
        self._held.close()
