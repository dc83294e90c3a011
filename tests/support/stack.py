"""Starts the real `tfs-proxy serve` for tests, talks to it and stops it."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 180.0


@dataclass(frozen=True)
class Answer:
    """Status, headers in lower case, and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Stack:
    """A running `tfs-proxy serve` (or another ``command``); ``log`` is everything that it has said so far.

    ``launcher`` is a command that takes it as further words and becomes it: a user, a control group.
    """

    def __init__(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        command: str = "serve",
        launcher: Sequence[str] = (),
    ) -> None:
        self.host = host
        self.port = port or free_port()
        self.home = Path(tempfile.mkdtemp(prefix="tp-"))
        self.began = time.monotonic()
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("SAGEMAKER_", "TFS_"))
        }
        self.process = subprocess.Popen(
            [*launcher, sys.executable, "-m", "tfs_proxy.cli", command, *self.arguments(words)],
            env={**clean, "TFS_PROXY_HOME": str(self.home), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def arguments(self, words: Sequence[str]) -> list[str]:
        """What stands behind the command."""
        return [*words, "--port", str(self.port), "--host", self.host]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line.decode(errors="replace"))

    @property
    def log(self) -> str:
        """What it has printed."""
        return "".join(self._lines)

    def wait_for_log(self, text: str, seconds: float = START_SECONDS) -> None:
        """Wait until it has printed ``text``, which may come later than the answer that it goes with."""
        deadline = time.monotonic() + seconds
        while text not in self.log:
            assert time.monotonic() < deadline, self.log
            time.sleep(0.01)

    @property
    def grpc(self) -> str:
        """The address at which it has said to listen for gRPC."""
        self.wait_for_log("listening for gRPC on")
        return str(re.findall(r"listening for gRPC on (\S+)", self.log)[-1])

    def model_server(self, index: int = 0) -> str:
        """The REST address of one of its model servers, which nobody else is told."""
        pid = sorted(self.children()["embedded"])[index]
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        (port,) = [word.partition("=")[2] for word in words if word.startswith("--rest_api_port=")]
        return f"127.0.0.1:{port}"

    def wait_ready(self, seconds: float = START_SECONDS) -> float:
        """Wait for a 200 from /ping; how many seconds it took since the start."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.log}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.ask("GET", "/ping", timeout=5).status == 200:
                    return time.monotonic() - self.began
            time.sleep(0.02)
        raise AssertionError(f"not ready after {seconds} s:\n{self.log}")

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30,
    ) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            reply = connection.getresponse()
            return Answer(
                reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
            )
        finally:
            connection.close()

    def invoke(self, body: bytes | str, content_type: str = "application/json", **headers: str) -> Answer:
        """POST /invocations; keyword headers have underscores for dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", "/invocations", body, {"Content-Type": content_type, **named})

    def raw(self, sent: bytes, seconds: float = 60) -> bytes:
        """Bytes on a bare socket; everything that came back until the server closed or fell silent."""
        with socket.create_connection((self.host, self.port), timeout=seconds) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(sent)
            received = b""
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while part := connection.recv(65536):
                    received += part
                    if _complete(received):
                        break
            return received

    @property
    def cpu_seconds(self) -> float:
        """What it has computed so far, without its children: the same however busy the machine is."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def children(self) -> dict[str, list[int]]:
        """Process ids of all descendants by a short name: nginx, gunicorn, model."""
        found: dict[str, list[int]] = {}
        for pid in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                words = re.sub(r"\S*/", "", words)  # folders, which may have any name
                name = next(
                    (key for key in ("nginx", "gunicorn", "embedded", "model_server") if key in words), words
                )
                found.setdefault(name, []).append(pid)
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 40) -> int:
        """Signal it and wait; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait(seconds)

    def wait(self, seconds: float = START_SECONDS) -> int:
        """Wait for its end; its exit status."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"did not end within {seconds} s:\n{self.log}") from None
        self._reader.join(30)
        return status

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        self.process.kill()
        self.process.wait()
        self._reader.join(30)
        assert not self._reader.is_alive(), "a process of the run still holds its output"
        assert self.process.stdout is not None
        self.process.stdout.close()
        with contextlib.suppress(OSError):
            self.home.rmdir()


class DropIn(Stack):
    """A running `tfs-proxy tensorflow-serving`; its model server's ports come first, so that flags may change them."""

    def __init__(self, *flags: str, env: Mapping[str, str]) -> None:
        self.rest_port, self.grpc_port = free_port(), free_port()
        port = int(env.get("SAGEMAKER_BIND_TO_PORT", 0)) or free_port()
        env = {"SAGEMAKER_BIND_TO_PORT": str(port), **env}
        super().__init__(*flags, env=env, port=port, command="tensorflow-serving")

    def arguments(self, words: Sequence[str]) -> list[str]:
        """The flags alone."""
        return [f"--port={self.grpc_port}", f"--rest_api_port={self.rest_port}", *words]

    def ask_rest(self, method: str, path: str, body: str | None = None) -> Answer:
        """One request to the model server's own REST port."""
        connection = http.client.HTTPConnection(self.host, self.rest_port, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            reply = connection.getresponse()
            named = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(reply.status, named, reply.read())


def _complete(received: bytes) -> bool:
    """Whether a whole answer with a Content-Length is there."""
    head, blank, body = received.partition(b"\r\n\r\n")
    if not blank:
        return False
    if head.startswith(b"HTTP/1.1 100"):
        return _complete(body)
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return len(body) >= int(line.split(b":")[1])
    return False


def descendants(pid: int) -> Iterator[int]:
    """All processes below ``pid`` (Linux)."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


_given: set[int] = set()


def free_port() -> int:
    """A loopback port that nothing listens on, and that nobody was given before: it may be bound seconds later.

    The kernel itself gives the same port twice in a row once in 15,000 times.
    """
    while True:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            port = int(holder.getsockname()[1])
        if port not in _given:
            _given.add(port)
            return port


def free_range(count: int) -> int:
    """The first of ``count`` loopback ports in a row that nothing listens on, and no client is given by the kernel."""
    for low in range(20_000 + os.getpid() % 5000, 32_000, count):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(low, low + count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return low
    raise AssertionError(f"no {count} free ports in a row")


@contextlib.contextmanager
def serving(*words: str, env: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """A stack that is ready, stopped at the end."""
    stack = Stack(*words, env=env)
    try:
        stack.wait_ready()
        yield stack
    finally:
        stack.close()
