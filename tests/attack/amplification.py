"""Throws bombs at a running stack, alone and a hundred at once, and measures memory and small requests beside them."""

import http.client
import itertools
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import grpc

from attack.bombs import Bomb
from attack.findings import Finding
from attack.fronts import Front
from attack.memory import Watch
from support.model_fixtures import EmbeddedServer
from support.stack import Stack

ALONE_MB = 1500
TOGETHER_MB = 2 * ALONE_MB
ANSWER_SECONDS = 120.0
SMALL_SECONDS = 1.0
MARGIN = 10
"""How much slower than promised a busy machine may be."""
STOP_FACTOR = 1.5
QUOTED_BYTES = 64
FAULTS = frozenset({"500", "cut", "no answer", "UNKNOWN", "INTERNAL"})


def alone(stack: Stack, bomb: Bomb) -> Finding:
    body = bomb.make()
    began = time.monotonic()
    with Watch(stack.process.pid, ALONE_MB * STOP_FACTOR) as watch:
        answer = throw(stack, "invocations", body, bomb.headers)
    note = f"{len(body):,} bytes, {watch.peak_mb:,} MB over idle, {answer}, {time.monotonic() - began:.1f} s"
    quoted = len(body) > QUOTED_BYTES and body[:QUOTED_BYTES].decode("latin-1") in stack.log
    holds = watch.peak_mb <= ALONE_MB and answer not in FAULTS and not quoted
    stack.wait_ready()
    words = "; the log quotes the body" if quoted else ""
    return Finding("a bomb alone", bomb.name, 1, int(holds), note + _cut(watch) + words)


def _cut(watch: Watch) -> str:
    return f"; a process was killed at that, {watch.stopped} times" if watch.stopped else ""


def throw(
    server: Stack | EmbeddedServer, target: str, body: bytes, headers: Mapping[str, str] | None = None
) -> str:
    """The status or code of an answer from a path without its slash, or from a method of gRPC."""
    try:
        if target.startswith("/"):
            with grpc.insecure_channel(server.grpc) as channel:
                channel.unary_unary(target)(body, timeout=ANSWER_SECONDS)
            return "OK"
        return str(server.ask("POST", f"/{target}", body, headers, ANSWER_SECONDS).status)
    except grpc.RpcError as error:
        return str(error.code().name)
    except TimeoutError:
        return "no answer"
    except (OSError, http.client.HTTPException):
        return "cut"


def together(stack: Stack, front: Front, bombs: Sequence[Bomb], count: int) -> Finding:
    """``count`` bombs at once, of all sorts, with small requests beside them."""
    posted = [bomb for bomb in bombs if not bomb.is_heavy]
    bodies = {bomb.name: bomb.make() for bomb in posted}
    mix = list(itertools.islice(itertools.cycle(posted), count))
    with (
        Watch(stack.process.pid, TOGETHER_MB * STOP_FACTOR) as watch,
        ThreadPoolExecutor(count) as pool,
        Beside(front) as beside,
    ):
        answers = Counter(
            pool.map(lambda bomb: throw(stack, "invocations", bodies[bomb.name], bomb.headers), mix)
        )
    p99 = beside.percentile(0.99)
    note = f"{watch.peak_mb:,} MB over idle; {dict(answers)}; meanwhile {beside.sent} small ones, {beside.failed} failed, p99 {p99:.2f} s"
    holds = watch.peak_mb <= TOGETHER_MB and not beside.failed and p99 < SMALL_SECONDS * MARGIN
    stack.wait_ready()
    held = count - sum(answers[fault] for fault in FAULTS) if holds else 0
    return Finding(f"{count} bombs at once", front.name, count, held, note + _cut(watch))


class Beside:
    """Small good requests, one after the other, from entering to leaving; how long each took."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._seconds: list[float] = []
        self.failed = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    @property
    def sent(self) -> int:
        return len(self._seconds)

    def percentile(self, part: float) -> float:
        return sorted(self._seconds)[int(part * (self.sent - 1))] if self.sent else 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            if not self._front.serves(ANSWER_SECONDS):
                self.failed += 1
            self._seconds.append(time.monotonic() - began)
