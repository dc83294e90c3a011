"""The object that checks get: the container, known requests, and ways to send them."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.tools.conform.busy import Address, BusyPeriod, at_once, measure_busy
from tfs_proxy.tools.conform.check import NotRun, Occasion, Violation
from tfs_proxy.tools.conform.occasions import start_order
from tfs_proxy.tools.conform.raw_http import NoReply, RawConnection, RawReply, RawRequest, ask_once
from tfs_proxy.tools.conform.requests_file import KnownRequest, KnownRequests
from tfs_proxy.tools.conform.target import (
    PING_SECONDS,
    Capability,
    ConformTarget,
    RunningContainer,
    StartedContainer,
    StartFailed,
    Starting,
    StartOrder,
)
from tfs_proxy.wire.media_types import CSV, JSON, TEXT

GOOD_BODIES = (
    (JSON, b'{"instances": [1.0]}'),
    (JSON, b'{"instances": [[1.0]]}'),
    (JSON, b'{"instances": [[1.0, 2.0, 3.0, 4.0]]}'),
    (JSON, b'{"inputs": "hello"}'),
    (JSON, b'{"inputs": [1.0]}'),
    (JSON, b'{"data": [[1.0]]}'),
    (JSON, b'{"text": "hello"}'),
    (JSON, b'{"prompt": "hello", "max_tokens": 1}'),
    (JSON, b"{}"),
    (JSON, b"[[1.0]]"),
    (CSV, b"1.0\n"),
    (CSV, b"1.0,2.0,3.0,4.0\n"),
    (TEXT, b"hello"),
)
BAD_BODIES = (
    (JSON, b'{"instances": [1.0, '),
    (CSV, b'"never closed,1\n\x00\xff'),
    ("application/x-no-such-type", b"\x00\x01\x02"),
)
MOST_SILENCES = 2
"""A large body may be too much for a container; one that leaves more unanswered answers nothing."""
Send = Callable[[KnownRequest], RawReply]


def find_good(send: Send) -> KnownRequest | None:
    """The first body that is answered with 2xx; None if there is none or the container no longer answers."""
    return _first(GOOD_BODIES, send, good=True)


def find_bad(send: Send) -> KnownRequest | None:
    return _first(BAD_BODIES, send, good=False)


def _first(bodies: tuple[tuple[str, bytes], ...], send: Send, *, good: bool) -> KnownRequest | None:
    silences = 0
    for content_type, body in bodies:
        request = KnownRequest(content_type, body)
        try:
            if send(request).is_good == good:
                return request
        except NoReply:
            silences += 1
            if silences == MOST_SILENCES:
                return None
    return None


INVOCATIONS, PING = "/invocations", "/ping"
ANSWER_SECONDS = 60.0
"""Seconds until SageMaker gives up on an answer: docs/reference/sagemaker.md, Invocations."""
STOP_SECONDS = 30.0
"""Seconds from SIGTERM to SIGKILL: docs/reference/sagemaker.md, Start and stop."""
LEAST_BUSY = 8


class JudgingOptions(Struct, frozen=True):
    model: Path | None = None
    capabilities: frozenset[Capability] = frozenset()
    start_seconds: float = 240.0
    answer_seconds: float = ANSWER_SECONDS
    stop_seconds: float = STOP_SECONDS


class Observed(Struct):
    """Measurements of one start: made when a check first asks for them."""

    busy: BusyPeriod | None = None
    first_reply: RawReply | None = None
    terminated: float | None = None
    replies: dict[str, RawReply] = field(default_factory=dict)


class Judging:
    """Runs the containers of all occasions, one at a time; each starts when a check first asks for it."""

    def __init__(self, target: ConformTarget, known: KnownRequests, options: JudgingOptions) -> None:
        self.target, self.options = target, options
        self.known = known
        self.capabilities = target.capabilities | known.capabilities | options.capabilities
        self.observed = Observed()
        self.order = StartOrder()
        self.probed: list[str] = []
        self._occasion = Occasion.RUNNING
        self._starting: Starting | None = None
        self._outcome: StartedContainer | StartFailed | None = None
        self._folders = ExitStack()
        self._probed: set[str] = set()

    def turn_to(self, occasion: Occasion) -> None:
        """Sets the occasion of the next checks; the container of another one is stopped."""
        goes_on = (self._occasion, occasion) == (Occasion.FRESH, Occasion.STOPPING)
        if not goes_on and occasion is not self._occasion:
            self.close()
        self._occasion = occasion

    def close(self) -> None:
        """Stop what runs; the next check starts another."""
        starting, self._starting, self._outcome = self._starting, None, None
        self.observed = Observed()
        if starting:
            starting.close()
        self._folders.close()

    @property
    def is_dead(self) -> bool:
        """True if the container ended, or answers neither of two pings."""
        if self._starting is None or isinstance(self._outcome, StartFailed):
            return False
        if self._starting.container.exit_status() is not None:
            return True
        if not isinstance(self._outcome, StartedContainer) or self._outcome.ready_seconds is None:
            return False
        return not self._answers_ping()

    @property
    def container(self) -> RunningContainer:
        if self._starting is None:
            order = start_order(self._occasion, self.options.model, self.capabilities, self._folders)
            self.order = order
            self._starting = Starting(self.target, order)
        return self._starting.container

    @property
    def start(self) -> StartedContainer:
        """Waits until the container listens and is ready, or its time is up. Raises StartFailed."""
        container = self.container
        if self._outcome is None and self._starting is not None:
            if not self.target.can_start:
                self._outcome = StartedContainer(container, 0.0, 0.0)
            else:
                self._outcome = self._wait(self._starting)
        if isinstance(self._outcome, StartFailed) or self._outcome is None:
            raise self._outcome or StartFailed("it was not started")
        return self._outcome

    def expect_ready(self, how: str) -> None:
        """Raises Violation unless the container starts, and answers 200 to ping; ``how`` ends sentences."""
        try:
            start = self.start
        except StartFailed as error:
            raise Violation(expected=f"a start {how}", got=str(error)) from None
        if start.ready_seconds is None:
            raise Violation(expected=f"200 of ping {how}", got=start.ping or "no answer")

    def expect_label(self, capability: Capability, mend: str) -> None:
        """Raises Violation if the image lacks the capability's label, NotRun if there is no image."""
        if self.target.image() is None:
            raise NotRun("there is no image to look into: use --image")
        if capability not in self.target.capabilities:
            raise Violation(expected=f"the label {capability.label}=true", got="none", mend=mend)

    @property
    def address(self) -> Address:
        """Raises StartFailed."""
        return self.start.container.address

    def need_start(self) -> None:
        """Raises NotRun if the target is an address, so that nothing is started."""
        if not self.target.can_start:
            raise NotRun("with a URL alone nothing is started or stopped: use --image or --command")

    @property
    def good(self) -> KnownRequest:
        """A good request, from the file or by probing. Raises NotRun if there is none."""
        return self._known("good", "none that was tried got 2xx", find_good)

    @property
    def bad(self) -> KnownRequest:
        """A bad request, from the file or by probing. Raises NotRun if there is none."""
        return self._known("bad", "all that were tried got 2xx", find_bad)

    def _known(self, name: str, tried: str, find: Callable[[Send], KnownRequest | None]) -> KnownRequest:
        if getattr(self.known, name) is None and name not in self._probed:
            self._probed.add(name)
            found = find(self.post)
            self.known = replace(self.known, **{name: found})
            body = found.body.decode(errors="replace").strip() if found else ""
            shown = f"{found.content_type} {body}" if found else "none found"
            self.probed.append(f"{name} request, found by trying: {shown}")
        known: KnownRequest | None = getattr(self.known, name)
        if known is None:
            raise NotRun(f"no {name} request is known, and {tried}: use --requests")
        return known

    @property
    def busy(self) -> BusyPeriod:
        if self.observed.busy is None:
            load = self.request(self.known.slow or self.good)
            paths = (PING, self.known.metrics_path)
            width = max(LEAST_BUSY, os.cpu_count() or 1)
            self.observed.busy = measure_busy(self.address, load, paths, width)
        return self.observed.busy

    def request(
        self, known: KnownRequest, headers: Mapping[str, str] | None = None, path: str = INVOCATIONS
    ) -> RawRequest:
        return RawRequest("POST", path, {**known.headers, **(headers or {})}, known.body)

    def post(self, known: KnownRequest, headers: Mapping[str, str] | None = None) -> RawReply:
        """Sends it to /invocations. Raises NoReply."""
        return self.ask(self.request(known, headers))

    def ask(self, request: RawRequest, seconds: float | None = None) -> RawReply:
        """Sends it on a connection of its own. Raises NoReply."""
        return ask_once(self.address, request, seconds or self.options.answer_seconds)

    def get(self, path: str) -> RawReply:
        """Raises NoReply."""
        return self.ask(RawRequest(path=path))

    def get_once(self, path: str) -> RawReply:
        """Asks a path like `get`, but once per start. Raises NoReply."""
        if path not in self.observed.replies:
            self.observed.replies[path] = self.get(path)
        return self.observed.replies[path]

    def all_at_once(self, requests: list[RawRequest], seconds: float | None = None) -> list[RawReply | str]:
        return at_once(self.address, requests, seconds or self.options.answer_seconds)

    def connect(self) -> RawConnection:
        """Opens a connection for bytes that need not be valid HTTP. Raises NoReply."""
        return RawConnection(self.address)

    def ping(self, headers: Mapping[str, str] | None = None) -> RawReply:
        """GET /ping, which must answer 200 within 2 s. Raises NoReply or Violation."""
        reply = self.ask(RawRequest(path=PING, headers=headers or {}), PING_SECONDS)
        if reply.status != HTTPStatus.OK:
            raise Violation(
                expected="200 of ping",
                got=reply.shown(),
                mend="Answer GET /ping with 200 while it can serve.",
            )
        return reply

    def still_serves(self) -> None:
        """Raises NoReply or Violation unless ping and the good request are answered as before."""
        self.ping()
        reply = self.post(self.good)
        if not reply.is_good:
            raise Violation(expected="2xx for the good request afterwards", got=reply.shown())

    def _wait(self, starting: Starting) -> StartedContainer | StartFailed:
        try:
            return starting.wait(self.options.start_seconds)
        except StartFailed as error:
            return error

    def _answers_ping(self) -> bool:
        for _ in range(2):
            try:
                self.ask(RawRequest(path=PING), PING_SECONDS)
            except Exception:  # noqa: BLE001 - whatever it is, it is no answer
                time.sleep(PING_SECONDS / 10)
                continue
            return True
        return False
