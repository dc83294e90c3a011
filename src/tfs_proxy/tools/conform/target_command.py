"""A target that is a command line, and the port of this machine that it is told to listen on."""

import os
import secrets
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tfs_proxy.tools.conform.target import CannotStart, Capability, RunningContainer, StartOrder
from tfs_proxy.values.errors import SettingsError

PORTS = range(20_000, 32_000)
"""multi-model-server takes no port above 32766; kernels give outgoing connections higher ones."""

TRIES = 100
ANY = 0


def free_port() -> int:
    """A loopback port that nothing listens on now: one of `PORTS`, or any if those are taken."""
    for port in (*(secrets.choice(PORTS) for _ in range(TRIES)), ANY):
        with suppress(OSError), socket.socket() as holder:
            holder.bind(("127.0.0.1", port))
            return int(holder.getsockname()[1])
    raise OSError("no port is free on this machine")


def is_taken(port: int) -> bool:
    """True if a program of this machine listens on the port, on loopback or on every address."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


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
LOOPBACK = "127.0.0.1"
STOP_SECONDS = 10.0
LOG_BYTES = 8 * 1024**2


class CommandTarget:
    """A command line; ``{port}`` and ``{model}`` in its words are replaced.

    Without ``{port}`` it is told the port by SAGEMAKER_BIND_TO_PORT: ``port``, unless the start says another.
    A multi-model start gets no model: a word that is ``{model}`` is left out.
    """

    capabilities: frozenset[Capability] = frozenset()
    can_start = True

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
        words = [self._filled(word, port, order.model or self._model) for word in given]
        with tempfile.TemporaryFile() as output:
            process = _ended_at_exit(words, env, output, port)
            try:
                yield process
            finally:
                process.close()

    def model_url(self, order: StartOrder, name: str) -> str:
        return str((order.models or Path()) / name / "model")

    def image(self) -> Mapping[str, object] | None:
        return None

    @staticmethod
    def _filled(word: str, port: int, model: Path | None) -> str:
        return word.replace("{port}", str(port)).replace("{model}", str(model or ""))


def _ended_at_exit(
    words: list[str], env: Mapping[str, str], output: IO[bytes], port: int
) -> "StartedCommand":
    try:
        process = subprocess.Popen(
            words, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    except OSError as error:
        raise SettingsError(f"{words[0]} can't be run: {error.strerror}.") from None
    return StartedCommand(process, output, port)


class StartedCommand:
    """A running process; ``close`` ends its whole session."""

    def __init__(self, process: subprocess.Popen[bytes], output: IO[bytes], port: int) -> None:
        self.started = time.monotonic()
        self.address = (LOOPBACK, port)
        self.accepts_itself = True
        self._process, self._output = process, output
        self._patience = STOP_SECONDS

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
