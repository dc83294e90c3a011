"""The model servers of an archive, which belong to the run: the next stack takes over those that fit it."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.model.report.prepare import Prepared
from tfs_proxy.run.host.waiting import in_daemon_thread
from tfs_proxy.run.plan import HostResources, ProcessPlan, plan
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.reloading import Snapshot, snapshot_of_folder
from tfs_proxy.values.deployment import Instance, ServedModel
from tfs_proxy.values.layout import Workspace

User = Callable[[ChildProcess], None]
"""A stack, as far as it is told of model servers that have ended."""

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


class ModelServers:
    """Processes in the folder of the stack that has started them; they end with the last of their ``users``.

    These are told of each one that ends. ``held`` has ports that no other process may get.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.processes: list[ChildProcess] = []
        self.instances: tuple[Instance, ...] = ()
        self.users: list[User] = []
        self.held = ExitStack()
        self._started: _Started | None = None

    def expect(self, models: Sequence[ServedModel], planned: ProcessPlan, host: HostResources) -> None:
        """Notes the plan by which they start, for others to be compared with it."""
        looks = _looks(models)
        reading = asyncio.create_task(_contents(models, looks))
        self.instances = planned.deployment.instances
        self._started = _Started(models, planned, host, looks, reading)

    async def fit(self, prepared: Prepared) -> bool:
        """True if those of ``prepared`` would have the same files, flags, ports and environment."""
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

    def tell_users(self, ended: ChildProcess) -> None:
        """Tells all users that this one has ended."""
        for tell in self.users:
            tell(ended)

    def kill_unless_shared(self, user: User) -> None:
        """Ends them at once if nobody else uses them."""
        for server in self.processes if self.users == [user] else ():
            server.kill()

    async def leave(self, user: User, seconds: float) -> None:
        """Ends them, within so many seconds, if nobody else uses them; idempotent."""
        if user in self.users:
            self.users.remove(user)
        if not self.users:
            await asyncio.gather(*(server.stop(seconds) for server in self.processes))
            self.held.close()


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
