"""What every server that a test starts has in common: an address, a log, requests, and its end."""

import abc
import contextlib
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from support.printed import READ_SECONDS, Printed
from support.waiting import PAUSE_SECONDS, wait_until

LOOPBACK = "127.0.0.1"
START_SECONDS = 180.0
STOP_SECONDS = 60.0
ANSWER_SECONDS = 60.0

Outcome = TypeVar("Outcome")

_HEAD = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ +")


def messages_of(log: str) -> list[str]:
    """The lines of a log without time and level."""
    return [_HEAD.sub("", line) for line in log.splitlines()]


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


class Running(abc.ABC):
    """A server that runs, in a process or in a container; ``began`` is when it was started."""

    host: str = LOOPBACK
    port: int
    began: float
    pause_seconds = PAUSE_SECONDS
    tls: ssl.SSLContext | None = None

    @property
    @abc.abstractmethod
    def log(self) -> str:
        """All lines that it has printed so far."""

    @property
    def messages(self) -> list[str]:
        """The lines of its log without time and level."""
        return messages_of(self.log)

    @abc.abstractmethod
    def how_it_ended(self) -> str | None:
        """Its exit status in words, or None as long as it runs."""

    def wait_until(
        self, condition: Callable[[], Outcome], what: str, seconds: float = START_SECONDS
    ) -> Outcome:
        """Wait until ``condition`` returns something true; fails with the log, at once if it ends before."""

        def still_possible() -> Outcome:
            end = self.how_it_ended()  # looked at first: its last words may make the condition true
            outcome = condition()
            assert outcome or end is None, f"{end}, and this has not become true: {what}\n{self.log}"
            return outcome

        return wait_until(still_possible, seconds, what, details=lambda: self.log, pause=self.pause_seconds)

    def wait_for_log(self, text: str, seconds: float = START_SECONDS) -> None:
        """Wait until it has printed ``text``, which may come later than the answer that it goes with."""
        self.wait_until(lambda: text in self.log, f"the log has {text!r}", seconds)

    def wait_ready(self, seconds: float = START_SECONDS) -> float:
        """Wait for a 200 from /ping; how many seconds it took since the start."""
        self.wait_until(self.is_ready, "/ping answers 200", seconds)
        return time.monotonic() - self.began

    def wait_until_refused(self, port: int | None = None) -> None:
        """Wait until its port, or another one of its ports, refuses connections."""

        def refuses() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((self.host, port or self.port)) != 0

        self.wait_until(refuses, "the port refuses connections")

    def is_ready(self) -> bool:
        """Whether /ping answers 200."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask("GET", "/ping", timeout=5).status == 200
        return False

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = ANSWER_SECONDS,
        *,
        port: int | None = None,
    ) -> Answer:
        """One request on a connection of its own."""
        address = self.host, port or self.port
        connection = http.client.HTTPConnection(*address, timeout=timeout)
        if self.tls is not None:
            connection = http.client.HTTPSConnection(*address, timeout=timeout, context=self.tls)
        with contextlib.closing(connection):
            connection.request(method, path, body=body, headers=dict(headers or {}))
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())

    def invoke(self, body: bytes | str, content_type: str = "application/json", **headers: str) -> Answer:
        """POST /invocations; keyword headers have underscores for dashes."""
        dashed = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", "/invocations", body, {"Content-Type": content_type, **dashed})


class RunningProcess(Running):
    """A server in a process of its own, whose output a thread collects."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        port: int,
        host: str = LOOPBACK,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.host = host
        self.port = port
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            argv, env=env, pass_fds=pass_fds, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self.process.stdout is not None
        self._printed = Printed(self.process.stdout)

    @property
    def log(self) -> str:
        """All lines that it has printed so far."""
        return self._printed.text

    def how_it_ended(self) -> str | None:
        """Its exit status in words, or None as long as it runs."""
        if self.process.poll() is None:
            return None
        self._printed.wait_for_end()
        return f"ended with {self.process.returncode}"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal it and wait; its exit status."""
        self.process.send_signal(number)
        return self.wait(STOP_SECONDS)

    def wait(self, seconds: float = START_SECONDS) -> int:
        """Wait for its end, and for the last that it printed; its exit status."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"did not end within {seconds} s:\n{self.log}") from None
        self._printed.wait_for_end()
        return status

    def close(self) -> None:
        """Let it end in order, and leave nothing behind."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(READ_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it at once, and leave nothing behind."""
        self.process.kill()
        self.process.wait()
        assert self._printed.wait_for_end(), "a process of the run still holds its output"
        self._printed.close()
