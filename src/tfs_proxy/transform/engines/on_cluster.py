"""A run on a Ray cluster, from objects to tally: the steps around the engine, which alone imports ray."""

import contextlib
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.engines.node import Terms, Witness
from tfs_proxy.transform.failures import StorageError
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.leftovers import announce, left_of
from tfs_proxy.transform.ordered_output import Passage
from tfs_proxy.transform.progress import Progress
from tfs_proxy.transform.request import Request
from tfs_proxy.transform.stores.interface import InputObject, Target
from tfs_proxy.transform.stores.local import STATE_FOLDER
from tfs_proxy.transform.stores.s3 import S3_SCHEME
from tfs_proxy.transform.tally import Tally


def on_cluster(request: Request, items: Sequence[InputObject], target: Target) -> Tally:
    """Transform ``items`` on all nodes, those left out that are finished; the tally of all at the end.

    Paths and the job's mark are those of a run on one machine, which can go on where this one stopped.
    Raises SettingsError where Ray or the cluster can't be used, and StopServing where no node can go on.
    """
    try:
        from tfs_proxy.transform.engines.ray import Cluster, connected
    except ImportError as error:
        raise SettingsError(
            f"--engine ray needs Ray ({error}): pip install 'tfs-proxy[ray]', here and on all nodes."
        ) from error
    every = [replace(item, address=_anywhere(item.address)) for item in items]
    address = request.ray_address or request.environment.get("RAY_ADDRESS")
    with connected(address), _sign_of(request.job) as sign:
        left = left_of(request, every, target)
        if not left.items:
            return left.tally
        cluster = Cluster(_anywhere_request(request), Witness(every[0], sign))
        try:
            first = cluster.first()
            announce(request, first.effort, left.items)
            terms = Terms(left.mark, first.effort.strategy, first.effort.payload_bytes)

            def give_up(item: InputObject, why: str) -> None:
                Passage(item, target, left.mark, left.tally, lambda: None).end_input(StorageError(why))

            with Progress(left.tally, sys.stderr):
                cluster.transform(left.items, terms, left.tally, give_up)
        finally:
            cluster.close()
    return left.tally


def _anywhere(address: str) -> str:
    """``address`` for a process with another working directory."""
    return address if address.startswith(S3_SCHEME) else str(Path(address).resolve())


def _anywhere_request(request: Request) -> Request:
    job = request.job
    moved = replace(job, input=_anywhere(job.input), output=_anywhere(job.output))
    model = None if request.model is None else _anywhere(request.model)
    return replace(request, job=moved, model=model)


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
