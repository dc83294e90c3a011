"""What a call is answered with: the server's headers, its message, and its status at the end."""

from msgspec import Struct

from tfs_proxy.wire.exchange import Deadline
from tfs_proxy.wire.grpc_client.frames import BrokenFrames
from tfs_proxy.wire.grpc_client.header_blocks import BlockReader, Headers
from tfs_proxy.wire.grpc_client.messages import IncomingMessage
from tfs_proxy.wire.grpc_client.receive_buffer import ReceiveBuffer
from tfs_proxy.wire.grpc_client.request_headers import status_text
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.protobuf_writer import Piece

_OK = "200"
_CONTENT_TYPE = "application/grpc"


class CallAnswer(Struct, frozen=True):
    """The status of a call with its text, and the message if it is OK, else nothing."""

    code: GrpcCode
    text: str
    message: Piece = b""


class AnswerReader:
    """Takes headers, data and trailers in their order; ``ended`` says whether the answer is complete."""

    __slots__ = ("_blocks", "_deadline", "_headers", "_message", "_trailers", "ended")

    def __init__(self, blocks: BlockReader, deadline: Deadline) -> None:
        self._blocks = blocks
        self._deadline = deadline
        self._message = IncomingMessage()
        self._headers: Headers | None = None
        self._trailers: Headers | None = None
        self.ended = False

    def take_headers(self, block: bytes) -> None:
        """Read a header block: the first, or the trailers; raises BrokenFrames."""
        headers = self._blocks.read(block)
        if self._trailers is not None:
            raise BrokenFrames("it has trailers twice")
        if self._headers is not None:
            self._trailers = headers
            return
        status = headers.get(":status", "")
        if len(status) == len(_OK) and status.startswith("1"):
            return  # not the final answer
        if status != _OK or not headers.get("content-type", "").startswith(_CONTENT_TYPE):
            raise BrokenFrames(f"it has HTTP's status {status[:10] or 'missing'}, or another type")
        self._headers = headers

    def take_data(self, source: ReceiveBuffer, count: int) -> None:
        """Read ``count`` bytes of the message; raises BrokenFrames."""
        if self._headers is None or self._trailers is not None:
            raise BrokenFrames("its data is not between headers and trailers")
        self._message.take(source, count)

    def end(self) -> None:
        """The server's side of the stream has ended."""
        self.ended = True

    def answer(self) -> CallAnswer:
        """The whole answer; raises BrokenFrames if there is no status, or no message with an OK."""
        headers = self._headers if self._trailers is None else self._trailers
        status = (headers or {}).get("grpc-status", "")
        if not (status.isascii() and status.isdigit() and len(status) <= 2):  # noqa: PLR2004
            raise BrokenFrames("it has no status of gRPC")
        code = GrpcCode(int(status)) if int(status) in _CODES else GrpcCode.UNKNOWN
        if code is GrpcCode.OK:
            return CallAnswer(code, "", self._message.whole())
        return CallAnswer(code, status_text(headers or {}))


_CODES = frozenset(GrpcCode)
