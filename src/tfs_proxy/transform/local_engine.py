"""Runs a job on this machine: one thread reads and packs records, others send batches and write answers."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import IO

from tfs_proxy.transform.batches import (
    READ_BYTES,
    MiniBatch,
    batches_of,
    captured_batches,
    framing_hint,
    is_captured,
    open_content,
    whole_object,
)
from tfs_proxy.transform.files import InputObject
from tfs_proxy.transform.job import GZIP, MULTI, NONE, ExecutionPlan, Job
from tfs_proxy.transform.options import TransformOptions
from tfs_proxy.transform.ordered_output import OrderedOutput
from tfs_proxy.transform.run_statistics import BadRecord, ObjectFailed, RunStopped, StorageError
from tfs_proxy.transform.sender import Sender
from tfs_proxy.transform.transformer import Outcome, Transformer

BATCHES_PER_CONNECTION = 2
"""Batches in memory: the one in flight, and one that waits to be sent or written."""

Work = Callable[[], tuple[Outcome, int]]
"""Sends a batch; returns its outcome, and how many stored bytes of the object it was."""
StartOutput = Callable[[InputObject, Callable[[], None]], OrderedOutput]
"""Makes the output of an object; the output calls the second argument for each batch whose memory is free."""


class LocalEngine:
    """This machine's part of a job: at most ``plan.concurrent`` requests at once. It runs once."""

    def __init__(
        self, options: TransformOptions, plan: ExecutionPlan, sender: Sender, start_output: StartOutput
    ) -> None:
        self._job = options.job
        self._plan = plan
        self._open_object = options.open_object
        self._sender = sender
        titles = None if options.sagemaker_output else plan.titles
        self._transform = Transformer(
            options.job, sender, options.on_error, options.max_bad, framing_hint(options.job, plan), titles
        )
        self._start_output = start_output
        # Threads beyond the requests at once let remote reads and writes go on while requests wait.
        self._pool = ThreadPoolExecutor(plan.concurrent * (2 if options.uses_remote_storage else 1), "send")
        self._free_slots = threading.Semaphore(plan.concurrent * BATCHES_PER_CONNECTION)
        self._fatal: BaseException | None = None

    def run(self, items: Iterable[InputObject]) -> None:
        """Transform ``items``; the output of each hears whether it failed.

        Memory is bounded by the payload limit times twice the concurrency, whatever the objects' size.
        Raises ServerLost; after any exception, KeyboardInterrupt included, no half-written output is left.
        """
        with contextlib.closing(self._sender), self._pool:
            try:
                for item in items:
                    if self._fatal is not None:
                        break
                    self._read(item)
            except BaseException:
                self.stop()
                raise
        if self._fatal is not None:
            raise self._fatal

    def stop(self) -> None:
        """Let no further request begin; unfinished objects are given up."""
        self._sender.stop()

    def _read(self, item: InputObject) -> None:
        output = self._start_output(item, self._free_slots.release)
        replays = is_captured(partial(self._open_object, item), self._job, item.name)
        if not replays and (self._job.split_type == NONE or self._streams):
            self._submit(output, partial(self._send_whole, item))
            output.end_input()
            return
        error: Exception | None = None
        try:
            with self._open(item) as stream:
                if replays:
                    send = self._replay
                    batches = captured_batches(stream, self._plan.payload_bytes, item.name)
                else:
                    send = self._send
                    batches = batches_of(stream, self._job.split_type, self._plan, item.name)
                for batch in batches:
                    self._submit(output, partial(send, item, batch))
                    if output.is_over or self._fatal is not None:
                        break
        except (StorageError, ObjectFailed) as caught:
            error = caught
        except BaseException:
            output.end_input(RunStopped())
            raise
        if self._fatal is not None:
            error = RunStopped()
        output.end_input(error)

    @property
    def _streams(self) -> bool:
        """True if objects are sent unread although they have records: MaxPayloadInMB 0, MultiRecord."""
        return self._plan.payload_bytes is None and self._plan.strategy == MULTI and not self._job.processes

    def _submit(self, output: OrderedOutput, work: Work) -> None:
        self._free_slots.acquire()
        number = output.start_batch()
        self._pool.submit(self._process, output, number, work)

    def _process(self, output: OrderedOutput, number: int, work: Work) -> None:
        """Send batch ``number`` and hand its outcome to ``output``; runs on one of the threads."""
        try:
            if output.is_over or self._fatal is not None:
                raise RunStopped  # noqa: TRY301 - settles the batch as a failure of its own does
            outcome, size = work()
            output.deliver(number, outcome, size)
        except (ObjectFailed, StorageError, RunStopped) as error:
            output.fail_batch(error)
        except BaseException as error:  # noqa: BLE001 - it ends the run: run() raises it
            self._fatal = self._fatal or error
            self.stop()
            output.fail_batch(RunStopped())

    def _send(self, item: InputObject, batch: MiniBatch) -> tuple[Outcome, int]:
        outcome = self._transform(batch, item.name) if batch.body else Outcome(0, b"")
        # What a batch of gzip input takes in storage is unknown: such bytes are counted at the object's end.
        return outcome, 0 if self._job.compression == GZIP else len(batch.body)

    def _replay(self, item: InputObject, batch: MiniBatch) -> tuple[Outcome, int]:
        """Sends like `_send`; answers end with a newline, since captured requests have different answers."""
        outcome = self._transform(batch, item.name)
        size = len(batch.body)
        if outcome.text and not outcome.text.endswith(b"\n"):
            outcome.text += b"\n"
        return outcome, size

    def _send_whole(self, item: InputObject) -> tuple[Outcome, int]:
        limit = self._plan.payload_bytes
        if limit is None and not self._job.processes:
            return self._transform.stream(lambda: self._chunks(item), item.name), 0
        if is_too_large(self._job, self._plan, item):
            raise _too_large(item, limit)
        with self._open(item) as stream:
            body = stream.read(-1 if limit is None else limit + 1)
        if limit is not None and len(body) > limit:
            raise _too_large(item, limit)
        return self._send(item, whole_object(body))

    def _chunks(self, item: InputObject) -> Iterator[bytes]:
        with self._open(item) as stream:
            while chunk := stream.read(READ_BYTES):
                yield chunk

    def _open(self, item: InputObject) -> "AbstractContextManager[IO[bytes]]":
        return open_content(self._open_object(item), self._job)


def is_too_large(job: Job, plan: ExecutionPlan, item: InputObject) -> bool:
    """True if ``item`` is over the payload limit, as far as its stored size tells."""
    limit = plan.payload_bytes
    size_is_known = job.split_type == NONE and job.compression != GZIP
    return size_is_known and limit is not None and item.size > limit


def _too_large(item: InputObject, limit: int | None) -> ObjectFailed:
    message = f"the object is larger than MaxPayloadInMB allows ({limit} bytes): raise it, or set SplitType"
    return ObjectFailed(BadRecord(item.name, message))
