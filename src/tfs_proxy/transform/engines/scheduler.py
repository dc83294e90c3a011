"""Decides which node gets which object: the largest that is left, to a node that has room for it."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable

from tfs_proxy.transform.job import ExecutionPlan
from tfs_proxy.transform.stores.interface import InputObject

READ_AHEAD = 2
"""A node holds at least so many objects: it reads the next during the last requests of the one before."""
MAX_LOSSES = 3


class Scheduler:
    """The objects of a run that several nodes share: each is waiting, held by one node, or finished.

    ``single_request`` says that an object is one request.
    """

    def __init__(self, items: Iterable[InputObject], *, single_request: bool) -> None:
        self._waiting = deque(sorted(items, key=lambda item: (-item.size, item.name)))
        self._single_request = single_request
        self._held: defaultdict[str, dict[str, InputObject]] = defaultdict(dict)
        self._losses: Counter[str] = Counter()

    @property
    def is_finished(self) -> bool:
        """Whether no object is waiting or held."""
        return not self._waiting and not any(self._held.values())

    def take(self, node: str, plan: ExecutionPlan, node_count: int) -> InputObject | None:
        """The largest waiting object, if ``node``, one of ``node_count``, can begin with it soon."""
        if not self._waiting or not self._has_room(self._held[node].values(), plan, node_count):
            return None
        item = self._waiting.popleft()
        self._held[node][item.name] = item
        return item

    def finish(self, node: str, item: InputObject) -> None:
        """Note that ``node`` wrote ``item``, or that it failed there."""
        self._held[node].pop(item.name, None)

    def lose(self, node: str) -> list[InputObject]:
        """Put what ``node`` held back, except objects that have lost `MAX_LOSSES` nodes: return those."""
        held = self._held.pop(node, {}).values()
        self._losses.update(item.name for item in held)
        given_up = [item for item in held if self._losses[item.name] >= MAX_LOSSES]
        self._waiting.extendleft(item for item in held if self._losses[item.name] < MAX_LOSSES)
        return given_up

    def _has_room(self, held: Collection[InputObject], plan: ExecutionPlan, node_count: int) -> bool:
        """Whether a node holds less than it can have in flight and in its queue."""
        minimum = plan.concurrent if self._single_request else READ_AHEAD
        if len(held) < minimum:
            return True
        batches = 2 * plan.concurrent
        # Near the end a node gets only what keeps it busy: the rest goes to the node that is free first.
        fair_share = len(self._waiting) // (2 * node_count)
        if len(held) >= min(batches, fair_share):
            return False
        return plan.payload_bytes is None or sum(item.size for item in held) < batches * plan.payload_bytes
