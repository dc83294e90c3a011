"""Spans of a worker's requests, and of their stages: OpenTelemetry makes them, and a thread sends them."""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from opentelemetry import trace
from opentelemetry.context import attach
from opentelemetry.context.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tfs_proxy.observe.request_record import MODEL_SERVER, STAGES, RequestRecord
from tfs_proxy.observe.traces import MARKED, OUTGOING, parent_in
from tfs_proxy.values.names import utf8_texts
from tfs_proxy.wire.header_names import (
    CALLER,
    CUSTOM_ATTRIBUTES,
    IS_SAMPLED,
    TRACEPARENT,
    TRACESTATE,
    wsgi_name,
)
from tfs_proxy.wire.routes import OTHER_METHOD, OTHER_ROUTE, PROBES, method_of, path_of, route_of

FLUSH_SECONDS = 3.0
LIBRARIES = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.sdk._shared_internal",
)
"""Loggers that would repeat themselves with every batch."""

_CARRIERS = tuple((name.lower(), wsgi_name(name)) for name in (TRACEPARENT, TRACESTATE, CUSTOM_ATTRIBUTES))
_MARK = wsgi_name(IS_SAMPLED)
_CALLER = wsgi_name(CALLER)
_NOTHING = Context()
_IDS = RandomIdGenerator()
_NOBODY = NonRecordingSpan(
    SpanContext(_IDS.generate_trace_id(), _IDS.generate_span_id(), is_remote=False, trace_flags=TraceFlags(0))
)
_UNTRACED = trace.set_span_in_context(_NOBODY, _NOTHING)
"""Context of all requests outside of the share, so that their calls begin no trace of their own.

One for all of them, which nobody records; each of its own would cost more than all the rest.
"""

_PROPAGATOR = TraceContextTextMapPropagator()


class RequestSpans:
    """A `worker.gunicorn_workers.boundary.RequestObserver`; OpenTelemetry reads this process's environment.

    If ``marked``, nginx chooses among requests without a parent. Spans of the script go the same way.
    """

    def __init__(self, environ: Mapping[str, str], *, marked: bool) -> None:
        self._marked = marked
        configured = TracerProvider(shutdown_on_exit=False).sampler
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "tfs-proxy"}))
        if environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "console":
            self._processor = _Utf8Processor(ConsoleSpanExporter())
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            self._processor = _Utf8Processor(OTLPSpanExporter())
        once = _SaidOnce()
        for name in LIBRARIES:
            logging.getLogger(name).addFilter(once)

        def provider(root: Sampler) -> TracerProvider:
            sampler = ParentBased(
                root, remote_parent_sampled=configured, remote_parent_not_sampled=configured
            )
            made = TracerProvider(sampler, resource, shutdown_on_exit=False)
            made.add_span_processor(self._processor)
            return made

        self._tracer = provider(ALWAYS_ON if marked else configured).get_tracer("tfs_proxy")
        trace.set_tracer_provider(provider(configured))
        OUTGOING.headers = _present_headers

    def begin(self, record: RequestRecord, environ: dict[str, Any]) -> None:
        """Begin the span, which is the current one from here on; probes have none."""
        mark = environ.pop(_MARK, None)
        caller = environ.pop(_CALLER, None)
        if path_of(record.target) in PROBES:
            return
        headers = {name: environ[variable] for name, variable in _CARRIERS if variable in environ}
        parent = parent_in(headers) if headers else {}
        if self._marked and not parent and mark != MARKED:
            attach(_UNTRACED)
            return
        path = path_of(record.target)
        method = method_of(record.method)
        route = route_of(path)
        attributes = {"http.request.method": method, "url.path": path, "url.scheme": "http"}
        if caller:
            attributes["tfs_proxy.caller"] = caller
        name = "HTTP" if method == OTHER_METHOD else method
        if route != OTHER_ROUTE:
            attributes["http.route"] = route
            name = f"{name} {route}"
        remote = _PROPAGATOR.extract(parent, _NOTHING) if parent else _NOTHING
        span = self._tracer.start_span(name, remote, SpanKind.SERVER, attributes)
        attach(trace.set_span_in_context(span, _NOTHING))
        if span.is_recording():
            record.trace = _RequestTrace(self._tracer, record, span)

    def note_end(self, record: RequestRecord) -> None:
        """End the span, so that the thread's next work is no part of it."""
        attach(_NOTHING)
        if isinstance(record.trace, _RequestTrace):
            record.trace.end()

    def close(self) -> None:
        """Send the remaining spans, if the collector takes them at once."""
        thread = threading.Thread(target=self._processor.shutdown, name="traces-end", daemon=True)
        thread.start()
        thread.join(FLUSH_SECONDS)


class _Utf8Processor(BatchSpanProcessor):
    """Sender of spans whose texts, which scripts may make, are UTF-8: other names cost whole batches."""

    def on_end(self, span: ReadableSpan) -> None:
        super().on_end(_in_utf8(span))


def _in_utf8(span: ReadableSpan) -> ReadableSpan:
    events = [(event.name, dict(event.attributes or {}), event.timestamp) for event in span.events]
    texts = [span.name, span.status.description, dict(span.attributes or {}), events]
    if "\\ud" not in repr(texts):  # as repr writes half a surrogate pair
        return span
    name, description, attributes, events = utf8_texts(texts)
    return ReadableSpan(
        name,
        span.context,
        span.parent,
        span.resource,
        attributes,
        [Event(*event) for event in events],
        span.links,
        span.kind,
        status=Status(span.status.status_code, description),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


class _RequestTrace:
    """`observe.request_record.Trace` of one request, with its server span."""

    def __init__(self, tracer: Tracer, record: RequestRecord, span: Span) -> None:
        self._tracer = tracer
        self._record = record
        self._span = span

    @contextmanager
    def stage(self, number: int, name: str) -> Iterator[None]:
        """Make a stage's span for a block; none after the answer's head: each piece would have one."""
        if self._record.status:
            yield
            return
        kind = SpanKind.CLIENT if number == MODEL_SERVER and not name else SpanKind.INTERNAL
        with self._tracer.start_as_current_span(
            name or STAGES[number], kind=kind, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except BaseException as error:
                _fail(span, type(error).__qualname__)
                raise

    def end(self) -> None:
        """End the request's span, with the facts that are known by now."""
        record = self._record
        span = self._span
        known: dict[str, str | int | None] = {
            "tfs_proxy.request_id": record.request_id,
            "tfs_proxy.model": record.model or None,
            "tfs_proxy.version": record.version or None,
            "tfs_proxy.records": record.records,
            "http.request.body.size": record.bytes_in or None,
            "http.response.body.size": record.bytes_out or None,
            "http.response.status_code": record.status or None,
        }
        span.set_attributes({name: value for name, value in known.items() if value is not None})
        if record.status >= HTTPStatus.INTERNAL_SERVER_ERROR or not record.status:
            _fail(span, f"{record.status}" if record.status else "no_answer")
        span.end()


def _fail(span: Span, kind: str) -> None:
    """Mark a span as failed; not with the error's text, which may hold what a client sent."""
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def _present_headers() -> Mapping[str, str]:
    """Headers of the current span; none outside of the share."""
    if trace.get_current_span() is _NOBODY:
        return {}
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier


class _SaidOnce(logging.Filter):
    """Filter that lets through the first failure of the libraries that send spans, in other words."""

    _said = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop attempts that will be repeated, and every failure after the first."""
        if self._said or record.levelno < logging.ERROR:
            return False
        self._said = True
        record.args = (record.getMessage(),)
        record.msg = "traces can't be sent, and are dropped until they can; this is not said again: %s"
        record.levelno = logging.WARNING
        record.levelname = "WARNING"
        record.exc_info = None
        return True
