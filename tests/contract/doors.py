"""The public doors: `tfs-proxy` as a process, HTTP, and clients that account for each of their requests."""

import contextlib
import http.client
import io
import itertools
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

COMMAND = str(Path(sys.executable).with_name("tfs-proxy"))
LOOPBACK = "127.0.0.1"
SECONDS = 120.0
"""How long a test waits for what must come; nothing but a failure takes so long."""
LISTENS = r"(?m)^\d\S+ INFO +tfs-proxy: (?:listening on|ready:) http://[\d.]+:(\d+)"
PAUSE_SECONDS = 0.01
"""Between two requests of a client: what is tried here is what becomes of requests, not how many there can be."""
BARE = {"TFS_PROXY_NGINX": "false"}
JSON = {"Content-Type": "application/json"}
ONE = '{"instances": [1.0]}'

Outcome = TypeVar("Outcome")


def until(
    condition: Callable[[], Outcome], what: str | Callable[[], str], seconds: float = SECONDS
) -> Outcome:
    """Wait until ``condition`` returns something true, and return that."""
    deadline = time.monotonic() + seconds
    while not (outcome := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.05)
    return outcome


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of this process without anybody's settings, with some more, and with lines that are not folded."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SAGEMAKER_", "TFS_"))}
    return {**kept, "COLUMNS": "400", **(more or {})}


def said(*words: str, env: Mapping[str, str] | None = None) -> str:
    """What a command prints that ends well."""
    done = subprocess.run(
        [COMMAND, *words], check=False, env=environment(env), capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pack(target: Path, files: Mapping[str, str], folders: Mapping[str, Path] | None = None) -> Path:
    """A model.tar.gz with texts by member name, and whole folders from disk."""
    with tarfile.open(target, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
        for name, folder in (folders or {}).items():
            archive.add(folder, name)
    return target


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

    @property
    def first_words(self) -> str:
        """How its error begins."""
        return first_words(self.json["error"])


def first_words(sentence: str) -> str:
    """How a sentence begins: names and numbers of a single request stand later."""
    return " ".join(sentence.split()[:3])


class Running:
    """A `tfs-proxy` that serves, at a free port which its log names."""

    def __init__(self, *words: str, env: Mapping[str, str] | None = None) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="contract-", ignore_cleanup_errors=True)
        self._log = Path(self._home.name, "log")
        settings = {"SAGEMAKER_GUNICORN_WORKERS": "1", "TFS_PROXY_HOME": self._home.name, **(env or {})}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [COMMAND, words[0], "--port", "0", "--host", LOOPBACK, *words[1:]],
                env=environment(settings),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.port = 0

    @property
    def log(self) -> str:
        """All lines that it has printed so far."""
        return self._log.read_text(errors="replace")

    def named(self, pattern: str) -> str:
        """What a group of ``pattern`` matches in the log, once it is there."""

        def found() -> list[str]:
            matches = re.findall(pattern, self.log)
            assert matches or self.process.poll() is None, f"ended with {self.process.returncode}\n{self.log}"
            return matches

        return until(found, lambda: f"the log has {pattern!r}:\n{self.log}")[-1]

    @property
    def grpc(self) -> str:
        """The address at which it listens for gRPC."""
        return self.named(r"listening for gRPC on (\S+)")

    def ready(self) -> "Running":
        """Wait for a 200 from /ping."""
        self.port = int(self.named(LISTENS))
        until(self._is_ready, lambda: f"/ping answers 200:\n{self.log}")
        return self

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask("GET", "/ping").status == 200
        return False

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=SECONDS)
        if tls is not None:
            connection = http.client.HTTPSConnection(LOOPBACK, self.port, timeout=SECONDS, context=tls)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            reply = connection.getresponse()
            return Answer(
                reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
            )

    def invoke(self, body: str | bytes = ONE, kind: str = "application/json", **headers: str) -> Answer:
        """POST /invocations; keyword headers have underscores for dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", "/invocations", body, {"Content-Type": kind, **named})

    def raw(self, sent: bytes) -> Answer:
        """The answer to bytes on a bare socket; its connection is half closed behind them if ``sent`` is whole."""
        with socket.create_connection((LOOPBACK, self.port), SECONDS) as link:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                link.sendall(sent)
            reply = http.client.HTTPResponse(link)
            reply.begin()
            return Answer(
                reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
            )

    def listener(self, port: int) -> int:
        """The process of this run that listens on a port."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any(
                    each.laddr.port == port
                    for each in process.net_connections("tcp")
                    if each.status == "LISTEN"
                ):
                    return process.pid
        raise AssertionError(f"no process listens on {port}")

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        return self.process.wait(SECONDS)

    def close(self) -> None:
        """Let it end in order, and leave nothing behind."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self._home.cleanup()


@contextlib.contextmanager
def serving(*words: str, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """A run that is ready, stopped at the end."""
    running = Running(*words, env=env)
    try:
        yield running.ready()
    finally:
        running.close()


class _Unread(Exception):
    """The connection ended with the request unread: no process has accepted it."""


class Load:
    """``clients`` threads, each on a kept connection, until ``finish``; ``fates`` is what became of each request.

    A request has its number as id. Its fate is a status, `cut` if it was read and no whole answer came, or
    `unread` if nobody has accepted it; one that was not read on a kept connection is sent again, as clients do.
    """

    def __init__(self, running: Running, clients: int = 8) -> None:
        self.fates: dict[str, str] = {}
        self.bodies: Counter[bytes] = Counter()
        self.last: Mapping[str, str] = {}
        self._port = running.port
        self._numbers = itertools.count(1)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> Counter[str]:
        """Send no more; how many requests had which fate."""
        self._over.set()
        for thread in self._threads:
            thread.join(SECONDS)
        assert not any(thread.is_alive() for thread in self._threads)
        return Counter(self.fates.values())

    def with_fate(self, *fates: str) -> list[str]:
        """The ids of requests that had one of these."""
        return [number for number, fate in self.fates.copy().items() if fate in fates]

    def wait_for_more(self, answers: int = 40) -> None:
        """Wait until so many more are answered."""
        wanted = len(self.with_fate("200")) + answers
        until(lambda: len(self.with_fate("200")) >= wanted, f"{answers} more requests are answered")

    def _send(self) -> None:
        link: socket.socket | None = None
        while not self._over.is_set():
            number = str(next(self._numbers))
            fate, link = self._one(number, link)
            self.fates[number] = fate
            self._over.wait(0.05 if fate == "unread" else PAUSE_SECONDS)
        if link is not None:
            link.close()

    def _one(self, number: str, idle: socket.socket | None) -> tuple[str, socket.socket | None]:
        """Send a request; its fate, and the connection if it is kept."""
        try:
            link = idle or socket.create_connection((LOOPBACK, self._port), SECONDS)
        except OSError:
            return "unread", None
        head = f"Content-Type: application/json\r\nContent-Length: {len(ONE)}\r\nX-Amzn-SageMaker-Inference-Id: {number}"
        try:
            reply, body = _exchange(
                link, f"POST /invocations HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n{ONE}".encode()
            )
        except _Unread:
            link.close()
            return ("unread", None) if idle is None else self._one(number, None)
        except (OSError, http.client.HTTPException):
            link.close()
            return "cut", None
        if reply.status == 200:
            self.bodies[body] += 1
            self.last = {name.lower(): value for name, value in reply.getheaders()}
        if reply.will_close:
            link.close()
        return str(reply.status), None if reply.will_close else link


def _exchange(link: socket.socket, request: bytes) -> tuple[http.client.HTTPResponse, bytes]:
    """Send a whole request, in one piece; the answer. Raises _Unread, or an error if the answer breaks off."""
    try:
        link.sendall(request)
        begun = link.recv(1, socket.MSG_PEEK)
    except ConnectionError as error:
        raise _Unread from error
    if not begun:
        deadline = time.monotonic() + 0.5
        while (
            time.monotonic() < deadline
        ):  # the kernel resets a connection with what nobody can read any more
            if link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 7:  # TCP_CLOSE
                raise _Unread
            time.sleep(0.005)
        raise ConnectionAbortedError
    reply = http.client.HTTPResponse(link)
    reply.begin()
    return reply, reply.read()
