"""--tune: measures a sample of the input at growing concurrency, and says which values to use."""

import itertools
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.failures import ObjectFailed, StorageError
from tfs_proxy.transform.job import MAX_PRODUCT_MB, NONE, Effort, Job
from tfs_proxy.transform.records.batches import Batch, pack, whole
from tfs_proxy.transform.records.processing import processing
from tfs_proxy.transform.records.split import located, opened, records
from tfs_proxy.transform.send.connection import Endpoint
from tfs_proxy.transform.send.isolation import PLACEHOLDER, Outcome, Transformer
from tfs_proxy.transform.send.sender import Manner, Sender
from tfs_proxy.transform.send.stack import execution_parameters
from tfs_proxy.transform.stores.interface import InputObject, Source
from tfs_proxy.transform.tally import Expected, Tally

SECONDS_EACH = 4.0
SAMPLE_BATCHES = 256
SAMPLE_BYTES = 32 * 1024 * 1024
MOST_CONCURRENT = 256
WORTH = 1.05
"""A higher concurrency must bring this much more: among equals the lowest is best."""

BATCHING: Sequence[Mapping[str, str]] = (
    {},
    {"SAGEMAKER_TFS_ENABLE_BATCHING": "true", "SAGEMAKER_TFS_MAX_BATCH_SIZE": "8"},
    {"SAGEMAKER_TFS_ENABLE_BATCHING": "true", "SAGEMAKER_TFS_MAX_BATCH_SIZE": "32"},
)
"""What a model server of ours is tried with."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Measured:
    """Records per second that one choice got good answers to."""

    environment: Mapping[str, str]
    concurrent: int
    rate: float


def sample_of(job: Job, effort: Effort, items: Iterable[InputObject], source: Source) -> list[Batch]:
    """The first mini-batches of the input, as many as a sample needs. Raises SettingsError without any."""
    sample: list[Batch] = []
    size = 0
    for batch in itertools.islice(_batches(job, effort, items, source), SAMPLE_BATCHES):
        sample.append(batch)
        size += len(batch.body)
        if size >= SAMPLE_BYTES:
            break
    if not sample:
        raise SettingsError("The input holds no record that could be sent, so there is nothing to tune with.")
    return sample


def sweep(
    job: Job, sample: Sequence[Batch], endpoint: Endpoint, environment: Mapping[str, str]
) -> list[Measured]:
    """Rates at powers of two, until two in a row bring nothing, within the platform's 100 MB.

    Raises SettingsError if no record of ``sample`` gets an answer that the job can use.
    """
    payload_mb = (Effort.of(job, execution_parameters(endpoint)).payload_bytes or 0) >> 20
    most = min(MOST_CONCURRENT, MAX_PRODUCT_MB // payload_mb if payload_mb else MOST_CONCURRENT)
    found: list[Measured] = []
    concurrent, idle = 1, 0
    while concurrent <= most and idle < 2:  # noqa: PLR2004
        tally = measure(job, sample, endpoint, concurrent)
        rate = tally.counts.records / tally.seconds
        idle = 0 if rate > WORTH * max((each.rate for each in found), default=0.0) else idle + 1
        found.append(Measured(environment, concurrent, rate))
        log.info("%d at once%s: %.1f records/s%s", concurrent, _shown(environment), rate, _refused(tally))
        concurrent *= 2
    return found


def measure(job: Job, sample: Sequence[Batch], endpoint: Endpoint, concurrent: int) -> Tally:
    """Send ``sample`` round and round for some seconds; ``records`` of the tally are those answered well.

    Raises SettingsError if there is none.
    """
    tally = Tally(Expected(0, 0))
    manner = Manner(job.content_type, job.accept, job.timeout_seconds, job.max_retries)
    sender = Sender(endpoint, manner, concurrent, tally)
    transformer = Transformer(job, processing(job), sender, PLACEHOLDER)
    turns, ended = itertools.cycle(sample), threading.Event()
    turn, errors = threading.Lock(), list[BaseException]()

    def send() -> None:
        try:
            while not ended.is_set():
                with turn:
                    batch = next(turns)
                _count(tally, transformer(batch, "sample"))
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)
            ended.set()

    _run_for_a_while(send, concurrent, ended)
    tally.end()
    sender.close()
    if errors:
        raise _worded(errors[0])
    if not tally.counts.records:
        raise SettingsError(
            f"The server refuses every record, so there is nothing to tune: {tally.failures[0]}"
        )
    return tally


def _run_for_a_while(send: Callable[[], None], concurrent: int, ended: threading.Event) -> None:
    threads = [threading.Thread(target=send) for _ in range(concurrent)]
    for thread in threads:
        thread.start()
    ended.wait(SECONDS_EACH)
    ended.set()
    for thread in threads:
        thread.join()


def _count(tally: Tally, outcome: Outcome) -> None:
    """Records that the server refuses are fast, and no measure of anything."""
    tally.add(records=outcome.records - len(outcome.bad), bad_records=len(outcome.bad))
    for bad_record in outcome.bad:
        tally.fail(bad_record)


def _worded(error: BaseException) -> BaseException:
    """An answer that filters and joins can't use says so in a sentence; anything else is as it is."""
    return SettingsError(f"There is nothing to tune: {error}") if isinstance(error, ObjectFailed) else error


def _refused(tally: Tally) -> str:
    if not tally.counts.bad_records:
        return ""
    return f" ({tally.counts.bad_records} more were refused, the first: {tally.failures[0]})"


def best_of(found: Sequence[Measured]) -> Measured:
    """The highest rate; one within 5 % of it with fewer requests at once, or without batching, is better."""
    highest = max(each.rate for each in found)
    return min(
        (each for each in found if each.rate * WORTH >= highest),
        key=lambda each: (len(each.environment), each.concurrent),
    )


def advice(job: Job, best: Measured) -> str:
    """The best values as environment and as job JSON."""
    lines = [f"best: {best.rate:.1f} records/s"]
    lines += [f"{name}={value}" for name, value in best.environment.items()]
    values: dict[str, object] = {"MaxConcurrentTransforms": best.concurrent}
    environment = {**job.environment, **best.environment}
    if environment:
        values["Environment"] = environment
    return "\n".join([*lines, json.dumps(values, indent=1)])


def with_environment(job: Job, more: Mapping[str, str]) -> Job:
    """``job`` whose stack gets ``more`` variables."""
    return replace(job, environment={**job.environment, **more})


def _batches(job: Job, effort: Effort, items: Iterable[InputObject], source: Source) -> Iterator[Batch]:
    """Whatever can be read; the run itself reports what can't."""
    limit = effort.payload_bytes
    for item in items:
        try:
            with opened(source.open(item), job.compression) as stream:
                if job.split_type != NONE:
                    frames = located(records(stream, job.split_type, limit), item.name)
                    yield from pack(frames, effort.strategy, limit, item.name)
                elif (body := stream.read(SAMPLE_BYTES)) and (limit is None or len(body) <= limit):
                    yield whole(body)
        except (StorageError, ObjectFailed) as error:
            log.warning("%s is left out of the sample: %s", item.name, error)


def _shown(environment: Mapping[str, str]) -> str:
    size = environment.get("SAGEMAKER_TFS_MAX_BATCH_SIZE")
    return f", batches of {size}" if size else ""
