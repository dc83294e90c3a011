"""A WebSocket to the container: checks say which frames are sent, and see each that comes back."""

import time
from collections import deque

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from tfs_proxy.tools.conform.check import Violation
from tfs_proxy.tools.conform.raw_http import KEPT_BYTES, NoReply, RawConnection

Message = tuple[Opcode, bytes]
"""TEXT or BINARY, and what all frames of the message hold."""


class WebSocket:
    """Opens a WebSocket on ``connection``; each answer must come within ``seconds``.

    ``opened_seconds`` is the time of the handshake. Raises Violation if the container does not agree to it,
    NoReply if it does not answer.
    """

    def __init__(self, connection: RawConnection, path: str, seconds: float) -> None:
        self._connection, self._seconds = connection, seconds
        self._protocol = ClientProtocol(parse_uri(f"ws://model{path}"), max_size=KEPT_BYTES)
        self._events: deque[Frame | Response] = deque()
        self._ended = False
        began = time.monotonic()
        self._protocol.send_request(self._protocol.connect())
        self._next_event()
        if self._protocol.state is not OPEN:
            refused = str(self._protocol.handshake_exc or "a frame before them")
            raise Violation(
                expected="101 and the headers of RFC 6455",
                got=refused,
                mend="Agree to the handshake; a server of streams may have to be turned on.",
            )
        self.opened_seconds = time.monotonic() - began

    def send(self, opcode: Opcode, *fragments: bytes) -> None:
        """Sends a message, a frame for each fragment."""
        for number, fragment in enumerate(fragments):
            self._protocol.send_frame(
                Frame(Opcode.CONT if number else opcode, fragment, fin=number == len(fragments) - 1)
            )

    def answer(self) -> Message:
        """The next message. Raises NoReply if the container closes the stream, or sends none in time."""
        opcode, parts = Opcode.CONT, bytearray()
        while True:
            frame = self._next_event()
            if isinstance(frame, Frame) and frame.opcode in {Opcode.TEXT, Opcode.BINARY, Opcode.CONT}:
                opcode = frame.opcode or opcode
                parts += frame.data
                if frame.fin:
                    return opcode, bytes(parts)
            elif isinstance(frame, Frame) and frame.opcode is Opcode.CLOSE:
                raise NoReply(f"the stream was closed: {self._protocol.close_rcvd}")

    def answers_ping(self, payload: bytes) -> bool:
        """True if a pong with the same payload comes back, among other frames."""
        self._protocol.send_ping(payload)
        try:
            while frame := self._next_event():
                if isinstance(frame, Frame) and frame.opcode is Opcode.PONG and frame.data == payload:
                    return True
        except NoReply:
            return False
        return False

    def close(self, code: int) -> int | None:
        """Closes the stream; the code that the container answers, None without one. Raises NoReply."""
        self._protocol.send_close(code)
        while self._protocol.close_rcvd is None:
            self._next_event()
        return self._protocol.close_rcvd.code

    def _next_event(self) -> Frame | Response:
        deadline = time.monotonic() + self._seconds
        while not self._events:
            self._connection.send_bytes(b"".join(self._protocol.data_to_send()))
            data = b"" if self._ended else self._connection.receive_some(deadline - time.monotonic())
            if data:
                self._protocol.receive_data(data)
            elif not self._ended:
                self._ended = True
                self._protocol.receive_eof()
            self._events.extend(self._protocol.events_received())  # type: ignore[arg-type] # never a Request
            broken = self._protocol.parser_exc or self._protocol.handshake_exc
            if not self._events and (broken or self._ended):
                raise NoReply(f"the stream broke ({broken})" if broken else "the connection was closed")
        return self._events.popleft()
