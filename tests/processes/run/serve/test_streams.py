"""Bidirectional streams through nginx: a script's, those of records, and every way in which one ends."""

import asyncio
import contextlib
import os
import signal
import socket
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect

from support.archives import NEEDS_NGINX, stand_in_words
from support.processes import descendants
from support.scraping import scrape
from support.stack import Stack, serving
from support.waiting import within

pytestmark = NEEDS_NGINX
MEGABYTE = 1024 * 1024
PATH = "/invocations-bidirectional-stream"
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
SCRIPT = """
import asyncio
import time

from prometheus_client import Counter

ABOUT = Counter("asked_about", "Messages.")

async def stream(messages, context):
    async for message in messages:
        match message:
            case "end":
                return
            case "raise":
                raise KeyError("customer")
            case "about":
                ABOUT.inc()
                yield f"{context.path} {context.query['a']} {context.headers['x-own']} {context.custom_attributes}"
            case "sleep":
                time.sleep(2)
                yield "awake"
            case "hang":
                while True:
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        pass
            case "many":
                for number in range(1000):
                    yield f"{number}" * 10_000
            case _:
                yield message
"""
LIMITS = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "1", "TFS_PROXY_MAX_STREAMS": "3", "TFS_PROXY_ACCESS_LOG": "all"}


@contextlib.contextmanager
def opened(
    stack: Stack, path: str = PATH, headers: Mapping[str, str] | None = None
) -> Iterator[ClientConnection]:
    """A stream, with limits only of the server's."""
    url = f"ws://{stack.host}:{stack.port}{path}"
    with connect(url, additional_headers=headers, max_size=None, compression=None) as stream:
        yield stream


def refused(stack: Stack, path: str = PATH) -> tuple[int, str]:
    """Status and body of the answer to a client that may not open a stream."""
    with pytest.raises(InvalidStatus) as raised, opened(stack, path):
        pass
    return raised.value.response.status_code, (raised.value.response.body or b"").decode()


def end_of(stream: ClientConnection) -> tuple[int, str]:
    """Code and reason with which the server closes the stream."""
    with contextlib.suppress(ConnectionClosed):
        for _ in stream:
            pass
    return stream.close_code or 0, stream.close_reason or ""


def ended(stack: Stack, outcome: str) -> float:
    """How many streams have ended so."""
    return scrape(stack).total("tfs_proxy_streams_total", outcome=outcome)


def process_of_streams(stack: Stack) -> int:
    """Its process id."""
    pids = descendants(stack.process.pid)
    (pid,) = [pid for pid in pids if b"tfs_proxy.worker.streams" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return pid


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A script with `stream` alone, and small limits."""
    words = stand_in_words(tmp_path_factory.mktemp("streams"), SCRIPT)
    with serving(*words, env=LIMITS) as running:
        yield running


def test_messages_keep_their_kind_and_their_order(stack: Stack) -> None:
    """Text is str and binary is bytes, both ways; a message in parts is one message; the script ends it with 1000."""
    with opened(stack) as stream:
        sent: tuple[str | bytes, ...] = ("a", b"\x00\xff", "", "é" * 1000, b"")
        for message in sent:
            stream.send(message)
        stream.send(["in ", "three ", "parts"])

        assert tuple(stream.recv(10) for _ in sent) == sent
        assert stream.recv(10) == "in three parts"
        stream.send(["é"] * 20_000)  # only their sum has a limit
        assert stream.recv(30) == "é" * 20_000
        stream.send("end")
        assert end_of(stream) == (1000, "")


def test_any_free_path_opens_a_stream(stack: Stack) -> None:
    """The platform turns a client's own path into the container's; path, query and headers reach the script."""
    with opened(stack, "/my/own?a=1", {"X-Own": "x", ATTRIBUTES: "k=v"}) as stream:
        stream.send("about")

        assert stream.recv(10) == "/my/own 1 x k=v"
    stack.wait_until(lambda: scrape(stack).total("asked_about_total") == 1, "the script's own count is shown")
    assert refused(stack, "/ping")[0] in {200, 404, 405}
    status, body = refused(stack, "/execution-parameters")
    assert (status, PATH in body) == (404, True)


def test_a_request_without_an_upgrade_is_told_so(stack: Stack) -> None:
    """426, in JSON; /invocations is the model's, since the script has no handler."""
    answer = stack.ask("GET", PATH)

    assert (answer.status, "upgrade" in answer.json["error"]) == (426, True)
    assert stack.invoke(b'{"instances": [1.0]}').status == 200


def test_a_handshake_is_refused_in_json(stack: Stack) -> None:
    """Also if it is malformed."""
    answer = stack.ask("GET", PATH, headers={"Upgrade": "websocket", "Connection": "upgrade"})

    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert "Sec-WebSocket-Key" in answer.json["error"]


def test_what_a_script_raises_closes_the_stream(stack: Stack) -> None:
    """1011 with the error; the log has its line and traceback, and the access log the stream."""
    with opened(stack) as stream:
        stream.send("raise")

        assert end_of(stream) == (1011, "KeyError: 'customer'")
    stack.wait_for_log("inference.py:15 in stream: KeyError: 'customer'")
    stack.wait_for_log("outcome=script_error close_code=1011 messages_in=1 messages_out=0")


@pytest.mark.parametrize("parts", [1, 4])
def test_a_message_over_the_limit_closes_the_stream(stack: Stack, parts: int) -> None:
    """1009 beyond SAGEMAKER_MAX_PAYLOAD_IN_MB, however many frames it comes in; one of that size passes."""
    with opened(stack) as stream:
        stream.send(b"x" * 1024 * 1024)
        assert len(stream.recv(10)) == 1024 * 1024
        with contextlib.suppress(ConnectionClosed):
            stream.send([b"x" * (1024 * 1024 // parts + 1)] * parts)

        assert end_of(stream)[0] == 1009


def send_part(stream: ClientConnection, part: bytes) -> None:
    """Send the beginning of a message."""
    with stream.send_context():
        stream.protocol.send_binary(part, fin=False)


def test_a_close_between_two_parts_is_a_close(stack: Stack) -> None:
    """It is answered with the client's own code, and the script sees the end."""
    with opened(stack) as stream:
        send_part(stream, b"a part")
        stream.socket.sendall(Frame(Opcode.CLOSE, Close(1000, "").serialize()).serialize(mask=True))
        assert end_of(stream)[0] == 1000


def test_half_sent_messages_share_the_memory_of_bodies(tmp_path: Path) -> None:
    """Those that find none wait, then are closed with 1013; the others are answered, and the next ones, too."""
    limits = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "4", "TFS_PROXY_MAX_DECODED_TOTAL_MB": "12"}
    with serving(*stand_in_words(tmp_path, SCRIPT), env=limits) as stack, contextlib.ExitStack() as held:
        streams = [held.enter_context(opened(stack)) for _ in range(8)]
        for stream in streams:  # 24 MB, and there are 12
            send_part(stream, bytes(3 * MEGABYTE))
            time.sleep(0.1)  # so that none takes another's place
        assert within(20, lambda: ended(stack, "no_memory") >= 4)
        states = [stream for stream in streams if stream.state is State.OPEN]
        assert {end_of(stream)[0] for stream in streams if stream not in states} == {1013}
        for stream in states:
            with stream.send_context():
                stream.protocol.send_continuation(b"", fin=True)
            assert stream.recv(10) == bytes(3 * MEGABYTE)
            stream.send("end")
        for stream in states:
            end_of(stream)
        with opened(stack) as stream:
            stream.send(bytes(3 * MEGABYTE))
            assert len(stream.recv(10)) == 3 * MEGABYTE


def test_pongs_that_nobody_reads_hold_up_their_client(stack: Stack) -> None:
    """They would pile up; once it reads, it gets one for each ping."""
    flood = memoryview(Frame(Opcode.PING, bytes(125)).serialize(mask=True) * 500_000)  # 65 MB
    head = f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    with socket.create_connection(("127.0.0.1", stack.port), timeout=2) as client:
        client.sendall((head + key).encode())
        assert b" 101 " in client.recv(4096)
        sent = got = 0
        with contextlib.suppress(TimeoutError):
            while sent < len(flood):
                sent += client.send(flood[sent:])
        assert sent < len(flood)
        client.settimeout(20)
        while got < sent // 131 * 127 and (part := client.recv(MEGABYTE)):
            got += len(part)
    assert got >= sent // 131 * 127


def test_text_that_is_not_utf8_closes_the_stream(stack: Stack) -> None:
    """1007, as RFC 6455 has it."""
    with opened(stack) as stream:
        stream.send(b"\xff\xfe", text=True)

        assert end_of(stream)[0] == 1007


def test_only_so_many_streams_are_open(stack: Stack) -> None:
    """The next one is refused with 503 that names the setting, until one ends."""
    with opened(stack), opened(stack), opened(stack) as last:
        status, body = refused(stack)
        assert (status, "TFS_PROXY_MAX_STREAMS" in body) == (503, True)
        assert within(5, lambda: scrape(stack).total("tfs_proxy_streams_open") == 3)
        last.send("end")
        end_of(last)
        with opened(stack) as stream:
            stream.send("a")
            assert stream.recv(10) == "a"


def test_a_busy_script_holds_up_no_handshake(stack: Stack) -> None:
    """Connections are accepted within 250 ms, and pings answered, while the script sleeps without await."""
    with opened(stack) as busy:
        busy.send("sleep")
        time.sleep(0.3)
        began = time.monotonic()
        with opened(stack) as stream:
            assert stream.ping().wait(1)
            assert busy.ping().wait(1)
            assert time.monotonic() - began < 0.25
        assert busy.recv(10) == "awake"


def test_a_client_that_does_not_read_holds_up_the_script(stack: Stack) -> None:
    """The script's next yield waits: 30 MB are not gathered in memory, and all arrive in the end."""
    with opened(stack) as stream:
        stream.send("many")
        time.sleep(1)
        pid = process_of_streams(stack)
        (resident,) = [
            int(line.split()[1])
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if "VmRSS" in line
        ]
        assert resident < 200_000
        assert [len(stream.recv(30)) for _ in range(1000)][-1] == 30_000


def test_a_client_that_vanishes_is_counted(stack: Stack) -> None:
    """Without a close frame, and with one, in which case it was the client who closed."""
    gone, closed = ended(stack, "client_gone"), ended(stack, "client_closed")
    with opened(stack) as stream:
        stream.send("a")
        stream.socket.close()
    with opened(stack) as stream:
        stream.send("a")
        stream.recv(10)

    assert within(15, lambda: ended(stack, "client_gone") == gone + 1)
    assert within(15, lambda: ended(stack, "client_closed") >= closed + 1)


def test_a_script_that_goes_on_without_its_client_is_counted_and_logged(stack: Stack) -> None:
    """It is cancelled, and if that does not end it either, the log has its line."""
    with opened(stack) as stream:
        stream.send("hang")
        time.sleep(0.2)

    stack.wait_for_log("a stream's script did not end after its client had gone", 20)
    assert within(5, lambda: ended(stack, "hangs") == 1)


def test_a_killed_process_is_replaced(tmp_path: Path) -> None:
    """Its clients see their connections end and are counted; /ping is 503 until the next one takes streams."""
    with serving(*stand_in_words(tmp_path, SCRIPT)) as stack:
        with opened(stack) as first, opened(stack) as second:
            assert within(5, lambda: scrape(stack).total("tfs_proxy_streams_open") == 2)
            os.kill(process_of_streams(stack), signal.SIGKILL)
            for stream in (first, second):
                with pytest.raises(ConnectionClosed):
                    stream.recv(10)
        assert within(5, lambda: stack.ask("GET", "/ping").status == 503)
        assert stack.invoke(b'{"instances": [1.0]}').status == 200
        assert within(10, lambda: stack.ask("GET", "/ping").status == 200)
        with opened(stack) as stream:
            stream.send("a")
            assert stream.recv(10) == "a"

        assert ended(stack, "lost") == 2
        assert scrape(stack).total("tfs_proxy_process_restarts_total", process="streams") == 1


def test_sigterm_lets_streams_end(tmp_path: Path) -> None:
    """None is opened from then on; one that ends by itself does so, the others are closed with 1001 in time."""
    env = {"TFS_PROXY_STOP_SECONDS": "4"}
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack:
        with opened(stack) as ending, opened(stack) as staying:
            stopping = threading.Thread(target=stack.stop)
            stopping.start()
            time.sleep(1)
            ending.send("a")
            assert ending.recv(5) == "a"
            ending.send("end")
            assert end_of(ending) == (1000, "")
            assert end_of(staying) == (1001, "the server stops")
        stopping.join()
        assert stack.process.returncode == 0


def test_an_idle_stream_is_closed(tmp_path: Path) -> None:
    """1001, which names the setting, once there was no message for so long; messages put it off."""
    env = {"TFS_PROXY_STREAM_IDLE_SECONDS": "1.5"}
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack, opened(stack) as stream:
        began = time.monotonic()
        for _ in range(3):
            time.sleep(0.8)
            stream.send("a")
            stream.recv(10)
        code, reason = end_of(stream)

        assert (code, "TFS_PROXY_STREAM_IDLE_SECONDS" in reason) == (1001, True)
        assert 3.5 < time.monotonic() - began < 7


def test_each_message_is_a_record_without_a_function(tmp_path: Path) -> None:
    """With TFS_PROXY_STREAM=true: answered as /invocations answers it, errors too, and the stream goes on."""
    env = {"TFS_PROXY_STREAM": "true"}
    with serving(*stand_in_words(tmp_path), env=env) as stack, opened(stack) as stream:
        stream.send('{"instances": [1.0]}')
        stream.send(b'{"instances": [2.0]}')
        stream.send("{")

        by_http = stack.invoke('{"instances": [1.0]}')
        assert stream.recv(10) == by_http.body.decode().replace("\\n", "")
        assert "error" in str(stream.recv(10))
        assert "error" in str(stream.recv(10))
        with opened(stack, PATH, {"Content-Type": "application/json"}) as typed:
            typed.send(b'{"instances": [2.0]}')
            assert "predictions" in str(typed.recv(10))


def test_streams_are_off_by_default(tmp_path: Path) -> None:
    """404 that names the setting, at their path and at each other one that asks for an upgrade."""
    with serving(*stand_in_words(tmp_path)) as stack:
        for path in (PATH, "/my/own"):
            status, body = refused(stack, path)
            assert (status, "TFS_PROXY_STREAM=true" in body) == (404, True)


def test_many_streams_open_at_once(tmp_path: Path) -> None:
    """None of 300 that connect in one moment is refused."""
    with serving(*stand_in_words(tmp_path, SCRIPT)) as stack:

        async def open_all() -> list[str | bytes]:
            return await asyncio.gather(*(ask(number) for number in range(300)))

        async def ask(number: int) -> str | bytes:
            url = f"ws://{stack.host}:{stack.port}{PATH}"
            async with connect_async(url, compression=None, open_timeout=60) as stream:
                await stream.send(f"{number}")
                return await stream.recv()

        assert asyncio.run(open_all()) == [f"{number}" for number in range(300)]


def test_new_code_takes_new_streams(tmp_path: Path) -> None:
    """With --reload: an open stream goes on with the old code, the next has the new, and broken code changes nothing."""
    *words, program = stand_in_words(tmp_path, SCRIPT)
    with tarfile.open(words[0]) as archive:
        archive.extractall(tmp_path / "model", filter="data")
    script = tmp_path / "model" / "code" / "inference.py"
    with serving(str(tmp_path / "model"), words[1], program, "--reload") as stack, opened(stack) as old:
        script.write_text(SCRIPT.replace("yield message", "yield 'new'"))
        stack.wait_for_log("serves")

        def answer() -> str | bytes:
            with opened(stack) as stream:
                stream.send("a")
                return stream.recv(10)

        assert within(20, lambda: answer() == "new")
        old.send("a")
        assert old.recv(10) == "a"
