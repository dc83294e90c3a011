"""Spans of requests, and within them of their stages, in a worker."""

from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.context import attach, get_current, set_value
from opentelemetry.context.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
)

from tfs_proxy.observe.request_record import MODEL_SERVER, STAGES, WRITE, RequestRecord
from tfs_proxy.observe.tracing.choice import MARKED, NOT_MARKED
from tfs_proxy.observe.tracing.parents import TraceParent, parent_in
from tfs_proxy.observe.tracing.provider import MARKED_KEY, UNTRACED
from tfs_proxy.wire.header_names import (
    CUSTOM_ATTRIBUTES,
    IS_SAMPLED,
    TRACEPARENT,
    TRACESTATE,
    X_RAY,
    wsgi_name,
)
from tfs_proxy.wire.routes import OTHER_METHOD, OTHER_ROUTE, PROBES, method_of, path_of, route_of

_NOTHING = Context()
_CARRIERS = tuple(
    (name.lower(), wsgi_name(name)) for name in (TRACEPARENT, TRACESTATE, CUSTOM_ATTRIBUTES, X_RAY)
)
_MARK = wsgi_name(IS_SAMPLED)


class RequestSpans:
    """A `worker.gunicorn_workers.boundary.RequestObserver`.

    ``behind_nginx`` says that nginx marks the requests to trace.
    """

    def __init__(self, tracer: Tracer, *, behind_nginx: bool) -> None:
        self._tracer = tracer
        self._behind_nginx = behind_nginx

    def begin(self, record: RequestRecord, environ: dict[str, Any]) -> None:
        """Begin the span, which is the current one from here on; probes have none."""
        if path_of(record.target) in PROBES:
            return
        mark = environ.pop(_MARK, None) if self._behind_nginx else None
        headers = {name: environ[variable] for name, variable in _CARRIERS if variable in environ}
        parent = parent_in(headers) if headers else None
        if parent is None and mark == NOT_MARKED:
            attach(UNTRACED)
            return
        context = remote_context(parent)
        if mark == MARKED:
            context = set_value(MARKED_KEY, True, context)
        span = begin_server_span(self._tracer, record.method, record.target, context)
        attach(trace.set_span_in_context(span, Context()))
        if span.is_recording():
            record.listener = StageSpans(self._tracer, record, span)

    def end(self, record: RequestRecord) -> None:
        """End the span, so that the thread's next work is no part of it."""
        attach(_NOTHING)
        if isinstance(record.listener, StageSpans):
            record.listener.end_request()


class _Stage(NamedTuple):
    """Stage that has begun: its span, the context before it, and the stage that it lies within."""

    span: Span | None
    before: Context
    outer: "_Stage | None"


_INNERMOST: ContextVar[_Stage | None] = ContextVar("innermost_stage", default=None)


class StageSpans:
    """A `StageListener` that makes a span of each stage, current while the stage lasts.

    A streamed answer has no spans after its head: there would be one for each piece.
    """

    def __init__(self, tracer: Tracer, record: RequestRecord, span: Span) -> None:
        self._tracer = tracer
        self._record = record
        self._span = span

    def begin(self, stage: int, name: str = "") -> None:
        """Begin the stage's span; ``name`` is its name if that is not the stage's own."""
        if stage == WRITE:
            return
        context, outer = get_current(), _INNERMOST.get()
        if self._record.status:
            _INNERMOST.set(_Stage(None, context, outer))
            return
        within = context
        current = trace.get_current_span(context).get_span_context()
        if current.trace_id != self._span.get_span_context().trace_id:
            within = trace.set_span_in_context(self._span, context)
        kind = SpanKind.CLIENT if stage == MODEL_SERVER and not name else SpanKind.INTERNAL
        span = self._tracer.start_span(name or STAGES[stage], within, kind)
        _INNERMOST.set(_Stage(span, context, outer))
        attach(trace.set_span_in_context(span, within))

    def end(self, stage: int, error: BaseException | None) -> None:
        """End the span of the stage that began last in this thread or coroutine."""
        innermost = _INNERMOST.get()
        if innermost is None or stage == WRITE:
            return
        _INNERMOST.set(innermost.outer)
        if innermost.span is None:
            return
        attach(innermost.before)
        if error is not None:
            set_error(innermost.span, type(error).__qualname__)
        innermost.span.end()

    def end_request(self) -> None:
        """End the request's span, with the facts that are known by now."""
        record = self._record
        known: dict[str, str | int | None] = {
            "tfs_proxy.request_id": record.request_id,
            "tfs_proxy.model": record.model or None,
            "tfs_proxy.version": record.version or None,
            "tfs_proxy.records": record.records,
            "http.request.body.size": record.bytes_in or None,
            "http.response.body.size": record.bytes_out or None,
        }
        self._span.set_attributes({name: value for name, value in known.items() if value is not None})
        end_server_span(self._span, record.status)


def begin_server_span(tracer: Tracer, method: str, target: str, context: Context) -> Span:
    """Begin the span of a request that has arrived, named by its method and route."""
    path = path_of(target)
    known, route = method_of(method), route_of(path)
    shown = "HTTP" if known == OTHER_METHOD else known
    attributes = {"http.request.method": known, "url.path": path, "url.scheme": "http"}
    if route != OTHER_ROUTE:
        attributes["http.route"], shown = route, f"{shown} {route}"
    return tracer.start_span(shown, context, SpanKind.SERVER, attributes)


def end_server_span(span: Span, status: int) -> None:
    """End the span with the answer's status; 0 if there was no answer."""
    if status:
        span.set_attribute("http.response.status_code", status)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or not status:
        set_error(span, f"{status}" if status else "no_answer")
    span.end()


def set_error(span: Span, kind: str) -> None:
    """Mark the span as failed; not with the error's text, which may hold what a client sent."""
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def remote_context(parent: TraceParent | None) -> Context:
    """Context of a request with this parent."""
    if parent is None:
        return Context()
    state = TraceState.from_header([parent.state]) if parent.state else None
    remote = SpanContext(parent.trace_id, parent.span_id, True, TraceFlags(parent.sampled), state)
    return trace.set_span_in_context(NonRecordingSpan(remote), Context())
