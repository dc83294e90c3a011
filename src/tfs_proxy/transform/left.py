"""What is left to do of a job: the chosen objects without those that an earlier run finished."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tfs_proxy.transform.engine import is_too_large
from tfs_proxy.transform.job import Effort
from tfs_proxy.transform.marks import mark_of
from tfs_proxy.transform.request import Request
from tfs_proxy.transform.stores import InputObject, Target
from tfs_proxy.transform.tally import Expected, Tally

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Left:
    """The objects to do, the job's mark in the state of their outputs, and a tally of the run."""

    items: list[InputObject]
    mark: str
    tally: Tally


def left_of(
    request: Request, items: Sequence[InputObject], target: Target, effort: Effort, content: str
) -> Left:
    """Find out and say so; ``content`` stands for the model, as `served_content` gives it."""
    mark = mark_of(request.job, effort, request.on_error, content)
    finished = target.finished(mark) if request.resume else {}
    todo = [item for item in items if finished.get(item.name) != item.version]
    tally = Tally(Expected(len(items), sum(item.size for item in todo)))
    tally.add(skipped=len(items) - len(todo))
    _announce(request, effort, len(items), todo)
    return Left(todo, mark, tally)


def _announce(request: Request, effort: Effort, count: int, todo: Sequence[InputObject]) -> None:
    payload = "streamed" if effort.payload_bytes is None else f"{effort.payload_bytes >> 20} MB"
    log.info(
        "%d object(s), %d of them finished before; %d request(s) at once, %s, payload %s",
        count,
        count - len(todo),
        effort.concurrent,
        effort.strategy,
        payload,
    )
    too_large = [item for item in todo if is_too_large(request.job, effort, item)]
    if too_large:
        log.warning(
            "%d object(s) are larger than MaxPayloadInMB allows and will fail, %s the first of them",
            len(too_large),
            too_large[0].name,
        )
