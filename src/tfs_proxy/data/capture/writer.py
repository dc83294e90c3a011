"""Writer of records, apart from the requests: a queue that is bounded in bytes, a thread, and files in S3.

Requests never wait for it: a record for which there is no room is dropped, and counted. An object is in S3
when its file is complete.
"""

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfs_proxy.data.capture.files import (
    CaptureFailed,
    CaptureOutcome,
    CaptureStore,
    Counts,
    Folder,
    RotatingFiles,
)
from tfs_proxy.data.capture.record import TEXT_ENCODINGS, CaptureRecord, Payload, line_of
from tfs_proxy.values.deployment import CaptureOptions
from tfs_proxy.values.errors import PayloadTooLarge, TfsProxyError, UpstreamError
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, INFERENCE_ID
from tfs_proxy.wire.media_types import JSON_LINES
from tfs_proxy.wire.s3_client import parse_address, s3_client, s3_errors

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONNECTIONS = 1
TIMEOUT_SECONDS = 20.0
"""Time that S3 may be silent before a request is sent again; records wait in the meantime, or are dropped."""


class CaptureRefused(TfsProxyError):
    """S3 did not take an object."""


class Bucket:
    """An ``s3://`` address; the client is made for the first object, by the thread that writes."""

    def __init__(self, address: str) -> None:
        self._bucket, prefix = parse_address(address)
        self._prefix = prefix.rstrip("/") + "/" if prefix.strip("/") else ""
        self._client: S3Client | None = None

    def create(self, path: str) -> "S3File":
        return S3File(self, self._prefix + path)

    def put(self, key: str, body: bytes) -> None:
        """Write one object; raises CaptureRefused."""
        with s3_errors(f"s3://{self._bucket}/{key}", CaptureRefused):
            self._client = self._client or s3_client(CONNECTIONS, TIMEOUT_SECONDS)
            self._client.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType=JSON_LINES)


class S3File:
    """Lines in memory, until `close` writes them as one object."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket, self._key = bucket, key
        self._content = bytearray()
        self.unsaved = 0

    @property
    def size(self) -> int:
        return len(self._content)

    def append(self, line: bytes) -> int:
        self._content += line
        self.unsaved += 1
        return 0

    def close(self) -> int:
        records = self.unsaved
        try:
            self._bucket.put(self._key, bytes(self._content))
        except Exception as error:  # every failure must be counted
            raise CaptureFailed(records, str(error).rstrip(".")) from error
        finally:
            self.unsaved = 0
        return records


log = logging.getLogger(__name__)

FLUSH_SECONDS = 5.0
"""Time at the end of a process for the last records."""

TICK_SECONDS = 1.0
RECORD_BYTES = 1024
"""Memory of a record without its bodies."""

WARNING_SECONDS = 60.0

Blocking = Callable[[Callable[[], int]], int]
"""Function that runs a blocking call without holding up others of this process."""

Report = Callable[[Counts], None]


def store_of(options: CaptureOptions) -> CaptureStore:
    """Make the store that ``options`` name."""
    if not options.is_s3:
        return Folder(Path(options.target))
    from tfs_proxy.data.capture.writer import Bucket

    return Bucket(options.target)


class CaptureWriter:
    """Writer that takes records from any thread; `start` it in the process that offers them."""

    def __init__(
        self,
        options: CaptureOptions,
        report: Report,
        store: CaptureStore | None = None,
        encodings: Mapping[str, str] = TEXT_ENCODINGS,
    ) -> None:
        self._options = options
        self._encodings = encodings
        self._max_bytes = options.max_bytes
        self._files = RotatingFiles(
            store or store_of(options), f"{options.name}/{options.variant}", options.max_bytes
        )
        self._report = report
        self._counts: Counter[CaptureOutcome] = Counter()
        self._queue: deque[CaptureRecord] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._ending = False
        self._blocking: Blocking = _at_once
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._warned_at = -WARNING_SECONDS

    def start(self, blocking: Blocking | None = None) -> None:
        """Begin to write; ``blocking`` is for processes that have a way of their own to wait."""
        self._blocking = blocking or _at_once
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    def add(self, sent: Payload, answered: Payload, header: Callable[[str], str | None]) -> None:
        """Record a request and its answer; ``header`` gives the request's headers by name."""
        self.offer(
            CaptureRecord(
                sent if self._options.keeps_input else None,
                answered if self._options.keeps_output else None,
                time.time(),
                header(INFERENCE_ID),
                header(CUSTOM_ATTRIBUTES),
            )
        )

    def offer(self, record: CaptureRecord) -> None:
        """Queue the record if there is room for it; never waits and never raises."""
        size = _size(record)
        with self._changed:
            if size > self._max_bytes:
                self._counts[CaptureOutcome.TOO_LARGE] += 1
            elif self._ending or self._waiting_bytes + size > self._max_bytes:
                self._counts[CaptureOutcome.DROPPED] += 1
            else:
                self._queue.append(record)
                self._waiting_bytes += size
                self._changed.notify()

    def take(self, size_bytes: int) -> bool:
        """Reserve room for more of a record that still grows; False if there is none."""
        with self._changed:
            if self._waiting_bytes + size_bytes > self._max_bytes:
                return False
            self._waiting_bytes += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        """Give back reserved room."""
        with self._changed:
            self._waiting_bytes -= size_bytes

    def give_up(self, size_bytes: int) -> None:
        """Count a record that was given up when it had grown to this size."""
        is_too_large = size_bytes > self._max_bytes
        self._count(CaptureOutcome.TOO_LARGE if is_too_large else CaptureOutcome.DROPPED, 1)

    def report(self) -> None:
        """Hand on the counts since the last time; they are kept if that can't be done now."""
        with self._changed:
            counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            self._report(counts)
        except UpstreamError:
            with self._changed:
                self._counts.update(counts)

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Write queued records for at most ``seconds``; the rest is dropped. Idempotent."""
        thread = self._thread
        if thread is None or self._pid != os.getpid():  # a process that a script forked has no such thread
            return
        with self._changed:
            self._ending = True
            self._changed.notify()
        thread.join(seconds)
        if thread.is_alive():
            self._give_up(seconds)
        self._thread = None
        self.report()

    def _give_up(self, seconds: float) -> None:
        with self._changed:
            # NOTE: the record that is being written is still in the queue.
            lost = len(self._queue) + self._files.unsaved
            self._queue.clear()
            self._counts[CaptureOutcome.DROPPED] += lost
        log.warning("data capture: %d record(s) are lost: they were not written within %g s", lost, seconds)

    def _run(self) -> None:
        while True:
            record = self._next()
            if record is not None:
                try:
                    self._write(record)
                except Exception:
                    log.exception("data capture: a record can't be written")
                    self._count(CaptureOutcome.DROPPED, 1)
                self._forget(record)
            elif self._ending:
                break
            else:
                self._settle(partial(self._files.complete_old, time.time()))
        self._settle(self._files.close)

    def _next(self) -> CaptureRecord | None:
        """Oldest record, which stays in the queue; None if there is none for a while, or no more."""
        with self._changed:
            if not self._queue and not self._ending:
                self._changed.wait(TICK_SECONDS if self._files.is_open else None)
            return self._queue[0] if self._queue else None

    def _forget(self, record: CaptureRecord) -> None:
        with self._changed:
            if self._queue:  # not after the writer was given up
                self._queue.popleft()
            self._waiting_bytes -= _size(record)

    def _write(self, record: CaptureRecord) -> None:
        try:
            line = line_of(_unpacked(record, self._max_bytes), self._encodings)
        except PayloadTooLarge:
            line = b""
        if not 0 < len(line) <= self._max_bytes:
            self._count(CaptureOutcome.TOO_LARGE, 1)
            return
        self._settle(partial(self._files.complete_before, line, record.seconds))
        self._settle(partial(self._files.append, line, record.seconds))

    def _settle(self, step: Callable[[], int]) -> None:
        try:
            self._count(CaptureOutcome.WRITTEN, self._blocking(step))
        except CaptureFailed as failure:
            self._count(CaptureOutcome.DROPPED, failure.records)
            self._warn(failure)

    def _warn(self, failure: CaptureFailed) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARNING_SECONDS:
            self._warned_at = now
            log.warning("data capture: records are dropped: %s", failure)

    def _count(self, outcome: CaptureOutcome, records: int) -> None:
        if records:
            with self._changed:
                self._counts[outcome] += records


def _at_once(step: Callable[[], int]) -> int:
    return step()


def _unpacked(record: CaptureRecord, limit_bytes: int) -> CaptureRecord:
    if record.input is None or not record.input.encoding:
        return record
    return replace(record, input=record.input.unpacked(limit_bytes))


def _size(record: CaptureRecord) -> int:
    headers = len(record.inference_id or "") + len(record.custom_attributes or "")
    return RECORD_BYTES + headers + _length(record.input) + _length(record.output)


def _length(payload: Payload | None) -> int:
    return 0 if payload is None else len(payload.body)
