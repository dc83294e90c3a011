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


@contextlib.contextmanager
def serving(model: str, environment: Mapping[str, str], flags: Sequence[str] = ()) -> Iterator[str]:
    """Run `tfs-proxy serve` of ``model`` while the block runs; yields its address once /ping answers 200.

    It ends with this process, too. Raises StopServing with the exit status of `serve` if that ends.
    """
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    ports: list[int] = []
    serve = [*SERVE, model, "--host", "127.0.0.1", "--port", "0", *flags]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfs_proxy.values.processes", *serve],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    into = process.stdin
    out = process.stdout
    assert into is not None and out is not None  # noqa: S101, PT018 - they were opened as pipes

    def read() -> None:
        with contextlib.suppress(ValueError):  # the pipe may be closed at any time
            for text in out:
                lines.append(text.rstrip())
                log.debug("stack: %s", text.rstrip())
                if not ports and (match := _LISTENING.search(text)):
                    ports.append(int(match[1]))

    reader = threading.Thread(target=read, daemon=True, name="stack-log")
    reader.start()
    try:
        while (status := process.poll()) is None and not (ports and _answers_ping(ports[0])):
            time.sleep(READY_PAUSE_SECONDS)
        if status is not None:
            reader.join(1)
            error: StopServing = ProcessGaveUp(
                f"{model} could not be served. The last lines of the serving stack's log:\n"
                + "\n".join(lines)
            )
            error.exit_status = status if status > 0 else error.exit_status
            raise error
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        with contextlib.suppress(OSError):
            into.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(1)
        out.close()


def _answers_ping(port: int) -> bool:
    try:
        return get("127.0.0.1", port, "/ping", PING_SECONDS).status == HTTPStatus.OK
    except UpstreamError:
        return False
