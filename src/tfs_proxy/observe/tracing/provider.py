"""OpenTelemetry's tracer provider of one process: made after the fork, closed at its end.

Spans are sent by a thread of their own; it logs once that a collector is away.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import create_key, get_value
from opentelemetry.context.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tfs_proxy.observe.tracing.choice import exporter_of, kept_share
from tfs_proxy.observe.tracing.parents import NO_HEADERS, OUTGOING
from tfs_proxy.values.deployment import TraceSampling

DEFAULT_NAME = "tfs-proxy"
UNNAMED = "unknown_service"
FLUSH_SECONDS = 3.0
LIBRARIES = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.sdk._shared_internal",
)
"""Loggers that would repeat themselves with every batch."""

_IDS = RandomIdGenerator()
_NOBODY = NonRecordingSpan(
    SpanContext(_IDS.generate_trace_id(), _IDS.generate_span_id(), is_remote=False, trace_flags=TraceFlags(0))
)
UNTRACED = trace.set_span_in_context(_NOBODY, Context())
"""Context of all requests outside of the share, so that their calls begin no trace of their own.

One for all of them, which nobody records; each of its own would cost more than all the rest.
"""

MARKED_KEY = create_key("marked-by-nginx")
"""Key in the context of a request that nginx has taken into the share."""

_PROPAGATOR = TraceContextTextMapPropagator()


class _OfMarked(Sampler):
    """Sampler as configured, except for requests without a parent that nginx has marked."""

    def __init__(self, configured: Sampler, kept: float) -> None:
        self._configured = configured
        self._marked = TraceIdRatioBased(kept)

    def should_sample(self, parent_context: Context | None, *span: Any, **more: Any) -> SamplingResult:
        sampler = self._marked if get_value(MARKED_KEY, parent_context) else self._configured
        return sampler.should_sample(parent_context, *span, **more)

    def get_description(self) -> str:
        return self._configured.get_description()


def divided_sampler(configured: Sampler, kept: float) -> Sampler:
    """Wrap ``configured`` so that decisions of nginx, or of the parent span in this process, stand."""
    return ParentBased(
        _OfMarked(configured, kept),
        remote_parent_sampled=configured,
        remote_parent_not_sampled=configured,
    )


class SaidOnce(logging.Filter):
    """Filter that lets through the first failure of the libraries that send spans."""

    def __init__(self) -> None:
        super().__init__()
        self._has_warned = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop attempts that will be repeated, and every failure after the first, which gets other words."""
        if record.levelno < logging.ERROR:
            return False  # another attempt follows
        first, self._has_warned = not self._has_warned, True
        if first:
            record.args = (record.getMessage(),)
            record.msg = "traces can't be sent, and are dropped until they can; this is not said again: %s"
            record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
        return first


class ProcessTraces:
    """Traces of this process, whose own environment OpenTelemetry reads; ``environ`` is the same."""

    def __init__(self, environ: Mapping[str, str], sampling: TraceSampling) -> None:
        configured = TracerProvider(shutdown_on_exit=False).sampler
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, UNNAMED)).startswith(UNNAMED):
            resource = resource.merge(Resource({SERVICE_NAME: DEFAULT_NAME}))
        sampler = divided_sampler(configured, kept_share(sampling))
        self._provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_new_exporter(exporter_of(environ))))
        once = SaidOnce()
        for name in LIBRARIES:
            logging.getLogger(name).addFilter(once)
        self.tracer = self._provider.get_tracer("tfs_proxy")

    def install(self) -> None:
        """Make it the provider of all instrumentation in this process, and of the calls that leave it."""
        trace.set_tracer_provider(self._provider)
        OUTGOING.inject = headers_of

    def close(self) -> None:
        """Send the remaining spans, if the collector takes them at once."""
        thread = threading.Thread(target=self._provider.shutdown, name="traces-end", daemon=True)
        thread.start()
        thread.join(FLUSH_SECONDS)


def headers_of(context: Context | None = None) -> Mapping[str, str]:
    """Headers of the span in ``context``, of the present one by default; none if there is none."""
    if context is None and trace.get_current_span() is _NOBODY:
        return NO_HEADERS
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    return carrier


def _new_exporter(name: str) -> SpanExporter:
    """Make an exporter: OTLP over HTTP, or lines on the standard output; OTEL_* variables configure it."""
    if name == "console":
        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
