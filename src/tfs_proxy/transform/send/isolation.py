"""Applies --on-error: halves a refused batch until its bad records are found, and keeps the rest."""

import base64
import json
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from tfs_proxy.transform.failures import BadRecord, ObjectFailed
from tfs_proxy.transform.job import GZIP, Job
from tfs_proxy.transform.records.batches import MiniBatch, whole_object
from tfs_proxy.transform.records.processing import DataProcessing, Unprocessable, placeholder
from tfs_proxy.transform.send.bad_records import BadLimit, BadRecordCounts
from tfs_proxy.transform.send.retries import Refused
from tfs_proxy.transform.send.sender import Sender

FAIL, PLACEHOLDER, SIDECAR = "fail", "placeholder", "sidecar"
ON_ERROR = (FAIL, PLACEHOLDER, SIDECAR)


class Outcome(Struct):
    """The result of a batch: bytes for the output and for the error file."""

    records: int
    text: bytes
    errors: bytes = b""
    bad: list[BadRecord] = field(default_factory=list)

    def __add__(self, following: "Outcome") -> "Outcome":
        return Outcome(
            self.records + following.records,
            self.text + following.text,
            self.errors + following.errors,
            self.bad + following.bad,
        )


class Transformer:
    """Turns batches into outcomes by means of the server. Thread-safe."""

    def __init__(self, job: Job, sender: Sender, on_error: str, limit: BadLimit | None = None) -> None:
        self._job = job
        self._counts = BadRecordCounts(limit)
        self._processing = DataProcessing(job)
        self._sender = sender
        self._on_error = on_error

    def __call__(self, batch: MiniBatch, name: str) -> Outcome:
        """Send ``batch`` of the object ``name``.

        Raises ObjectFailed if bad records fail the object, EveryRecordFails, and what `Sender.send` raises
        except Refused.
        """
        try:
            return self._send(batch, name)
        except Refused as refused:
            status, message = refused.status, refused.message
        except Unprocessable as error:
            status, message = None, str(error)
        if len(batch) == 1:
            return self._settle_bad(batch, BadRecord(name, batch.first, batch.offsets[0], status, message))
        middle = len(batch) // 2
        return self(batch.part(0, middle), name) + self(batch.part(middle, len(batch)), name)

    def stream(self, chunks: Callable[[], Iterable[bytes]], name: str) -> Outcome:
        """Stream the whole object ``name``; each attempt calls ``chunks`` again. Raises as a call does."""
        try:
            answer = self._sender.send(chunks)
        except Refused as refused:
            raise ObjectFailed(BadRecord(name, None, None, refused.status, refused.message)) from refused
        return Outcome(1, self._processing.output(whole_object(b""), answer))

    def _send(self, batch: MiniBatch, name: str) -> Outcome:
        answer = self._sender.send(self._processing.request(batch), batch.headers, in_parts=len(batch) > 1)
        self._counts.note_success()
        self._note_settled(batch, answered=len(batch))
        try:
            return Outcome(len(batch), self._processing.output(batch, answer))
        except Unprocessable as error:
            # Not the records' fault: halving the batch would repeat the same answer for each part.
            message = f"the answer can't be used: {error}"
            raise ObjectFailed(BadRecord(name, batch.first, batch.offsets[0], None, message)) from error

    def _note_settled(self, batch: MiniBatch, **counts: int) -> None:
        size = 0 if self._job.compression == GZIP else len(batch.body)
        self._sender.statistics.add(settled_bytes=size, **counts)

    def _settle_bad(self, batch: MiniBatch, bad_record: BadRecord) -> Outcome:
        self._note_settled(batch, refused=1)
        self._counts.add(bad_record)
        if self._on_error == FAIL:
            raise ObjectFailed(bad_record)
        if self._on_error == PLACEHOLDER:
            return Outcome(1, placeholder(self._job, bad_record.error), error_line(bad_record), [bad_record])
        return Outcome(1, b"", error_line(bad_record, batch.body), [bad_record])


def error_line(bad_record: BadRecord, record: bytes | None = None) -> bytes:
    """One line of an error file: JSON, with ``record`` as base64 if the output leaves it out."""
    values = bad_record.to_values()
    if record is not None:
        values["data_base64"] = base64.b64encode(record).decode()
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
