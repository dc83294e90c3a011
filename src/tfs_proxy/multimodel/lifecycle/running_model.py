"""What the registry needs of a model's serving stack: start it, watch it, shut it, stop it."""

from collections.abc import Awaitable, Callable
from typing import Protocol


class RunningModel(Protocol):
    """One serving stack of a model, from its first process to its last; started at most once."""

    async def start(self) -> None:
        """Return once the model answers and its gate is open.

        Raises StopServing, OSError or MemoryError; a cancelled start may leave things behind for `stop`.
        """

    async def watch(self) -> None:
        """Last as long as the model can go on; raises StopServing with the reason why it can't."""

    def shut(self) -> None:
        """Close the gates for good: requests that come from now on do not find the model. Idempotent."""

    async def stop(self) -> None:
        """Shut, let requests in flight finish up to the limit, end and remove everything.

        Idempotent, also after a start that failed or was cancelled.
        """


Launch = Callable[[str, str], RunningModel]
"""Makes the stack of a model from its name and its url, which is a local path; `start` does the rest."""

Admit = Callable[[str, str], Awaitable[None]]
"""Raises NotEnoughResources if the model of this name and url does not fit; called just before its start."""
