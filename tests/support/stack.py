"""Starts the real `tfs-proxy serve` for tests, talks to it and stops it."""

import contextlib
import os
import re
import socket
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from support.ports import free_port
from support.processes import descendants
from support.running import LOOPBACK, Answer, RunningProcess


class Stack(RunningProcess):
    """A running `tfs-proxy serve` (or another ``command``), with a home folder of its own.

    ``launcher`` is a command that takes it as further words and becomes it: a user, a control group. ``workers``
    is how many there are unless ``env`` says it, since each costs a third of a start; None leaves it to the command.
    """

    def __init__(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        host: str = LOOPBACK,
        port: int | None = None,
        command: str = "serve",
        launcher: Sequence[str] = (),
        workers: int | None = 1,
    ) -> None:
        self.host = host
        self.port = port or free_port()
        self.home = Path(tempfile.mkdtemp(prefix="tp-"))
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("SAGEMAKER_", "TFS_"))
        }
        clean["TFS_PROXY_ALLOWED_HOSTS"] = "a,x"  # of requests on bare sockets
        if workers is not None:
            clean["SAGEMAKER_GUNICORN_WORKERS"] = str(workers)
        super().__init__(
            [*launcher, sys.executable, "-m", "tfs_proxy.cli", command, *self.arguments(words)],
            port=self.port,
            host=host,
            env={**clean, "TFS_PROXY_HOME": str(self.home), **(env or {})},
        )

    def arguments(self, words: Sequence[str]) -> list[str]:
        """What stands behind the command."""
        return [*words, "--port", str(self.port), "--host", self.host]

    @property
    def grpc(self) -> str:
        """The address at which its log says that it listens for gRPC."""
        self.wait_for_log("listening for gRPC on")
        return str(re.findall(r"listening for gRPC on (\S+)", self.log)[-1])

    def model_server_port(self) -> int:
        """The REST port of its first model server, which no client needs."""
        children = self.children()
        pid = (children.get("embedded") or children["model_server"])[0]
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        (port,) = [word.partition("=")[2] for word in words if word.startswith("--rest_api_port=")]
        return int(port)

    def worker_port(self) -> int:
        """The port behind nginx at which its workers listen."""
        master = psutil.Process(self.children()["gunicorn"][0])
        (port,) = {
            each.laddr.port for each in master.net_connections("inet") if each.status == psutil.CONN_LISTEN
        }
        return port

    def raw(self, sent: bytes, seconds: float = 60) -> bytes:
        """Bytes on a bare socket; everything that comes back until the server closes or falls silent."""
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
        """Process ids of all descendants by a short name, parents first: nginx, zygote, gunicorn, embedded, ..."""
        pids: dict[str, list[int]] = {}
        for pid in descendants(self.process.pid):
            pids.setdefault(self._name_of(pid), []).append(pid)
        return pids

    def workers(self) -> list[int]:
        """Process ids of gunicorn's workers: its first process is their parent."""
        return self.children().get("gunicorn", [])[1:]

    def _name_of(self, pid: int) -> str:
        words = _words_of(pid)
        if words == _words_of(self.process.pid):
            return "only forked"
        words = re.sub(r"\S*/", "", words)  # folders, which may have any name
        if "zygote" in words:
            return words
        return next(
            (key for key in ("nginx", "zygote", "gunicorn", "embedded", "model_server") if key in words),
            words,
        )

    def kill(self) -> None:
        """End it at once, and leave nothing behind."""
        super().kill()
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
        return self.ask(method, path, body, port=self.rest_port)


def _words_of(pid: int) -> str:
    """A process's command line; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


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


@contextlib.contextmanager
def serving(
    *words: str,
    env: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
    workers: int | None = 1,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Stack]:
    """A stack that is ready, asked by TLS if ``tls`` is given, and stopped at the end."""
    with contextlib.closing(Stack(*words, env=env, launcher=launcher, workers=workers)) as stack:
        stack.tls = tls
        stack.wait_ready()
        yield stack


def ended(*words: str, **options: Any) -> tuple[int, str]:
    """Exit status and log of a stack that ends by itself, and leaves nothing on disk."""
    with contextlib.closing(Stack(*words, **options)) as stack:
        status = stack.wait()
        assert list(stack.home.iterdir()) == [], "something was left on disk"
        return status, stack.log
