"""Spans on their way out of a process, beside the requests: a collector that is away is logged once."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult

log = logging.getLogger(__name__)

LIBRARIES = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.sdk._shared_internal",
)
"""Loggers of what would be said anew with every batch."""

FLUSH_SECONDS = 3.0


class LastWords(logging.Filter):
    """Keeps what a library logs to itself, and remembers it."""

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Never lets a record through."""
        if record.levelno >= logging.WARNING:
            self.text = record.getMessage()
        return False


class QuietExporter(SpanExporter):
    """Another exporter, whose first failure is logged if ``is_first`` says that nobody has done so."""

    def __init__(self, exporter: SpanExporter, is_first: Callable[[], bool]) -> None:
        self._exporter = exporter
        self._is_first = is_first
        self._words = LastWords()
        for name in LIBRARIES:
            logging.getLogger(name).addFilter(self._words)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; one that can't be sent is dropped."""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - a failure is told of in one way
            self._words.text = f"{error}"
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS and self._is_first():
            log.warning(
                "traces can't be sent, and are dropped until they can; this is not said again: %s",
                self._words.text,
            )
        return result

    def shutdown(self) -> None:
        """Send no more."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait for what is being sent."""
        return self._exporter.force_flush(timeout_millis)


def new_exporter(name: str, is_first: Callable[[], bool]) -> SpanExporter:
    """OTLP over HTTP, or lines on the standard output; its own OTEL_* variables say where to and how."""
    if name == "console":
        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return QuietExporter(OTLPSpanExporter(), is_first)


def first_in(path: Path) -> Callable[[], bool]:
    """Whether this is the first such call of all processes that share ``path``, which is made by it."""

    def is_first() -> bool:
        with suppress(OSError):
            path.open("x").close()
            return True
        return False

    return is_first


def within(seconds: float, work: Callable[[], object]) -> None:
    """Do ``work`` on a thread of its own, and wait for it no longer than this."""
    thread = threading.Thread(target=work, name="traces-end", daemon=True)
    thread.start()
    thread.join(seconds)
