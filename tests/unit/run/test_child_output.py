"""What a child prints, read by the supervisor: in order, bounded, and without holding anybody up."""

import asyncio
import os
from collections.abc import Callable, Sequence

import pytest

from tfs_proxy.run.logs import child_output
from tfs_proxy.run.logs.child_output import MOST_LINE_BYTES, ChildOutput


async def shown(write: Callable[[int], None], *, drops: bool = False) -> tuple[list[str], list[list[str]]]:
    """Lines and events of what ``write`` writes to the child's end."""
    lines: list[str] = []
    events: list[list[str]] = []

    def show(event: Sequence[str]) -> None:
        events.append(list(event))

    output = ChildOutput(lines.append, show, drops=drops)
    descriptor = output.open()
    await asyncio.to_thread(write, descriptor)
    output.close()
    output.close()
    return lines, events


def test_lines_come_in_order_and_the_last_one_needs_no_end() -> None:
    """A traceback is one event."""

    def write(descriptor: int) -> None:
        for part in (b"a\nb", b"c\n", b"Traceback (most recent call last):\n  x\nE: y\n", b"rest"):
            os.write(descriptor, part)

    lines, events = asyncio.run(shown(write))

    assert lines == ["a", "bc", "Traceback (most recent call last):", "  x", "E: y", "rest"]
    assert events == [["a"], ["bc"], ["Traceback (most recent call last):", "  x", "E: y"], ["rest"]]


def test_a_program_that_logs_by_lines_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of nginx's is an event as it comes, before that of its request."""
    monkeypatch.setattr(child_output, "PAUSE_SECONDS", 1000)

    async def scenario() -> list[str]:
        events: asyncio.Queue[list[str]] = asyncio.Queue()
        output = ChildOutput(
            lambda _line: None, lambda event: events.put_nowait(list(event)), lines_are_events=True
        )
        os.write(output.open(), b"alone\n")
        async with asyncio.timeout(10):
            event = await events.get()
        output.close()
        return event

    assert asyncio.run(scenario()) == ["alone"]


def test_a_line_without_end_is_cut_into_several() -> None:
    """Nothing grows with what a child prints."""
    data = b"x" * (5 * MOST_LINE_BYTES)

    def write(descriptor: int) -> None:
        sent = 0
        while sent < len(data):
            sent += os.write(descriptor, data[sent : sent + 4096])

    lines, _ = asyncio.run(shown(write))

    assert "".join(lines) == data.decode()
    assert max(map(len, lines)) < 2 * MOST_LINE_BYTES


def test_a_child_that_would_rather_lose_lines_never_waits() -> None:
    async def scenario() -> int:
        output = ChildOutput(lambda _line: None, lambda _event: None, drops=True)
        descriptor = output.open()
        dropped = 0
        for _ in range(5000):
            try:
                os.write(descriptor, b"x" * 1023 + b"\n")
            except BlockingIOError:
                dropped += 1
        output.close()
        return dropped

    assert asyncio.run(scenario()) > 0
