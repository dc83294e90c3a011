"""What nginx does not see of calls, a line for each: all calls without it, and the messages of streams."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tfs_proxy.grpc_router.refused_call import Metadata
from tfs_proxy.observe.line_file import LineWriter
from tfs_proxy.observe.request_counts import FinishedRequest, request_line
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.header_names import GRPC_MODEL


class CountedCall:
    """A call that goes on; ``code`` is what it ends with, CANCELLED if nobody says."""

    def __init__(self) -> None:
        self.code = GrpcCode.CANCELLED


class CallCounting:
    """Notes calls in the file ``requests``; behind nginx, which does so itself, only the parts of streams."""

    def __init__(self, requests: Path, *, behind_nginx: bool) -> None:
        self._writer = LineWriter(requests)
        self._behind_nginx = behind_nginx

    @contextmanager
    def call(self, path: str, context: Any) -> Iterator[CountedCall]:
        """Around a call of the method at ``path``; afterwards its trailers are those that clients may see."""
        if self._behind_nginx:
            yield CountedCall()
            return
        with self._noted(path, context) as counted:
            yield counted

    @contextmanager
    def message(self, path: str, context: Any) -> Iterator[CountedCall]:
        """Around the answer to one message of a stream, whose call itself is for no model then."""
        context.set_trailing_metadata(())
        with self._noted(path, context) as counted:
            yield counted

    def shown(self, trailers: Metadata) -> Metadata:
        """Trailers without what only nginx is told."""
        return trailers if self._behind_nginx else _without_model(trailers)

    @contextmanager
    def _noted(self, path: str, context: Any) -> Iterator[CountedCall]:
        counted, begin = CountedCall(), time.monotonic()
        try:
            yield counted
        finally:
            trailers = tuple(context.trailing_metadata() or ())
            seconds = time.monotonic() - begin
            self._writer.write(request_line(_finished(path, counted.code, seconds, trailers)))
            context.set_trailing_metadata(_without_model(trailers))


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
