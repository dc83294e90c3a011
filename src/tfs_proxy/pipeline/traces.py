"""The trace of a pipeline's request, from its client to the stages: made of spans, or handed on as it is."""

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
    """The trace of one request."""

    def stage(self, number: int) -> AbstractContextManager[Mapping[str, str]]:
        """For the block in which a stage answers: the headers that tell it of the trace."""

    def end(self, status: int) -> None:
        """The request has been answered so; 0 if it has not."""


class HandedOn:
    """Traces are off here, and may be on in a stage: each gets what the client sent."""

    def __init__(self, request: HttpRequest) -> None:
        parent = parent_in(request.headers)
        self._headers: dict[str, str] = {}
        if parent is not None:
            self._headers[TRACEPARENT] = parent.header
            if parent.state:
                self._headers[TRACESTATE] = parent.state

    @contextmanager
    def stage(self, _number: int) -> Iterator[Mapping[str, str]]:
        """The client's ``traceparent``."""
        yield self._headers

    def end(self, status: int) -> None:
        """Nothing."""


class PipelineTraces(Struct, frozen=True):
    """How the trace of a request begins, and how all of them end with the process."""

    begin: Callable[[HttpRequest], RequestTrace] = HandedOn
    close: Callable[[], None] = lambda: None


def pipeline_traces(environ: Mapping[str, str]) -> PipelineTraces:
    """As the OTEL_* variables in ``environ``, this process's own, say; stages log which can't be used.

    Those that only OpenTelemetry refuses are no reason to end.
    """
    sampling = trace_choice(environ).sampling
    if sampling is None:
        return PipelineTraces()
    try:
        # OpenTelemetry costs a start a few hundred ms. Its import reads variables, too.
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
