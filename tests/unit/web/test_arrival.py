"""A request that arrives in pieces: where it ends, until when the rest must come, and where it waits."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from gunicorn.config import Config
from gunicorn.http import get_parser
from gunicorn.http.errors import LimitRequestHeaders
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.web.workers.threads.arrival import (
    HEAD_BYTES,
    LARGE_BODY_BYTES,
    SMALL_BODY_BYTES,
    Arrival,
    Budget,
    NoRoom,
    Room,
)
from tfs_proxy.wire.deadlines import GRACE_SECONDS, HEAD_SECONDS, LEAST_BYTES_PER_SECOND, SILENCE_SECONDS

LIMIT_BYTES = 2 * LARGE_BODY_BYTES
POST = b"POST /invocations HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def sized(length: int) -> bytes:
    """A head that promises so many bytes."""
    return POST + b"Content-Length: %d\r\n\r\n" % length


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The time."""
    return Clock()


@pytest.fixture
def room(tmp_path: Path) -> Room:
    """Room for two bodies of the limit."""
    return Room(LIMIT_BYTES, tmp_path, Budget(2 * LIMIT_BYTES))


@pytest.fixture
def arrival(room: Room, clock: Clock) -> Iterator[Arrival]:
    """A request of which nothing has come."""
    with closing(Arrival(room, clock)) as begun:
        yield begun


@pytest.mark.parametrize("size", [SMALL_BODY_BYTES, SMALL_BODY_BYTES + 1, LARGE_BODY_BYTES])
def test_a_body_is_read_into_memory_that_is_there(arrival: Arrival, size: int) -> None:
    """Wherever a body has waited, it is read as from a socket, and ends where it ends."""
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert arrival.add(sized(size) + body)

    buffer = memoryview(bytearray(size + 1))
    assert arrival.skip_head().recv_into(buffer) == size
    assert buffer[:size] == body
    assert arrival.recv_into(buffer) == 0


def content(arrival: Arrival) -> bytes:
    """Everything that has arrived."""
    return b"".join(iter(lambda: arrival.recv(1 << 20), b""))


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n",
        sized(5) + b"1,2,3",
        CHUNKED + b"3\r\n1,2\r\n2;a=b\r\n,3\r\n0\r\n\r\n",
        CHUNKED + b"3\r\n1,2\r\n0\r\nA: b\r\nC: d\r\n\r\n",
    ],
)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_request_is_whole_with_its_last_byte(arrival: Arrival, request_bytes: bytes, size: int) -> None:
    """However it is cut, and what comes behind it belongs to the next."""
    sent = request_bytes + b"GET"
    whole = [arrival.add(sent[at : at + size]) for at in range(0, len(request_bytes), size)]

    assert whole == [False] * (len(whole) - 1) + [True]
    assert content(arrival) == request_bytes
    assert b"GET".startswith(arrival.rest)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.integers(1, 30))
def test_gunicorn_reads_what_arrived_to_its_end(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], size: int
) -> None:
    """Chunks of any kind of bytes: gunicorn's own parser finds the end where this module does."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    sent = CHUNKED + body
    room = Room(LIMIT_BYTES, tmp_path_factory.getbasetemp(), Budget(LIMIT_BYTES))
    with closing(Arrival(room)) as arrival:
        whole = [arrival.add(sent[at : at + size]) for at in range(0, len(sent), size)]
        assert whole[-1]
        assert not any(whole[:-1])
        request = next(get_parser(Config(), arrival, ("127.0.0.1", 1)))

        assert request.body.read() == b"".join(chunks)
        assert arrival.recv(1) == b""


@pytest.mark.parametrize(
    "sent",
    [
        POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST + b"Content-Length: five\r\n\r\n",
        POST + b"Transfer-Encoding: gzip\r\n\r\n",
        POST + b"Content-Length: 5\r\nExpect: more\r\n\r\n",
        b"GET /ping HTTP/1.1\nHost: x\n\n",
        CHUNKED + b"five\r\n",
        CHUNKED + b"5" * 9000,
        sized(LIMIT_BYTES + 1),
    ],
)
def test_what_will_be_refused_is_not_waited_for(arrival: Arrival, sent: bytes) -> None:
    """A head that contradicts itself, lines that don't end as they must, a body over the limit."""
    assert arrival.add(sent)


def test_chunks_beyond_the_limit_are_not_waited_for(arrival: Arrival) -> None:
    """They end with the first byte that is too many."""
    piece = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"

    assert not arrival.add(CHUNKED + piece * (LIMIT_BYTES // 0x100000))
    assert arrival.add(b"1\r\nx")


def test_a_head_has_a_limit(arrival: Arrival) -> None:
    """gunicorn gets what is there of a head that does not end, and refuses it."""
    assert arrival.add(POST + b"A: " + b"a" * HEAD_BYTES)
    arrival.recv(1)

    with pytest.raises(LimitRequestHeaders):
        arrival.recv(1)


def test_a_head_has_a_deadline_from_its_first_byte(arrival: Arrival, clock: Clock) -> None:
    """More bytes of it move nothing."""
    first = clock.now
    arrival.add(POST)
    clock.now += HEAD_SECONDS / 2
    arrival.add(b"A: b\r\n")

    assert arrival.deadline == first + HEAD_SECONDS


def test_a_body_has_a_grace_then_a_least_rate(arrival: Arrival, clock: Clock) -> None:
    """A byte a second falls behind, whatever comes; ten thousand bytes are worth ten seconds more."""
    arrival.add(sized(LIMIT_BYTES))
    first = clock.now
    clock.now += 1
    arrival.add(b"x")
    assert arrival.deadline == pytest.approx(first + GRACE_SECONDS, abs=0.01)

    arrival.add(b"x" * 10 * LEAST_BYTES_PER_SECOND)
    assert arrival.deadline == pytest.approx(first + GRACE_SECONDS + 10, abs=0.01)


def test_a_body_that_came_fast_may_not_stall(arrival: Arrival, clock: Clock) -> None:
    """Megabytes at once allow no long silence."""
    arrival.add(sized(LIMIT_BYTES) + b"x" * LARGE_BODY_BYTES)

    assert arrival.deadline == clock.now + SILENCE_SECONDS


def test_a_client_that_waits_is_asked_for_the_body_once(arrival: Arrival) -> None:
    """``Expect: 100-continue`` is met here, and gone from the head, as with nginx in front."""
    arrival.add(POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    assert arrival.asks_for_body
    arrival.add(b"1,2")
    assert not arrival.asks_for_body
    arrival.add(b",3")

    assert content(arrival) == sized(5) + b"1,2,3"


@pytest.mark.parametrize(
    ("sent", "on_disk"),
    [
        (sized(SMALL_BODY_BYTES) + b"x" * SMALL_BODY_BYTES, 0),
        (sized(LARGE_BODY_BYTES - 1) + b"x" * (LARGE_BODY_BYTES - 1), 0),
        (sized(LARGE_BODY_BYTES) + b"x" * LARGE_BODY_BYTES, LARGE_BODY_BYTES),
        (CHUNKED + b"20000\r\n" + b"x" * 0x20000 + b"\r\n0\r\n\r\n", LARGE_BODY_BYTES),
    ],
    ids=["small", "in memory", "large", "chunked"],
)
def test_large_bodies_wait_on_disk(room: Room, arrival: Arrival, sent: bytes, on_disk: int) -> None:
    """So many bytes of the budget are in use until the request is answered; the request stays the same."""
    assert arrival.add(sent)
    assert content(arrival) == sent
    assert not room.disk.take(2 * LIMIT_BYTES - on_disk + 1)

    arrival.close()
    assert room.disk.take(2 * LIMIT_BYTES)


def test_bodies_in_memory_have_a_sum(room: Room, arrival: Arrival) -> None:
    """Once it is used, the next one waits on disk."""
    while room.memory.take(SMALL_BODY_BYTES):
        pass

    arrival.add(sized(SMALL_BODY_BYTES + 1))

    assert not room.disk.take(2 * LIMIT_BYTES)


def test_a_body_that_the_disk_has_no_room_for_is_refused(room: Room, arrival: Arrival) -> None:
    """Before a byte of it is stored."""
    room.disk.take(LIMIT_BYTES + 1)

    with pytest.raises(NoRoom):
        arrival.add(sized(LIMIT_BYTES))


def test_behind_nginx_bodies_are_not_waited_for(tmp_path: Path) -> None:
    """nginx has them whole, and sends them as fast as they are read."""
    with closing(Arrival(Room(LIMIT_BYTES, tmp_path, Budget(0), bodies=False))) as arrival:
        assert arrival.add(sized(LIMIT_BYTES) + b"1,2")
        assert (arrival.head, arrival.rest) == (sized(LIMIT_BYTES), b"1,2")
