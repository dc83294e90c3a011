"""One `tfs-proxy transform`, from job to summary: the order of the steps, each of which is elsewhere."""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.engines import tuning
from tfs_proxy.transform.engines.local import engine_of
from tfs_proxy.transform.engines.on_cluster import on_cluster
from tfs_proxy.transform.job import Effort, Job
from tfs_proxy.transform.leftovers import announce, left_of
from tfs_proxy.transform.ordered_output import Passage
from tfs_proxy.transform.progress import Progress
from tfs_proxy.transform.request import (
    RAY,
    Inputs,
    Request,
    endpoint_of,
    target_of,
)
from tfs_proxy.transform.send.stack import execution_parameters
from tfs_proxy.transform.stores.interface import InputObject, Target
from tfs_proxy.transform.stores.local import check_writable
from tfs_proxy.transform.stores.objects import objects_of, shard
from tfs_proxy.transform.stores.s3 import S3_SCHEME
from tfs_proxy.transform.tally import Tally

INCOMPLETE = 1
_SHOWN_FAILURES = 10

log = logging.getLogger(__name__)


def run(request: Request) -> int:
    """Transform everything; the exit status: 0 where every object succeeded, else 1.

    Raises SettingsError before anything is begun, and StopServing where the run can't go on.
    """
    if request.summary is not None:
        check_writable(request.summary, "summary")
    items = chosen(request)
    target = target_of(request)
    target.check(items)
    target.prepare(items)
    tally = (on_cluster if request.engine == RAY else on_this_machine)(request, items, target)
    _report(tally, request.summary)
    return INCOMPLETE if tally.counts.failed else 0


def tune(request: Request) -> int:
    """Measure a sample of the input and print the best values; nothing is written. The exit status.

    Where the server is ours, batching is tried as well. Raises as `run` does.
    """
    if request.engine == RAY:
        raise SettingsError("--tune measures this machine: leave --engine ray out.")
    items = chosen(request)
    found: list[tuning.Measured] = []
    for environment in tuning.BATCHING if request.model else ({},):
        job = tuning.with_environment(request.job, environment)
        with endpoint_of(replace(request, job=job)) as endpoint:
            effort = Effort.of(job, execution_parameters(endpoint))
            sample = tuning.sample_of(job, effort, items, Inputs(request))
            found += tuning.sweep(job, sample, endpoint, environment)
    sys.stdout.write(tuning.advice(request.job, tuning.best_of(found)) + "\n")
    return 0


def chosen(request: Request) -> list[InputObject]:
    """The objects that this run is about."""
    _check_apart(request.job)
    items = objects_of(request.job.input, request.job.data_type, request.client)
    return shard(items, request.instance_index, request.instance_count)


def on_this_machine(request: Request, items: Sequence[InputObject], target: Target) -> Tally:
    """Send ``items``, those left out that are finished; the tally at the end."""
    left = left_of(request, items, target)
    if not left.items:
        return left.tally
    with endpoint_of(request) as endpoint:
        effort = Effort.of(request.job, execution_parameters(endpoint))
        announce(request, effort, left.items)

        def begin(item: InputObject, release: Callable[[], None]) -> Passage:
            return Passage(item, target, left.mark, left.tally, release)

        engine = engine_of(request, effort, endpoint, left.tally, begin)
        with Progress(left.tally, sys.stderr):
            engine.run(left.items)
    return left.tally


def _check_apart(job: Job) -> None:
    """Refuse an output folder inside the input folder: the next run would take outputs for inputs."""
    if job.input.startswith(S3_SCHEME) or job.output.startswith(S3_SCHEME):
        return
    if Path(job.input).is_dir() and Path(job.output).resolve().is_relative_to(Path(job.input).resolve()):
        raise SettingsError(f"The output {job.output} lies in the input {job.input}: give another folder.")


def _report(tally: Tally, path: Path | None) -> None:
    summary, counts = tally.summary(), tally.counts
    for failure in tally.failures[:_SHOWN_FAILURES]:
        log.error("%s", failure)
    if len(tally.failures) > _SHOWN_FAILURES:
        log.error("further failures are in the .err files and in the summary")
    log.info(
        "%d object(s) done, %d finished before, %d failed; %d records, %d of them bad; %.1f s, %s records/s; "
        "latency p50 %.1f, p90 %.1f, p99 %.1f ms",
        counts.objects,
        counts.skipped,
        counts.failed,
        counts.records,
        counts.bad_records,
        tally.seconds,
        summary["records_per_second"],
        *(1000 * tally.percentile_seconds(share) for share in (0.5, 0.9, 0.99)),
    )
    if path is not None:
        try:
            path.write_text(json.dumps(summary, indent=1) + "\n")
        except OSError as error:
            raise SettingsError(f"The summary {path} can't be written: {error.strerror}.") from error
