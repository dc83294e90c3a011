"""A collector of traces: a real OTLP/HTTP receiver that decodes what it gets, and keeps the spans."""

import contextlib
import gzip
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from support.http_servers import Quiet, listening
from support.waiting import wait_until

WAIT_SECONDS = 60.0
SERVER, CLIENT = SpanMessage.SPAN_KIND_SERVER, SpanMessage.SPAN_KIND_CLIENT


@dataclass(frozen=True)
class ReceivedSpan:
    """One span: ids in hexadecimal, "" for no parent; ``resource`` has the attributes of its process."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    failed: bool
    attributes: Mapping[str, object]
    resource: Mapping[str, object]


class Collector:
    """Keeps all spans that are sent to ``endpoint``."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self._lock = threading.Lock()
        self._spans: list[ReceivedSpan] = []

    @property
    def env(self) -> Mapping[str, str]:
        """Variables that make a stack send its spans here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    @property
    def spans(self) -> list[ReceivedSpan]:
        """What has come so far."""
        with self._lock:
            return list(self._spans)

    def take(self, message: bytes) -> None:
        """Keep the spans of one message."""
        request = ExportTraceServiceRequest.FromString(message)
        with self._lock:
            for of_process in request.resource_spans:
                resource = _values(of_process.resource.attributes)
                for scope in of_process.scope_spans:
                    self._spans += [_received(span, resource) for span in scope.spans]

    def servers(self) -> list[ReceivedSpan]:
        """The spans of requests."""
        return [span for span in self.spans if span.kind == SERVER]

    def trace(self, trace_id: str, least: int = 1) -> dict[str, ReceivedSpan]:
        """The spans of a trace by name, once the request's own and as many as ``least`` are there."""

        def of_trace() -> list[ReceivedSpan]:
            spans = [span for span in self.spans if span.trace_id == trace_id]
            return spans if len(spans) >= least and any(span.kind == SERVER for span in spans) else []

        spans = wait_until(of_trace, WAIT_SECONDS, f"trace {trace_id} is here", details=lambda: self.spans)
        return {span.name: span for span in spans}


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """A collector that runs for the length of a block."""

    class Handler(Quiet):
        def do_POST(self) -> None:  # noqa: N802 - as http.server has it
            body = self.body()
            running.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.answer(200, b"", {"Content-Type": "application/x-protobuf"})

    with listening(Handler) as server:
        running = Collector(server.server_port)
        yield running


def _received(span: SpanMessage, resource: Mapping[str, object]) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.status.code == span.status.STATUS_CODE_ERROR,
        _values(span.attributes),
        resource,
    )


def _values(attributes: Sequence[object]) -> dict[str, object]:
    values: dict[str, object] = {}
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")  # type: ignore[attr-defined]
        values[attribute.key] = getattr(attribute.value, kind)  # type: ignore[attr-defined]
    return values
