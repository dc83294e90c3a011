"""One `tfs-proxy transform`, from the job to the summary."""

import contextlib
import json
import logging
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from tfs_proxy.transform.files import STATE_FOLDER, InputObject, check_writable
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.leftovers import find_leftovers, log_plan, objects_of, typed
from tfs_proxy.transform.local_engine import LocalEngine
from tfs_proxy.transform.node import RunTerms, SharedStorageProbe
from tfs_proxy.transform.options import RAY, TransformOptions, fetch_plan, open_endpoint, output_target
from tfs_proxy.transform.ordered_output import OrderedOutput
from tfs_proxy.transform.run_statistics import RunStatistics, StorageError, shown_progress
from tfs_proxy.transform.s3 import OutputTarget
from tfs_proxy.transform.sender import Sender
from tfs_proxy.transform.transformer import FAIL
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.installation import how_to_install
from tfs_proxy.wire.s3_client import S3_SCHEME

log = logging.getLogger(__name__)

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
    run_job = _on_cluster if options.engine == RAY else _on_this_machine
    statistics = run_job(options, items, target)
    _report(statistics, options)
    return INCOMPLETE if statistics.counts["failed"] else 0


def chosen(options: TransformOptions) -> tuple[TransformOptions, list[InputObject]]:
    """The options with what names of objects say, and those objects of the input that belong to the shard."""
    job = options.job
    on_disk = not any(each.startswith(S3_SCHEME) for each in (job.input, job.output))
    if (
        on_disk
        and Path(job.input).is_dir()
        and Path(job.output).resolve().is_relative_to(Path(job.input).resolve())
    ):
        raise SettingsError(f"The output {job.output} is inside the input {job.input}: give another folder.")
    items = objects_of(job.input, job.data_type, options.files)
    return typed(options, items), items[options.instance_index :: options.instance_count]


def _on_this_machine(
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


def _on_cluster(
    options: TransformOptions, items: Sequence[InputObject], target: OutputTarget
) -> RunStatistics:
    """Transform the unfinished of ``items`` on all nodes; returns the statistics of the whole run.

    Outputs and fingerprint are those of a run on one machine, so that either can continue the other.
    Raises SettingsError if Ray or the cluster can't be used, and StopServing if no node can go on.
    """
    try:
        from tfs_proxy.transform.ray_cluster import Cluster, ray_connection
    except ImportError as error:
        raise SettingsError(
            f"--engine ray needs Ray ({error}): {how_to_install('ray')}, here and on all nodes."
        ) from error
    items = [replace(item, address=_absolute(item.address)) for item in items]
    with ray_connection(options.environment.get("RAY_ADDRESS")), _output_marker(options.job) as marker:
        leftovers = find_leftovers(options, items, target)
        if not leftovers.items:
            return leftovers.statistics

        def give_up(item: InputObject, reason: str) -> None:
            output = OrderedOutput(item, target, leftovers.fingerprint, leftovers.statistics, lambda: None)
            output.end_input(StorageError(reason))

        job = replace(options.job, input=_absolute(options.job.input), output=_absolute(options.job.output))
        model = None if options.model is None else _absolute(options.model)
        cluster = Cluster(replace(options, job=job, model=model), SharedStorageProbe(items[0], marker))
        try:
            plan = cluster.wait_ready().plan
            log_plan(options, plan, leftovers.items)
            with shown_progress(leftovers.statistics, sys.stderr):
                terms = RunTerms(leftovers.fingerprint, plan)
                cluster.transform(leftovers.items, terms, leftovers.statistics, give_up)
        finally:
            cluster.close()
            target.prepare(items)
    return leftovers.statistics


def _absolute(address: str) -> str:
    """``address`` for a process with another working directory."""
    return address if address.startswith(S3_SCHEME) else str(Path(address).resolve())


@contextlib.contextmanager
def _output_marker(job: Job) -> Iterator[Path | None]:
    """A file in the output folder that all nodes must see; None if outputs go to S3."""
    if job.output.startswith(S3_SCHEME):
        yield None
        return
    marker = Path(job.output).resolve() / STATE_FOLDER / f"here-{uuid.uuid4().hex}"
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise SettingsError(f"The output {job.output} can't be written: {error.strerror}.") from error
    try:
        yield marker
    finally:
        with contextlib.suppress(OSError):
            marker.unlink()


def _report(statistics: RunStatistics, options: TransformOptions) -> None:
    summary = statistics.summary()
    counts = statistics.counts
    path = options.summary
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
        sent = counts["uneven_records"]
        objects = counts["uneven"]
        yield f"{sent} records got {sent + counts['surplus']} rows, in {objects} object(s) named above"
