"""The destinations of gRPC calls: the table that the router follows, and nginx's links for one archive."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final

from tfs_proxy.values.errors import BadInput
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.routes import GRPC_ROUTES, Handlers

HOLD_SECONDS: Final = 2.0
"""Longest wait of the router for news: its report of calls under way is at most so old."""


class GrpcRoutes:
    """The gRPC sockets of each model's servers that are ready; "" stands for any model.

    The router asks for them by a long poll, in which it says which table it has, and which models and sockets
    have calls under way: so it learns of an unload, and acknowledges it.
    """

    def __init__(self) -> None:
        self.routes: Handlers = {GRPC_ROUTES: self._answer}
        self._sockets: dict[str, list[str]] = {}
        self._number = 1
        self._changed, self._told = asyncio.Event(), asyncio.Event()
        self._seen: int | None = None
        self._busy: frozenset[str] = frozenset()

    def route(self, models: Iterable[str], sockets: Iterable[Path]) -> None:
        """Sends calls for these models to exactly these sockets; without any, they wait."""
        paths = list(map(str, sockets))
        # A model that has never had a model server is a script.
        routed = {model: paths for model in models if paths or model in self._sockets}
        if any(self._sockets.get(model) != paths for model in routed):
            self._sockets.update(routed)
            self._change()

    def forget(self, models: Iterable[str]) -> None:
        """Sends no more calls for these models; idempotent. Calls under way go on."""
        known = [model for model in models if model in self._sockets]
        for model in known:
            del self._sockets[model]
        if known:
            self._change()

    def in_use(self, names: Iterable[str]) -> bool:
        """True if one of these models or sockets has calls under way, by the router's last report."""
        return not self._busy.isdisjoint(names)

    async def until_idle(self, names: Iterable[str], seconds: float) -> None:
        """Returns once calls use the present table and none is under way there, or after ``seconds``."""
        number, names = self._number, frozenset(names)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._seen is not None and (self._seen < number or self.in_use(names)):
                    await self._told.wait()

    def end(self) -> None:
        """Called when the router has ended, or never started: there are no calls."""
        self._seen, self._busy = None, frozenset()
        self._told.set()

    def _change(self) -> None:
        self._number += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        try:
            told = json.loads(request.body)
            seen, busy, waits = int(told["seen"]), frozenset(map(str, told["busy"])), bool(told["waits"])
        except (ValueError, TypeError, KeyError):
            raise BadInput("not a question for routes") from None
        # A router that has no table yet has no calls either.
        self._seen, self._busy = seen or self._number, busy
        self._told.set()
        self._told = asyncio.Event()
        if waits and seen == self._number:
            with suppress(TimeoutError):
                async with asyncio.timeout(HOLD_SECONDS):
                    await self._changed.wait()
        answer = {"number": self._number, "sockets": self._sockets}
        return HttpResponse(HTTPStatus.OK, json.dumps(answer).encode())


class InstanceGates:
    """The links of nginx to ``count`` model servers of one archive; there are none at first."""

    def __init__(self, workspace: Workspace, count: int) -> None:
        self._workspace = workspace
        self._count = count
        self._open: Mapping[int, Path] = {}

    def route_to(self, sockets: Mapping[int, Path]) -> None:
        """Opens the gates of these model servers, which listen for gRPC there, and closes all others.

        So no call reaches a model server before it has loaded its models, and nginx needs no reload.
        """
        for index in range(self._count):
            if sockets.get(index) != self._open.get(index):
                self._link(self._workspace.grpc_gate(index), sockets.get(index))
        self._open = dict(sockets)

    @staticmethod
    def _link(gate: Path, socket: Path | None) -> None:
        if socket is None:
            gate.unlink()
            return
        new = gate.with_suffix(".new")
        new.symlink_to(socket)
        new.rename(gate)  # atomically: there is no moment without a gate for calls
