"""Streams without a script's function: each message is a record, answered as `/invocations` answers it.

It is a request to the workers, so that limits, deadlines and the script's handlers are the same.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from http import HTTPMethod
from typing import Final

from tfs_proxy.serving.script.streams import Message
from tfs_proxy.values.errors import UpstreamError
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.error_body import error_body
from tfs_proxy.wire.header_names import REQUEST_ID
from tfs_proxy.wire.http_client import ConnectionPool, Timeouts
from tfs_proxy.wire.routes import INVOCATIONS
from tfs_proxy.worker.streams.stream import OpenStream

THREADS: Final = 64
"""Messages of all streams that are answered at a time."""

SERVER: Final = "The worker"
OF_THE_UPGRADE: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "origin",
        "te",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of the request that opened a stream which say nothing about its messages."""


class Records:
    """Answers to messages by the workers at ``address``, HOST:PORT, within ``answer_seconds`` each."""

    def __init__(self, address: str, answer_seconds: float) -> None:
        host, _, port = address.rpartition(":")
        self._pool = ConnectionPool(host, int(port), Timeouts(answer_seconds), server=SERVER)

    async def serve(self, stream: OpenStream) -> None:
        """Answer the messages in their order, each once the one before is answered."""
        kept = {
            name: value
            for name, value in stream.request.headers.items()
            if name not in OF_THE_UPGRADE and not name.startswith("sec-websocket-")
        }
        given = {} if stream.request.content_type is None else {"Content-Type": stream.request.content_type}
        headers = {**kept, **given, REQUEST_ID.lower(): stream.record.request_id}
        while (message := await stream.receive()) is not None:
            if not await stream.send(await asyncio.to_thread(self._answer, message, headers)):
                return

    def close(self) -> None:
        self._pool.close()

    def _answer(self, message: Message, headers: Mapping[str, str]) -> Message:
        ask = partial(self._pool.request, HTTPMethod.POST.value, INVOCATIONS.path)
        body = message.encode() if isinstance(message, str) else message
        try:
            answer = ask(body, {"Content-Type": type_of(message), **headers})
        except UpstreamError as error:
            return error_body(str(error)).decode()
        return _as_text(answer.body) if is_text(answer.header("Content-Type")) else answer.body


def type_of(message: Message) -> str:
    """Content type of a message if the client names none: text is JSON if it begins like it, else CSV."""
    if isinstance(message, bytes):
        return media.BYTES
    return media.JSON if message.lstrip()[:1] in {"{", "["} else media.CSV


def is_text(content_type: str | None) -> bool:
    """True if an answer of this type is sent as a text message."""
    name = (content_type or media.JSON).partition(";")[0].strip().lower()
    return name.startswith("text/") or name.endswith(("json", "jsons", "jsonlines"))


def _as_text(body: bytes) -> Message:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body
