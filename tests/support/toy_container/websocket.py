"""The toy's bidirectional streams: an echo, frame by frame; each fault bends one rule."""

import socket
import time
from collections.abc import Iterable

from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

STREAM = "/invocations-bidirectional-stream"
SLOW_SECONDS = 0.5


def talk(connection: socket.socket, path: str, headers: Iterable[tuple[str, str]], fault: str) -> None:
    """One stream, from its handshake to its end."""
    server = ServerProtocol()
    server.receive_data(Request(path, Headers(headers)).serialize())
    (request,) = server.events_received()
    assert isinstance(request, Request)
    answer = server.accept(request)
    if fault == "ws-refused" or (fault == "ws-one-path" and path != STREAM):
        answer = server.reject(404, "no streams here")
    if fault == "ws-wrong-accept":
        del answer.headers["Sec-WebSocket-Accept"]
        answer.headers["Sec-WebSocket-Accept"] = "wrong"
    time.sleep(SLOW_SECONDS if fault == "ws-slow" else 0)
    server.send_response(answer)
    _send(connection, server)
    parts: list[Frame] = []
    while server.state is OPEN and (data := connection.recv(65536)):
        server.receive_data(data)
        for frame in server.events_received():
            assert not isinstance(frame, Request | Response)
            if frame.opcode is Opcode.CLOSE and fault in {"ws-hangs-up", "ws-no-code"}:
                connection.sendall(b"" if fault == "ws-hangs-up" else b"\x88\x00")
                return
            if frame.opcode in {Opcode.TEXT, Opcode.BINARY, Opcode.CONT}:
                parts.append(frame)
                if frame.fin or fault == "ws-first-frame":
                    _answer(server, parts, fault)
                    parts = []
        if fault == "ws-no-pong":
            server.data_to_send()
        _send(connection, server)


def _answer(server: ServerProtocol, parts: list[Frame], fault: str) -> None:
    data = b"".join(bytes(part.data) for part in parts)
    if fault == "ws-first-frame" or (fault == "ws-text-alone" and parts[0].opcode is Opcode.BINARY):
        server.fail(1003, "not this kind")
    elif fault != "ws-mute":
        server.send_frame(Frame(parts[0].opcode, data))


def _send(connection: socket.socket, server: ServerProtocol) -> None:
    connection.sendall(b"".join(server.data_to_send()))
