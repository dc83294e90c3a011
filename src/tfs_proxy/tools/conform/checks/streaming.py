"""The group ``streaming``: answers that come in parts, and WebSockets if the container takes them."""

import base64
import hashlib
import os
import time

from tfs_proxy.tools.conform.check import CheckGroup, NotRun, RuleSource, Violation
from tfs_proxy.tools.conform.checks.invocations import expect_good
from tfs_proxy.tools.conform.checks.ping import refuse_bad_ping
from tfs_proxy.tools.conform.judging import PING, Judging
from tfs_proxy.tools.conform.raw_http import NoReply, RawConnection, RawReply, RawRequest, ask_once
from tfs_proxy.tools.conform.requests_file import KnownRequest
from tfs_proxy.tools.conform.target import PING_SECONDS, Capability

ACCEPT_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, 1.3."""
PING_FRAME, PONG = 0x89, 0x0A
MASKED = 0x80
PAYLOAD = b"conform"
LENGTH_16, LENGTH_64 = 126, 127
MOST_FRAMES = 100


def open_websocket(connection: RawConnection, path: str, seconds: float) -> None:
    """Raises Violation unless the container agrees to the handshake."""
    key = base64.b64encode(os.urandom(16))
    connection.send_bytes(
        f"GET {path} HTTP/1.1\r\nHost: model\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\n\r\n".encode()
    )
    head = connection.receive_until(b"\r\n\r\n", seconds)
    # RFC 6455 asks for SHA-1; it guards nothing here.
    accept = base64.b64encode(hashlib.sha1(key + ACCEPT_KEY, usedforsecurity=False).digest())
    if not head.startswith(b"HTTP/1.1 101") or accept not in head:
        line = head.partition(b"\r\n")[0].decode(errors="replace")
        raise Violation(expected="101 Switching Protocols with the right Sec-WebSocket-Accept", got=line)


def answers_ping(connection: RawConnection, seconds: float) -> bool:
    """True if a ping comes back as a pong with the same payload; other frames are skipped."""
    mask = b"\x01\x02\x03\x04"
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(PAYLOAD))
    connection.send_bytes(bytes([PING_FRAME, MASKED | len(PAYLOAD)]) + mask + masked)
    try:
        frames = (_frame(connection, seconds) for _ in range(MOST_FRAMES))
        return any(frame == (PONG, PAYLOAD) for frame in frames)
    except NoReply:
        return False


def _frame(connection: RawConnection, seconds: float) -> tuple[int, bytes]:
    first, length = connection.receive_exactly(2, seconds)
    if length in {LENGTH_16, LENGTH_64}:
        length = int.from_bytes(connection.receive_exactly(2 if length == LENGTH_16 else 8, seconds), "big")
    return first & 0x0F, connection.receive_exactly(length, seconds)


GROUP = CheckGroup("streaming", RuleSource.STREAMING)
STREAM_SECONDS = 8 * 60.0
SEVERAL = 4
LEAST_SPREAD_SECONDS = 0.001
LEAVING = 3


@GROUP.must("The answer is in chunked transfer encoding.")
def chunked(judging: Judging) -> None:
    reply = _streamed(judging)
    if not reply.is_chunked:
        raise Violation(
            expected="Transfer-Encoding: chunked",
            got=f"Content-Length: {reply.header('Content-Length')}",
            mend="Answer with a generator or a streaming response.",
        )


@GROUP.must("Its parts arrive as they are made, not all at the end.")
def in_parts(judging: Judging) -> str:
    arrivals = _streamed(judging).arrivals
    spread = arrivals[-1] - arrivals[0] if arrivals else 0.0
    if spread < LEAST_SPREAD_SECONDS:
        raise Violation(
            expected="parts that arrive one after the other",
            got=f"all {len(arrivals)} at once",
            mend="Flush after each part; nginx collects them unless proxy_buffering is off.",
        )
    return f"{len(arrivals)} parts in {spread:.2f} s"


@GROUP.must("The answer ends with its last chunk.")
def ends(judging: Judging) -> None:
    reply = _streamed(judging)
    if not reply.is_chunked and reply.header("Content-Length") is None:
        raise Violation(expected="an end that can be seen", got="a connection that is closed")


@GROUP.must("The stream ends within 8 minutes.")
def within_8_minutes(judging: Judging) -> str:
    return f"{_streamed(judging).seconds:.2f} s"


@GROUP.must("Ping answers within 2 s while the stream is open.", RuleSource.PING)
def ping_meanwhile(judging: Judging) -> None:
    with judging.connect() as connection:
        connection.send(judging.request(_streaming(judging)), STREAM_SECONDS)
        ping = RawRequest(path=PING)
        try:
            refuse_bad_ping(ask_once(judging.address, ping, PING_SECONDS), "while a stream is open")
        except NoReply as error:
            refuse_bad_ping(str(error), "while a stream is open")
        connection.read(time.monotonic())


@GROUP.must("A client that leaves in the middle does no harm.")
def client_leaves(judging: Judging) -> None:
    request = judging.request(_streaming(judging))
    for _ in range(LEAVING):
        with judging.connect() as connection:
            connection.send(request, STREAM_SECONDS)
            connection.wait_for_bytes(judging.options.answer_seconds)
    judging.ping()
    expect_good(judging.ask(request, STREAM_SECONDS))


@GROUP.should("The stream has a Content-Type.")
def content_type(judging: Judging) -> str:
    reply = _streamed(judging)
    if not reply.content_type:
        raise Violation(expected="a Content-Type", got="none")
    return reply.content_type


@GROUP.should("Four streams at once all end.")
def several(judging: Judging) -> None:
    requests = [judging.request(_streaming(judging))] * SEVERAL
    for reply in judging.all_at_once(requests, STREAM_SECONDS):
        if isinstance(reply, str):
            raise Violation(expected=f"{SEVERAL} whole streams at once", got=reply)
        expect_good(reply)


@GROUP.should("The path of bidirectional streams takes a WebSocket.")
def websocket(judging: Judging) -> None:
    with judging.connect() as connection:
        open_websocket(connection, _websocket_path(judging), judging.options.answer_seconds)


@GROUP.should("A WebSocket ping is answered with a pong.")
def websocket_ping(judging: Judging) -> None:
    with judging.connect() as connection:
        open_websocket(connection, _websocket_path(judging), judging.options.answer_seconds)
        if not answers_ping(connection, judging.options.answer_seconds):
            raise Violation(
                expected="a pong", got="none", mend="SageMaker closes the stream after five unanswered pings."
            )


def _streaming(judging: Judging) -> KnownRequest:
    if judging.known.streaming is None:
        raise NotRun("the requests file names no streaming request")
    return judging.known.streaming


def _streamed(judging: Judging) -> RawReply:
    key = "stream"
    if key not in judging.observed.replies:
        request = judging.request(_streaming(judging))
        judging.observed.replies[key] = expect_good(judging.ask(request, STREAM_SECONDS))
    return judging.observed.replies[key]


def _websocket_path(judging: Judging) -> str:
    if Capability.WEBSOCKET not in judging.capabilities:
        raise NotRun(
            f"it does not say that it takes WebSockets: --websocket, or {Capability.WEBSOCKET.label}"
        )
    return judging.known.websocket_path
