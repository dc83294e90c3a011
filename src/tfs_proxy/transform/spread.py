"""Which machine gets which object: the largest that is left, to whichever has room for it."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable

from tfs_proxy.transform.job import Effort
from tfs_proxy.transform.stores import InputObject

READ_AHEAD = 2
"""Objects that a machine may hold at least, so that it reads the next while the last requests of one wait."""
MOST_LOSSES = 3


class Spread:
    """The objects of a run that several machines share: each is left, held by one machine, or over."""

    def __init__(self, items: Iterable[InputObject]) -> None:
        self._left = deque(sorted(items, key=lambda item: (-item.size, item.name)))
        self._held: defaultdict[str, dict[str, InputObject]] = defaultdict(dict)
        self._losses: Counter[str] = Counter()

    @property
    def is_over(self) -> bool:
        """Whether nothing is left and nothing held."""
        return not self._left and not any(self._held.values())

    def take(self, machine: str, effort: Effort) -> InputObject | None:
        """The largest object that is left, if ``machine`` can begin with it soon."""
        if not self._left or not has_room(self._held[machine].values(), effort):
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


def has_room(held: Iterable[InputObject], effort: Effort) -> bool:
    """Whether a machine can take one more: it holds about what its requests in flight and in turn come to.

    So small objects keep all connections busy, and large ones stay free for machines that are faster.
    """
    sizes = [item.size for item in held]
    places = 2 * effort.concurrent
    if len(sizes) < READ_AHEAD:
        return True
    in_bytes = effort.payload_bytes is None or sum(sizes) < places * effort.payload_bytes
    return len(sizes) < places and in_bytes
