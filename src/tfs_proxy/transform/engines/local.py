"""Runs a job on this machine: one thread reads and packs, others send, whoever is last writes."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import IO

from tfs_proxy.transform.failures import BadRecord, ObjectFailed, RunStopped, StorageError
from tfs_proxy.transform.job import GZIP, MULTI, NONE, Effort, Job
from tfs_proxy.transform.ordered_output import Passage
from tfs_proxy.transform.records.batches import Batch, pack, whole
from tfs_proxy.transform.records.processing import processing
from tfs_proxy.transform.records.split import READ_BYTES, located, opened, records
from tfs_proxy.transform.request import Inputs, Request
from tfs_proxy.transform.send.connection import Endpoint
from tfs_proxy.transform.send.isolation import Outcome, Transformer
from tfs_proxy.transform.send.sender import Manner, Sender
from tfs_proxy.transform.stores.interface import InputObject, Source
from tfs_proxy.transform.tally import Tally

Task = Callable[[], None]
BATCHES_PER_CONNECTION = 2
"""Batches in memory: those in flight, as many waiting for their turn to be sent or written."""


Begin = Callable[[InputObject, Callable[[], None]], Passage]
"""Makes the passage of an object; it calls what it is given for each batch that needs no memory any more."""


class Engine:
    """One machine's part of a job: at most ``effort.concurrent`` requests at once.

    ``threads`` more than that let reading and writing far away go on while requests wait.
    """

    def __init__(
        self, job: Job, effort: Effort, source: Source, transform: Transformer, begin: Begin, threads: int
    ) -> None:
        self._job = job
        self._effort = effort
        self._source = source
        self._transform = transform
        self._begin = begin
        self._threads = threads
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._places: SimpleQueue[None] = SimpleQueue()
        self._fatal: BaseException | None = None

    def run(self, items: Iterable[InputObject]) -> None:
        """Transform ``items``; what fails, their passages know.

        Memory is bounded by the payload limit times twice the concurrency, whatever the objects'
        size. Raises ServerLost; after KeyboardInterrupt too, nothing half-written is left.
        """
        for _ in range(self._effort.concurrent * BATCHES_PER_CONNECTION):
            self._places.put(None)
        threads = [threading.Thread(target=self._work, name=f"send-{at}") for at in range(self._threads)]
        for thread in threads:
            thread.start()
        try:
            for item in items:
                if self._fatal is not None:
                    break
                self._read(item)
        except BaseException:
            self._transform.sender.stop()
            raise
        finally:
            for _ in threads:
                self._tasks.put(None)
            for thread in threads:
                thread.join()
            self._transform.sender.close()
        if self._fatal is not None:
            raise self._fatal

    def stop(self) -> None:
        """Let no further request begin: what is on its way is given up."""
        self._transform.sender.stop()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _read(self, item: InputObject) -> None:
        passage = self._begin(item, lambda: self._places.put(None))
        if self._job.split_type == NONE or self._streams:
            self._submit(passage, lambda: self._whole(item))
            passage.end_input()
            return
        error: Exception | None = None
        try:
            with self._opened(item) as stream:
                for batch in self._batches(stream, item):
                    self._submit(passage, lambda batch=batch: batch)  # type: ignore[misc]
                    if passage.is_over or self._fatal is not None:
                        break
        except (StorageError, ObjectFailed) as caught:
            error = caught
        except BaseException:
            passage.end_input(RunStopped("the run was stopped"))
            raise
        if self._fatal is not None:
            error = RunStopped("the run was stopped")
        passage.end_input(error)

    @property
    def _streams(self) -> bool:
        """Whether objects go out whole although they have records: MaxPayloadInMB 0, MultiRecord."""
        return self._effort.payload_bytes is None and self._effort.strategy == MULTI

    def _batches(self, stream: "IO[bytes]", item: InputObject) -> Iterator[Batch]:
        frames = located(records(stream, self._job.split_type, self._effort.payload_bytes), item.name)
        return pack(frames, self._effort.strategy, self._effort.payload_bytes, item.name)

    def _submit(self, passage: Passage, make: Callable[[], "Batch | Callable[[], Iterator[bytes]]"]) -> None:
        self._places.get()
        number = passage.begin()
        self._tasks.put(lambda: self._pass(passage, number, make))

    def _pass(
        self, passage: Passage, number: int, make: Callable[[], "Batch | Callable[[], Iterator[bytes]]"]
    ) -> None:
        """One batch, from its bytes to its place in the output; on a thread of its own."""
        try:
            self._check_wanted(passage)
            made = make()
            if isinstance(made, Batch):
                outcome = self._transform(made, passage.item.name) if made.body else Outcome(0, b"")
                passage.deliver(number, outcome, self._progress_bytes(len(made.body)))
            else:
                passage.deliver(number, self._transform.streamed(made, passage.item.name), 0)
        except (ObjectFailed, StorageError, RunStopped) as error:
            passage.lose(error)
        except BaseException as error:  # noqa: BLE001 - it ends the run: run() raises it
            self._fatal = self._fatal or error
            self._transform.sender.stop()
            passage.lose(RunStopped("the run was stopped"))

    def _check_wanted(self, passage: Passage) -> None:
        if passage.is_over or self._fatal is not None:
            raise RunStopped("the object failed, or the run was stopped")

    def _progress_bytes(self, size: int) -> int:
        """Of gzip input nobody knows what share of the stored bytes a batch is: they count at the end."""
        return 0 if self._job.compression == GZIP else size

    def _whole(self, item: InputObject) -> "Batch | Callable[[], Iterator[bytes]]":
        limit = self._effort.payload_bytes
        if limit is None and not self._job.processes:
            return lambda: self._pieces(item)
        if is_too_large(self._job, self._effort, item):
            raise _too_large(item, limit)
        with self._opened(item) as stream:
            body = stream.read(-1 if limit is None else limit + 1)
        if limit is not None and len(body) > limit:
            raise _too_large(item, limit)
        return whole(body)

    def _pieces(self, item: InputObject) -> Iterator[bytes]:
        with self._opened(item) as stream:
            while piece := stream.read(READ_BYTES):
                yield piece

    @contextlib.contextmanager
    def _opened(self, item: InputObject) -> "Iterator[IO[bytes]]":
        with opened(self._source.open(item), self._job.compression) as stream:
            yield stream


def is_too_large(job: Job, effort: Effort, item: InputObject) -> bool:
    """Whether ``item`` is known to be over the payload limit without being read."""
    limit = effort.payload_bytes
    known = job.split_type == NONE and job.compression != GZIP
    return known and limit is not None and item.size > limit


def _too_large(item: InputObject, limit: int | None) -> ObjectFailed:
    text = f"the object is larger than MaxPayloadInMB allows ({limit} bytes): raise it, or split"
    return ObjectFailed(BadRecord(item.name, None, None, None, text))


def engine_of(request: Request, effort: Effort, endpoint: Endpoint, tally: Tally, begin: Begin) -> Engine:
    """The engine of ``request`` on this machine; ``tally`` hears of its requests."""
    job = request.job
    manner = Manner(job.content_type, job.accept, job.timeout_seconds, job.max_retries)
    sender = Sender(endpoint, manner, effort.concurrent, tally)
    transformer = Transformer(job, processing(job), sender, request.on_error)
    threads = effort.concurrent * (2 if request.is_far else 1)
    return Engine(job, effort, Inputs(request), transformer, begin, threads)
