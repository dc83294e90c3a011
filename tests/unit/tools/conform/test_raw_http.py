"""Answers without an end take neither the memory of the judge nor more than the time that an answer has."""

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tfs_proxy.tools.conform import raw_http
from tfs_proxy.tools.conform.raw_http import NoReply, RawConnection, RawRequest, ask_once

LENGTHLESS = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


@contextmanager
def sending(*parts: bytes, forever: bytes = b"") -> Iterator[tuple[str, int]]:
    """A listener that sends the parts, then the last one again and again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_send, args=(listener, parts, forever), daemon=True).start()
        yield listener.getsockname()


def _send(listener: socket.socket, parts: tuple[bytes, ...], forever: bytes) -> None:
    with suppress(OSError), listener.accept()[0] as connection:
        connection.recv(65536)
        for part in itertools.chain(parts, itertools.repeat(forever) if forever else ()):
            connection.sendall(part)


def test_a_body_without_an_end_is_given_up_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_http, "MOST_BYTES", 1_000_000)
    with (
        sending(LENGTHLESS, forever=b"x" * 65536) as address,
        pytest.raises(NoReply, match="still goes on after 1000000 bytes"),
    ):
        ask_once(address, RawRequest(), 60)


@pytest.mark.parametrize(
    ("head", "forever"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"", b"HTTP/1.1 100 C\r\n\r\n"),
    ],
)
def test_an_answer_without_an_end_is_given_up_by_its_time(head: bytes, forever: bytes) -> None:
    with (
        sending(head, forever=forever) as address,
        pytest.raises(NoReply, match=r"still goes on after 0\.\d s"),
    ):
        ask_once(address, RawRequest(), 0.3)


def test_the_beginning_of_a_long_body_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_http, "KEPT_BYTES", 10)
    with sending(LENGTHLESS, b"0123456789abcdef") as address:
        reply = ask_once(address, RawRequest(), 5)

    assert (reply.body, reply.length) == (b"0123456789", 16)


def test_a_name_that_is_no_name_of_a_host() -> None:
    with pytest.raises(NoReply, match="label"):
        RawConnection(("..", 80))
