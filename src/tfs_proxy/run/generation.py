"""One generation: a stack that serves an archive as it was at one moment, in a folder of its own.

The first one has the folder and the control API of the run; a later one loads while another serves.
"""

import asyncio
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.model.report.prepare import Prepared
from tfs_proxy.run.control_api import Answer, ControlApi
from tfs_proxy.run.entrances import Entrances
from tfs_proxy.run.plan import ProcessPlan
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS
from tfs_proxy.run.run_status import refuse_unusable_capture
from tfs_proxy.run.stack import ServingStack
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import ArchiveError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.resources import MODEL_FACTOR, WORKER_BYTES, memory_left

log = logging.getLogger(__name__)


class Serving(Struct, frozen=True):
    """The archive and processes of a generation."""

    prepared: Prepared
    planned: ProcessPlan
    deployment: Deployment

    @property
    def models(self) -> Mapping[str, tuple[int, ...]]:
        return self.deployment.models


class Generation:
    """A ``stack`` in ``workspace``; ``block`` is its part of a range of ports."""

    def __init__(self, stack: ServingStack, workspace: Workspace, block: int = 0) -> None:
        self.stack, self.workspace, self.block = stack, workspace, block
        self.serving: Serving | None = None

    def children(self) -> Iterator[ChildProcess]:
        yield from self.stack.children.all()

    async def stop_model_servers(self) -> None:
        """Ends the model servers, which no longer get requests."""
        await self.stack.stop_model_servers(LAST_STEPS_SECONDS)

    async def close(self) -> None:
        """Releases its ports, and removes its folders."""
        self.stack.release_ports()
        for folder in self.folders():
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def folders(self) -> Sequence[Path]:
        """Folders that are no longer needed at its end: the archive, and the packages installed for it."""
        return (self.workspace.model, self.workspace.packages)


class NextGeneration(Generation):
    """A generation that loads while another serves; ``ask_run`` answers its workers about the run."""

    def __init__(
        self, stack: ServingStack, workspace: Workspace, block: int, entrances: Entrances, ask_run: Answer
    ) -> None:
        super().__init__(stack, workspace, block)
        self._entrances = entrances
        self._control_api = ControlApi(stack.readiness, serves=stack.children.serves, of_run=ask_run)

    async def load(self, before: Serving) -> Serving:
        """Opens the archive; returns once all processes are ready to serve. Raises StopServing.

        ``before`` serves now.
        """
        stack = self.stack
        prepared = await stack.open_archive()
        planned = await stack.expect(prepared, self._entrances.port)
        deployment = replace(planned.deployment, counts_requests=not self._entrances.behind_nginx)
        refuse_other_kind(before.deployment, deployment)
        refuse_unusable_capture(deployment)
        if short := memory_warning(stack.settings):
            log.warning("%s", short)
        await self._control_api.open(self.workspace.control_socket)
        self._control_api.deployment = deployment
        await stack.start_in_time(planned, prepared, every_worker=True)
        self.serving = Serving(prepared, planned, deployment)
        return self.serving

    def begin_serving(self) -> None:
        self.stack.begin_serving()
        self._control_api.release()

    async def abandon(self) -> None:
        self.stack.abandon_loading()
        await asyncio.gather(self.stack.stop_workers(0), self.stack.stop_model_servers(LAST_STEPS_SECONDS))
        await self.close()

    async def close(self) -> None:
        """Leaves nothing of it."""
        self._control_api.close()
        await super().close()

    def folders(self) -> Sequence[Path]:
        return (self.workspace.root,)


def refuse_other_kind(before: Deployment, new: Deployment) -> None:
    """Raises ArchiveError if the gRPC router, which is not restarted, would have to answer in another way."""
    if before.open_inference != new.open_inference:
        raise ArchiveError(
            f"the Open Inference Protocol would be answered by the {new.open_inference} instead of the "
            f"{before.open_inference}: start again to serve this."
        )


def memory_warning(settings: Settings) -> str | None:
    """A sentence if memory seems too short for models and workers on top of those that serve; else None."""
    left = memory_left()
    models_bytes = settings.machine.models_bytes
    wanted_bytes = MODEL_FACTOR * models_bytes + settings.gunicorn_workers * WORKER_BYTES
    if left is None or wanted_bytes <= left.free_bytes:
        return None
    wanted, models = (-(-size // MEGABYTE) for size in (wanted_bytes, models_bytes))
    return (
        f"memory is short: new models and workers may take {wanted} MB while the old ones serve "
        f"(the models count as {MODEL_FACTOR} x {models} MB), and {left.free_bytes // MEGABYTE} MB are free."
    )


def folder_of(run: Workspace, number: int) -> Path:
    """The folder of the generation of this number: a short name, since sockets have short paths."""
    return run.root / str(number)
