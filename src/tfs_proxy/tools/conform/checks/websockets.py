"""The group ``streaming``, its second half: bidirectional streams, if the container takes them."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from websockets.frames import CloseCode, Opcode

from tfs_proxy.tools.conform.check import NotRun, RuleSource, Violation
from tfs_proxy.tools.conform.checks import streaming
from tfs_proxy.tools.conform.checks.invocations import ACCEPT_SECONDS, expect_good
from tfs_proxy.tools.conform.judging import Judging
from tfs_proxy.tools.conform.raw_http import NoReply
from tfs_proxy.tools.conform.target import Capability
from tfs_proxy.tools.conform.websocket import WebSocket

GROUP = streaming.GROUP
PAYLOAD = b"conform"
OTHER_PATH = "/conform/of-a-client"
QUERY = "?name=value"
TRIES = 3
RULES = RuleSource.BIDIRECTIONAL
SHOWN_BYTES = 60


@GROUP.must("The image says that it takes bidirectional streams.", RULES)
def websocket_label(judging: Judging) -> None:
    _path(judging)
    judging.expect_label(Capability.WEBSOCKET, "SageMaker opens streams to images with this label alone.")


@GROUP.should("The path of bidirectional streams takes a WebSocket.", RULES)
def websocket(judging: Judging) -> None:
    _open(judging, _path(judging))


@GROUP.must("It takes a WebSocket within 250 ms.", RULES)
def websocket_in_250_ms(judging: Judging) -> str:
    """Judges the best of three, because this machine may be busy."""
    best = float("inf")
    for _ in range(TRIES):
        with _opened(judging) as stream:
            best = min(best, stream.opened_seconds)
    if best > ACCEPT_SECONDS:
        raise Violation(
            expected="101 within 250 ms",
            got=f"101 after {best:.2f} s",
            mend="Agree to the handshake before the model is asked for anything.",
        )
    return f"{best * 1000:.0f} ms"


@GROUP.should("A WebSocket ping is answered with a pong.", RULES)
def websocket_ping(judging: Judging) -> None:
    with _opened(judging) as stream:
        if not stream.answers_ping(PAYLOAD):
            raise Violation(
                expected="a pong", got="none", mend="SageMaker closes the stream after five unanswered pings."
            )


@GROUP.should("A text message is answered.", RULES)
def websocket_text(judging: Judging) -> str:
    return _expect_answer(judging, Opcode.TEXT, _message(judging))


@GROUP.should("A binary message is answered.", RULES)
def websocket_binary(judging: Judging) -> str:
    return _expect_answer(judging, Opcode.BINARY, _message(judging))


@GROUP.should("A message in three frames, the middle one empty, is answered as a whole.", RULES)
def websocket_fragments(judging: Judging) -> str:
    message = _message(judging)
    half = len(message) // 2
    return _expect_answer(judging, Opcode.TEXT, message[:half], b"", message[half:])


@GROUP.must("A close is answered with a close and its code.", RULES)
def websocket_close(judging: Judging) -> str:
    expected = "a close frame with a code"
    with _opened(judging) as stream:
        try:
            code = stream.close(CloseCode.NORMAL_CLOSURE)
        except NoReply as error:
            raise Violation(expected=expected, got=f"none: {error}") from None
    if code in {None, CloseCode.NO_STATUS_RCVD}:
        raise Violation(expected=expected, got="a close frame without one")
    return f"{code}"


@GROUP.should("A path and a query of the client's take a WebSocket, too.", RULES)
def websocket_other_path(judging: Judging) -> None:
    with _opened(judging):
        _open(judging, OTHER_PATH + QUERY)


@GROUP.should("Without an upgrade those paths are unknown, and requests are answered as before.", RULES)
def websocket_no_upgrade(judging: Judging) -> None:
    for path in (_path(judging), OTHER_PATH):
        reply = judging.get(path)
        if not HTTPStatus.BAD_REQUEST <= reply.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Violation(expected=f"404, 405 or 426 of GET {path}", got=reply.shown())
    expect_good(judging.post(judging.good))


def _path(judging: Judging) -> str:
    if Capability.WEBSOCKET not in judging.capabilities:
        raise NotRun(
            f"it does not say that it takes WebSockets: --websocket, or {Capability.WEBSOCKET.label}"
        )
    return judging.known.websocket_path


def _open(judging: Judging, path: str) -> None:
    with judging.connect() as connection:
        WebSocket(connection, path, judging.options.answer_seconds)


@contextmanager
def _opened(judging: Judging) -> Iterator[WebSocket]:
    """A WebSocket at its path. Raises NotRun if it is refused, which the check `websocket` tells of."""
    with judging.connect() as connection:
        try:
            stream = WebSocket(connection, _path(judging), judging.options.answer_seconds)
        except Violation as refusal:
            raise NotRun(f"its path takes no WebSocket ({refusal.got})") from None
        yield stream


def _message(judging: Judging) -> bytes:
    _path(judging)
    return (judging.known.message or judging.good).body


def _expect_answer(judging: Judging, opcode: Opcode, *fragments: bytes) -> str:
    with _opened(judging) as stream:
        stream.send(opcode, *fragments)
        try:
            kind, answer = stream.answer()
        except NoReply as error:
            raise Violation(
                expected="a message in answer",
                got=str(error),
                mend="Name a message that it answers: message in --requests.",
            ) from None
    shown = answer[:SHOWN_BYTES].decode(errors="replace")
    return f"{kind.name.lower()}, {len(answer)} bytes: {shown}"
