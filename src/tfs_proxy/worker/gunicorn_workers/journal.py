"""Journal of a worker's begun requests, in a file that outlives it, so that none that killed it is repeated.

nginx can't tell a request that a worker had begun from one that it had not read: the connection of both
breaks. So nginx names each request in a header, and sends such a request once more, marked. A worker handles
a marked request only if no worker's journal has it.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tfs_proxy.observe.logs.reasons import note_refusal
from tfs_proxy.observe.shared_files import BEGUN, ENDED, ID_BYTES, NOTE_BYTES, FixedFile
from tfs_proxy.wire.error_body import WORKER_DIED, error_body
from tfs_proxy.wire.header_names import HAD_MODEL_SERVER, NGINX_ID, SENT_AGAIN, wsgi_name
from tfs_proxy.wire.media_types import JSON

REQUEST, AGAIN, SENT = map(wsgi_name, (NGINX_ID, SENT_AGAIN, HAD_MODEL_SERVER))
"""Keys in a WSGI environ of nginx's headers: request id, mark, and true if a model server had it."""

SOCKET = "gunicorn.socket"
_NO_ID = b" " * ID_BYTES

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class RequestJournal:
    """Notes of one worker in an `observe.fixed_file`.

    At most ``most`` requests may be in flight at once. Offsets are used in turn, so a note stays readable
    for a long time after the request's end.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._file = FixedFile(folder / str(os.getpid()), most * NOTE_BYTES)
        self._notes = self._file.memory
        self._free = deque(range(0, most * NOTE_BYTES, NOTE_BYTES))

    def problem(self) -> str:
        """Reason why others can't read the notes, after another attempt to write; empty without."""
        if self._file.problem:
            self._file.make()
            self._notes = self._file.memory
        return self._file.problem

    def begin(self, request_id: str) -> int:
        """Note that a request begins; returns the offset of the note in the file."""
        offset = self._free.popleft()
        name = request_id.encode("latin-1") if len(request_id) == ID_BYTES else _NO_ID
        self._notes[offset : offset + NOTE_BYTES] = bytes((BEGUN,)) + name
        return offset

    def end(self, offset: int) -> None:
        self._notes[offset] = ENDED
        self._free.append(offset)

    def has(self, request_id: str) -> bool:
        """True if any worker, dead ones included, has begun this request."""
        name = request_id.encode("latin-1")
        return len(name) == ID_BYTES and any(name in record.read_bytes() for record in self._folder.iterdir())


def worker_died(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request that has killed a worker, instead of the application."""
    return refuse("502 Bad Gateway", WORKER_DIED, start_response)


def refuse(status: str, reason: str, start_response: Callable[..., Any]) -> list[bytes]:
    """Answer with an error in place of an application."""
    note_refusal(reason)
    body = error_body(reason)
    start_response(status, [("Content-Type", JSON), ("Content-Length", str(len(body)))])
    return [body]
