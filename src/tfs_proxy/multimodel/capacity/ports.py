"""The ports of the models' servers within SAGEMAKER_SAFE_PORT_RANGE: a block for each model."""

from collections.abc import Callable

from tfs_proxy.errors import NotEnoughResources
from tfs_proxy.setting_values import PortRange
from tfs_proxy.supervisor.host.sockets import is_free_port

PORTS_OF_A_SERVER = 2
"""gRPC and REST."""


class PortBlocks:
    """Blocks of ports for ``servers`` model servers each; without ``ports`` every model takes free ones.

    ``is_free`` says whether a port can be bound: other programs may have some of the range.
    """

    def __init__(
        self, ports: PortRange | None, servers: int, is_free: Callable[[int], bool] = is_free_port
    ) -> None:
        self._ports, self._is_free = ports, is_free
        self._size = PORTS_OF_A_SERVER * servers
        self._taken: dict[object, PortRange] = {}

    def take(self, owner: object, name: str) -> PortRange | None:
        """The lowest block of which every port is free, for ``owner``; NotEnoughResources if none is."""
        if self._ports is None:
            return None
        count = (self._ports.high + 1 - self._ports.low) // self._size
        blocks = (self._block(self._ports, number) for number in range(count))
        block = next(filter(self._is_usable, blocks), None)
        if block is None:
            ports = f"SAGEMAKER_SAFE_PORT_RANGE={self._ports.low}-{self._ports.high}"
            raise NotEnoughResources(
                f"model {name} can't be loaded: {ports} has ports for {count} models, which all are taken, "
                "by models or by other programs. Unload one, or name more ports."
            )
        self._taken[owner] = block
        return block

    def give_back(self, owner: object) -> None:
        """Another model may take the block; idempotent."""
        self._taken.pop(owner, None)

    def _block(self, ports: PortRange, number: int) -> PortRange:
        low = ports.low + number * self._size
        return PortRange(low, low + self._size - 1)

    def _is_usable(self, block: PortRange) -> bool:
        if block in self._taken.values():
            return False
        return all(map(self._is_free, range(block.low, block.high + 1)))
