"""What is left to do of a job: the chosen objects without those that an earlier run finished."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tfs_proxy.transform.engines.local import is_too_large
from tfs_proxy.transform.fingerprints import mark_of
from tfs_proxy.transform.job import Effort
from tfs_proxy.transform.request import Request, served_content
from tfs_proxy.transform.stores.interface import InputObject, Target
from tfs_proxy.transform.tally import Expected, Tally

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Left:
    """The objects to do, the job's mark in the state of their outputs, and a tally of the run."""

    items: list[InputObject]
    mark: str
    tally: Tally


def left_of(request: Request, items: Sequence[InputObject], target: Target) -> Left:
    """Find out and log it; nothing needs to be served for that."""
    mark = mark_of(request.job, request.on_error, served_content(request))
    finished = target.finished(mark) if request.resume else {}
    todo = [item for item in items if finished.get(item.name) != item.version]
    all_bytes, todo_bytes = (sum(item.size for item in some) for some in (items, todo))
    tally = Tally(Expected(len(items), all_bytes, all_bytes - todo_bytes))
    tally.add(skipped=len(items) - len(todo))
    log.info("%d object(s), %d of them finished before", len(items), len(items) - len(todo))
    return Left(todo, mark, tally)


def announce(request: Request, effort: Effort, todo: Sequence[InputObject]) -> None:
    """Log how ``todo`` is driven, and a warning if objects are known to be too large."""
    payload = "streamed" if effort.payload_bytes is None else f"{effort.payload_bytes >> 20} MB"
    log.info("%d request(s) at once, %s, payload %s", effort.concurrent, effort.strategy, payload)
    too_large = [item for item in todo if is_too_large(request.job, effort, item)]
    if too_large:
        log.warning(
            "%d object(s) are larger than MaxPayloadInMB allows and will fail, %s the first of them",
            len(too_large),
            too_large[0].name,
        )
