"""Model servers of each model from the supervisor's table, their channels, and the calls in flight."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from grpc import aio

from tfs_proxy.serving.upstream.grpc_channels import OPTIONS
from tfs_proxy.values.deployment import ANY_MODEL
from tfs_proxy.wire.http_answer import BrokenAnswer, NoAnswer, read_response
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.routes import GRPC_ROUTES

PAUSE_SECONDS: Final = 0.1
"""Pause before a supervisor that has not answered is asked again."""

LOOK_SECONDS: Final = 1.0
"""Interval of looking for channels without a model."""

MOST_ANSWER_BYTES: Final = 64 * 1024 * 1024


class ControlClient:
    """Requests to the supervisor over its control API's unix socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def ask(self, method: str, path: str, body: bytes = b"") -> HttpResponse:
        """Ask the control API. Raises OSError if it can't be reached, and BrokenAnswer."""
        reader, writer = await asyncio.open_unix_connection(self._socket)
        try:
            head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = bytearray()
            while part := await reader.read(MOST_ANSWER_BYTES):
                answer += part
                if len(answer) > MOST_ANSWER_BYTES:
                    raise BrokenAnswer(f"the answer to {path} is too long")
        finally:
            writer.close()
        if not answer:
            raise NoAnswer(f"no answer to {path}")
        parts = iter([bytes(answer)])
        return read_response(lambda: next(parts, b""))


class ModelServerChannel:
    def __init__(self, socket: str) -> None:
        self.socket = socket
        self.calls = 0
        self.last_call = 0
        self._channel = aio.insecure_channel(f"unix:{socket}", options=OPTIONS)
        self._methods: dict[str, Any] = {}

    def method(self, path: str) -> Any:
        """Make a ``grpc.aio.UnaryUnaryMultiCallable`` from bytes to bytes."""
        if path not in self._methods:
            self._methods[path] = self._channel.unary_unary(path)
        return self._methods[path]

    async def close(self) -> None:
        await self._channel.close()


class ModelServers:
    """Model servers in the table of the supervisor's control API."""

    def __init__(self, control: ControlClient) -> None:
        self._control = control
        self._number = 0
        self._sockets: Mapping[str, Sequence[str]] = {}
        self._in_flight: Counter[str] = Counter()
        self._channels: dict[str, ModelServerChannel] = {}
        self._numbers = itertools.count(1)
        self._telling: set[asyncio.Task[None]] = set()

    def have_had(self, model: str) -> bool:
        """True if a model server has had the model since it was loaded."""
        return model in self._sockets or ANY_MODEL in self._sockets

    def are_ready(self, model: str) -> bool:
        return bool(self._sockets_of(model))

    async def follow(self) -> None:
        """Take the supervisor's table whenever it changes; never returns."""
        while True:
            if not await self._ask(waits=True):
                await asyncio.sleep(PAUSE_SECONDS)

    async def refresh(self) -> None:
        """Take the table as it is now, and report the calls in flight."""
        await self._ask(waits=False)

    async def _ask(self, *, waits: bool) -> bool:
        told = {"seen": self._number, "busy": list(self._in_flight), "waits": waits}
        try:
            answer = await self._control.ask("POST", GRPC_ROUTES.path, json.dumps(told).encode())
            if answer.status != HTTPStatus.OK:
                return False
            table = json.loads(answer.body)
        except (OSError, BrokenAnswer):
            return False
        if table["number"] > self._number:
            self._number, self._sockets = table["number"], table["sockets"]
        return True

    @contextmanager
    def for_call(self, model: str, avoided: Sequence[str] = ()) -> Iterator[ModelServerChannel | None]:
        """Choose a model's least busy server, None if none is ready; ``avoided`` sockets come last."""
        sockets = self._sockets_of(model)
        if not sockets:
            yield None
            return
        channels = [self._channel(socket) for socket in sockets]
        chosen = min(channels, key=lambda one: (avoided.count(one.socket), one.calls, one.last_call))
        chosen.calls += 1
        chosen.last_call = next(self._numbers)
        self._in_flight.update((model, chosen.socket))
        try:
            yield chosen
        finally:
            chosen.calls -= 1
            self._note_end(model, chosen.socket)

    def _note_end(self, model: str, socket: str) -> None:
        for name in (model, socket):
            self._in_flight[name] -= 1
            if not self._in_flight[name]:
                del self._in_flight[name]
        if socket not in self._sockets_of(model):  # somebody may wait for the end of its calls
            telling = asyncio.create_task(self.refresh())
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    def _sockets_of(self, model: str) -> Sequence[str]:
        return self._sockets.get(model) or self._sockets.get(ANY_MODEL, ())

    async def close_unused(self) -> None:
        """Close channels that no model uses any more, once they have no calls; never returns."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            known = set(itertools.chain.from_iterable(self._sockets.values()))
            for channel in tuple(self._channels.values()):
                if not channel.calls and channel.socket not in known:
                    del self._channels[channel.socket]
                    await channel.close()

    async def close(self) -> None:
        while self._channels:
            _, channel = self._channels.popitem()
            await channel.close()

    def _channel(self, socket: str) -> ModelServerChannel:
        if socket not in self._channels:
            self._channels[socket] = ModelServerChannel(socket)
        return self._channels[socket]
