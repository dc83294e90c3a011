"""Base of all workers in this container: JSON refusals, reports, one place for logs.

The supervisor names one of the classes in `standard`, `thread_worker` and `gevent`.
"""

import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from gunicorn.workers.base import Worker

from tfs_proxy.observe.begun_requests import BegunRequests
from tfs_proxy.observe.request_counts import FinishedRequest
from tfs_proxy.observe.request_record import chosen_id, current_request, set_current_request
from tfs_proxy.observe.stage_counts import StageCounts
from tfs_proxy.serving.script.deadline import DeadlineWatch, Lane, own_part
from tfs_proxy.serving.upstream.instances import fetch_deployment
from tfs_proxy.settings.parsers import AccessLog, access_log
from tfs_proxy.settings.worker_environment import worker_workspace
from tfs_proxy.values.deployment import BootFailure, WorkerPhase, WorkerState
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.header_names import INFERENCE_ID, REQUEST_ID
from tfs_proxy.worker.gunicorn_workers.boundary import RequestBoundary, RequestObserver, WsgiApp
from tfs_proxy.worker.gunicorn_workers.refusals import (
    OUR_FAULT,
    OUT_OF_TIME,
    is_refused_by_gunicorn,
    refusal,
)
from tfs_proxy.worker.gunicorn_workers.reports import Loading, Reports, boot_failure
from tfs_proxy.worker.gunicorn_workers.request_observers import (
    AccessObserver,
    RequestCounting,
    request_spans,
    stages_for_nginx,
)
from tfs_proxy.worker.gunicorn_workers.worker_log import WorkerLog

if TYPE_CHECKING:
    from tfs_proxy.worker.capturing import Capture

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.02
"""Pause between two requests to the control API, until the supervisor leaves the socket to the workers."""

RETRY_SECONDS = 5.0
"""Time for which a worker that can't load the application keeps its place: others may serve."""

FIRST_CALL_TICK_SECONDS = 0.25
CLOSE_SECONDS = 5.0


class WorkerStopped(SystemExit):
    """The supervisor ends this worker; a script's own ``sys.exit`` must not."""


class ContainerWorker(Worker):  # type: ignore[misc]  # gunicorn has no types
    """Base of all worker classes; a mixin in front of one of gunicorn's own."""

    printed: WorkerLog
    reports: Reports
    phase = WorkerPhase.BEGINS
    loading: Loading | None = None
    failure: BootFailure | None = None
    wsgi: WsgiApp
    close_app: Callable[[], None]
    observers: list[RequestObserver]
    """Observers of every request once the application is loaded."""

    begun: BegunRequests | None = None
    stages: StageCounts
    access_log: AccessLog
    counting: RequestCounting | None = None
    """Counting without nginx, which counts requests itself."""

    watch = DeadlineWatch()
    """Watch over the script's calls; the application has its own if there is a deadline."""

    capture: "Capture | None" = None

    first_call: Thread | None = None
    """Warm-up of the worker, if its model has recorded requests."""

    new_lane: Callable[[], Lane] = Lane
    """Kind of thread that runs a call of the script in this class of workers."""

    @property
    def most_hanging(self) -> int:
        """Number of hanging calls with which this worker can take no others."""
        return int(self.cfg.threads)

    def load_wsgi(self) -> None:
        """Load the application; on failure report the reason to the supervisor, and end the start."""
        workspace = worker_workspace()
        self.printed = WorkerLog(self.log.error_log)
        self._closing = ExitStack()
        self.stages = StageCounts()
        self.reports = Reports(
            workspace.control_socket, self.state, self._tick_of_reports, self._leave, self.stages
        )
        try:
            self.reports.start()
            self.phase = WorkerPhase.LOADS
            self._prepare(workspace)
            super().load_wsgi()
        except Exception as error:  # noqa: BLE001 - the supervisor gets every error
            self.give_up(error)
        self.loading = None
        self.stages.follow(self.wsgi.known)  # type: ignore[attr-defined]
        self._closing.callback(self.wsgi.close)  # type: ignore[attr-defined]
        self.close_app = self._closing.close
        self.watch = self.wsgi.watch  # type: ignore[attr-defined]
        self.first_call = getattr(self.wsgi, "first_call", None)
        self.begun = BegunRequests(workspace.journal, max(self.cfg.worker_connections, self.cfg.threads))
        self.wsgi = RequestBoundary(
            self.wsgi if self.capture is None else self.capture.around(self.wsgi),
            self.begun,
            self.watch,
            self.observers,
            headers_for_nginx=partial(stages_for_nginx, self.access_log) if self.counting is None else None,
        )

    def _prepare(self, workspace: Workspace) -> None:
        """Take those parts from the deployment that come before the application is loaded."""
        deployment = fetch_deployment(workspace.control_socket)
        self.access_log = access_log(deployment.access_log)
        if deployment.capture is not None:
            from tfs_proxy.worker.capturing import Capture

            self.capture = Capture(deployment.capture)
        self.observers = [self.printed, self.stages]
        if (spans := request_spans(deployment)) is not None:
            self.observers.insert(0, spans)
            self._closing.callback(spans.close)
        if deployment.counts_requests:
            self.counting = RequestCounting(workspace.requests)
            self.observers.append(self.counting)
            if self.access_log.mode != AccessLog.OFF:
                self.observers.append(AccessObserver(self.access_log))
        limit_seconds = deployment.wait_time_seconds
        self.loading = Loading(
            self.new_lane(), deployment.script_folder, limit_seconds, time.monotonic() + limit_seconds
        )

    def give_up(self, error: Exception) -> NoReturn:
        """Keep this worker's place for a while without the application; then gunicorn starts another one.

        The supervisor logs the reason, once for all workers. gunicorn would report the end of each at length.
        """
        self.loading = None
        self.phase, self.failure = WorkerPhase.FAILED, boot_failure(error)
        self.reports.deliver()
        until = time.monotonic() + RETRY_SECONDS
        while self.alive and os.getppid() == self.ppid and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)
        sys.exit(0)

    def run(self) -> None:
        """Report that it is ready, wait until everything else is, then serve."""
        if not self.reports.deliver():
            self._wait_for_first_call()
        self.phase = WorkerPhase.SERVES
        while self.alive and not self.reports.deliver():
            time.sleep(PAUSE_SECONDS)
        self.watch.start(self.new_lane, self.replace_thread)
        self.serve()
        if self.capture is not None:
            self.capture.close()
        self.reports.send_last()
        if self.watch.hangs:
            end_with_hanging_calls(self.close_app)
        # If gunicorn kills the worker, this is not reached.
        self.close_app()
        self.printed.finish()

    def _wait_for_first_call(self) -> None:
        """Wait until the worker is warm; the run is not ready before it reports."""
        while self.alive and self.first_call is not None and self.first_call.is_alive():
            self.first_call.join(FIRST_CALL_TICK_SECONDS)

    def serve(self) -> None:
        """Take requests until gunicorn ends this worker."""
        super().run()

    def _tick_of_reports(self) -> None:
        """Work between requests, in the thread of the reports."""
        if self.loading is not None and self.loading.is_late():
            end_now(1)
        if self.watch.hangs:
            os.ftruncate(self.tmp.fileno(), 1)  # has gunicorn's master start another worker

    def _leave(self) -> None:
        """End once all requests whose calls don't hang are answered."""
        if self.alive:
            log.warning("worker %d has calls that hang, and ends: another one serves in its place", self.pid)
            self.cfg.set("graceful_timeout", max(self.cfg.graceful_timeout, math.ceil(self.watch.seconds)))
            os.kill(os.getpid(), signal.SIGTERM)

    def notify(self) -> None:
        """Do nothing: the supervisor hears this worker, and not gunicorn's master."""

    def state(self) -> WorkerState:
        watch, loading = self.watch, self.loading
        answered, watch.answered = watch.answered, False
        return WorkerState(
            os.getpid(),
            self.phase,
            loading.line() if loading is not None else own_part(watch.place),
            hangs=watch.hangs,
            full=watch.hanging >= self.most_hanging,
            stuck=watch.hanging,
            answered=answered,
            failure=self.failure,
            problem="" if self.begun is None else self.begun.problem(),
            captured=0 if self.capture is None else self.capture.written,
            uncaptured=0 if self.capture is None else self.capture.dropped,
        )

    def replace_thread(self) -> None:
        """Make up for a thread whose call is over its deadline, where that can be done."""

    def handle_error(self, req: Any, client: Any, _address: Any, error: BaseException) -> None:
        """Answer requests that gunicorn refuses itself, without repeating the client's text."""
        self._count_refused(req, error)
        refused = OUT_OF_TIME if isinstance(error, WorkerStopped) else refusal(error)
        if refused in {OUR_FAULT, OUT_OF_TIME}:
            log.error("a request failed in gunicorn: %s", refused.text, exc_info=error)
        else:
            log.debug("refused with %d: %s", refused.status, type(error).__name__)
        try:
            client.send(refused.response(_id_of(req)), socket.MSG_DONTWAIT)
        except OSError:
            log.debug("the client of a refused request was gone")
        set_current_request(None)

    def _count_refused(self, req: Any, error: BaseException) -> None:
        """Count a request that did not reach the application."""
        if self.counting is not None and is_refused_by_gunicorn(error) and current_request() is None:
            method, target = (getattr(req, name, None) or "-" for name in ("method", "uri"))
            refused = refusal(error)
            request = FinishedRequest(method, refused.status, 0.0, target, reason=refused.text)
            self.counting.write(request)
            AccessObserver(self.access_log).log_refused(request, _id_of(req))

    def handle_abort(self, _signal: int, _frame: FrameType | None) -> None:
        """End, even in the middle of a script's function: the supervisor has heard nothing for too long."""
        self.alive = False
        raise WorkerStopped(1)


def _id_of(req: Any) -> str:
    """Id of a request that gunicorn refuses; ``req`` is None if it could not be read."""
    record = current_request()
    if record is not None:
        return record.request_id
    headers = {name.upper(): value for name, value in getattr(req, "headers", None) or ()}
    return chosen_id(headers.get(INFERENCE_ID.upper()), headers.get(REQUEST_ID.upper()))


def end_with_hanging_calls(close_app: Callable[[], None]) -> None:
    """End this process, whose threads would keep it: nothing after this line is run.

    The script's ``close()`` may wait for something that a hanging call holds, so it has a limit.
    """
    log.info("all other requests have been answered: this worker ends")
    closing = Thread(target=close_app, name="closing", daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS)
    end_now()


def end_now(status: int = 0) -> None:
    """End this process without waiting for any thread."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
