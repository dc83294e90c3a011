"""Which machine gets which object: the largest that is left, to whichever has room for it."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable

from tfs_proxy.transform.job import Effort
from tfs_proxy.transform.stores.interface import InputObject

READ_AHEAD = 2
"""Objects that a machine holds at least, to read the next while the last requests of one are answered."""
MOST_LOSSES = 3


class Spread:
    """The objects of a run that several machines share: each is left, held by one machine, or over.

    ``whole`` says that an object is one request.
    """

    def __init__(self, items: Iterable[InputObject], *, whole: bool) -> None:
        self._left = deque(sorted(items, key=lambda item: (-item.size, item.name)))
        self._whole = whole
        self._held: defaultdict[str, dict[str, InputObject]] = defaultdict(dict)
        self._losses: Counter[str] = Counter()

    @property
    def is_over(self) -> bool:
        """Whether nothing is left and nothing held."""
        return not self._left and not any(self._held.values())

    def take(self, machine: str, effort: Effort, machines: int) -> InputObject | None:
        """The largest object that is left, if ``machine``, one of ``machines``, can begin with it soon."""
        if not self._left or not self._has_room(self._held[machine].values(), effort, machines):
            return None
        item = self._left.popleft()
        self._held[machine][item.name] = item
        return item

    def end(self, machine: str, item: InputObject) -> None:
        """Hear that ``item`` is written or failed."""
        self._held[machine].pop(item.name, None)

    def lose(self, machine: str) -> list[InputObject]:
        """Give what ``machine`` held to the others; those that have lost too many machines are over."""
        held = self._held.pop(machine, {}).values()
        self._losses.update(item.name for item in held)
        over = [item for item in held if self._losses[item.name] >= MOST_LOSSES]
        self._left.extendleft(item for item in held if self._losses[item.name] < MOST_LOSSES)
        return over

    def _has_room(self, held: Collection[InputObject], effort: Effort, machines: int) -> bool:
        """Whether what a machine holds is less than its requests in flight and in turn come to.

        Towards the end it gets no more than it needs to be busy: the rest is for whoever is free first.
        """
        least = effort.concurrent if self._whole else READ_AHEAD
        if len(held) < least:
            return True
        places = 2 * effort.concurrent
        in_bytes = None if effort.payload_bytes is None else places * effort.payload_bytes
        fair = len(self._left) // (2 * machines)
        return len(held) < min(places, fair) and (
            in_bytes is None or sum(each.size for each in held) < in_bytes
        )
