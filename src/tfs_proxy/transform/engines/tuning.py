"""--tune: measures a sample of the input at growing concurrency, and advises which values to use."""

import contextlib
import itertools
import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.failures import ObjectFailed, StorageError
from tfs_proxy.transform.job import MAX_PRODUCT_MB, NONE, ExecutionPlan, Job
from tfs_proxy.transform.records.batches import MiniBatch, batches_of, whole_object
from tfs_proxy.transform.records.split import open_content
from tfs_proxy.transform.run_statistics import RunStatistics
from tfs_proxy.transform.send.bad_records import BadLimit
from tfs_proxy.transform.send.connection import EndpointAddress
from tfs_proxy.transform.send.isolation import PLACEHOLDER, Transformer
from tfs_proxy.transform.send.sender import Sender
from tfs_proxy.transform.stores.interface import InputObject, OpenObject

MEASURE_SECONDS = 4.0
SAMPLE_BATCHES = 256
SAMPLE_BYTES = 32 * 1024 * 1024
MAX_CONCURRENT = 256
MIN_GAIN = 1.05
"""More concurrency or batching must raise the rate by this factor; else the simpler choice is better."""

BATCHING: Sequence[Mapping[str, str]] = (
    {},
    {"SAGEMAKER_TFS_ENABLE_BATCHING": "true", "SAGEMAKER_TFS_MAX_BATCH_SIZE": "8"},
    {"SAGEMAKER_TFS_ENABLE_BATCHING": "true", "SAGEMAKER_TFS_MAX_BATCH_SIZE": "32"},
)
"""The settings that are tried if this command serves the model."""

log = logging.getLogger(__name__)


class Measurement(Struct, frozen=True):
    """The rate of one choice, in answered records per second."""

    environment: Mapping[str, str]
    concurrent: int
    rate: float


def sample_of(
    job: Job, plan: ExecutionPlan, items: Iterable[InputObject], open_object: OpenObject
) -> list[MiniBatch]:
    """The first mini-batches of the input. Raises SettingsError if there are none."""
    sample: list[MiniBatch] = []
    size = 0
    for batch in itertools.islice(_batches(job, plan, items, open_object), SAMPLE_BATCHES):
        sample.append(batch)
        size += len(batch.body)
        if size >= SAMPLE_BYTES:
            break
    if not sample:
        raise SettingsError("The input has no record that can be sent, so there is nothing to tune with.")
    return sample


def sweep(
    job: Job,
    plan: ExecutionPlan,
    sample: Sequence[MiniBatch],
    endpoint: EndpointAddress,
    environment: Mapping[str, str],
) -> list[Measurement]:
    """Measure powers of two, until two in a row bring no gain or the platform's 100 MB are reached.

    Raises SettingsError if no record of ``sample`` gets an answer that the job can use.
    """
    payload_mb = (plan.payload_bytes or 0) >> 20
    most = min(MAX_CONCURRENT, MAX_PRODUCT_MB // payload_mb if payload_mb else MAX_CONCURRENT)
    measurements: list[Measurement] = []
    concurrent, without_gain = 1, 0
    while concurrent <= most and without_gain < 2:  # noqa: PLR2004
        rate, refusals = measure(job, sample, endpoint, concurrent)
        best_rate = max((measurement.rate for measurement in measurements), default=0.0)
        without_gain = 0 if rate > MIN_GAIN * best_rate else without_gain + 1
        measurements.append(Measurement(environment, concurrent, rate))
        size = environment.get("SAGEMAKER_TFS_MAX_BATCH_SIZE")
        batching = f", batches of {size}" if size else ""
        log.info("%d at once%s: %.1f records/s%s", concurrent, batching, rate, refusals)
        concurrent *= 2
    return measurements


def measure(
    job: Job, sample: Sequence[MiniBatch], endpoint: EndpointAddress, concurrent: int
) -> tuple[float, str]:
    """Send ``sample`` over and over for some seconds; returns answered records per second, and a note.

    A failure is not tried again: pauses would be measured, and a sample that fails would take minutes.
    Raises SettingsError if no record is answered well.
    """
    statistics = RunStatistics()
    sender = Sender(endpoint, replace(job, max_retries=0), concurrent, statistics)
    transform = Transformer(job, sender, PLACEHOLDER, BadLimit())
    batches, batches_lock, ended = itertools.cycle(sample), threading.Lock(), threading.Event()

    def send() -> None:
        while not ended.is_set():
            with batches_lock:
                batch = next(batches)
            for bad_record in transform(batch, "sample").bad:
                statistics.fail(bad_record)

    with contextlib.closing(sender), ThreadPoolExecutor(concurrent) as threads:
        sending = [threads.submit(send) for _ in range(concurrent)]
        wait(sending, MEASURE_SECONDS, FIRST_EXCEPTION)
        ended.set()
    seconds = statistics.seconds
    try:
        for sent in sending:
            sent.result()
    except ObjectFailed as error:
        # The answer to the sample does not fit the job's filters or its join.
        raise SettingsError(f"There is nothing to tune: {error}") from error
    # A refused record is not a measure of the model: a refusal is faster than an answer.
    answered, refused = statistics.counts["answered"], statistics.counts["refused"]
    if not answered:
        raise SettingsError(
            f"The server refuses every record, so there is nothing to tune: {statistics.failures[0]}"
        )
    note = f" ({refused} more were refused, the first: {statistics.failures[0]})" if refused else ""
    return answered / seconds, note


def best_measurement(measurements: Sequence[Measurement]) -> Measurement:
    """Of the choices within 5 % of the highest rate, one without batching, then of the fewest requests."""
    highest = max(measurement.rate for measurement in measurements)
    return min(
        (candidate for candidate in measurements if candidate.rate * MIN_GAIN >= highest),
        key=lambda candidate: (len(candidate.environment), candidate.concurrent),
    )


def advice(job: Job, best: Measurement) -> str:
    """The best values as environment variables and as JSON for the job."""
    lines = [f"best: {best.rate:.1f} records/s"]
    lines += [f"{name}={value}" for name, value in best.environment.items()]
    values: dict[str, object] = {"MaxConcurrentTransforms": best.concurrent}
    environment = {**job.environment, **best.environment}
    if environment:
        values["Environment"] = environment
    return "\n".join([*lines, json.dumps(values, indent=1)])


def _batches(
    job: Job, plan: ExecutionPlan, items: Iterable[InputObject], open_object: OpenObject
) -> Iterator[MiniBatch]:
    """The batches of all objects that can be read; the run itself reports the others."""
    for item in items:
        try:
            with open_content(open_object(item), job.compression) as stream:
                if job.split_type != NONE:
                    yield from batches_of(stream, job.split_type, plan, item.name)
                elif (body := stream.read(SAMPLE_BYTES)) and (
                    plan.payload_bytes is None or len(body) <= plan.payload_bytes
                ):
                    yield whole_object(body)
        except (StorageError, ObjectFailed) as error:
            log.warning("the sample leaves out %s: %s", item.name, error)
