"""Runs one `tfs-proxy transform`, from the job to the summary."""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.engines import tuning
from tfs_proxy.transform.engines.local import LocalEngine
from tfs_proxy.transform.engines.on_cluster import on_cluster
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.leftovers import find_leftovers, log_plan
from tfs_proxy.transform.options import (
    RAY,
    TransformOptions,
    open_endpoint,
    output_target,
)
from tfs_proxy.transform.ordered_output import OrderedOutput
from tfs_proxy.transform.progress import shown_progress
from tfs_proxy.transform.run_statistics import RunStatistics
from tfs_proxy.transform.send.sender import Sender
from tfs_proxy.transform.send.stack import fetch_plan
from tfs_proxy.transform.stores.interface import InputObject, OutputTarget
from tfs_proxy.transform.stores.local import check_writable
from tfs_proxy.transform.stores.objects import objects_of, shard

INCOMPLETE = 1
_SHOWN_FAILURES = 10

log = logging.getLogger(__name__)


def run(options: TransformOptions) -> int:
    """Transform everything; returns the exit status: 0 if every object succeeded, else 1.

    Raises SettingsError before any work begins, and StopServing if the run can't go on.
    """
    if options.summary is not None:
        check_writable(options.summary, "summary")
    items = chosen(options)
    target = output_target(options)
    target.prepare(items)
    statistics = (on_cluster if options.engine == RAY else on_this_machine)(options, items, target)
    _report(statistics, options.summary)
    return INCOMPLETE if statistics.counts["failed"] else 0


def tune(options: TransformOptions) -> int:
    """Measure a sample of the input and print the best values; returns the exit status.

    Writes no outputs. If it serves the model itself, it tries batching as well. Raises as `run` does.
    """
    if options.engine == RAY:
        raise SettingsError("--tune measures this machine: leave out --engine ray.")
    items = chosen(options)
    measurements: list[tuning.Measurement] = []
    for environment in tuning.BATCHING if options.model else ({},):
        job = replace(options.job, environment={**options.job.environment, **environment})
        with open_endpoint(replace(options, job=job)) as endpoint:
            plan = fetch_plan(job, endpoint)
            sample = tuning.sample_of(job, plan, items, options.open_object)
            measurements += tuning.sweep(job, plan, sample, endpoint, environment)
    sys.stdout.write(tuning.advice(options.job, tuning.best_measurement(measurements)) + "\n")
    return 0


def chosen(options: TransformOptions) -> list[InputObject]:
    """The objects of this run: those of its input that belong to its shard."""
    _check_apart(options.job)
    items = objects_of(options.job.input, options.job.data_type, options.client)
    return shard(items, options.instance_index, options.instance_count)


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
    """Raise SettingsError if outputs would be the inputs of the next run."""
    if job.input.startswith(S3_SCHEME) or job.output.startswith(S3_SCHEME):
        return
    if Path(job.input).is_dir() and Path(job.output).resolve().is_relative_to(Path(job.input).resolve()):
        raise SettingsError(f"The output {job.output} is inside the input {job.input}: give another folder.")


def _report(statistics: RunStatistics, path: Path | None) -> None:
    summary, counts = statistics.summary(), statistics.counts
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
    if counts["bad_records"]:
        log.warning(
            "WARNING: %d of %d records are bad: the .err files name them",
            counts["bad_records"],
            counts["records"],
        )
