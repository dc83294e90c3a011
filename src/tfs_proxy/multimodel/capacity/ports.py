"""The ports of the models' servers within SAGEMAKER_SAFE_PORT_RANGE: a block for each model."""

from tfs_proxy.errors import NotEnoughResources
from tfs_proxy.setting_values import PortRange

PORTS_OF_A_SERVER = 2
"""gRPC and REST."""


class PortBlocks:
    """Blocks of ports for ``servers`` model servers each; without ``ports`` every model takes free ones."""

    def __init__(self, ports: PortRange | None, servers: int) -> None:
        self._ports = ports
        self._size = PORTS_OF_A_SERVER * servers
        self._taken: dict[object, int] = {}

    def take(self, owner: object, name: str) -> PortRange | None:
        """The lowest block that is free, for ``owner``; raises NotEnoughResources if none is."""
        if self._ports is None:
            return None
        count = (self._ports.high + 1 - self._ports.low) // self._size
        number = next((number for number in range(count) if number not in self._taken.values()), None)
        if number is None:
            ports = f"SAGEMAKER_SAFE_PORT_RANGE={self._ports.low}-{self._ports.high}"
            raise NotEnoughResources(
                f"model {name} can't be loaded: {ports} has ports for {count} models, which all are taken. "
                "Unload one, or name more ports."
            )
        self._taken[owner] = number
        low = self._ports.low + number * self._size
        return PortRange(low, low + self._size - 1)

    def give_back(self, owner: object) -> None:
        """Another model may take the block; idempotent."""
        self._taken.pop(owner, None)
