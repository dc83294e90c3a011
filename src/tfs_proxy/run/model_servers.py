"""Model servers: those of one archive, which the next stack takes over if they fit it, and what all have."""

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.model.report.prepare import Prepared
from tfs_proxy.run.host.waiting import in_daemon_thread
from tfs_proxy.run.model_states import ModelStates
from tfs_proxy.run.plan import HostResources, ProcessPlan, plan
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.reloading import Snapshot, snapshot_of_folder
from tfs_proxy.values.deployment import Instance, ServedModel
from tfs_proxy.values.layout import Workspace

Contents = Mapping[str, bytes]
"""A digest of each file of the models, by model, version and path in the version's folder."""


class _Started(Struct, frozen=True):
    """Plan by which they were started, for another to be compared with it."""

    models: Sequence[ServedModel]
    """Models that they serve."""

    planned: ProcessPlan
    """Processes and files."""

    host: HostResources
    """Resources of the machine that the plan used."""

    looks: Snapshot
    """Size and time of change of each file of the models."""

    contents: asyncio.Task[Contents | None]
    """Task that reads the digests of these files; its result is None if they changed meanwhile."""


class ModelServers(ABC):
    """Model servers as the stacks see them that have their models on these."""

    def __init__(self, workspace: Workspace, states: ModelStates) -> None:
        self.workspace = workspace
        """Folder that their sockets are in: that of the stack, or the run, which has started them."""

        self.states = states
        """States of all models on them."""

        self.processes: list[ChildProcess] = []
        """Their processes, by number of the instance."""

        self.held = ExitStack()
        """Reservation of ports that no other process may get."""

    @property
    def instances(self) -> tuple[Instance, ...]:
        """Their addresses, once these are known."""
        return tuple(self.states.instances)

    def expect(self, prepared: Prepared, planned: ProcessPlan, host: HostResources) -> None:  # noqa: B027
        """Notes the plan of a stack for which they start, if they do."""

    async def fit(self, prepared: Prepared) -> bool:  # noqa: ARG002 - those of many models never do
        """True if they serve, as they are, what is ``prepared``."""
        return False

    @abstractmethod
    async def add(self, models: Sequence[ServedModel]) -> None:
        """Returns once they have these models. Raises ModelLoadError with the model server's reason."""

    @abstractmethod
    async def watch(self, models: Sequence[ServedModel]) -> None:
        """Runs as long as they have, or will soon have again, these models. Raises ModelLoadError."""

    def note_death(self, ended: ChildProcess) -> None:
        """Notes that one has ended, which is restarted unless it was starting."""
        self.states.lose(self.processes.index(ended))

    def kill(self) -> None:
        """Ends them at once: one that loads a model would do so before it stops."""
        for server in self.processes:
            server.kill()

    async def stop(self, seconds: float) -> None:
        """Ends them within so many seconds; idempotent."""
        await asyncio.gather(*(server.stop(seconds) for server in self.processes))
        self.held.close()


class ArchiveServers(ModelServers):
    """The model servers of one archive, in the folder of the stack that has started them."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace, ModelStates())
        self._started: _Started | None = None

    def expect(self, prepared: Prepared, planned: ProcessPlan, host: HostResources) -> None:
        models = prepared.models
        self.states.expect(planned.deployment.instances, planned.deployment.models)
        if prepared.settings.reload:
            looks = _looks(models)
            reading = asyncio.create_task(_contents(models, looks))
            self._started = _Started(models, planned, host, looks, reading)

    async def fit(self, prepared: Prepared) -> bool:
        """True if those of ``prepared`` would have the same files, flags and environment."""
        started = self._started
        if started is None:
            return False
        bases = {model.name: model.base_path for model in started.models}
        there = [
            replace(model, base_path=bases.get(model.name, model.base_path)) for model in prepared.models
        ]
        planned = plan(there, prepared.served, prepared.settings, self.workspace, started.host)
        if (planned.model_servers, planned.files) != (started.planned.model_servers, started.planned.files):
            return False
        looks = _looks(prepared.models)
        if looks == started.looks:
            return True
        new = await _contents(prepared.models, looks)
        return new is not None and new == await started.contents

    async def add(self, models: Sequence[ServedModel]) -> None:  # noqa: ARG002 - they start with them
        await self.states.until_available()

    async def watch(self, models: Sequence[ServedModel]) -> None:  # noqa: ARG002 - they have no others
        await self.states.forever()


def _looks(models: Sequence[ServedModel]) -> Snapshot:
    folders = [model.base_path / str(version) for model in models for version in model.versions]
    return {path: look for folder in folders for path, look in snapshot_of_folder(folder).items()}


async def _contents(models: Sequence[ServedModel], looks: Snapshot) -> Contents | None:
    """Reads all files; None if they are not as these ``looks`` any more."""

    def read() -> Contents:
        digests: dict[str, bytes] = {}
        for model in models:
            for path in looks:
                if path.is_relative_to(model.base_path):
                    with path.open("rb") as file:
                        digest = hashlib.file_digest(file, "blake2b").digest()
                    digests[f"{model.name}/{path.relative_to(model.base_path)}"] = digest
        return digests

    with suppress(OSError):  # one of them has gone
        contents = await in_daemon_thread(read, "contents of models")
        return contents if _looks(models) == looks else None
    return None
