"""What scripts print, as entries with the request that printed it."""

import io
import os
import signal
import threading
import traceback

import pytest

from support.waiting import wait_until
from tfs_proxy.observe.logs.entry import EntryHandler
from tfs_proxy.observe.logs.printed import MOST_CHARACTERS, MOST_LINES, PrintedLines, text_file
from tfs_proxy.observe.request_record import current_request


class Said(EntryHandler):
    """Keeps what is logged, with the request at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[str, str, str]] = []
        self.exceptions: list[str] = []

    def say(self, message: str, level: str, exception: str = "") -> None:
        record = current_request()
        self.entries.append((record.request_id if record else "", level, message))
        self.exceptions.append(exception)


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def lines(said: Said) -> PrintedLines:
    return PrintedLines(said, "info", 1)


@pytest.fixture
def stream(lines: PrintedLines) -> io.TextIOWrapper:
    """What a script has as ``sys.stdout``."""
    return text_file(lines)


def test_a_line_is_an_entry_however_it_is_written(stream: io.TextIOWrapper, said: Said) -> None:
    """Parts, several lines at once, bytes and flushes."""
    print("a", end="", file=stream)
    print("b", flush=True, file=stream)
    print("c\nd", end="\n", file=stream)
    stream.buffer.write("é\n".encode())
    stream.flush()

    assert [message for _, _, message in said.entries] == ["ab", "c", "d", "é"]


def test_a_printed_traceback_is_one_entry(stream: io.TextIOWrapper, said: Said) -> None:
    try:
        int("bad")
    except ValueError:
        traceback.print_exc(file=stream)

    assert said.entries == [("", "error", "ValueError: invalid literal for int() with base 10: 'bad'")]
    assert said.exceptions[0].startswith("Traceback")


def test_a_line_or_a_traceback_without_end_does_not_fill_memory(stream: io.TextIOWrapper, said: Said) -> None:
    """What is there so far is an entry."""
    for _ in range(100):
        print("x" * 1000, end="", file=stream)
    print("\nTraceback (most recent call last):" + "\n  x" * 2 * MOST_LINES, file=stream)

    assert sum(len(message) for _, _, message in said.entries) > 100_000
    assert max(exception.count("\n") for exception in said.exceptions) < MOST_LINES
    assert len(said.entries) > 100_000 / MOST_CHARACTERS + MOST_LINES


def test_it_is_what_scripts_expect_of_a_text_stream(stream: io.TextIOWrapper, said: Said) -> None:
    """Attributes that libraries look at."""
    stream.reconfigure(line_buffering=True)
    stream.close()

    print("\udcff", file=stream)
    assert said.entries == [("", "info", "\\udcff")]
    assert (stream.encoding, stream.isatty(), stream.fileno(), stream.writable()) == ("utf-8", False, 1, True)
    with pytest.raises(TypeError, match="must be str"):
        stream.write(b"x")  # type: ignore[arg-type]


def test_a_child_of_a_script_s_fork_prints_while_another_thread_did() -> None:
    """The thread that printed, and held the lock, is not in the child."""
    reading, writing = os.pipe()
    holds, ends = threading.Event(), threading.Event()

    class Held(EntryHandler):
        def say(self, message: str, _level: str, _exception: str = "") -> None:
            os.write(writing, message.encode())
            if message == "parent":
                holds.set()
                ends.wait()

    stream = text_file(PrintedLines(Held(), "info", 1))
    thread = threading.Thread(target=stream.write, args=("parent\n",))
    thread.start()
    holds.wait()
    pid = os.fork()
    if not pid:
        stream.write("child\n")
        os._exit(0)
    try:
        wait_until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, 10, "the child has printed")
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        ends.set()
        thread.join()
    assert os.read(reading, 100) == b"parentchild"
