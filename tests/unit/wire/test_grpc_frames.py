"""The frames, header blocks and messages of our gRPC client, as pure functions of bytes."""

from collections.abc import Callable

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.values.errors import AnswerTooLarge
from tfs_proxy.wire import grpc_frames as frames
from tfs_proxy.wire.grpc_messages import IncomingMessage, ReceiveBuffer, SendWindows


def arriving(content: bytes, sizes: list[int]) -> ReceiveBuffer:
    """A buffer whose bytes arrive in parts of these sizes, over and over; then the connection ends."""
    position, turn = 0, 0

    def receive(room: memoryview) -> int:
        nonlocal position, turn
        part = content[position : position + min(len(room), sizes[turn % len(sizes)])]
        if not part:
            raise ConnectionError
        room[: len(part)] = part
        position, turn = position + len(part), turn + 1
        return len(part)

    return ReceiveBuffer(receive)


def read(decoder: Decoder, block: bytes) -> dict[str, str]:
    """A header block as the library reads it."""
    return {str(name): str(value) for name, value in decoder.decode(block)}


def split(content: bytes) -> list[tuple[frames.FrameHead, bytes]]:
    found = []
    while content:
        head = frames.read_head(content[: frames.HEAD_BYTES])
        content = content[frames.HEAD_BYTES :]
        found.append((head, content[: head.length]))
        content = content[head.length :]
    return found


@given(st.lists(st.integers(0, 70_000), max_size=8), st.lists(st.integers(1, 40_000), min_size=1, max_size=5))
def test_bytes_come_in_order_however_they_arrive(wanted: list[int], sizes: list[int]) -> None:
    """Small and large reads give what was sent, wherever the parts of it end."""
    content = bytes(number % 251 for number in range(sum(wanted)))
    buffer, read = arriving(content, sizes), b""
    for number, count in enumerate(wanted):
        if number % 2:
            target = bytearray(count)
            buffer.read_into(memoryview(target))
            read += target
        else:
            read += buffer.read(count)

    assert read == content


@given(st.binary(min_size=1, max_size=200), st.integers(1, 50))
def test_a_header_block_survives_its_frames(block: bytes, most: int) -> None:
    """One HEADERS frame, then CONTINUATION frames, of which the last one says so."""
    found = split(frames.header_frames(5, block, most))

    assert b"".join(payload for _, payload in found) == block
    assert [head.kind for head, _ in found] == [frames.HEADERS] + [frames.CONTINUATION] * (len(found) - 1)
    assert [bool(head.flags & frames.END_HEADERS) for head, _ in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(20, "20000000u"), (0.0000001, "1u"), (600, "600000m"), (1e6, "1000000S"), (1e12, "99999999S")],
)
def test_a_deadline_has_eight_digits_at_most(seconds: float, text: str) -> None:
    """The header block of its request leaves the tables of the connection as they are."""
    decoder = Decoder()
    assert read(decoder, frames.request_block("/s/m", "localhost", seconds, {}))["grpc-timeout"] == text
    assert not decoder.header_table.dynamic_entries


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b", ":status"]), st.sampled_from(["1", "2"])), max_size=12
    )
)
def test_blocks_are_read_as_they_are_meant(lists: list[dict[str, str]]) -> None:
    encoder, reader = Encoder(), frames.BlockReader()
    for headers in lists:
        assert reader.read(encoder.encode(headers.items())) == headers


@given(st.binary(max_size=60))
def test_no_header_block_does_more_than_fail(block: bytes) -> None:
    try:
        headers = frames.BlockReader().read(block)
    except frames.BrokenFrames:
        return
    assert all(isinstance(text, str) for pair in headers.items() for text in pair)


def test_a_header_list_has_a_limit() -> None:
    """A block of few bytes may mean many: one entry, again and again."""
    encoder = Encoder()
    bomb = encoder.encode([("a", "x" * 4000)]) + b"\xbe" * 1000

    with pytest.raises(frames.BrokenFrames, match="header"):
        frames.BlockReader().read(bomb)


def test_a_status_has_its_own_encoding() -> None:
    """Percent-encoded UTF-8; what is none stands for itself."""
    assert frames.status_text({"grpc-message": "caf%C3%A9 %"}) == "café %"
    assert frames.status_text({"grpc-message": "%FF"}) == "\ufffd"
    assert frames.status_text({}) == ""


MALFORMED: dict[str, Callable[[], object]] = {
    "SETTINGS": lambda: list(frames.read_settings(b"12345")),
    "window": lambda: list(frames.read_settings(b"\0\4\x80\0\0\0")),
    "size of frames": lambda: list(frames.read_settings(b"\0\5\0\0\0\1")),
    "opens no window": lambda: frames.read_increment(b"\0\0\0\0"),
    "WINDOW_UPDATE": lambda: frames.read_increment(b"\0"),
    "RST_STREAM": lambda: frames.read_reset(b"12345"),
    "GOAWAY": lambda: frames.read_goaway(b"1234567"),
    "PING": lambda: frames.read_ping(b""),
    "padding": lambda: frames.header_fragment(frames.FrameHead(3, 1, frames.PADDED, 1), b"\3ab"),
    "further": lambda: SendWindows().open(2**31 - 1, stream=False),
    "compressed": lambda: IncomingMessage().take(arriving(b"\1\0\0\0\1x", [9]), 6),
    "more than one": lambda: IncomingMessage().take(arriving(b"\0\0\0\0\1xy", [9]), 7),
    "no message": lambda: IncomingMessage().whole(),
}


@pytest.mark.parametrize("words", MALFORMED)
def test_malformed_frames_are_named(words: str) -> None:
    """Each says what is wrong with it."""
    with pytest.raises(frames.BrokenFrames, match=words):
        MALFORMED[words]()


@pytest.mark.parametrize(("limit", "sent"), [(2**31 - 1, b"\0\xff\xff\xff\xff"), (1 << 20, b"\0\0\x10\0\1")])
def test_a_message_over_the_limit_is_refused_by_its_length(limit: int, sent: bytes) -> None:
    """Nothing of it is read; the limit of protobuf is one in any case."""
    with pytest.raises(AnswerTooLarge, match="TFS_PROXY_MAX_ANSWER_MB"):
        IncomingMessage(limit).take(arriving(sent, [9]), 5)


def test_a_smaller_initial_window_may_close_the_present_one() -> None:
    windows = SendWindows()
    windows.spend(60_000)
    windows.set(frames.INITIAL_WINDOW_SIZE, 1_000)
    assert windows.available() == 0
    windows.open(60_000, stream=True)

    assert windows.available() == 1_000 - 60_000 + 60_000
