"""Parts of a bidirectional stream: events of the client's body as WebSocket frames, and frames as events."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from botocore.eventstream import EventStreamBuffer, ParserError
from websockets.frames import Frame, Opcode

from tfs_proxy.tools.endpoint.stream import CONTENT_TYPE, payload_part
from tfs_proxy.values.errors import BadInput
from tfs_proxy.wire.http_server import Receive

_OPCODES = {"UTF8": Opcode.TEXT, "BINARY": Opcode.BINARY}
_TYPES = {opcode: name for name, opcode in _OPCODES.items()}
_STATES = {"PARTIAL": False, "COMPLETE": True}
_SIGNATURE = ":chunk-signature"


class ClientGone(Exception):
    """The client has ended its connection, or broken its stream off."""


async def request_frames(receive: Receive) -> AsyncIterator[Frame]:
    """A frame for each part, to the end of the body. Raises BadInput for what is none, ClientGone."""
    buffer, begins = EventStreamBuffer(), True
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        buffer.add_data(message.get("body", b""))
        try:
            for event in map(_unsigned, buffer):
                if event is None:
                    return
                frame = _frame(event, begins=begins)
                begins = frame.fin
                yield frame
        except ParserError as error:
            raise BadInput(f"The body is not {CONTENT_TYPE}: {error}.") from error
        if not message.get("more_body", False):
            return


def _unsigned(event: Any) -> Any:
    """The event in a signed one, whose signature is not checked; None if it is empty, which is the end."""
    if _SIGNATURE not in event.headers:
        return event
    inner = EventStreamBuffer()
    inner.add_data(event.payload)
    return next(inner, None)


def _frame(event: Any, *, begins: bool) -> Frame:
    kind = event.headers.get(":event-type")
    if kind != "PayloadPart":
        raise BadInput(f"The event {kind!r} is not PayloadPart.")
    opcode = _named(_OPCODES, event, "DataType", "BINARY")
    fin = _named(_STATES, event, "CompletionState", "COMPLETE")
    return Frame(opcode if begins else Opcode.CONT, event.payload, fin=fin)


def _named(values: Mapping[str, Any], event: Any, member: str, default: str) -> Any:
    name = event.headers.get(member, default)
    if name not in values:
        raise BadInput(f"{member} is {name!r}; it must be one of {', '.join(values)}.")
    return values[name]


class ResponseEvents:
    """Events of a container's frames; frames that continue a message have the type of its first."""

    def __init__(self) -> None:
        self._opcode = Opcode.BINARY

    def event(self, frame: Frame) -> bytes:
        self._opcode = frame.opcode or self._opcode
        state = "COMPLETE" if frame.fin else "PARTIAL"
        return payload_part(bytes(frame.data), DataType=_TYPES[self._opcode], CompletionState=state)
