"""A transform on all nodes of a Ray cluster: the unfinished objects, and storage that every node sees."""

import contextlib
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from tfs_proxy.transform.files import STATE_FOLDER, InputObject, OutputTarget
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.leftovers import find_leftovers, log_plan
from tfs_proxy.transform.node import RunTerms, SharedStorageProbe
from tfs_proxy.transform.options import TransformOptions
from tfs_proxy.transform.ordered_output import OrderedOutput
from tfs_proxy.transform.run_statistics import RunStatistics, StorageError, shown_progress
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.installation import how_to_install
from tfs_proxy.wire.s3_client import S3_SCHEME


def on_cluster(
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
