"""The spans of a pipeline's requests: one for the request, and one within it for each stage."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context.context import Context
from opentelemetry.trace import Span, SpanKind, Tracer

from tfs_proxy.observe.tracing.parents import parent_in
from tfs_proxy.observe.tracing.provider import headers_of
from tfs_proxy.observe.tracing.request_spans import (
    begin_server_span,
    end_server_span,
    remote_context,
    set_error,
)


class PipelineSpan:
    """The span of one request; begun when it is made."""

    def __init__(self, tracer: Tracer, method: str, path: str, headers: Mapping[str, str]) -> None:
        self._tracer = tracer
        self._span: Span = begin_server_span(tracer, method, path, remote_context(parent_in(headers)))

    @contextmanager
    def stage(self, number: int) -> Iterator[Mapping[str, str]]:
        """The span of one stage, for the length of a block; gives the headers that the stage is sent."""
        within = trace.set_span_in_context(self._span, Context())
        span = self._tracer.start_span(
            f"stage {number}", within, SpanKind.CLIENT, {"tfs_proxy.stage": number}
        )
        try:
            yield headers_of(trace.set_span_in_context(span, Context()))
        except BaseException as error:
            set_error(span, type(error).__qualname__)
            raise
        finally:
            span.end()

    def end(self, status: int) -> None:
        """End it with the status of the answer; 0 if there is none."""
        end_server_span(self._span, status)
