"""What tells a kept connection that can be used from one that can't."""

import select
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from support.waiting import wait_until
from tfs_proxy.wire.connect import has_unread, has_unread_tcp

SECONDS = 10.0
RESET = struct.pack("ii", 1, 0)
Look = Callable[[socket.socket], bool]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        with ours, theirs:
            yield ours, theirs


@pytest.mark.parametrize("look", [has_unread, has_unread_tcp])
def test_a_quiet_connection_has_nothing_to_read(
    ends: tuple[socket.socket, socket.socket], look: Look
) -> None:
    ours, theirs = ends
    assert not look(ours)
    for size in (1, 100_000):
        theirs.sendall(bytes(size))
        wait_until(lambda: look(ours), SECONDS, "the bytes are there")
        ours.recv(size, socket.MSG_WAITALL)
        assert not look(ours)


@pytest.mark.parametrize("look", [has_unread, has_unread_tcp])
@pytest.mark.parametrize("how", ["data", "end", "reset"])
def test_a_connection_that_says_something_unasked_is_seen(
    ends: tuple[socket.socket, socket.socket], look: Look, how: str
) -> None:
    """Bytes that nobody asked for, and both ways to end it."""
    ours, theirs = ends
    match how:
        case "data":
            theirs.sendall(b"HTTP/1.1 200 OK\r\n")
        case "end":
            theirs.shutdown(socket.SHUT_WR)
        case "reset":
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            theirs.close()

    wait_until(lambda: look(ours), SECONDS, "it is seen")


@pytest.mark.parametrize("look", [has_unread, has_unread_tcp])
def test_an_end_right_behind_an_answer_is_seen(ends: tuple[socket.socket, socket.socket], look: Look) -> None:
    """The kernel hands both over at once, if both were there before the answer was read."""
    ours, theirs = ends
    theirs.sendall(b"answer")
    theirs.close()
    wait_until(lambda: is_ended(ours), SECONDS, "the end has come")

    assert ours.recv(100) == b"answer"
    assert look(ours)


def is_ended(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))
