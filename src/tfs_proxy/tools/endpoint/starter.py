"""Starts containers: as stacks of ours, as images, or not at all; and unpacks their models."""

import asyncio
import hashlib
import itertools
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from tfs_proxy.model.fetch import fetch
from tfs_proxy.model.s3 import objects_at
from tfs_proxy.observe.logs.entry import entry_handler
from tfs_proxy.run.host.sockets import LOOPBACK, free_ports
from tfs_proxy.run.host.waiting import in_daemon_thread
from tfs_proxy.run.process import Backoff, ChildProcess, ProcessSpec
from tfs_proxy.run.reloading import snapshot_of_file, snapshot_of_folder
from tfs_proxy.serving.inner_stack import SERVE
from tfs_proxy.settings.parsers import for_inner_stack
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.endpoint.container import HostedContainer, ManyModels
from tfs_proxy.tools.endpoint.operations import ContainerDefinition, HostedModel
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import SAGEMAKER_MODEL_DIR, LocalFiles, Workspace
from tfs_proxy.values.names import printable
from tfs_proxy.wire.s3_client import S3_SCHEME, s3_client

log = logging.getLogger(__name__)

LOCAL = "local"
DOCKER = "docker"
INSPECT_SECONDS = 30.0

CONTAINER_PORT = 8080

MODELS_MOUNT = "/opt/ml/models"
"""Folder of models in a container, each as MODELS_MOUNT/ID/model."""

NO_RESTARTS = Backoff(tries=0)


class Ours(Struct, frozen=True):
    """This package's own container as a process; ``because`` is the reason if nobody asked for it."""

    because: str = ""


class DockerImage(Struct, frozen=True):
    reference: str


class Running(Struct, frozen=True):
    host: str
    port: int


Choice = Ours | DockerImage | Running


def parse_choices(words: Sequence[str]) -> dict[str, Choice]:
    """Reads ``HOSTNAME=local|IMAGE|http://HOST:PORT`` words. Raises SettingsError."""
    choices: dict[str, Choice] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise SettingsError(
                f"--container {printable(word)} can't be used: it must be "
                "HOSTNAME=local, HOSTNAME=IMAGE or HOSTNAME=http://HOST:PORT."
            )
        image = _running(value) if _is_address(value) else DockerImage(value)
        choices[name] = Ours() if value == LOCAL else image
    return choices


def _is_address(text: str) -> bool:
    return text.startswith("http://")


def _running(address: str) -> Running:
    try:
        parts = urlsplit(address)
        host = parts.hostname
        port = parts.port
    except ValueError:
        host = None
        port = None
    if not host or parts.path.strip("/"):
        raise SettingsError(f"{printable(address)} can't be used: it must be http://HOST:PORT.")
    return Running(host, port or 80)


def choice_for(model_name: str, definition: ContainerDefinition, choices: Mapping[str, Choice]) -> Choice:
    """The container for ``definition``: by its hostname, else by its model's name, else by its image."""
    for name in (definition.name, model_name):
        if name in choices:
            return choices[name]
    image = definition.image
    if image is None:
        return Ours("its model names no image")
    if _is_address(image):
        return _running(image)
    if shutil.which(DOCKER) is None:
        return Ours("there is no Docker here")
    found = _inspected(image)
    if found is None:
        return Ours("Docker does not answer")
    return DockerImage(image) if found else Ours(f"Docker has no image {image}")


def unused_choices(choices: Mapping[str, Choice], models: Iterable[HostedModel]) -> list[str]:
    known = {name for model in models for name in (model.name, *(each.name for each in model.containers))}
    return [name for name in choices if name not in known]


def image_id(image: str) -> str:
    """The digest of an image that Docker has: a name may come to mean another; "" if Docker does not say."""
    return _inspected(image) or ""


def _inspected(image: str) -> str | None:
    """The digest of an image; "" if Docker does not have it, None if Docker does not answer."""
    inspect = (DOCKER, "image", "inspect", "--format", "{{.Id}}", image)
    try:
        found = subprocess.run(inspect, capture_output=True, timeout=INSPECT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.decode(errors="replace").strip()


class UnpackedModels:
    """The models of ``endpoint`` below ``prefix``, each in ``folder/ID/model``, private to this endpoint.

    An ID stands for a version of an archive: unpacked files are never changed, and a new archive under an old
    name is another model. ``unpacked`` opens an archive, below ``root`` unless it is a folder.
    """

    def __init__(
        self, root: Path, endpoint: str, prefix: str, unpacked: Callable[[str], Awaitable[Path]]
    ) -> None:
        self._root = root
        self._unpacked = unpacked
        self.folder = root / f"models-{_digest(endpoint, prefix)}"
        self.folder.mkdir(exist_ok=True)

    async def unpack(self, address: str, mount: str | None) -> tuple[str, str]:
        """The ID of the model at ``address``, and its folder, as a container sees it at ``mount``.

        Without a ``mount`` a model that is a folder is not copied. Raises ArchiveError.
        """
        model_id, is_folder = await in_daemon_thread(partial(_identified, address), "archive")
        if is_folder and mount is None:
            return model_id, str(await self._unpacked(address))
        model = self.folder / model_id / "model"
        if not await asyncio.to_thread(model.exists):
            opened = await self._unpacked(address)
            await asyncio.to_thread(self._place, opened, model)
        return model_id, f"{mount or self.folder}/{model_id}/model"

    def _place(self, opened: Path, model: Path) -> None:
        """Moves unpacked files to ``model``, or copies the user's own folder, atomically."""
        staged = Path(tempfile.mkdtemp(dir=self._root)) / "model"
        if opened.is_relative_to(self._root):
            opened.rename(staged)
        else:
            shutil.copytree(opened, staged)
        model.parent.mkdir(exist_ok=True)
        try:
            staged.rename(model)
        except OSError:
            if not model.exists():
                raise
            shutil.rmtree(staged)  # another instance was quicker
        staged.parent.rmdir()


def _identified(address: str) -> tuple[str, bool]:
    """An archive's id, which is opaque as on SageMaker; and True if it is a folder."""
    if address.startswith(S3_SCHEME):
        looks = {item.key: item.etag for item in objects_at(address, s3_client)}
        return _digest(address, str(sorted(looks.items()))), False
    path = Path(address)
    is_folder = path.is_dir()
    files = snapshot_of_folder(path) if is_folder else snapshot_of_file(path)
    return _digest(address, str(sorted((str(file), look) for file, look in files.items()))), is_folder


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


class ContainerStarter:
    """Starts containers.

    ``choices`` are those of the command line, by hostname or model; so are ``files``, to which requests are
    held. Our own containers inherit ``environ``.
    ``heard`` gets each line of what is started, after the prefix of its log lines.
    """

    def __init__(
        self,
        settings: Settings,
        workspace: Workspace,
        threads: Executor,
        environ: Mapping[str, str],
        choices: Mapping[str, Choice],
        files: LocalFiles,
        heard: Callable[[str, str], None] = lambda _of, _line: None,
    ) -> None:
        self._settings = settings
        self._workspace = workspace
        self._threads = threads
        self._choices = choices
        self._heard = heard
        self.files = files
        self._environ = environ
        self._environ_of_ours = for_inner_stack(environ)
        self._numbers = itertools.count(1)
        self._running: set[asyncio.Task[None]] = set()

    async def start(
        self, endpoint: str, of: str, model_name: str, definition: ContainerDefinition
    ) -> HostedContainer:
        """Starts the container of ``definition`` for ``endpoint``; ``of`` is the prefix of its log lines.

        Raises ArchiveError if its model can't be fetched, SettingsError if no port is free.
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
                held = ExitStack()
                (port,) = free_ports(1, held)
                # Of its other ports, each container finds free ones itself.
                variables = {"SAGEMAKER_BIND_TO_PORT": str(port), "SAGEMAKER_SAFE_PORT_RANGE": ""}
                model = [] if definition.archive is None or definition.many_models else [definition.archive]
                if definition.many_models:
                    variables |= {
                        "SAGEMAKER_MULTI_MODEL": "true",
                        "TFS_PROXY_MODEL_FOLDERS": str(self._workspace.root),
                    }
                spec = ProcessSpec(
                    name=of,
                    argv=(*SERVE, *model, "--host", LOOPBACK),
                    env={**self._environ_of_ours, **definition.environment, **variables},
                    backoff=NO_RESTARTS,
                )
                child = self._run(spec)
                return HostedContainer(definition.name, LOOPBACK, port, self._threads, child, held=held)

    def start_command(self, of: str, words: Sequence[str]) -> ChildProcess:
        """Starts a command of ours that ends by itself; ``of`` is the prefix of its log lines."""
        argv = (sys.executable, "-m", "tfs_proxy.cli", *words)
        spec = ProcessSpec(name=of, argv=argv, env=self._environ, backoff=NO_RESTARTS, ends_itself=True)
        return self._run(spec)

    def new_folder(self) -> Path:
        """A folder in the workspace, which goes with it."""
        folder = self._workspace.root / f"c{next(self._numbers)}"
        folder.mkdir()
        return folder

    async def _start_image(
        self, endpoint: str, of: str, reference: str, definition: ContainerDefinition
    ) -> HostedContainer:
        with ExitStack() as held:
            (port,) = free_ports(1, held)
        mounts = []
        if definition.many_models and definition.archive is not None:
            mounts = ["-v", f"{self._models(endpoint, definition).folder}:{MODELS_MOUNT}:ro"]
        elif definition.archive is not None:
            mounts = ["-v", f"{await self.unpacked(definition.archive)}:{SAGEMAKER_MODEL_DIR}:ro"]
        name = f"tfs-proxy-endpoint-{os.getpid()}-{next(self._numbers)}"
        variables = {**definition.environment}
        if definition.many_models:
            variables["SAGEMAKER_MULTI_MODEL"] = "true"
        words = [word for variable in sorted(variables) for word in ("-e", variable)]
        argv = (
            *(DOCKER, "run", "--rm", "--init=false", "--name", name),
            *("-p", f"{LOOPBACK}:{port}:{CONTAINER_PORT}", *words, *mounts, reference, "serve"),
        )
        # Everyone on this machine could see a value on the command line. `docker run` passes SIGTERM on.
        env = {**self._environ, **variables}
        spec = ProcessSpec(of, argv, env, orphaned_signal=signal.SIGTERM, backoff=NO_RESTARTS)
        child = self._run(spec)
        return HostedContainer(definition.name, LOOPBACK, port, self._threads, child, image=reference)

    def many_models(
        self, endpoint: str, container: HostedContainer, definition: ContainerDefinition
    ) -> ManyModels:
        mount = MODELS_MOUNT if container.image else None
        models = self._models(endpoint, definition)

        async def unpack(address: str) -> tuple[str, str]:
            self.files.check("TargetModel", address)
            return await models.unpack(address, mount)

        return ManyModels(container, definition.archive or "", unpack, keeps=definition.caches_models)

    def _models(self, endpoint: str, definition: ContainerDefinition) -> UnpackedModels:
        return UnpackedModels(self._workspace.root, endpoint, definition.archive or "", self.unpacked)

    async def unpacked(self, archive: str) -> Path:
        """A model's folder, unpacked into the workspace if need be. Raises ArchiveError."""
        root = self.new_folder()
        cancelled = threading.Event()
        opening = partial(fetch, archive, Workspace(root), cancelled)
        return await in_daemon_thread(opening, "archive", cancelled)

    def _run(self, spec: ProcessSpec) -> ChildProcess:
        child = ChildProcess(
            spec,
            may_restart=lambda _child: False,
            heard=partial(self._heard, spec.name),
            show=_shown_with_name,
        )
        task = asyncio.create_task(child.run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return child


def _shown_with_name(process: str, _pid: int | None, lines: list[str]) -> None:
    handler = entry_handler()
    for line in lines:
        handler.write_line(f"[{process}] {line}")
