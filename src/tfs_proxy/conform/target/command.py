"""A container that is a command on this machine: a process with the environment that SageMaker sets."""

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tfs_proxy.conform.capability import Capability
from tfs_proxy.conform.target.free_port import free_port, is_taken
from tfs_proxy.conform.target.listening_ports import group_ports, session_members
from tfs_proxy.conform.target.target import CannotStart, RunningContainer, StartOrder
from tfs_proxy.errors import SettingsError

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
        """Raises SettingsError if the line can't be split into words, or wants a model that was not given."""
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
        """Start the process; at the end its whole session is gone."""
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
        """The path on this machine."""
        return str((order.models or Path()) / name / "model")

    def image(self) -> Mapping[str, object] | None:
        """There is none."""
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
    """The process; ``close`` leaves nothing of its session behind."""

    def __init__(self, process: subprocess.Popen[bytes], output: IO[bytes], port: int) -> None:
        self.started = time.monotonic()
        self.address = (LOOPBACK, port)
        self.accepts_itself = True
        self._process, self._output = process, output
        self._patience = STOP_SECONDS

    def exit_status(self) -> int | None:
        """Its exit status, 128 + N if signal N ended it."""
        status = self._process.poll()
        return status if status is None or status >= 0 else 128 - status

    def log(self) -> bytes:
        """What it has written so far; of more than `LOG_BYTES` the end."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), LOG_BYTES, max(size - LOG_BYTES, 0))

    def terminate(self) -> None:
        """SIGTERM to the process alone, as to process 1 of a container."""
        self._patience = 0.0
        self._process.terminate()

    def listening(self) -> frozenset[int] | None:
        """What the processes of its session listen on."""
        return group_ports(self._process.pid)

    def close(self) -> None:
        """Ask it to end, unless that was done before, and kill what is left of its session."""
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
