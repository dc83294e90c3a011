"""The channels to model servers, one for each socket, and which of them gets the next call."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from grpc import aio

from tfs_proxy.grpc_router.gates import Gates, SharedGates
from tfs_proxy.upstream.grpc_channels import OPTIONS

LOOK_SECONDS: Final = 1.0
"""How often channels are looked at whose gates may have gone."""


class ModelServerChannel:
    """The channel to the model server at ``socket``, for calls to ``model``."""

    def __init__(self, socket: str, model: str) -> None:
        self.socket, self.model = socket, model
        self.calls = 0
        self.last_call = 0
        self._channel = aio.insecure_channel(f"unix:{socket}", options=OPTIONS)
        self._methods: dict[str, Any] = {}

    def method(self, path: str) -> Any:
        """A ``grpc.aio.UnaryUnaryMultiCallable`` from bytes to bytes."""
        if path not in self._methods:
            self._methods[path] = self._channel.unary_unary(path)
        return self._methods[path]

    async def close(self) -> None:
        """End it, with all its calls."""
        await self._channel.close()


class ModelServers:
    """The model servers that ``gates`` lead to."""

    def __init__(self, gates: Gates | SharedGates) -> None:
        self._gates = gates
        self._channels: dict[str, ModelServerChannel] = {}
        self._numbers = itertools.count(1)

    def have_had(self, model: str) -> bool:
        """Whether a model server has had the model since it was loaded."""
        return self._gates.have_led_to(model)

    @contextmanager
    def for_call(self, model: str, avoided: Sequence[str] = ()) -> Iterator[ModelServerChannel | None]:
        """The least busy model server of a model, None if none is ready; sockets to avoid come last."""
        with self._gates.call(model) as sockets:
            if not sockets:
                yield None
                return
            channels = [self._channel(socket, model) for socket in sockets]
            chosen = min(channels, key=lambda one: (avoided.count(one.socket), one.calls, one.last_call))
            chosen.calls += 1
            chosen.last_call = next(self._numbers)
            try:
                yield chosen
            finally:
                chosen.calls -= 1

    async def close_forsaken(self) -> None:
        """Close channels whose gates have gone, for ever; those with calls wait for them."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for channel in tuple(self._channels.values()):
                if not channel.calls and channel.socket not in self._gates.sockets(channel.model):
                    del self._channels[channel.socket]
                    await channel.close()

    async def close(self) -> None:
        """Close every channel; idempotent."""
        while self._channels:
            _, channel = self._channels.popitem()
            await channel.close()

    def _channel(self, socket: str, model: str) -> ModelServerChannel:
        if socket not in self._channels:
            self._channels[socket] = ModelServerChannel(socket, model)
        return self._channels[socket]
