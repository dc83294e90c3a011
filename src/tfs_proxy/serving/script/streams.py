"""Bidirectional streams that a script serves: ``async def stream(messages, context)``.

It runs in the loop of the script's coroutines, in a thread of its own: however busy it is, connections are
accepted and pings answered.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any, Protocol

import numpy.typing as npt
from msgspec import Struct

from tfs_proxy.model.script_syntax import STREAM, form_of
from tfs_proxy.serving.script.context import Context, ScriptRequest, WorkerModels
from tfs_proxy.serving.script.runner import ScriptRunner, named
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import ClientGone, RequestError, ScriptFailure
from tfs_proxy.values.signature import Target

Message = str | bytes
"""A text message, or a binary one."""


class Messages(Protocol):
    """One end of a stream, as any event loop may use it."""

    async def next(self) -> Message | None:
        """Next message of the client; None at the end."""

    async def send(self, message: Message) -> bool:
        """Send a message once there is room for it; False if the stream has ended."""


class StreamRequest(Struct, frozen=True):
    """Request that opened a stream: its path, its query by name, and its headers by lower-case name."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    target: Target | None = None
    custom_attributes: str | None = None

    @property
    def content_type(self) -> str | None:
        return self.headers.get("content-type")

    @property
    def accept(self) -> str | None:
        return self.headers.get("accept")


class StreamContext(Context):
    """Context of ``stream``: of the request that opened it, with its ``path`` and ``query``."""

    __slots__ = ("path", "query")

    def __init__(
        self, opened: ScriptRequest, request: StreamRequest, instance: Instance, worker: WorkerModels
    ) -> None:
        super().__init__(opened, instance, worker)
        self.path, self.query = request.path, request.query

    async def predict(self, inputs: Any, **named: Any) -> dict[str, npt.NDArray[Any]]:  # type: ignore[override]
        """`ModelClient.predict`, which is awaited here: a blocking call would stop all other streams."""
        return await asyncio.to_thread(super().predict, inputs, **named)

    predict_async = predict


def begin_stream(
    runner: ScriptRunner,
    function: Callable[..., Any] | None,
    messages: Messages,
    context: object,
    ended: Callable[[], object],
) -> "Future[RequestError | None]":
    """Call ``stream`` in the loop of the script's coroutines, and ``ended`` once it has ended.

    Cancelling the result cancels the function, which may go on for a while all the same.
    The result is the error for the client, None if it ended well; an exception of the script is logged with
    its traceback.
    """
    assert function is not None  # noqa: S101 - the script has one, or no stream is begun
    stream = function

    async def serve() -> RequestError | None:
        try:
            await _serve(stream, messages, context)
        except (asyncio.CancelledError, ClientGone):
            return None
        except ScriptFailure as error:
            return runner.complain(error)
        except RequestError as error:
            return error
        except BaseException as error:  # noqa: BLE001 - sys.exit in a script must not end the loop of all streams
            return runner.failure(STREAM, error)
        finally:
            ended()
        return None

    return runner.loop.begin(serve())


async def _serve(function: Callable[..., Any], messages: Messages, context: object) -> None:
    produced = function(_all(messages), context)
    if inspect.isawaitable(produced):
        await produced
        return
    if not isinstance(produced, AsyncGenerator):
        raise ScriptFailure(f"{form_of(STREAM)} returned {named(produced)}: it must yield str or bytes")
    async with aclosing(produced):
        async for piece in produced:
            if not await messages.send(_message(piece)):
                return


async def _all(messages: Messages) -> AsyncIterator[Message]:
    while (message := await messages.next()) is not None:
        yield message


def _message(piece: object) -> Message:
    """Raises ScriptFailure for anything that no frame can carry."""
    match piece:
        case str() | bytes():
            return piece
        case bytearray() | memoryview():
            return bytes(piece)
        case _:
            raise ScriptFailure(f"{STREAM} yielded {named(piece)}: it must yield str or bytes")
