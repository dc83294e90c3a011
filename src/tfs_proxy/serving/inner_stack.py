"""Serving stack within another program: `tfs-proxy serve` as a child process of a job or of a search."""

import contextlib
import logging
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

from tfs_proxy.values.errors import ProcessGaveUp, StopServing, UpstreamError
from tfs_proxy.wire.http_client import get

READY_PAUSE_SECONDS = 0.05
STOP_SECONDS = 40.0
PING_SECONDS = 10.0
_KEPT_LINES = 30
SERVE = (sys.executable, "-m", "tfs_proxy.cli", "serve")
_LISTENING = re.compile(r"listening on http://[^ ]*:(\d+)")

log = logging.getLogger(__name__)


class InnerStack:
    """Child process `tfs-proxy serve` of ``model``; it ends with `close`, or when this process ends."""

    def __init__(self, model: str, environment: Mapping[str, str], flags: Sequence[str] = ()) -> None:
        self._model = model
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        serve = [*SERVE, model, "--host", "127.0.0.1", "--port", "0"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tfs_proxy.values.processes", *serve, *flags],
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
            if self._port is not None and _answers_ping(self._port):
                return f"http://127.0.0.1:{self._port}"
            time.sleep(READY_PAUSE_SECONDS)

    def close(self) -> None:
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
    """Run a stack while the block runs; yields its address once it is ready. Raises StopServing."""
    stack = InnerStack(model, environment, flags)
    try:
        yield stack.wait_ready()
    finally:
        stack.close()


def _answers_ping(port: int) -> bool:
    try:
        return get("127.0.0.1", port, "/ping", PING_SECONDS).status == HTTPStatus.OK
    except UpstreamError:
        return False
