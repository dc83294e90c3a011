"""The spans of one request: the request's own, those of its stages, and what is current while a script runs."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from types import MappingProxyType

import pytest
from opentelemetry.context import attach, get_current
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased

from tfs_proxy.observe.request_record import (
    CONVERT,
    INPUT_HANDLER,
    MODEL_SERVER,
    RequestRecord,
    handling,
    stage,
)
from tfs_proxy.observe.tracing.provider import divided_sampler
from tfs_proxy.observe.tracing.spans import RequestSpans

MARKED, NOT_MARKED = {"HTTP_X_TFS_PROXY_SAMPLED": "1"}, {"HTTP_X_TFS_PROXY_SAMPLED": "0"}


@pytest.fixture(autouse=True)
def _own_context() -> Iterator[None]:
    before = get_current()
    yield
    attach(before)


class Traced:
    """Requests whose spans are kept."""

    def __init__(self, sampler: Sampler = ALWAYS_ON, kept: float = 1.0, *, behind_nginx: bool = True) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(divided_sampler(sampler, kept), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("test")
        self.observer = RequestSpans(self.tracer, behind_nginx=behind_nginx)

    @contextmanager
    def request(self, environ: Mapping[str, str] = MappingProxyType({})) -> Iterator[RequestRecord]:
        """One request from its begin to its end; it is handled where `handling` says so."""
        record = RequestRecord("id", "POST", "/invocations")
        self.observer.begin(record, dict(environ))
        yield record
        record.status = 200
        self.observer.end(record)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}

    @property
    def count(self) -> int:
        return len(self._exporter.get_finished_spans())


def parent_of(span: ReadableSpan) -> int:
    """The id of its parent; 0 if it has none."""
    return span.parent.span_id if span.parent else 0


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def test_stages_at_the_same_time_do_not_mix() -> None:
    """Several calls of ``predict_async`` run on threads that share the request's context."""
    traced = Traced()
    both_inside = threading.Barrier(2)

    def ask() -> None:
        with stage(MODEL_SERVER):
            both_inside.wait(60)

    with traced.request() as record, handling(record), stage(INPUT_HANDLER, "input_handler"):
        threads = [threading.Thread(target=copy_context().run, args=(ask,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    asked = [span for span in traced._exporter.get_finished_spans() if span.name == "model_server"]
    assert [parent_of(span) for span in asked] == [id_of(traced.spans["input_handler"])] * 2


def test_a_stage_on_a_thread_without_context_belongs_to_the_request() -> None:
    """A server may make each piece of an answer on any of its threads."""
    traced = Traced()

    def elsewhere() -> None:
        with handling(record), stage(CONVERT):
            pass

    with traced.request() as record:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    assert parent_of(traced.spans["convert"]) == id_of(traced.spans["POST /invocations"])


def test_a_worker_keeps_its_part_of_the_share_that_nginx_marks() -> None:
    """nginx can't count below a hundredth of a percent."""
    traced = Traced(ParentBased(TraceIdRatioBased(0.0)), kept=0.5)
    for _ in range(1000):
        with traced.request(MARKED):
            pass

    assert 400 < traced.count < 600


def test_without_nginx_a_mark_is_a_client_s_own() -> None:
    """Nobody samples by a header."""
    traced = Traced(ParentBased(TraceIdRatioBased(0.0)), behind_nginx=False)
    with traced.request(MARKED):
        pass

    assert traced.count == 0


def test_a_name_never_comes_from_a_client() -> None:
    """Unknown paths and methods share one."""
    traced = Traced()
    for method in ("GET", "BREW"):
        record = RequestRecord("id", method, "/secret/path")
        traced.observer.begin(record, {})
        record.status = 404
        traced.observer.end(record)

    assert set(traced.spans) == {"GET", "HTTP"}


def test_what_lies_within_a_marked_request_is_recorded_whatever_its_trace_s_id() -> None:
    """A sampler that looks at the id alone would tear the trace apart."""
    traced = Traced(TraceIdRatioBased(0.0))
    with traced.request(MARKED) as record, handling(record), stage(CONVERT):
        pass

    assert set(traced.spans) == {"POST /invocations", "convert"}


def test_what_a_request_without_a_span_calls_begins_no_trace() -> None:
    traced = Traced(ALWAYS_ON)
    with traced.request(NOT_MARKED), traced.tracer.start_as_current_span("own"):
        pass

    assert traced.count == 0
