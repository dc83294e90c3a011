"""Calls of the translator's own to the model servers of the run."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from grpc import aio

from tfs_proxy.serving.upstream.grpc_channels import CONNECT_FAILED, OPTIONS
from tfs_proxy.wire.error_body import MODEL_SERVER, NO_MODEL_SERVER, not_answered
from tfs_proxy.wire.grpc_codes import GrpcCode

CODES: Final[Mapping[int, GrpcCode]] = {
    400: GrpcCode.INVALID_ARGUMENT,
    404: GrpcCode.NOT_FOUND,
    413: GrpcCode.RESOURCE_EXHAUSTED,
    500: GrpcCode.INTERNAL,
    501: GrpcCode.UNIMPLEMENTED,
    503: GrpcCode.UNAVAILABLE,
    504: GrpcCode.DEADLINE_EXCEEDED,
    507: GrpcCode.RESOURCE_EXHAUSTED,
}

_OWN_DEADLINE = "Deadline Exceeded"
"""Text of gRPC's own if the model server does not answer in time."""

_NOT_PASSED_ON = frozenset({"user-agent"})
"""Metadata that gRPC sets itself."""


class RefusedCall(Exception):
    def __init__(self, code: GrpcCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    @classmethod
    def for_status(cls, status: int, text: str) -> "RefusedCall":
        return cls(CODES.get(status, GrpcCode.UNKNOWN), text)


SCRIPT_IS_THE_MODEL: Final = (
    "this model is a script, which answers over HTTP only: there is no gRPC API of it"
)


class ModelServers:
    """The run's model servers, each of which has every model; they take turns.

    ``gates`` are nginx's links to their sockets, which are there while a server has its models. An answer may
    take ``answer_seconds``.
    """

    def __init__(self, gates: Sequence[str], answer_seconds: float) -> None:
        self._gates = tuple(map(Path, gates))
        self._answer_seconds = answer_seconds
        self._turns = itertools.count()
        self._channels: dict[str, tuple[Any, Callable[[str], Any]]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def call(
        self, path: str, message: bytes, context: Any, timeout_seconds: float | None = None
    ) -> bytes:
        """Answer of a model server to a call of the method at ``path``; if one takes none, the next one's.

        Raises RefusedCall with the model server's own status, or the reason why none answers.
        """
        if not self._gates:
            raise RefusedCall(GrpcCode.UNIMPLEMENTED, SCRIPT_IS_THE_MODEL)
        sockets = self._sockets()
        turn = next(self._turns)
        for step in range(len(sockets)):
            socket = sockets[(turn + step) % len(sockets)]
            if socket not in self._channels:
                channel = aio.insecure_channel(f"unix:{socket}", options=OPTIONS)
                self._channels[socket] = channel, cache(channel.unary_unary)
            limits = self._answer_seconds, context.time_remaining(), timeout_seconds
            limit_seconds = min(limit for limit in limits if limit is not None)
            metadata = tuple(
                (key, value)
                for key, value in context.invocation_metadata()
                if key not in _NOT_PASSED_ON
                and (isinstance(value, bytes) or (value.isascii() and value.isprintable()))
            )
            try:
                method = self._channels[socket][1](path)
                answer: bytes = await method(message, timeout=limit_seconds, metadata=metadata)
            except aio.AioRpcError as error:
                code = GrpcCode(error.code().value[0])
                text = error.details() or ""
                if code is GrpcCode.UNAVAILABLE and CONNECT_FAILED in text:
                    continue  # nothing was sent
                if code is GrpcCode.DEADLINE_EXCEEDED and text == _OWN_DEADLINE:
                    text = not_answered(MODEL_SERVER, limit_seconds)
                raise RefusedCall(code, text) from None
            return answer
        raise RefusedCall(GrpcCode.UNAVAILABLE, NO_MODEL_SERVER)

    async def close(self) -> None:
        while self._channels:
            await self._channels.popitem()[1][0].close()

    def _sockets(self) -> list[str]:
        """Sockets of the servers that may be called; channels to others close once their calls have ended."""
        sockets: list[str] = []
        for gate in self._gates:
            with suppress(FileNotFoundError):
                sockets.append(str(gate.readlink()))
        for gone in self._channels.keys() - sockets:
            closing = asyncio.create_task(self._channels.pop(gone)[0].close(self._answer_seconds))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        return sockets
