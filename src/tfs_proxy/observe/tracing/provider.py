"""OpenTelemetry's tracer provider of one process: made after the fork, closed at its end."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.context import create_key, get_value
from opentelemetry.context.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from tfs_proxy.deployment import TraceSampling
from tfs_proxy.observe.tracing.choice import exporter_of
from tfs_proxy.observe.tracing.exporting import FLUSH_SECONDS, first_in, new_exporter, within
from tfs_proxy.observe.tracing.outgoing import NO_HEADERS, OUTGOING
from tfs_proxy.observe.tracing.share import kept_share

DEFAULT_NAME = "tfs-proxy"
UNNAMED = "unknown_service"
_IDS = RandomIdGenerator()
_NOBODY = NonRecordingSpan(
    SpanContext(_IDS.generate_trace_id(), _IDS.generate_span_id(), is_remote=False, trace_flags=TraceFlags(0))
)
UNTRACED = trace.set_span_in_context(_NOBODY, Context())
"""The context of all requests outside of the share: what they call must not begin a trace of its own.

PERF: one for all of them, which nobody records; each of its own would cost more than all the rest.
"""

MARKED = create_key("marked-by-nginx")
"""In the context of a request that nginx has taken into the share."""


class DividedSampler(Sampler):
    """The configured sampler, but for what has been decided: by nginx, or for the span around."""

    def __init__(self, configured: Sampler, kept: float) -> None:
        self._configured = configured
        self._marked = TraceIdRatioBased(kept)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Whether a span is recorded."""
        sampler = self._sampler(parent_context)
        return sampler.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def _sampler(self, parent_context: Context | None) -> Sampler:
        parent = trace.get_current_span(parent_context).get_span_context()
        if not parent.is_valid and get_value(MARKED, parent_context):
            return self._marked
        if parent.is_valid and not parent.is_remote:
            return ALWAYS_ON if parent.trace_flags.sampled else ALWAYS_OFF
        return self._configured

    def get_description(self) -> str:
        """The configured one's."""
        return self._configured.get_description()


class ProcessTraces:
    """Traces of this process, whose own environment OpenTelemetry reads; ``environ`` is the same.

    ``warned`` is a file that processes share, so that only one of them warns of a collector that is away.
    """

    def __init__(self, environ: Mapping[str, str], sampling: TraceSampling, warned: Path) -> None:
        configured = TracerProvider(shutdown_on_exit=False).sampler
        self._provider = TracerProvider(
            DividedSampler(configured, kept_share(sampling) if sampling.share else 0.0),
            _resource(),
            shutdown_on_exit=False,
        )
        exporter = new_exporter(exporter_of(environ), first_in(warned))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer = self._provider.get_tracer("tfs_proxy")

    def install(self) -> None:
        """Make it the provider of all instrumentation in this process, and of the calls that leave it."""
        trace.set_tracer_provider(self._provider)
        OUTGOING.inject = headers_of

    def close(self) -> None:
        """Send what is left, if the collector takes it at once."""
        within(FLUSH_SECONDS, self._provider.shutdown)


def headers_of(context: Context | None = None) -> Mapping[str, str]:
    """The headers of the span in ``context``, of the present one by default; none if there is none."""
    if context is None and trace.get_current_span() is _NOBODY:
        return NO_HEADERS
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    return carrier


_PROPAGATOR = TraceContextTextMapPropagator()


def _resource() -> Resource:
    """What the variables say of this service, and its name if they do not."""
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, UNNAMED)).startswith(UNNAMED):
        return resource.merge(Resource({SERVICE_NAME: DEFAULT_NAME}))
    return resource
