"""A container that runs already, in threads of the test: it notes its requests, and answers what it is told to."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from support.http_servers import Quiet, listening


@dataclass(frozen=True)
class Noted:
    """One POST that it has got; the names of headers are as they came."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class RemoteContainer:
    """What it answers, and what it has got; ``held`` requests wait until `open` is set.

    With ``chunks`` it answers in those: it waits for an event among them, and breaks off at None.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    answer: bytes | None = None
    chunks: Sequence[bytes | threading.Event | None] = ()
    healthy: bool = True
    requests: list[Noted] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    open: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    def __post_init__(self) -> None:
        self.open.set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def remote_container(**told: object) -> Iterator[RemoteContainer]:
    container = RemoteContainer(**told)  # type: ignore[arg-type]

    class Handler(Quiet):
        def do_GET(self) -> None:  # noqa: N802 - as http.server has it
            self.answer(200 if container.healthy else 503, b"", {})

        def do_POST(self) -> None:  # noqa: N802 - as http.server has it
            body = self.body()
            container.requests.append(Noted(self.path, dict(self.headers.items()), body))
            container.arrived.set()
            container.open.wait(60)
            if container.chunks:
                self._stream()
                return
            answer = body[::-1] if container.answer is None else container.answer
            self.answer(container.status, answer, container.headers)

        def _stream(self) -> None:
            self.send_response(container.status)
            for name, value in {**container.headers, "Transfer-Encoding": "chunked"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.close_connection = True
            for chunk in container.chunks:
                if isinstance(chunk, threading.Event):
                    chunk.wait(60)
                elif chunk is None:
                    return
                else:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")

    with listening(Handler) as server:
        container.port = server.server_port
        try:
            yield container
        finally:
            container.open.set()
