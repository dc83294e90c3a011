"""Starts containers for `variants.instance`: ours as a process, an image by Docker, or none at all."""

import asyncio
import itertools
import logging
import os
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tfs_proxy.archive.extract import ExtractLimits
from tfs_proxy.archive.fetch import fetch
from tfs_proxy.endpoint.containers.choice import Choice, DockerImage, Ours, Running, choice_for
from tfs_proxy.endpoint.containers.hosted import HostedContainer
from tfs_proxy.endpoint.containers.many_models import ManyModels
from tfs_proxy.endpoint.containers.unpacked_models import UnpackedModels
from tfs_proxy.endpoint.description.values import ContainerDefinition
from tfs_proxy.layout import SAGEMAKER_MODEL_DIR, Workspace
from tfs_proxy.observe.logs.entry import entry_handler
from tfs_proxy.settings import Settings, for_inner_stack
from tfs_proxy.supervisor.host.sockets import LOOPBACK, free_blocks
from tfs_proxy.supervisor.host.waiting import in_daemon_thread
from tfs_proxy.supervisor.host.watchdog import Watchdog
from tfs_proxy.supervisor.process import Backoff, ChildProcess, ProcessSpec

log = logging.getLogger(__name__)

PORTS_EACH = 11
"""One to listen on, and a safe range of ten behind it."""

CONTAINER_PORT = 8080
MODELS_MOUNT = "/opt/ml/models"
"""Where a container finds each of many models, as MODELS_MOUNT/ID/model."""

NO_RESTARTS = Backoff(tries=0)


class ContainerStarter:
    """Starts containers with what all of them need from this process.

    ``choices`` are those of the command line, by hostname or model. ``environ`` is what ours inherit.
    """

    def __init__(
        self,
        settings: Settings,
        workspace: Workspace,
        watchdog: Watchdog,
        threads: Executor,
        environ: Mapping[str, str],
        choices: Mapping[str, Choice],
    ) -> None:
        self._settings, self._workspace, self._watchdog = settings, workspace, watchdog
        self._threads, self._choices = threads, choices
        self._environ, self._environ_of_ours = environ, for_inner_stack(environ)
        self._numbers = itertools.count(1)
        self._running: set[asyncio.Task[None]] = set()

    async def start(
        self, endpoint: str, of: str, model_name: str, definition: ContainerDefinition
    ) -> HostedContainer:
        """Start what ``definition`` means for ``endpoint``; ``of`` is what its lines in the log begin with.

        Raises ArchiveError if its model can't be had, SettingsError if no port is free.
        """
        choice = choice_for(model_name, definition, self._choices)
        match choice:
            case Running():
                return HostedContainer(definition.name, choice.host, choice.port, self._threads)
            case DockerImage():
                return await self._start_image(endpoint, of, choice.reference, definition)
            case Ours():
                if choice.because:
                    log.info("%s: %s, so it is served by tfs_proxy itself", of, choice.because)
                return self._start_ours(of, definition)

    def _start_ours(self, of: str, definition: ContainerDefinition) -> HostedContainer:
        held = ExitStack()
        (ports,) = free_blocks([PORTS_EACH], held)
        variables = {
            "SAGEMAKER_BIND_TO_PORT": str(ports[0]),
            "SAGEMAKER_SAFE_PORT_RANGE": f"{ports[1]}-{ports[-1]}",
        }
        model = [] if definition.archive is None or definition.many_models else [definition.archive]
        if definition.many_models:
            variables["SAGEMAKER_MULTI_MODEL"] = "true"
        spec = ProcessSpec(
            name=of,
            argv=(sys.executable, "-m", "tfs_proxy.cli", "serve", *model, "--host", LOOPBACK),
            env={**self._environ_of_ours, **definition.environment, **variables},
            backoff=NO_RESTARTS,
        )
        child = self._run(spec)
        return HostedContainer(definition.name, LOOPBACK, ports[0], self._threads, child, held=held)

    async def _start_image(
        self, endpoint: str, of: str, reference: str, definition: ContainerDefinition
    ) -> HostedContainer:
        with ExitStack() as held:
            (ports,) = free_blocks([1], held)
        mounts = [] if definition.archive is None else await self._mounts(endpoint, definition)
        name = f"tfs-proxy-endpoint-{os.getpid()}-{next(self._numbers)}"
        variables = {**definition.environment}
        if definition.many_models:
            variables["SAGEMAKER_MULTI_MODEL"] = "true"
        words = [word for variable in sorted(variables) for word in ("-e", variable)]
        argv = (
            *(shutil.which("docker") or "docker", "run", "--rm", "--init=false", "--name", name),
            *("-p", f"{LOOPBACK}:{ports[0]}:{CONTAINER_PORT}", *words, *mounts, reference, "serve"),
        )
        # A value on the command line of `docker run` would be seen by everyone on this machine.
        spec = ProcessSpec(name=of, argv=argv, env={**self._environ, **variables}, backoff=NO_RESTARTS)
        child = self._run(spec)
        return HostedContainer(definition.name, LOOPBACK, ports[0], self._threads, child, mounts_models=True)

    async def _mounts(self, endpoint: str, definition: ContainerDefinition) -> list[str]:
        if definition.many_models:
            return ["-v", f"{self._models(endpoint, definition).folder}:{MODELS_MOUNT}:ro"]
        folder = await self.unpacked(definition.archive or "")
        return ["-v", f"{folder}:{SAGEMAKER_MODEL_DIR}:ro"]

    def many_models(
        self, endpoint: str, container: HostedContainer, definition: ContainerDefinition
    ) -> ManyModels:
        """SageMaker's part in a container with many models of ``endpoint``."""
        mount = MODELS_MOUNT if container.mounts_models else None
        unpack = partial(self._models(endpoint, definition).unpack, mount=mount)
        return ManyModels(container, definition.archive or "", unpack, keeps=definition.caches_models)

    def _models(self, endpoint: str, definition: ContainerDefinition) -> UnpackedModels:
        return UnpackedModels(self._workspace.root, endpoint, definition.archive or "", self.unpacked)

    async def unpacked(self, archive: str) -> Path:
        """The folder of a model, as it is or unpacked into the workspace; raises ArchiveError."""
        root = self._workspace.root / f"c{next(self._numbers)}"
        root.mkdir()
        settings, cancelled = self._settings, threading.Event()
        limits = ExtractLimits(
            settings.max_archive_bytes, settings.max_archive_members, settings.max_archive_ratio
        )
        opening = partial(fetch, archive, Workspace(root), limits, cancelled)
        return await in_daemon_thread(opening, "archive", cancelled)

    def _run(self, spec: ProcessSpec) -> ChildProcess:
        child = ChildProcess(
            spec,
            may_restart=lambda _child: False,
            started=self._watchdog.guard,
            ended=self._watchdog.forget,
            show=_shown_with_name,
        )
        task = asyncio.create_task(child.run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return child


def _shown_with_name(child: ChildProcess, lines: Sequence[str]) -> None:
    """Log what a container has printed, behind its name."""
    handler = entry_handler()
    for line in lines:
        handler.write_line(f"[{child.name}] {line}")
