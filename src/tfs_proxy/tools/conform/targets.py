"""The targets: an address, a command line, or an image; and the options that say which one is judged."""

import json
import math
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, cast
from urllib.parse import urlsplit

from tfs_proxy.model.extract import ExtractLimits, extract
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.conform.judging import Judging, JudgingOptions
from tfs_proxy.tools.conform.raw_http import NoReply, RawConnection
from tfs_proxy.tools.conform.requests_file import KnownRequests, read_requests_file
from tfs_proxy.tools.conform.target import (
    LOOPBACK,
    CannotStart,
    Capability,
    ConformTarget,
    RunningContainer,
    StartOrder,
    free_port,
    of_labels,
)
from tfs_proxy.values.errors import SettingsError


def is_taken(port: int) -> bool:
    """True if a program of this machine listens on the port, on loopback or on every address."""
    with socket.socket() as client:
        return client.connect_ex((LOOPBACK, port)) == 0


PROC = Path("/proc")
LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""
ADDRESS, STATE, INODE = 1, 3, 9


def group_ports(group: int) -> frozenset[int] | None:
    """Ports on which processes of session ``group`` listen; None without /proc."""
    members = session_members(group)
    if not (PROC / "net" / "tcp").exists():
        return None
    inodes = {inode for pid in members for inode in _socket_inodes(pid)}
    return frozenset(port for port, inode in _listeners(PROC / "net") if inode in inodes)


def namespace_ports(pid: int) -> frozenset[int] | None:
    """Ports that are listened on in the network namespace of ``pid``.

    None if it can't be read, or is this machine's own, where other programs listen, too.
    """
    process = PROC / str(pid)
    try:
        if (process / "ns" / "net").readlink() == (PROC / "self" / "ns" / "net").readlink():
            return None
        return frozenset(port for port, _ in _listeners(process / "net"))
    except OSError:
        return None


def _listeners(folder: Path) -> Iterable[tuple[int, str]]:
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for line in (folder / name).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[STATE] == LISTEN:
                    yield int(columns[ADDRESS].rpartition(":")[2], 16), columns[INODE]


def session_members(group: int) -> list[int]:
    """Processes of the session that ``group`` leads, in any process group."""
    found = []
    for entry in os.listdir(PROC) if PROC.exists() else ():  # noqa: PTH208 - names are all that is needed
        if entry.isdigit():
            with suppress(OSError):
                if os.getsid(int(entry)) == group:
                    found.append(int(entry))
    return found


def _socket_inodes(pid: int) -> Iterable[str]:
    with suppress(OSError):
        for link in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                target = os.readlink(link)  # noqa: PTH115 - not a path
                if target.startswith("socket:["):
                    yield target[len("socket:[") : -1]


BIND_TO_PORT = "SAGEMAKER_BIND_TO_PORT"
STOP_SECONDS = 10.0
LOG_BYTES = 8 * 1024**2


class CommandTarget(ConformTarget):
    """A command line; ``{port}`` and ``{model}`` in its words are replaced.

    Without ``{port}`` it is told the port by SAGEMAKER_BIND_TO_PORT: ``port``, unless the start says another.
    A multi-model start gets no model: a word that is ``{model}`` is left out.
    """

    def __init__(self, command: str, model: Path | None, env: Mapping[str, str], port: int) -> None:
        """Raises SettingsError if the line can't be split into words, or needs a model that was not given."""
        self.name, self._model, self._env, self._port = command, model, env, port
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise SettingsError(f"--command can't be split into words: {error}.") from None
        if not self._words:
            raise SettingsError("--command is empty.")
        self._takes_port, self._takes_model = "{port}" in command, "{model}" in command
        if self._takes_model and model is None:
            raise SettingsError("--command has {model}, so --model FOLDER or ARCHIVE is needed.")
        if not self._takes_port and is_taken(port):
            raise SettingsError(
                f"port {port} is in use by another program, which would be judged instead: put {{port}} into "
                "--command, or choose another --port."
            )

    @contextmanager
    def started(self, order: StartOrder) -> Iterator[RunningContainer]:
        if order.model and not self._takes_model:
            raise CannotStart("the command does not take a model: it has no {model}")
        port = order.port or (free_port() if self._takes_port else self._port)
        env = dict(self._env) | dict(order.env)
        if order.port or not self._takes_port:
            env[BIND_TO_PORT] = str(port)
        given = [word for word in self._words if word != "{model}" or not order.models]
        model = str(order.model or self._model or "")
        words = [word.replace("{port}", str(port)).replace("{model}", model) for word in given]
        with tempfile.TemporaryFile() as output:
            process = StartedCommand(words, env, output, port)
            try:
                yield process
            finally:
                process.close()

    def model_url(self, order: StartOrder, name: str) -> str:
        return str((order.models or Path()) / name / "model")


class StartedCommand(RunningContainer):
    """A running process; ``close`` ends its whole session. Raises SettingsError if it can't be started."""

    def __init__(self, words: list[str], env: Mapping[str, str], output: IO[bytes], port: int) -> None:
        try:
            self._process = subprocess.Popen(
                words, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            raise SettingsError(f"{words[0]} can't be run: {error.strerror}.") from None
        super().__init__((LOOPBACK, port))
        self._output, self._patience = output, STOP_SECONDS

    def exit_status(self) -> int | None:
        """128 + N if signal N ended it."""
        status = self._process.poll()
        return status if status is None or status >= 0 else 128 - status

    def log(self) -> bytes:
        """The output so far; if it is more than `LOG_BYTES`, the end of it."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), LOG_BYTES, max(size - LOG_BYTES, 0))

    def terminate(self) -> None:
        """SIGTERM goes to this process alone, as to process 1 of a container."""
        self._patience = 0.0
        self._process.terminate()

    def listening(self) -> frozenset[int] | None:
        return group_ports(self._process.pid)

    def close(self) -> None:
        """Sends SIGTERM if `terminate` did not, and kills what is left of the session."""
        with suppress(subprocess.TimeoutExpired):
            if self._process.poll() is None:
                self._process.terminate()
            self._process.wait(self._patience)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for member in session_members(self._process.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)
        self._process.wait()


DOCKER_SECONDS = 120.0
REACH_SECONDS = 1.0
LOG_LINES = 5000
MODEL_FOLDER, MODELS_FOLDER = "/opt/ml/model", "/opt/ml/models"


class ImageTarget(ConformTarget):
    """An image of the local Docker engine, with the user's own options of ``docker run``."""

    def __init__(
        self, image: str, model: Path | None, env: Mapping[str, str], options: Sequence[str]
    ) -> None:
        """Raises SettingsError if Docker does not answer, or does not have the image."""
        self.name, self._model, self._env, self._options = image, model, env, options
        self._image: Mapping[str, Any] = json.loads(docker("image", "inspect", image))[0]
        config = self._image.get("Config") or {}
        self.capabilities = of_labels(config.get("Labels") or {})

    @contextmanager
    def started(self, order: StartOrder) -> Iterator[RunningContainer]:
        name = f"tfs-proxy-conform-{uuid.uuid4().hex[:12]}"
        inside = order.port or DEFAULT_PORT
        port = {BIND_TO_PORT: str(inside)} if order.port else {}
        variables = {**self._env, **order.env, **port}
        words = [word for key, value in variables.items() for word in ("-e", f"{key}={value}")]
        try:
            docker(
                "run", "-d", "--name", name, "-p", f"{LOOPBACK}::{inside}",
                *self._mounts(order), *words, *self._options, self.name, "serve",
            )  # fmt: skip
            yield StartedImage(name, inside)
        except SettingsError as error:
            raise CannotStart(str(error)) from None
        finally:
            with suppress(SettingsError):
                docker("rm", "-f", "-v", name)

    def model_url(self, order: StartOrder, name: str) -> str:  # noqa: ARG002 - the same for each start
        return f"{MODELS_FOLDER}/{name}/model"

    def image(self) -> Mapping[str, object] | None:
        return cast("Mapping[str, object]", self._image.get("Config") or {})

    def _mounts(self, order: StartOrder) -> list[str]:
        model = order.model or self._model
        folder = ["-v", f"{model.resolve()}:{MODEL_FOLDER}:ro"] if model and not order.models else []
        return folder + (["-v", f"{order.models.resolve()}:{MODELS_FOLDER}:ro"] if order.models else [])


class StartedImage(RunningContainer):
    """A container that Docker runs.

    Docker's proxy accepts connections to a published port even if the container does not, so the container
    is asked at its own address if this machine reaches that.
    """

    def __init__(self, name: str, inside: int) -> None:
        started = time.monotonic()
        self._name = name
        shown = docker("port", name, str(inside), missing_is_empty=True)
        found = docker("inspect", "--format", "{{json .NetworkSettings.Networks}}", name)
        networks = (json.loads(found) or {}).values()
        own = [(each["IPAddress"], inside) for each in networks if each.get("IPAddress")]
        # Docker may run on another machine, where somebody else has the address: as on macOS.
        is_here = (PROC / str(self._state()["Pid"])).exists()
        reached = next(filter(_is_reached, own), None) if is_here else None
        # With the machine's own network, which the user may ask for, no port is published.
        published = (LOOPBACK, int(shown.splitlines()[0].rpartition(":")[2])) if shown.strip() else None
        super().__init__(reached or published or (LOOPBACK, inside))
        self.started = started
        self.accepts_itself = self.address != published

    def exit_status(self) -> int | None:
        state = self._state()
        return None if state["Running"] else int(state["ExitCode"])

    def log(self) -> bytes:
        """Both streams, at most the last lines; Docker cuts lines at 16 KB."""
        try:
            done = subprocess.run(
                ["docker", "logs", "--tail", str(LOG_LINES), self._name],  # noqa: S607 - the user's docker
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DOCKER_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CannotStart(f"docker logs takes longer than {DOCKER_SECONDS:.0f} s") from None
        return done.stdout

    def terminate(self) -> None:
        docker("kill", "--signal", "TERM", self._name)

    def listening(self) -> frozenset[int] | None:
        """All ports of its network namespace; None if that is on another machine or can't be read."""
        return namespace_ports(int(self._state()["Pid"]))

    def _state(self) -> Any:
        return json.loads(docker("inspect", "--format", "{{json .State}}", self._name))


def _is_reached(address: tuple[str, int]) -> bool:
    """True if the address is reachable; a refused connection has reached it, too."""
    try:
        socket.create_connection(address, REACH_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def docker(*words: str, missing_is_empty: bool = False) -> str:
    """Output of a docker command. Raises SettingsError with Docker's message."""
    try:
        done = subprocess.run(
            ["docker", *words],  # noqa: S607 - the user's docker
            capture_output=True, text=True, errors="replace", timeout=DOCKER_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise SettingsError("--image needs docker, which is not installed: use --command or a URL.") from None
    except subprocess.TimeoutExpired:
        raise SettingsError(f"docker {words[0]} takes longer than {DOCKER_SECONDS:.0f} s.") from None
    if done.returncode and not missing_is_empty:
        said = " ".join(done.stderr.split())
        raise SettingsError(f"docker {words[0]} fails: {said}")
    return done.stdout if not done.returncode else ""


DEFAULT_PORT = 8080
PORTS = 1 << 16
START_SECONDS = 240.0
"""The start-up window of an endpoint: docs/reference/sagemaker.md, Ping."""


Options = Callable[[str], Any]
"""Returns the value of an option of the command line, or of pytest, by its name without hyphens before it."""


@contextmanager
def judging_of(option: Options, settings: Settings, environ: Mapping[str, str]) -> Iterator[Judging]:
    """Yields what checks need, with an archive of a model unpacked as SageMaker does.

    Commands inherit ``environ`` and get the variables asked for; containers get only those.
    Raises SettingsError and ArchiveError.
    """
    start_seconds = option("start_timeout")
    if not 0 < start_seconds < math.inf:
        raise SettingsError(f"--start-timeout {start_seconds:g} must be a number of seconds above 0.")
    variables = _variables(option("env"))
    said = frozenset(each for each in Capability if option(each.value.replace("-", "_")))
    known = read_requests_file(option("requests")) if option("requests") else KnownRequests()
    with TemporaryDirectory(prefix="tfs-proxy-conform-") as folder:
        model: Path | None = option("model")
        if model is not None and model.is_dir():
            model = model.resolve()
        elif model is not None:
            extract(model, Path(folder) / "model", ExtractLimits.of(settings))
            model = Path(folder) / "model"
        target = _target(option, model, variables, environ)
        judging = Judging(target, known, JudgingOptions(model, said, start_seconds))
        try:
            yield judging
        finally:
            judging.close()


def _target(
    option: Options, model: Path | None, variables: Mapping[str, str], environ: Mapping[str, str]
) -> ConformTarget:
    url, image, command, port = option("url"), option("image"), option("command"), option("port")
    if [url, image, command].count(None) != 2:  # noqa: PLR2004 - of three
        raise SettingsError("conform takes one of URL, --image IMAGE and --command COMMAND.")
    if option("docker_option") and image is None:
        raise SettingsError("--docker-option is for --image alone.")
    if not 0 < port < PORTS:
        raise SettingsError(f"--port {port} is not a port: it must be from 1 to {PORTS - 1}.")
    if image == "":
        raise SettingsError("--image is empty.")
    if image:
        return ImageTarget(image, model, variables, option("docker_option"))
    if command is not None:
        return CommandTarget(command, model, {**environ, **variables}, port)
    return AddressTarget(url or "")


def _variables(assignments: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` words as a mapping. Raises SettingsError."""
    pairs = [assignment.partition("=") for assignment in assignments]
    for assignment, (name, equals, _) in zip(assignments, pairs, strict=True):
        if not (name and equals):
            raise SettingsError(f"--env {assignment} can't be used: it must be NAME=VALUE.")
    return {name: value for name, _, value in pairs}


HTTP_PORT = 80


class AddressTarget(ConformTarget):
    can_start = False

    def __init__(self, url: str) -> None:
        """Raises SettingsError if ``url`` is not an HTTP address without a path, or nothing listens there."""
        self.name = url
        try:
            parts = urlsplit(url)
            self._address = (parts.hostname or "", parts.port or HTTP_PORT)
        except ValueError:
            raise SettingsError(f"{url} is not an address: it must be http://HOST:PORT.") from None
        if parts.scheme != "http" or not parts.hostname or parts.path not in {"", "/"} or parts.query:
            raise SettingsError(f"{url} can't be judged: it must be http://HOST:PORT, without a path.")
        try:
            RawConnection(self._address).close()
        except NoReply as error:
            raise SettingsError(f"nothing listens at {url}: {error}.") from None

    @contextmanager
    def started(self, order: StartOrder) -> Iterator[RunningContainer]:  # noqa: ARG002 - nothing is started
        yield RunningContainer(self._address)

    def model_url(self, order: StartOrder, name: str) -> str:
        """Raises NotImplementedError: there is no folder that both sides see."""
        raise NotImplementedError
