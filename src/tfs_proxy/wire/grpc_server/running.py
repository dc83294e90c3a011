"""Runs the calls of one connection once their messages are whole: at once, or on the threads for calls."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct

from tfs_proxy.memory import DEFAULT_BODY_BYTES
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_server.calls import Call, Method, Reservation
from tfs_proxy.wire.grpc_server.sending import AnswerSender
from tfs_proxy.wire.grpc_server.statuses import ACCEPTED, OK_BLOCK, Status
from tfs_proxy.wire.packed_body import decoded_body
from tfs_proxy.wire.protobuf_writer import Piece

UNKNOWN_METHOD = Status(GrpcCode.UNIMPLEMENTED, "Method not found!")


class Calls(Struct, frozen=True):
    """What a server's calls are answered with: ``methods`` by path, run on ``threads``.

    ``refuse`` says which status goes with an error of a method of that name, ``reserve`` begins to reserve
    memory for a large message.
    """

    methods: Mapping[str, Method]
    threads: Executor
    refuse: Callable[[str, BaseException], Status]
    reserve: Callable[[], Reservation]


class CallRunner:
    """Runs calls of one connection, on its loop's thread; ``abandoned`` are over and still run."""

    def __init__(self, calls: Calls, sender: AnswerSender, loop: asyncio.AbstractEventLoop) -> None:
        self._calls = calls
        self._sender = sender
        self._loop = loop
        self.abandoned = 0

    def run(self, call: Call) -> None:
        """Answer a call whose message is there."""
        incoming, method = call.incoming, call.method
        message = incoming.whole()
        if message is None or method is None:
            self._sender.refuse(call, incoming.refusal or UNKNOWN_METHOD)
        elif incoming.is_packed and (refusal := _packed_refusal(call.encoding)):
            self._sender.refuse(call, refusal)
        elif method.at_once is None or incoming.is_packed or call.reservation is not None:
            self._submit(call, method)
        else:
            self._try_at_once(call, method, message)

    def _try_at_once(self, call: Call, method: Method, message: Piece) -> None:
        try:
            answer = method.at_once(message) if method.at_once is not None else None
        except Exception as error:  # noqa: BLE001 (the status says it)
            self._sender.refuse(call, self._calls.refuse(method.name, error))
            return
        if answer is None:
            self._submit(call, method)
        else:
            self._sender.answer(call, answer)

    def _submit(self, call: Call, method: Method) -> None:
        call.running = self._calls.threads.submit(self._run_here, call, method)
        call.running.add_done_callback(partial(self._soon, self._finish, call, method))

    def give_up(self, call: Call) -> None:
        """End a call, which a thread may still run."""
        call.end()
        call.is_abandoned = call.running is not None and not call.running.done()
        self.abandoned += call.is_abandoned

    def _run_here(self, call: Call, method: Method) -> bytes | None:
        """The answer, made on this thread; None if it is a stream, or nobody waits for it."""
        # The client may give up at any time, which takes the message away.
        incoming = call.incoming
        message = incoming.whole()
        if call.reservation is not None:
            # What the handler reserves comes in its place.
            call.reservation.close()
        if message is None or call.is_over:
            return None
        if incoming.is_packed:
            message = decoded_body(bytes(message), call.encoding, DEFAULT_BODY_BYTES)
        if method.stream is None:
            return method.run(message, call) if method.run is not None else None
        method.stream(message, call, partial(self._soon, self._send_next, call))
        return None

    def _soon(self, step: Callable[..., None], *arguments: Any) -> None:
        """Have the loop's thread do it; it may have ended with the server."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(step, *arguments)

    def _finish(self, call: Call, method: Method, done: Future[bytes | None]) -> None:
        self.abandoned -= call.is_abandoned
        # The future holds the call and the answer: such a circle would wait for a collection.
        call.running = None
        if call.is_over or call.trailers is not None or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._sender.refuse(call, self._calls.refuse(method.name, error))
        elif (answer := done.result()) is not None:
            self._sender.answer(call, answer)

    def _send_next(self, call: Call, message: bytes | None) -> None:
        if call.is_over or call.trailers is not None:
            return
        if message is not None:
            self._sender.message(call, message)
        elif call.end_status is not None:
            self._sender.refuse(call, call.end_status)
        else:
            self._sender.end(call, OK_BLOCK)


def _packed_refusal(encoding: str) -> Status | None:
    """Why a message that says that it is packed can't be read."""
    if encoding == ACCEPTED[0]:
        return Status(GrpcCode.INTERNAL, "The message is compressed, and grpc-encoding does not say how.")
    if encoding not in ACCEPTED:
        known = ", ".join(ACCEPTED)
        return Status(GrpcCode.UNIMPLEMENTED, f"grpc-encoding {encoding[:100]} is unknown: send {known}.")
    return None
