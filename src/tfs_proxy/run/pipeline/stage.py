"""The stages of a pipeline: plan, start, requests over pooled connections, and logs."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.observe.logs.entry import entry_handler
from tfs_proxy.observe.logs.foreign import read_event
from tfs_proxy.run.host.sockets import LOOPBACK
from tfs_proxy.run.process import ChildProcess, ProcessSpec
from tfs_proxy.serving.inner_stack import SERVE
from tfs_proxy.settings.parsers import for_inner_stack
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import (
    AnswerTooLarge,
    NotReached,
    RequestError,
    SettingsError,
    UpstreamError,
    UpstreamTimeout,
)
from tfs_proxy.values.latencies import Latencies
from tfs_proxy.wire.error_body import error_text
from tfs_proxy.wire.http_client import ConnectionPool, Timeouts
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.routes import INVOCATIONS

MOST = 15
"""SageMaker's limit of containers in a pipeline (docs/reference/sagemaker.md)."""

SAFE_PORTS = 10
"""Least number of ports in a stage's safe range: five model servers need as many."""


class StageOrder(Struct, frozen=True):
    """The user's request for a stage: an archive, and variables for it alone."""

    archive: str
    variables: Mapping[str, str]


class Stage(Struct, frozen=True):
    """One stage: its number from 1, its archive, the port it listens on, and its whole environment."""

    number: int
    archive: str
    port: int
    environ: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"stage {self.number} ({PurePosixPath(self.archive.rstrip('/')).name})"


def ports_needed(order: StageOrder, number: int, environ: Mapping[str, str]) -> int:
    """Number of consecutive ports for a stage: one to listen on, and a safe range.

    Raises SettingsError, naming the stage, if its variables can't be used.
    """
    own = {"SAGEMAKER_SAFE_PORT_RANGE": "", **order.variables}
    try:
        settings = Settings.from_env({**environ, **own})
    except SettingsError as error:
        raise SettingsError(f"stage {number}: {error}") from error
    return 1 + max(SAFE_PORTS, 2 * settings.instance_count)


def stage(number: int, order: StageOrder, ports: range, environ: Mapping[str, str]) -> Stage:
    ports_variables = {
        "SAGEMAKER_BIND_TO_PORT": str(ports[0]),
        "SAGEMAKER_SAFE_PORT_RANGE": f"{ports[1]}-{ports[-1]}",
    }
    # A session's header reaches every stage, but only one of them can have the session: --env names it.
    inner = {**for_inner_stack(environ), "SAGEMAKER_ENABLE_STATEFUL_SESSIONS": "false"}
    return Stage(number, order.archive, ports[0], {**inner, **order.variables, **ports_variables})


def process(stage: Stage, model_server: str) -> ProcessSpec:
    return ProcessSpec(
        name=stage.name,
        argv=(*SERVE, stage.archive, "--host", LOOPBACK, "--model-server", model_server),
        env=stage.environ,
    )


LONGEST_MESSAGE = 2048
"""Limit of a stage's own error text for the client, in characters, as in OriginalMessage
(docs/reference/sagemaker.md).
"""

SUCCESSES = range(200, 300)
_FAILURES: Mapping[type[UpstreamError], tuple[str, int, str]] = {
    UpstreamTimeout: ("did not answer", 504, "the time for the request is over"),
    AnswerTooLarge: ("answered too much", 502, ""),
}
_BROKEN = "gave no answer", 503, "the connection to it broke"


class StageFailed(RequestError):
    """A stage did not give an answer that the next stage can take.

    ``status`` is that of its answer, or stands for it; ``message`` is its own error text.
    """

    def __init__(self, text: str, status: int, message: str) -> None:
        super().__init__(text)
        self.status = status
        self.message = message


class Counts(Struct):
    """Failed requests of one stage.

    ``refused``: it answered with an error, or with more than the next stage may get; ``unanswered``: it got
    them and did not answer, or did not end; ``not_reached``: it never got them.
    """

    refused: int = 0
    unanswered: int = 0
    not_reached: int = 0


class StageClient:
    """Sends requests to one stage, with ``latencies`` of its answers and ``counts`` of its failures."""

    def __init__(self, stage: Stage, threads: Executor, timeout_seconds: float) -> None:
        self.stage = stage
        self.latencies = Latencies()
        self.counts = Counts()
        self._threads = threads
        self._connections = ConnectionPool(LOOPBACK, stage.port, Timeouts(timeout_seconds), server=stage.name)

    async def invoke(self, body: bytes, headers: Mapping[str, str], seconds: float) -> HttpResponse:
        """The stage's answer. Raises StageFailed if there is none, or it is an error."""
        response = await self._exchange(body, headers, seconds)
        if response.status not in SUCCESSES:
            self.counts.refused += 1
            raise self.failed(f"answered {response.status}", response.status, message_of(response.body))
        return response

    async def _exchange(self, body: bytes, headers: Mapping[str, str], seconds: float) -> HttpResponse:
        """The stage's answer of any status; errors of the connection become StageFailed."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        send = partial(
            self._connections.request, "POST", INVOCATIONS.path, body, headers, max(seconds, 0.001)
        )
        try:
            response = await loop.run_in_executor(self._threads, send)
        except NotReached as error:
            self.counts.not_reached += 1
            raise self.failed("can't be reached", 503, "it is down, or being restarted") from error
        except UpstreamError as error:
            self.counts.unanswered += 1
            how, status, message = _FAILURES.get(type(error), _BROKEN)
            raise self.failed(how, status, message or str(error)) from error
        self.latencies.add(loop.time() - started)
        return response

    def failed(self, how: str, status: int, message: str) -> StageFailed:
        """The error to raise: how the stage failed, and its own error text."""
        return StageFailed(f"{self.stage.name} {how}: {message}", status, message)

    def close(self) -> None:
        self._connections.close()


def message_of(body: bytes) -> str:
    """The text under ``error`` in an error's body, or the body itself; shortened."""
    text = error_text(body)
    message = body.decode(errors="replace") if text is None else text
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}..."


def line_text(line: str) -> str:
    """The text of a stage's log line, which may be an entry in JSON."""
    try:
        return str(json.loads(line)["message"])
    except (ValueError, LookupError, TypeError):
        return line


def show_of_stage(number: int, child: ChildProcess, lines: Sequence[str]) -> None:
    """Logs a stage's output: JSON gets another field, text a prefix."""
    handler = entry_handler()
    for line in lines:
        if line.startswith('{"'):
            handler.write_line(f'{{"stage": {number}, {line[1:]}')
        elif not handler.writes_json:
            handler.write_line(f"[stage {number}] {line}")
    if handler.writes_json and not lines[0].startswith('{"'):
        entry = read_event(lines).entry(child.name, child.pid)
        handler.write(replace(entry, fields={**entry.fields, "stage": number}))
