"""The records of a run's requests, however many models it serves: its log, and its counts."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping

from tfs_proxy.data.capture.files import CaptureCounter
from tfs_proxy.observe.logs.access import RequestLine
from tfs_proxy.observe.logs.config import STDERR
from tfs_proxy.observe.logs.entry import COMMAND
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.request_counts import FinishedRequest
from tfs_proxy.run.host.sockets import Listener
from tfs_proxy.run.logs.request_lines import RequestLines
from tfs_proxy.run.logs.run_log import RunLog, log_config
from tfs_proxy.run.open_inference import InferenceTimes, stage_times
from tfs_proxy.run.request_counter import RequestCounter
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.layout import Workspace

READ_PAUSE_SECONDS = 0.05


class RunRecords:
    """The log of a run and its requests; the run listens on ``listener``.

    ``log`` is the logging of all processes. ``catch_up`` reads nginx's error log up to now.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        workspace: Workspace,
        listener: Listener,
        catch_up: Callable[[], None],
    ) -> None:
        self.log = log_config(settings, environ, os.dup(STDERR))
        self.run_log = RunLog(lambda: int(listener.getsockname()[1]))
        self.requests = RequestCounter(workspace.requests, workspace.stages)
        self.request_lines = RequestLines(workspace.access, settings.access_log, catch_up=catch_up)
        self.captured = CaptureCounter()

    def note_early(self, request: FinishedRequest, request_id: str) -> None:
        """Counts and logs a request that is answered before workers can."""
        self.requests.counts.add(request)
        self.request_lines.log.show(RequestLine(request, request_id), COMMAND)

    def read(self) -> bool:
        """Counts and logs what nginx and the workers have written so far; True if there was anything new."""
        counted = self.requests.read()
        return self.request_lines.read() or counted

    async def keep_reading(self) -> None:
        """Reads often; never returns."""
        while True:
            self.read()
            await asyncio.sleep(READ_PAUSE_SECONDS)

    def measure(self) -> Iterator[MeasuredMetric]:
        yield from self.requests.measure()
        yield from self.captured.measure()

    def times(self, stages: Iterable[MeasuredMetric] = ()) -> InferenceTimes:
        """The inferences that have ended so far; ``stages`` are those that others have measured."""
        measured = stage_times([*self.requests.measure(), *stages])
        models = self.requests.counts.models
        return InferenceTimes({} if models is None else models.inferences, measured)

    def close(self) -> None:
        """Shows the lines that are left, and closes the descriptor of the log."""
        self.request_lines.close()
        os.close(self.log.descriptor)
