"""What --on-error says of bad records: a refused batch is halved until they are found, the rest goes on."""

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tfs_proxy.transform.failures import BadRecord, ObjectFailed
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.records.batches import MiniBatch, whole
from tfs_proxy.transform.records.processing import DataProcessing, PassThrough, Unprocessable, placeholder
from tfs_proxy.transform.send.sender import Refused, Sender

FAIL, PLACEHOLDER, SIDECAR = "fail", "placeholder", "sidecar"
ON_ERROR = (FAIL, PLACEHOLDER, SIDECAR)


@dataclass(slots=True)
class Outcome:
    """What a batch became: text for the output, and the lines of the error file."""

    records: int
    text: bytes
    errors: bytes = b""
    bad: list[BadRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Transformer:
    """A batch -> its outcome, by way of the server. Used by all threads at once."""

    job: Job
    form: PassThrough | DataProcessing
    sender: Sender
    on_error: str

    def __call__(self, batch: MiniBatch, name: str) -> Outcome:
        """Send ``batch`` of the object ``name``.

        Raises ObjectFailed naming the first bad record where such fail the object, and as
        `Sender.send` does.
        """
        try:
            return self._whole(batch, name)
        except Refused as refused:
            status, words = refused.status, refused.words
        except Unprocessable as unfit:
            status, words = None, str(unfit)
        if len(batch) == 1:
            return self._bad(batch, BadRecord(name, batch.first, batch.offsets[0], status, words))
        middle = len(batch) // 2
        return _together(
            self(batch.part(0, middle), name),
            self(batch.part(middle, len(batch)), name),
        )

    def streamed(self, pieces: Callable[[], Iterable[bytes]], name: str) -> Outcome:
        """Send a whole object, streamed; ``pieces`` begins anew with each attempt. Raises as a call does."""
        try:
            answer = self.sender.send(pieces)
        except Refused as refused:
            raise ObjectFailed(BadRecord(name, None, None, refused.status, refused.words)) from refused
        return Outcome(1, self.form.output(whole(b""), answer))

    def _whole(self, batch: MiniBatch, name: str) -> Outcome:
        answer = self.sender.send(self.form.request(batch))
        try:
            return Outcome(len(batch), self.form.output(batch, answer))
        except Unprocessable as unfit:
            why = BadRecord(name, batch.first, batch.offsets[0], None, f"the answer can't be used: {unfit}")
            raise ObjectFailed(why) from unfit

    def _bad(self, batch: MiniBatch, why: BadRecord) -> Outcome:
        if self.on_error == FAIL:
            raise ObjectFailed(why)
        if self.on_error == PLACEHOLDER:
            return Outcome(1, placeholder(self.job, why.error), error_line(why), [why])
        return Outcome(1, b"", error_line(why, batch.body), [why])


def error_line(why: BadRecord, record: bytes | None = None) -> bytes:
    """One line of an error file: JSON, with the record as base64 where it is left out of the output."""
    values = why.to_values()
    if record is not None:
        values["data_base64"] = base64.b64encode(record).decode()
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _together(one: Outcome, other: Outcome) -> Outcome:
    return Outcome(
        one.records + other.records,
        one.text + other.text,
        one.errors + other.errors,
        one.bad + other.bad,
    )
