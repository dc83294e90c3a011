"""Requests to the supervisor over its control API's unix socket."""

import asyncio
from pathlib import Path
from typing import Final

from tfs_proxy.wire.http_answer import BrokenAnswer, NoAnswer, read_response
from tfs_proxy.wire.http_messages import HttpResponse

MOST_ANSWER_BYTES: Final = 64 * 1024 * 1024


class ControlClient:
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
