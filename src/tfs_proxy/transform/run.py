"""One `tfs-proxy transform`, from the job to the summary; or with --tune a search for its best values."""

import contextlib
import itertools
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.transform.batches import MiniBatch, batches_of, open_content, whole_object
from tfs_proxy.transform.cluster_run import on_cluster
from tfs_proxy.transform.files import InputObject, OpenObject, OutputTarget, check_writable
from tfs_proxy.transform.job import MAX_PRODUCT_MB, NONE, ExecutionPlan, Job
from tfs_proxy.transform.leftovers import find_leftovers, log_plan, objects_of, shard, typed
from tfs_proxy.transform.local_engine import LocalEngine
from tfs_proxy.transform.options import RAY, TransformOptions, fetch_plan, open_endpoint, output_target
from tfs_proxy.transform.ordered_output import OrderedOutput
from tfs_proxy.transform.run_statistics import ObjectFailed, RunStatistics, StorageError, shown_progress
from tfs_proxy.transform.sender import EndpointAddress, Sender
from tfs_proxy.transform.transformer import FAIL, PLACEHOLDER, BadLimit, Transformer
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.s3_client import S3_SCHEME

MEASURE_SECONDS = 4.0
SAMPLE_BATCHES = 256
SAMPLE_BYTES = 32 * 1024 * 1024
MAX_CONCURRENT = 256
MIN_GAIN = 1.05
"""Factor by which more concurrency or batching must raise the rate; else the simpler choice is better."""

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
    """Measure powers of two, until two in a row do not gain or the platform's 100 MB are reached.

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
    """The best choice within 5 % of the highest rate: without batching, then of the fewest requests."""
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
            with open_content(open_object(item), job) as stream:
                if job.split_type != NONE:
                    yield from batches_of(stream, job.split_type, plan, item.name)
                elif (body := stream.read(SAMPLE_BYTES)) and (
                    plan.payload_bytes is None or len(body) <= plan.payload_bytes
                ):
                    yield whole_object(body)
        except (StorageError, ObjectFailed) as error:
            log.warning("the sample leaves out %s: %s", item.name, error)


INCOMPLETE = 1
_SHOWN_FAILURES = 10


def run(options: TransformOptions) -> int:
    """Transform everything; returns the exit status: 0 if every object succeeded, else 1.

    Raises SettingsError before any work begins, and StopServing if the run can't go on.
    """
    if options.summary is not None:
        check_writable(options.summary, "summary")
    options, items = chosen(options)
    target = output_target(options)
    target.prepare(items)
    statistics = (on_cluster if options.engine == RAY else on_this_machine)(options, items, target)
    _report(statistics, options)
    return INCOMPLETE if statistics.counts["failed"] else 0


def tune(options: TransformOptions) -> int:
    """Measure a sample of the input and print the best values; returns the exit status.

    Writes no outputs. If it serves the model itself, it tries batching as well. Raises as `run` does.
    """
    if options.engine == RAY:
        raise SettingsError("--tune measures this machine: leave out --engine ray.")
    options, items = chosen(options)
    measurements: list[Measurement] = []
    for environment in BATCHING if options.model else ({},):
        job = replace(options.job, environment={**options.job.environment, **environment})
        with open_endpoint(replace(options, job=job)) as endpoint:
            plan = fetch_plan(job, endpoint)
            sample = sample_of(job, plan, items, options.open_object)
            measurements += sweep(job, plan, sample, endpoint, environment)
    sys.stdout.write(advice(options.job, best_measurement(measurements)) + "\n")
    return 0


def chosen(options: TransformOptions) -> tuple[TransformOptions, list[InputObject]]:
    """The options with what names of objects say, and those objects of the input that belong to the shard."""
    _check_apart(options.job)
    items = objects_of(options.job.input, options.job.data_type, options.client, options.files)
    return typed(options, items), shard(items, options.instance_index, options.instance_count)


def on_this_machine(
    options: TransformOptions, items: Sequence[InputObject], target: OutputTarget
) -> RunStatistics:
    """Transform the unfinished of ``items``; returns the statistics of the run."""
    leftovers = find_leftovers(options, items, target)
    if not leftovers.items:
        return leftovers.statistics
    with open_endpoint(options) as endpoint:
        plan = fetch_plan(options.job, endpoint)
        log_plan(options, plan, leftovers.items)

        def start_output(item: InputObject, release: Callable[[], None]) -> OrderedOutput:
            return OrderedOutput(
                item, target, leftovers.fingerprint, leftovers.statistics, release, limit=options.max_bad
            )

        sender = Sender(endpoint, options.job, plan.concurrent, leftovers.statistics)
        with shown_progress(leftovers.statistics, sys.stderr):
            LocalEngine(options, plan, sender, start_output).run(leftovers.items)
    return leftovers.statistics


def _check_apart(job: Job) -> None:
    if job.input.startswith(S3_SCHEME) or job.output.startswith(S3_SCHEME):
        return
    if Path(job.input).is_dir() and Path(job.output).resolve().is_relative_to(Path(job.input).resolve()):
        raise SettingsError(f"The output {job.output} is inside the input {job.input}: give another folder.")


def _report(statistics: RunStatistics, options: TransformOptions) -> None:
    summary, counts, path = statistics.summary(), statistics.counts, options.summary
    for failure in statistics.failures[:_SHOWN_FAILURES]:
        log.error("%s", failure)
    if len(statistics.failures) > _SHOWN_FAILURES:
        log.error("the .err files and the summary list all failures")
    log.info(
        "%d object(s) done, %d finished before, %d failed; %d records, %d of them bad; %.1f s, %s records/s; "
        "latency p50 %.1f, p90 %.1f, p99 %.1f ms",
        counts["objects"],
        counts["skipped"],
        counts["failed"],
        counts["records"],
        counts["bad_records"],
        statistics.seconds,
        summary["records_per_second"],
        *(1000 * statistics.percentile_seconds(share) for share in (0.5, 0.9, 0.99)),
    )
    if path is not None:
        try:
            path.write_text(json.dumps(summary, indent=1) + "\n")
        except OSError as error:
            raise SettingsError(f"The summary {path} can't be written: {error.strerror}.") from error
    if options.on_error == FAIL and any((failure.record or 0) > 1 for failure in statistics.failures):
        log.info("--on-error placeholder or sidecar goes on without bad records, and finishes their objects")
    if warnings := list(_warnings(statistics)):
        log.warning("WARNING: %s", "; ".join(warnings))


def _warnings(statistics: RunStatistics) -> Iterator[str]:
    """Name the records that a run with exit status 0 may have lost."""
    counts = statistics.counts
    if counts["bad_records"]:
        yield f"{counts['bad_records']} of {counts['records']} records are bad: the .err files name them"
    if counts["uneven"]:
        sent, objects = counts["uneven_records"], counts["uneven"]
        yield f"{sent} records got {sent + counts['surplus']} rows, in {objects} object(s) named above"
