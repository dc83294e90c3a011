"""Reading an HTTP/1.1 answer: strict, in pieces of any size, and as http.client reads it."""

import http.client
import io
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.wire.http_answer import MOST_HEAD_BYTES, BrokenAnswer, NoAnswer, Receive, read_response
from tfs_proxy.wire.http_messages import HttpResponse

TOKEN = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_", min_size=1, max_size=12)
VALUE = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
FRAMING = {"transfer-encoding", "content-length", "connection"}


def receiving(*parts: bytes) -> Receive:
    """A connection on which these parts arrive, and then its end."""
    left: Iterator[bytes] = iter(part for part in parts if part)
    return lambda: next(left, b"")


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def chunked(body: bytes, cuts: list[int]) -> bytes:
    parts = [part for part in split(body, cuts) if part]
    return b"".join(b"%X\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


class _Socket:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self._data)


@given(
    st.sampled_from([200, 201, 400, 404, 500, 503]),
    st.dictionaries(TOKEN.filter(lambda name: name.lower() not in FRAMING), VALUE, max_size=4),
    st.binary(max_size=300),
    st.sampled_from(["length", "chunks", "end"]),
    st.lists(st.integers(0, 10_000), max_size=6),
)
def test_any_answer_in_any_pieces(
    status: int, headers: dict[str, str], body: bytes, framing: str, cuts: list[int]
) -> None:
    """Status, headers and body are those that http.client reads, however the bytes arrive."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if framing == "length":
        lines.append(f"Content-Length: {len(body)}")
    if framing == "chunks":
        lines.append("Transfer-Encoding: chunked")
    sent = "\r\n".join([f"HTTP/1.1 {status} Reason", *lines, "", ""]).encode()
    sent += chunked(body, cuts) if framing == "chunks" else body
    reply = read_response(receiving(*split(sent, cuts)))
    known = http.client.HTTPResponse(_Socket(sent), method="POST")  # type: ignore[arg-type]
    known.begin()
    assert (reply.status, reply.body) == (known.status, known.read())
    assert reply.body == body
    assert reply.headers == {name: value.strip(" \t") for name, value in known.getheaders()}
    assert reply.keeps_connection == (framing != "end")


@given(st.binary(min_size=1, max_size=20), st.integers(0, 90))
def test_damaged_answers(noise: bytes, at: int) -> None:
    """Bytes put into an answer never make it longer than it says."""
    sent = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: application/json\r\n\r\n12345"
    try:
        reply = read_response(receiving(sent[:at] + noise + sent[at:]))
    except (BrokenAnswer, NoAnswer):
        return
    assert len(reply.body) == 5 or not reply.keeps_connection or "Content-Length" not in reply.headers


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1234",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n123456",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n12345",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n123456\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno trailer\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nName : value\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nName: value\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nName: a\rb\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"nonsense",
        b"HTTP/1.1 200 OK\r\nA: " + b"a" * MOST_HEAD_BYTES + b"\r\n\r\n",
    ],
    ids=lambda sent: repr(sent[-40:]),
)
def test_what_is_refused(sent: bytes) -> None:
    with pytest.raises(BrokenAnswer):
        read_response(receiving(sent))


def test_the_end_before_an_answer() -> None:
    with pytest.raises(NoAnswer):
        read_response(receiving())


def test_what_comes_before_and_after() -> None:
    """Interim answers are passed over, no content has no length, extra bytes end the connection."""
    continued = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
    assert read_response(receiving(continued)) == HttpResponse(204, b"", {}, keeps_connection=True)
    extra = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n12"
    assert read_response(receiving(extra)) == HttpResponse(
        200, b"1", {"Content-Length": "1"}, keeps_connection=False
    )


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: upgrade, close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200\r\nConnection: keep-alive\r\n", True),
    ],
)
def test_which_connections_are_kept(head: bytes, keeps: bool) -> None:
    assert read_response(receiving(head + b"Content-Length: 0\r\n\r\n")).keeps_connection is keeps


@given(st.binary(max_size=200), st.lists(st.integers(0, 1000), max_size=4))
def test_any_bytes(sent: bytes, cuts: list[int]) -> None:
    with suppress(BrokenAnswer, NoAnswer):
        assert isinstance(read_response(receiving(*split(sent, cuts))), HttpResponse)
