"""What is left to do of a job: the chosen objects without those that an earlier run finished."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tfs_proxy.transform.engines.local import is_too_large
from tfs_proxy.transform.fingerprints import job_fingerprint
from tfs_proxy.transform.job import ExecutionPlan
from tfs_proxy.transform.options import TransformOptions, served_content
from tfs_proxy.transform.run_statistics import RunStatistics, Workload
from tfs_proxy.transform.stores.interface import InputObject, OutputTarget

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The objects to do, the job's fingerprint and the statistics of the run."""

    items: list[InputObject]
    fingerprint: str
    statistics: RunStatistics


def find_leftovers(
    options: TransformOptions, items: Sequence[InputObject], target: OutputTarget
) -> Leftovers:
    """Find out and log it; nothing needs to be served for that."""
    fingerprint = job_fingerprint(options.job, options.on_error, served_content(options))
    finished = target.finished(fingerprint) if options.resume else {}
    todo = [item for item in items if finished.get(item.name) != item.version]
    all_bytes, todo_bytes = (sum(item.size for item in some) for some in (items, todo))
    statistics = RunStatistics(Workload(len(items), all_bytes, all_bytes - todo_bytes))
    statistics.add(skipped=len(items) - len(todo))
    log.info("%d object(s), %d of them finished before", len(items), len(items) - len(todo))
    return Leftovers(todo, fingerprint, statistics)


def announce(options: TransformOptions, plan: ExecutionPlan, todo: Sequence[InputObject]) -> None:
    """Log how ``todo`` is driven, and a warning if objects are known to be too large."""
    payload = "streamed" if plan.payload_bytes is None else f"{plan.payload_bytes >> 20} MB"
    log.info("%d request(s) at once, %s, payload %s", plan.concurrent, plan.strategy, payload)
    too_large = [item for item in todo if is_too_large(options.job, plan, item)]
    if too_large:
        log.warning(
            "%d object(s) are larger than MaxPayloadInMB allows and will fail, %s the first of them",
            len(too_large),
            too_large[0].name,
        )
