"""Packs records into mini-batches, the bodies of requests: up to the payload limit, from one object each."""

import logging
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import IO

from msgspec import Struct, field

from tfs_proxy.payload.formats.framing import Frame
from tfs_proxy.transform.failures import BadRecord, ObjectFailed
from tfs_proxy.transform.job import SINGLE, ExecutionPlan
from tfs_proxy.transform.records.csv_header import begins_with, looks_like
from tfs_proxy.transform.records.split import SPLITS, with_failure_location

log = logging.getLogger(__name__)


class MiniBatch(Struct):
    """Records that are sent together, in one piece of memory because an object per record would be large.

    ``first`` is the number of the first record, from 1. ``offsets`` are the records' positions in the
    object and ``ends`` their ends in ``body``, both in bytes. ``headers`` replace those of the job.
    ``csv_header`` is the line that stands before the records in each request.
    """

    first: int
    body: bytes
    offsets: "array[int]"
    ends: "array[int]"
    headers: Mapping[str, str] = field(default_factory=dict)
    csv_header: bytes = b""

    def __len__(self) -> int:
        return len(self.ends)

    def records(self) -> list[bytes]:
        """The records as sent, one by one."""
        starts = [0, *self.ends[:-1]]
        return [self.body[start:end] for start, end in zip(starts, self.ends, strict=True)]

    def part(self, begin: int, end: int) -> "MiniBatch":
        """Records ``begin`` to ``end`` (from 0, ``end`` excluded) as a batch of their own."""
        start = self.ends[begin - 1] if begin else 0
        return MiniBatch(
            first=self.first + begin,
            body=self.body[start : self.ends[end - 1]],
            offsets=self.offsets[begin:end],
            ends=array("Q", [record_end - start for record_end in self.ends[begin:end]]),
            headers=self.headers,
            csv_header=self.csv_header,
        )


def pack(frames: Iterable[Frame], strategy: str, max_bytes: int | None, name: str) -> Iterator[MiniBatch]:
    """Pack by BatchStrategy (docs/reference/sagemaker.md): one record without its framing, or as many as fit.

    Framing and checksums count. Raises ObjectFailed, with the object's ``name``, if a record is too large.
    """
    body, offsets, ends, first = bytearray(), array("Q"), array("Q"), 1
    for number, frame in enumerate(frames, 1):
        text = frame.payload if strategy == SINGLE else frame.framed
        _check_fits(len(text), max_bytes, number, frame, name)
        is_full = max_bytes is not None and len(body) + len(text) > max_bytes
        if ends and (is_full or strategy == SINGLE):
            yield MiniBatch(first, bytes(body), offsets, ends)
            body, offsets, ends, first = bytearray(), array("Q"), array("Q"), number
        body += text
        offsets.append(frame.offset)
        ends.append(len(body))
    if ends:
        yield MiniBatch(first, bytes(body), offsets, ends)


def batches_of(stream: "IO[bytes]", split_type: str, plan: ExecutionPlan, name: str) -> Iterator[MiniBatch]:
    """The batches of the object ``name``, whose memory is bounded by one batch and one record.

    Raises ObjectFailed with the position of a record that is damaged or too large.
    """
    frames = SPLITS[split_type](stream, plan.payload_bytes)
    limit, csv_header = plan.payload_bytes, b""
    if plan.header is not None:
        first = list(with_failure_location(islice(frames, 2), name))
        if first and begins_with(plan.header, bytes(first[0].payload)):
            csv_header = bytes(first.pop(0).framed)
            limit = None if limit is None else limit - len(csv_header)
        elif first and looks_like(plan.header, [bytes(frame.payload) for frame in first]):
            log.warning("%s: line 1 is sent as a record: give --csv-header present if it is a header", name)
        frames = chain(first, frames)
    for batch in pack(with_failure_location(frames, name), plan.strategy, limit, name):
        batch.csv_header = csv_header
        yield batch


def whole_object(body: bytes) -> MiniBatch:
    """A whole object as a batch of one record."""
    return MiniBatch(1, body, array("Q", [0]), array("Q", [len(body)]))


def _check_fits(size: int, max_bytes: int | None, number: int, frame: Frame, name: str) -> None:
    if max_bytes is not None and size > max_bytes:
        text = f"the record has {size} bytes to send: raise MaxPayloadInMB, which allows {max_bytes}"
        raise ObjectFailed(BadRecord(name, number, frame.offset, None, text))
