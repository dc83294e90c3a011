"""The trace of a pipeline's request: made of spans, or passed on to the stages."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from msgspec import Struct

from tfs_proxy.observe.tracing.choice import trace_choice
from tfs_proxy.observe.tracing.parents import parent_in
from tfs_proxy.wire.header_names import TRACEPARENT, TRACESTATE
from tfs_proxy.wire.http_messages import HttpRequest

log = logging.getLogger(__name__)


class RequestTrace(Protocol):
    def stage(self, number: int) -> AbstractContextManager[Mapping[str, str]]:
        """The headers with the trace for a stage; its block lasts while the stage answers."""

    def end(self, status: int) -> None:
        """Ends the trace with the answer's status; 0 if there is none."""


class HandedOn:
    """Passes on the client's trace, which a stage may record even if it is off here."""

    def __init__(self, request: HttpRequest) -> None:
        parent = parent_in(request.headers)
        self._headers: dict[str, str] = {}
        if parent is not None:
            self._headers[TRACEPARENT] = parent.header
            if parent.state:
                self._headers[TRACESTATE] = parent.state

    @contextmanager
    def stage(self, _number: int) -> Iterator[Mapping[str, str]]:
        yield self._headers

    def end(self, status: int) -> None:
        """Nothing."""


class PipelineTraces(Struct, frozen=True):
    """Starts the traces of requests, and ends all with the process."""

    begin: Callable[[HttpRequest], RequestTrace] = HandedOn
    close: Callable[[], None] = lambda: None


def pipeline_traces(environ: Mapping[str, str]) -> PipelineTraces:
    """Reads the OTEL_* variables in ``environ``, which must be this process's own.

    If OpenTelemetry refuses one, that is logged and no traces are sent.
    """
    sampling = trace_choice(environ).sampling
    if sampling is None:
        return PipelineTraces()
    try:
        # OpenTelemetry takes a few hundred ms to import, which reads variables, too.
        from tfs_proxy.observe.tracing.provider import ProcessTraces
        from tfs_proxy.observe.tracing.spans import PipelineSpan

        traces = ProcessTraces(environ, sampling)
    except Exception as error:  # noqa: BLE001 - whatever the variables make its parts raise
        log.warning("no traces are sent: OpenTelemetry can't be configured: %s", error)
        return PipelineTraces()
    return PipelineTraces(
        lambda request: PipelineSpan(traces.tracer, request.method, request.path, request.headers),
        traces.close,
    )
