"""Traces in one worker: begun after the fork and before the script is loaded, sent on at the worker's end."""

import logging
from collections.abc import Callable

from msgspec import Struct

from tfs_proxy.deployment import Deployment
from tfs_proxy.settings import inherited_environment
from tfs_proxy.web.workers.around_requests.boundary import RequestObserver

log = logging.getLogger(__name__)


class WorkerTraces(Struct, frozen=True):
    """What makes spans of a worker's requests; ``close`` sends those that are left."""

    observers: tuple[RequestObserver, ...] = ()
    close: Callable[[], None] = lambda: None

    def closing_behind(self, close_app: Callable[[], None]) -> Callable[[], None]:
        """Close the application, whose script may still make spans, and then the traces."""

        def close() -> None:
            close_app()
            self.close()

        return close


def begin_traces(deployment: Deployment) -> WorkerTraces:
    """Traces if the deployment has them; OTEL_* variables that OpenTelemetry refuses are no reason to end."""
    if deployment.traces is None:
        return WorkerTraces()
    try:
        # PERF: OpenTelemetry costs a start a few hundred ms. Its import reads variables, too.
        from tfs_proxy.observe.tracing.provider import ProcessTraces
        from tfs_proxy.observe.tracing.spans import RequestSpans

        traces = ProcessTraces(inherited_environment(), deployment.traces)
    except Exception as error:  # noqa: BLE001 - whatever the variables make its parts raise
        log.warning("no traces are sent: OpenTelemetry can't be configured: %s", error)
        return WorkerTraces()
    traces.install()
    return WorkerTraces(
        (RequestSpans(traces.tracer, behind_nginx=not deployment.counts_requests),), traces.close
    )
