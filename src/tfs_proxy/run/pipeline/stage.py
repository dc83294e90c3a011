"""The stages of a pipeline: plan, start, requests to them, counts of their answers, and their logs."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.observe.logs.entry import entry_handler
from tfs_proxy.observe.logs.foreign import read_event
from tfs_proxy.run.host.sockets import LOOPBACK, free_ports
from tfs_proxy.run.pipeline.passage import Container, ContainerFailed, seconds_until
from tfs_proxy.run.process import ProcessSpec
from tfs_proxy.serving.inner_stack import SERVE
from tfs_proxy.settings.parsers import for_inner_stack
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import NotReached, SettingsError, UpstreamError
from tfs_proxy.values.latencies import Latencies
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.routes import INVOCATIONS

MOST = 15
"""SageMaker's limit of containers in a pipeline (docs/reference/sagemaker.md)."""


class StageOrder(Struct, frozen=True):
    """The user's request for a stage: an archive, and variables for it alone."""

    archive: str
    variables: Mapping[str, str]


class Stage(Container):
    """One stage: its number from 1, its archive, the port it listens on, and its whole environment.

    ``refused`` answers were errors, or larger than the next stage may get; ``unanswered`` requests reached
    it and got no answer, or none with an end; ``not_reached`` ones it never got.
    """

    def __init__(
        self, number: int, archive: str, port: int, environ: Mapping[str, str], threads: Executor
    ) -> None:
        name = f"stage {number} ({PurePosixPath(archive.rstrip('/')).name})"
        super().__init__(name, LOOPBACK, port, threads)
        self.number = number
        self.archive = archive
        self.environ = environ
        self.latencies = Latencies()
        self.refused = self.unanswered = self.not_reached = 0

    def count(self, seconds: float, failed: ContainerFailed | None) -> None:
        """Counts a request that took so many seconds."""
        match None if failed is None else failed.outcome:
            case NotReached():
                self.not_reached += 1
            case UpstreamError():
                self.unanswered += 1
            case outcome:
                self.refused += outcome is not None
                self.latencies.add(seconds)

    @property
    def was_asked(self) -> bool:
        return any((self.latencies.count, self.unanswered, self.not_reached))

    def summary(self) -> str:
        """Counts and latencies in words."""
        shown = ", ".join(f"{name} {spent:g} ms" for name, spent in self.latencies.milliseconds().items())
        return (
            f"{self.latencies.count} requests answered, {self.refused} of them refused; "
            f"{self.unanswered} not answered, {self.not_reached} not reached; {shown}"
        )

    async def send(self, body: bytes, headers: Mapping[str, str], deadline: float) -> HttpResponse:
        return await self.ask("POST", INVOCATIONS.path, body, headers, seconds_until(deadline))

    def process(self, model_server: str) -> ProcessSpec:
        argv = (*SERVE, self.archive, "--host", LOOPBACK, "--model-server", model_server)
        return ProcessSpec(self.name, argv, self.environ)


def planned(
    orders: Sequence[StageOrder], environ: Mapping[str, str], threads: Executor, held: ExitStack
) -> list[Stage]:
    """The stages with their ports, which ``held`` reserves.

    Raises SettingsError, naming the stage, if its variables can't be used.
    """
    inner = for_inner_stack(environ)
    stages: list[Stage] = []
    for order, port in zip(orders, free_ports(len(orders), held), strict=True):
        number = len(stages) + 1
        variables = {**inner, **order.variables, "SAGEMAKER_BIND_TO_PORT": str(port)}
        try:
            Settings.from_env(variables)
        except SettingsError as error:
            raise SettingsError(f"stage {number}: {error}") from error
        stages.append(Stage(number, order.archive, port, variables, threads))
    return stages


def line_text(line: str) -> str:
    """The text of a stage's log line, which may be an entry in JSON."""
    try:
        return str(json.loads(line)["message"])
    except (ValueError, LookupError, TypeError):
        return line


def show_of_stage(number: int, process: str, pid: int | None, lines: list[str]) -> None:
    """Logs a stage's output: JSON gets another field, text a prefix."""
    handler = entry_handler()
    for line in lines:
        if line.startswith('{"'):
            handler.write_line(f'{{"stage": {number}, {line[1:]}')
        elif not handler.writes_json:
            handler.write_line(f"[stage {number}] {line}")
    if handler.writes_json and not lines[0].startswith('{"'):
        handler.write(replace(read_event(lines, process, pid), fields={"stage": number}))
