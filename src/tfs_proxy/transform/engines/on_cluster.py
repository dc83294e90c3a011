"""Runs a job on a Ray cluster: the steps around the Ray engine, which alone imports ray."""

import contextlib
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.engines.node import RunTerms, SharedStorageProbe
from tfs_proxy.transform.failures import StorageError
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.leftovers import announce, find_leftovers
from tfs_proxy.transform.options import TransformOptions
from tfs_proxy.transform.ordered_output import OrderedOutput
from tfs_proxy.transform.progress import Progress
from tfs_proxy.transform.run_statistics import RunStatistics
from tfs_proxy.transform.stores.interface import InputObject, OutputTarget
from tfs_proxy.transform.stores.local import STATE_FOLDER


def on_cluster(
    options: TransformOptions, items: Sequence[InputObject], target: OutputTarget
) -> RunStatistics:
    """Transform ``items`` on all nodes, those left out that are finished; the statistics of all at the end.

    Paths and the job's fingerprint are those of a run on one machine, which can go on where this one stopped.
    Raises SettingsError where Ray or the cluster can't be used, and StopServing where no node can go on.
    """
    try:
        from tfs_proxy.transform.engines.ray.cluster import Cluster
        from tfs_proxy.transform.engines.ray.connection import ray_connection
    except ImportError as error:
        raise SettingsError(
            f"--engine ray needs Ray ({error}): pip install 'tfs-proxy[ray]', here and on all nodes."
        ) from error
    every = [replace(item, address=_anywhere(item.address)) for item in items]
    address = options.ray_address or options.environment.get("RAY_ADDRESS")
    with ray_connection(address), _sign_of(options.job) as sign:
        left = find_leftovers(options, every, target)
        if not left.items:
            return left.statistics
        cluster = Cluster(_anywhere_request(options), SharedStorageProbe(every[0], sign))
        try:
            first = cluster.wait_ready()
            announce(options, first.plan, left.items)
            terms = RunTerms(left.fingerprint, first.plan.strategy, first.plan.payload_bytes)

            def give_up(item: InputObject, why: str) -> None:
                OrderedOutput(item, target, left.fingerprint, left.statistics, lambda: None).end_input(
                    StorageError(why)
                )

            with Progress(left.statistics, sys.stderr):
                cluster.transform(left.items, terms, left.statistics, give_up)
        finally:
            cluster.close()
    return left.statistics


def _anywhere(address: str) -> str:
    """``address`` for a process with another working directory."""
    return address if address.startswith(S3_SCHEME) else str(Path(address).resolve())


def _anywhere_request(options: TransformOptions) -> TransformOptions:
    job = options.job
    moved = replace(job, input=_anywhere(job.input), output=_anywhere(job.output))
    model = None if options.model is None else _anywhere(options.model)
    return replace(options, job=moved, model=model)


@contextlib.contextmanager
def _sign_of(job: Job) -> Iterator[Path | None]:
    """A file in the output folder, for machines to find there; None where outputs go to S3."""
    if job.output.startswith(S3_SCHEME):
        yield None
        return
    sign = Path(job.output).resolve() / STATE_FOLDER / f"here-{uuid.uuid4().hex}"
    try:
        sign.parent.mkdir(parents=True, exist_ok=True)
        sign.touch()
    except OSError as error:
        raise SettingsError(f"The output {job.output} can't be written: {error.strerror}.") from error
    try:
        yield sign
    finally:
        with contextlib.suppress(OSError):
            sign.unlink()
