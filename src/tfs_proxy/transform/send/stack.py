"""The serving stack of a job: runs `tfs-proxy serve` as a child process while the job runs."""

import contextlib
import json
import logging
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from tfs_proxy.errors import ProcessGaveUp, SettingsError, StopServing, UpstreamError
from tfs_proxy.settings import for_inner_stack
from tfs_proxy.transform.job import MULTI, SINGLE, ExecutionPlan, Job
from tfs_proxy.transform.send.connection import EndpointAddress, EndpointNotReached
from tfs_proxy.wire.connections import get
from tfs_proxy.wire.http_messages import HttpResponse

READY_PAUSE_SECONDS = 0.05
STOP_SECONDS = 40.0
REQUEST_SECONDS = 10.0
_KEPT_LINES = 30
_LISTENING = re.compile(r"listening on http://[^ ]*:(\d+)")
_HTTP_OK = 200

log = logging.getLogger(__name__)


def stack_environment(base: Mapping[str, str], job: Job) -> dict[str, str]:
    """``base``, the variables that SageMaker sets in a batch job, and the job's own Environment.

    Only what the job sets explicitly is included (docs/reference/sagemaker.md).
    """
    requested = {
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": job.max_payload_mb,
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": job.max_concurrent,
        "SAGEMAKER_BATCH_STRATEGY": {SINGLE: "SINGLE_RECORD", MULTI: "MULTI_RECORD"}.get(job.strategy or ""),
    }
    variables = {name: str(value) for name, value in requested.items() if value is not None}
    inner = {name: value for name, value in for_inner_stack(base).items() if name != "TFS_PROXY_LOG_FORMAT"}
    return {**inner, "SAGEMAKER_BATCH": "true", **variables, **job.environment}


class Stack:
    """A running `tfs-proxy serve` of ``model``; it ends with `close`, or when this process ends."""

    def __init__(self, model: str, environment: Mapping[str, str], flags: Sequence[str] = ()) -> None:
        self._model = model
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        serve = [sys.executable, "-m", "tfs_proxy.cli", "serve", model, "--host", "127.0.0.1", "--port", "0"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tfs_proxy.transform.send.parent_death", *serve, *flags],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._port: int | None = None
        self._reader = threading.Thread(target=self._read, daemon=True, name="stack-log")
        self._reader.start()

    def wait_ready(self) -> str:
        """Wait until /ping answers 200; returns the address.

        Raises StopServing with the exit status of `serve` if that ends.
        """
        while True:
            self._check_alive()
            if self._port is not None and _answers_ping(EndpointAddress("127.0.0.1", self._port, "/ping")):
                return f"http://127.0.0.1:{self._port}"
            time.sleep(READY_PAUSE_SECONDS)

    def close(self) -> None:
        """Stop it and wait."""
        assert self._process.stdin is not None  # noqa: S101 - it was opened as a pipe
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was opened as a pipe
        with contextlib.suppress(ValueError):  # close() may close the pipe at any time
            for text in self._process.stdout:
                self._lines.append(text.rstrip())
                log.debug("stack: %s", text.rstrip())
                if self._port is None and (match := _LISTENING.search(text)):
                    self._port = int(match[1])

    def _check_alive(self) -> None:
        status = self._process.poll()
        if status is None:
            return
        self._reader.join(1)
        error: StopServing = ProcessGaveUp(
            f"{self._model} could not be served. The last lines of the serving stack's log:\n"
            + "\n".join(self._lines)
        )
        error.exit_status = status if status > 0 else error.exit_status
        raise error


@contextlib.contextmanager
def serving(model: str, environment: Mapping[str, str], flags: Sequence[str] = ()) -> Iterator[str]:
    """Run a stack while the block runs; gives its address once it is ready. Raises StopServing."""
    stack = Stack(model, environment, flags)
    try:
        yield stack.wait_ready()
    finally:
        stack.close()


def fetch_plan(job: Job, endpoint: EndpointAddress) -> ExecutionPlan:
    """How to send the records of ``job``; asks ``GET /execution-parameters``, which a server need not know.

    Raises SettingsError if nothing listens there.
    """
    try:
        response = _get(endpoint, endpoint.parameters_path)
        values = json.loads(response.body) if response.status == _HTTP_OK else None
    except EndpointNotReached as error:
        raise SettingsError(f"The endpoint can't be used: {error}.") from error
    except (UpstreamError, ValueError):
        values = None
    return ExecutionPlan.resolve(job, values if isinstance(values, dict) else {})


def _answers_ping(ping: EndpointAddress) -> bool:
    try:
        return _get(ping, ping.path).status == _HTTP_OK
    except (EndpointNotReached, UpstreamError):
        return False


def _get(endpoint: EndpointAddress, path: str) -> HttpResponse:
    return get(
        endpoint.host,
        endpoint.port,
        path,
        REQUEST_SECONDS,
        connect=endpoint.connect,
        server=endpoint.authority,
    )
