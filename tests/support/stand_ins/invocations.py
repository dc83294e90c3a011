"""A stand-in for a serving stack if a test or benchmark is about what drives it: POST is echoed.

Run it as a program: it prints its port. Bodies tell it what to do: one with BAD is refused with 400, with BROKEN with 500,
with BUSY it gets 503 the first time, with SLOW its answer takes a while, with HELD it waits until somebody
asks for /release; EMPTY, PART, MOVED, PAGE and PACKED are answers that are none, and lines with LOST are left out. `GET /count` says how many POSTs have come, and /execution-parameters what EXECUTION_PARAMETERS in the environment says, else 404.
"""

import asyncio
import os
import re

LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
PARAMETERS = os.environ.get("EXECUTION_PARAMETERS", "")
FIXED = os.environ.get("FIXED_ANSWER", "").encode()
SLOW_SECONDS = 0.2
NO_ANSWERS = {
    b"EMPTY": (204, "X-Nothing: here"),
    b"PART": (206, "Content-Range: bytes 0-0/9"),
    b"MOVED": (302, "Location: http://login.example/"),
    b"PAGE": (200, "Content-Type: text/html; charset=utf-8"),
    b"PACKED": (200, "Content-Encoding: gzip"),
}


class Echo(asyncio.Protocol):
    posts = 0
    busy: set[bytes] = set()  # noqa: RUF012
    released: asyncio.Event

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.received = bytearray()
        self.wanted = 0

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) < self.wanted:
            return
        head_end = self.received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(self.received[: head_end + 2])
        if b"chunked" in head.lower():
            if not self.received.endswith(b"0\r\n\r\n"):
                return
            body = unchunked(bytes(self.received[head_end + 4 :]))
            self.received.clear()
        else:
            length = LENGTH.search(head)
            self.wanted = head_end + 4 + (int(length[1]) if length else 0)
            if len(self.received) < self.wanted:
                return
            body = bytes(self.received[head_end + 4 : self.wanted])
            del self.received[: self.wanted]
        self.wanted = 0
        self.answer(head, body)

    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET"):
            line = head.split(b"\r\n")[0]
            if b"/count" in line:
                self.write(200, str(Echo.posts).encode())
            elif b"/release" in line:
                Echo.released.set()
                self.write(200, b"")
            else:
                self.write(200 if PARAMETERS else 404, PARAMETERS.encode())
            return
        Echo.posts += 1
        if b"BAD" in body:
            self.write(400, b'{"error": "this is bad"}')
        elif b"BROKEN" in body:
            self.write(500, b'{"error": "ValueError: this breaks the script"}')
        elif b"BUSY" in body and body not in Echo.busy:
            Echo.busy.add(body)
            self.write(503, b'{"error": "busy"}')
        elif b"SLOW" in body:
            asyncio.get_running_loop().call_later(SLOW_SECONDS, self.write, 200, body)
        elif b"HELD" in body:
            self.waiting = asyncio.ensure_future(self.answer_held(body))
        elif words := [word for word in NO_ANSWERS if word in body]:
            status, header = NO_ANSWERS[words[0]]
            self.write(status, b"" if status == 204 else body, header)
        else:
            kept = [line for line in body.splitlines(keepends=True) if b"LOST" not in line]
            self.write(200, FIXED or b"".join(kept))

    async def answer_held(self, body: bytes) -> None:
        await Echo.released.wait()
        self.write(200, body)

    def write(self, status: int, body: bytes, header: str = "Content-Type: text/plain") -> None:
        assert isinstance(self.transport, asyncio.WriteTransport)
        length = b"" if status == 204 else b"Content-Length: %d\r\n" % len(body)
        head = b"HTTP/1.1 %d OK\r\n%b\r\n" % (status, header.encode())
        self.transport.write(head + length + b"\r\n" + body)


def unchunked(data: bytes) -> bytes:
    parts: list[bytes] = []
    while True:
        size, _, data = data.partition(b"\r\n")
        if not int(size, 16):
            return b"".join(parts)
        parts.append(data[: int(size, 16)])
        data = data[int(size, 16) + 2 :]


async def main() -> None:
    Echo.released = asyncio.Event()
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
