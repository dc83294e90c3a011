"""Ends of calls: refusals, the log lines of finished calls, and the end of streams."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from grpc import aio

from tfs_proxy.observe.request_counts import FinishedRequest, request_line
from tfs_proxy.observe.shared_files import LineWriter
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.header_names import GRPC_MODEL

Metadata = Sequence[tuple[str, str | bytes]]

CODES: Final[Mapping[int, GrpcCode]] = {
    400: GrpcCode.INVALID_ARGUMENT,
    404: GrpcCode.NOT_FOUND,
    409: GrpcCode.ALREADY_EXISTS,
    413: GrpcCode.RESOURCE_EXHAUSTED,
    500: GrpcCode.INTERNAL,
    501: GrpcCode.UNIMPLEMENTED,
    503: GrpcCode.UNAVAILABLE,
    504: GrpcCode.DEADLINE_EXCEEDED,
    507: GrpcCode.RESOURCE_EXHAUSTED,
}


class RefusedCall(Exception):
    def __init__(self, code: GrpcCode, text: str, trailers: Metadata = ()) -> None:
        super().__init__(text)
        self.code, self.text, self.trailers = code, text, trailers

    @classmethod
    def for_status(cls, status: int, text: str) -> "RefusedCall":
        return cls(CODES.get(status, GrpcCode.UNKNOWN), text)


class CountedCall:
    """Call in flight; ``code`` is its final status, CANCELLED unless it is set."""

    def __init__(self) -> None:
        self.code = GrpcCode.CANCELLED


class CallCounting:
    """Records calls in the file ``requests``, unless nginx is in front, which does so."""

    def __init__(self, requests: Path, *, behind_nginx: bool) -> None:
        self._writer = LineWriter(requests)
        self._behind_nginx = behind_nginx

    @contextmanager
    def call(self, path: str, context: Any) -> Iterator[CountedCall]:
        """Count a call of the method at ``path``; afterwards its trailers are those that clients may see."""
        counted, begin = CountedCall(), time.monotonic()
        if self._behind_nginx:
            yield counted
            return
        try:
            yield counted
        finally:
            trailers = tuple(context.trailing_metadata() or ())
            seconds = time.monotonic() - begin
            self._writer.write(request_line(_finished(path, counted.code, seconds, trailers)))
            context.set_trailing_metadata(_without_model(trailers))

    def shown(self, trailers: Metadata) -> Metadata:
        """Remove the trailers for nginx."""
        return trailers if self._behind_nginx else _without_model(trailers)


def _without_model(trailers: Metadata) -> Metadata:
    return tuple((key, value) for key, value in trailers if key != GRPC_MODEL.lower())


def _finished(path: str, code: GrpcCode, seconds: float, trailers: Metadata) -> FinishedRequest:
    told = next((str(value) for key, value in trailers if key == GRPC_MODEL.lower()), "")
    model, _, version = told.partition(" ")
    return FinishedRequest(
        "POST",
        200,
        seconds,
        path,
        grpc_status=str(int(code)),
        model=model.removeprefix("-"),
        version=version.removeprefix("-"),
    )


async def messages_until(stopping: asyncio.Event, context: Any) -> AsyncIterator[Any]:
    """Yield the messages of a call until the client ends it or the router is ``stopping``."""
    stop = asyncio.create_task(stopping.wait())
    try:
        while True:
            reading = asyncio.ensure_future(context.read())
            await asyncio.wait({reading, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                return
            message = reading.result()
            if message is aio.EOF:
                return
            yield message
    finally:
        stop.cancel()
