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
from threading import Thread
from types import FrameType
from typing import Any, NoReturn

from gunicorn.workers.base import Worker

from tfs_proxy.observe.begun_requests import BegunRequests
from tfs_proxy.observe.request_counts import FinishedRequest
from tfs_proxy.observe.request_record import chosen_id, current_request, set_current_request
from tfs_proxy.observe.stage_counts import StageCounts
from tfs_proxy.serving.script.deadline import Lane, own_part
from tfs_proxy.serving.upstream.instances import fetch_deployment
from tfs_proxy.settings.worker_environment import worker_workspace
from tfs_proxy.values.deployment import BootFailure, WorkerOrder, WorkerPhase, WorkerState
from tfs_proxy.wire.header_names import INFERENCE_ID, REQUEST_ID
from tfs_proxy.worker.gunicorn_workers.boundary import NotLoaded, RequestBoundary, WorkerApp
from tfs_proxy.worker.gunicorn_workers.refusals import (
    OUR_FAULT,
    OUT_OF_TIME,
    is_refused_by_gunicorn,
    refusal,
)
from tfs_proxy.worker.gunicorn_workers.reports import Loading, Reports, boot_failure
from tfs_proxy.worker.gunicorn_workers.request_observers import (
    Observers,
    WorkerLog,
    observers_for,
)

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.02
"""Pause between two requests to the control API, until the supervisor leaves the socket to the workers."""

RETRY_SECONDS = 5.0
"""Time for which a worker that can't load the application keeps its place: others may serve."""

FIRST_CALL_TICK_SECONDS = 0.25
CLOSE_SECONDS = 5.0
"""Time for the script's ``close()`` beside calls that hang: it may wait for one of them."""


class WorkerStopped(SystemExit):
    """The supervisor ends this worker; a script's own ``sys.exit`` must not."""


class ContainerWorker(Worker):  # type: ignore[misc]  # gunicorn has no types
    """Base of all worker classes; a mixin in front of one of gunicorn's own."""

    new_lane: Callable[[], Lane] = Lane
    """Kind of thread that runs a call of the script in this class of workers."""

    reports: Reports
    """Sender of this worker's state to the supervisor."""

    closing: ExitStack
    """Stack of all that is closed at the worker's end."""

    wsgi: Any
    """Application that gunicorn calls for each request."""

    phase = WorkerPhase.BEGINS
    """Progress of this worker."""

    failure: BootFailure | None = None
    """Reason why the application can't be loaded; None if it can."""

    loading: Loading | None = None
    """Time limit and place of the load; None once it has ended."""

    served: WorkerApp = NotLoaded()
    """Application without what stands around it."""

    begun: BegunRequests | None = None
    """Record of requests that have begun; None until the application is loaded."""

    observers = Observers()
    """Observers that the deployment asks for; none until it is known."""

    @property
    def most_hanging(self) -> int:
        """Number of hanging calls with which this worker can take no others."""
        return int(self.cfg.threads)

    def load_wsgi(self) -> None:
        """Load the application; on failure report the reason to the supervisor, and end the start."""
        workspace = worker_workspace()
        printed = WorkerLog(self.log.error_log)
        stages = StageCounts()
        self.closing = ExitStack()
        self.closing.callback(printed.finish)
        self.reports = Reports(workspace.control_socket, self.state, self._tick, self._obey, stages)
        try:
            self.reports.start()
            self.phase = WorkerPhase.LOADS
            deployment = fetch_deployment(workspace.control_socket)
            self.observers = observers_for(deployment, workspace)
            limit_seconds = deployment.times.load_seconds
            deadline = time.monotonic() + limit_seconds
            self.loading = Loading(self.new_lane(), deployment.script_folder, limit_seconds, deadline)
            super().load_wsgi()
        except Exception as error:  # noqa: BLE001 - the supervisor gets every error
            self.give_up(error)
        self.loading = None
        if self.observers.spans is not None:
            self.closing.callback(self.observers.spans.close)
        self.served = self.wsgi
        self.closing.callback(self.served.close)
        stages.set_models(self.served.known)
        self.begun = BegunRequests(workspace.journal, max(self.cfg.worker_connections, self.cfg.threads))
        self.closing.callback(self.begun.close)
        asked = self.observers
        observers = asked.beside(printed, stages)
        self.wsgi = RequestBoundary(
            self.wsgi, self.begun, self.served.watch, observers, headers_for_nginx=asked.headers_for_nginx
        )

    def give_up(self, error: Exception) -> NoReturn:
        """Keep this worker's place for a while without the application; then gunicorn starts another one.

        The supervisor logs the reason, once for all workers. gunicorn would report the end of each at length.
        """
        self.loading = None
        self.phase = WorkerPhase.FAILED
        self.failure = boot_failure(error)
        self.reports.deliver()
        until = time.monotonic() + RETRY_SECONDS
        while self.alive and os.getppid() == self.ppid and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)
        sys.exit(0)

    def run(self) -> None:
        """Report that it is ready, wait until everything else is, then serve."""
        if not self.reports.deliver():
            first_call = self.served.first_call
            while self.alive and first_call is not None and first_call.is_alive():
                first_call.join(FIRST_CALL_TICK_SECONDS)
        self.phase = WorkerPhase.SERVES
        while self.alive and not self.reports.deliver():
            time.sleep(PAUSE_SECONDS)
        self.served.watch.start(self.new_lane, self.replace_thread)
        self.serve()
        # If the supervisor kills the worker, this is not reached.
        if self.observers.capture is not None:
            self.observers.capture.close()
        self.reports.send_last()
        if self.served.watch.hangs:
            log.info("all other requests have been answered: this worker ends")
            closing = Thread(target=self.closing.close, name="closing", daemon=True)
            closing.start()
            closing.join(CLOSE_SECONDS)
            end_now()
        self.closing.close()

    def serve(self) -> None:
        """Take requests until this worker is told to end."""
        super().run()

    def replace_thread(self) -> None:
        """Make up for a thread whose call is over its deadline, where that can be done."""

    def notify(self) -> None:
        """Do nothing: the supervisor hears this worker, and not gunicorn's master."""

    def state(self) -> WorkerState:
        watch = self.served.watch
        capture = self.observers.capture
        health = self.served.health
        loading = self.loading
        answered = watch.answered
        watch.answered = False
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
            captured=0 if capture is None else capture.written,
            uncaptured=0 if capture is None else capture.dropped,
            health=None if health is None else health.take(),
        )

    def _tick(self) -> None:
        """Work between requests, in the thread of the reports."""
        if self.loading is not None and self.loading.is_late():
            end_now(1)
        if self.served.watch.hangs:
            os.ftruncate(self.tmp.fileno(), 1)  # the successor's byte, for gunicorn's master

    def _obey(self, order: WorkerOrder) -> None:
        """Ask the script for its health, or end once all requests whose calls don't hang are answered."""
        if order is WorkerOrder.ASK and self.served.health is not None:
            self.served.health.ask()
        if order is WorkerOrder.LEAVE and self.alive:
            log.warning("worker %d has calls that hang, and ends: another one serves in its place", self.pid)
            self.cfg.set(
                "graceful_timeout", max(self.cfg.graceful_timeout, math.ceil(self.served.watch.seconds))
            )
            os.kill(os.getpid(), signal.SIGTERM)

    def handle_error(self, req: Any, client: Any, _address: Any, error: BaseException) -> None:
        """Answer requests that gunicorn refuses itself, without repeating the client's text."""
        refused = OUT_OF_TIME if isinstance(error, WorkerStopped) else refusal(error)
        lines = self.observers.lines
        if lines is not None and is_refused_by_gunicorn(error) and current_request() is None:
            method, target = (getattr(req, name, None) or "-" for name in ("method", "uri"))
            request = FinishedRequest(method, refused.status, 0.0, target, reason=refused.text)
            lines.refuse(request, _id_of(req))
        if refused in {OUR_FAULT, OUT_OF_TIME}:
            log.error("a request failed in gunicorn: %s", refused.text, exc_info=error)
        else:
            log.debug("refused with %d: %s", refused.status, type(error).__name__)
        try:
            client.send(refused.response(_id_of(req)), socket.MSG_DONTWAIT)
        except OSError:
            log.debug("the client of a refused request was gone")
        set_current_request(None)

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


def end_sending(client: Any) -> None:
    """Tell a client that nothing more comes, while it may go on sending."""
    client.shutdown(socket.SHUT_WR)


def end_now(status: int = 0) -> None:
    """End this process without waiting for any thread."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
