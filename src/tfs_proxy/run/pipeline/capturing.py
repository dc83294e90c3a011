"""Data capture of a pipeline: requests to its first stage, and answers of its last."""

from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus

from tfs_proxy.data.capture import files
from tfs_proxy.data.capture.record import Payload
from tfs_proxy.data.capture.writer import CaptureWriter
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.settings.settings import Settings
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

NAME = "pipeline"


class PipelineCapture:
    """Records requests from `start` to `close`; none if the settings name no target."""

    def __init__(self, settings: Settings) -> None:
        self._options = files.capture_options(settings, NAME)
        self._writer = CaptureWriter(self._options, self._add) if self._options else None
        self._counts: Counter[files.CaptureOutcome] = Counter()

    def start(self) -> str | None:
        """Returns a sentence for the log. Raises SettingsError if the target can't be written."""
        if self._options is None or self._writer is None:
            return None
        files.check_folder(self._options)
        self._writer.start()
        return files.described(self._options)

    def add(self, request: HttpRequest, response: HttpResponse) -> None:
        """Records a sampled request and its answer."""
        options = self._options
        if options is None or self._writer is None or response.status >= HTTPStatus.BAD_REQUEST:
            return
        if not files.is_chosen(options):
            return
        headers = request.headers
        sent = Payload(headers.get("content-type", ""), request.body, headers.get("content-encoding", ""))
        answered = Payload(response.header("Content-Type") or "", response.body)
        self._writer.add(sent, answered, lambda name: headers.get(name.lower()))

    def measure(self) -> Iterator[MeasuredMetric]:
        if self._writer is not None:
            self._writer.report()
            yield files.measured(self._counts)

    def close(self) -> None:
        """Writes the last records."""
        if self._writer is not None:
            self._writer.close()

    def _add(self, counts: files.Counts) -> None:
        self._counts.update(counts)
