"""The generations of a run: loads the next while one serves, exchanges them, ends the former."""

import asyncio
import logging
import signal
import time
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from tfs_proxy.run.entrances import Entrances
from tfs_proxy.run.generation import Generation, NextGeneration, Serving, folder_of
from tfs_proxy.run.host.load_priority import LoadPriority
from tfs_proxy.run.host.workspace import make_workspace_within
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS, cancel
from tfs_proxy.run.run_status import RunStatus
from tfs_proxy.run.stack import ServingStack, StackHost
from tfs_proxy.settings.parsers import PortRange
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ModelLoadError

log = logging.getLogger(__name__)

ROUTER_SECONDS = 5.0
"""Longest time for the gRPC router to follow: it is told at once."""

LONGEST_PATH_WITHIN = "999999/control.sock"
"""The longest path of a socket in the folder of a generation."""


class Generations:
    """All generations of a run, at most two at a time; ``current`` is the one that serves.

    ``host`` is that of the first one, and of the run itself.
    """

    def __init__(
        self,
        settings: Settings,
        request: ServeRequest,
        host: StackHost,
        entrances: Entrances,
    ) -> None:
        self._settings, self._request, self._host = settings, request, host
        self._entrances = entrances
        self._number = 1
        stack = ServingStack(settings, request, host, entrances.web)
        self.current = Generation(stack, host.workspace)
        self._exchanged = asyncio.Event()
        self._former: dict[Generation, asyncio.Task[None]] = {}

    @property
    def stack(self) -> ServingStack:
        return self.current.stack

    def children(self) -> Iterator[ChildProcess]:
        for generation in (self.current, *self._former):
            yield from generation.children()

    async def load_next(self, status: RunStatus) -> Serving:
        """Replaces what serves by the present archive; returns what it serves.

        Raises StopServing, with everything as it was, if it can't be used.
        """
        await asyncio.gather(*self._former.values())
        before = self.current.serving
        if before is None:
            raise ModelLoadError("Nothing serves yet.")
        new = self._begin(status)
        try:
            serving = await new.load(before)
        except BaseException:
            await new.abandon()
            raise
        self._exchange(new, serving, status)
        await self._entrances.grpc_routes.until_idle((), ROUTER_SECONDS)
        return serving

    async def watch_forever(self) -> None:
        """Watches the one that serves. Raises StopServing as soon as a process of it gives up."""
        while True:
            self._exchanged.clear()
            watching = asyncio.ensure_future(self.stack.watch_forever())
            exchanging = asyncio.create_task(self._exchanged.wait())
            try:
                await asyncio.wait({watching, exchanging}, return_when=asyncio.FIRST_COMPLETED)
                if watching.done():
                    watching.result()
            finally:
                await cancel(watching, exchanging)

    async def stop_former(self, deadline: float) -> None:
        """Returns once former ones have ended; those that have not by ``deadline`` are killed."""
        if not self._former:
            return
        await asyncio.wait(
            self._former.values(), timeout=max(deadline - time.monotonic(), LAST_STEPS_SECONDS)
        )
        for generation in self._former:
            for child in generation.children():
                child.signal_group(signal.SIGKILL)
        await asyncio.gather(*self._former.values())

    def _begin(self, status: RunStatus) -> NextGeneration:
        self._number += 1
        workspace = make_workspace_within(
            self._host.workspace, folder_of(self._host.workspace, self._number), self._host.workspace.journal
        )
        block = 1 - self.current.block
        host = replace(self._host, workspace=workspace, priority=LoadPriority())
        settings = self._settings.with_values(safe_port_range=ports_of(self._settings, block))
        stack = ServingStack(settings, self._request, host, self._entrances.web)
        return NextGeneration(stack, workspace, block, self._entrances, status.control_api.respond)

    def _exchange(self, new: NextGeneration, serving: Serving, status: RunStatus) -> None:
        """Without a pause: every request finds the old one or the new."""
        old, stack = self.current, new.stack
        new.begin_serving()
        stack.children.succeed(old.stack.children)
        stack.readiness.succeed(old.stack.readiness)
        status.follow(stack, serving.planned, serving.deployment, new.workspace.stages)
        self._entrances.lead_grpc_to(stack.readiness, new.workspace)
        former_nginx = self._entrances.begin_leading_http_to(stack.children, serving.deployment, stack.web)
        self.current = new
        self._exchanged.set()
        ending = asyncio.create_task(self._end(old, former_nginx))
        self._former[old] = ending
        ending.add_done_callback(lambda _: self._former.pop(old))

    async def _end(self, old: Generation, former_nginx: Collection[int]) -> None:
        """Lets requests under way end, then the processes: the model servers get no requests after that."""
        seconds = self._settings.stop_seconds
        old_sockets = [
            str(old.workspace.grpc_socket(index)) for index in range(self._settings.instance_count)
        ]
        await asyncio.gather(
            old.stack.stop_workers(seconds),
            self._entrances.until_led_elsewhere(self.stack.children, former_nginx, seconds),
            self._entrances.grpc_routes.until_idle(old_sockets, seconds),
        )
        await old.stop_model_servers()
        await old.close()


def ports_of(settings: Settings, block: int) -> PortRange | None:
    """The part of the range of ports for a generation's model servers: two generations have one each."""
    ports = settings.safe_port_range
    if ports is None:
        return None
    return PortRange(ports.low + 2 * settings.instance_count * block, ports.high)
