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
    """Compare ``items`` with what ``target`` knows to be finished; the model need not be served for that."""
    fingerprint = job_fingerprint(options.job, options.on_error, served_content(options))
    finished = target.finished(fingerprint) if options.resume else {}
    leftovers = [item for item in items if finished.get(item.name) != item.version]
    all_bytes = sum(item.size for item in items)
    finished_bytes = all_bytes - sum(item.size for item in leftovers)
    finished_count = len(items) - len(leftovers)
    statistics = RunStatistics(Workload(len(items), all_bytes, finished_bytes))
    statistics.add(skipped=finished_count)
    log.info("%d object(s), %d of them finished before", len(items), finished_count)
    return Leftovers(leftovers, fingerprint, statistics)


def log_plan(options: TransformOptions, plan: ExecutionPlan, items: Sequence[InputObject]) -> None:
    """Log how ``items`` are sent, and a warning if some are too large for that."""
    payload = "streamed" if plan.payload_bytes is None else f"{plan.payload_bytes >> 20} MB"
    log.info("%d request(s) at once, %s, payload %s", plan.concurrent, plan.strategy, payload)
    too_large = [item for item in items if is_too_large(options.job, plan, item)]
    if too_large:
        log.warning(
            "%d object(s) are larger than MaxPayloadInMB allows and will fail; the first is %s",
            len(too_large),
            too_large[0].name,
        )
