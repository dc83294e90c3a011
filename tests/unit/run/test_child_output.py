"""What a child prints, read by the supervisor: in order, and without holding anybody up."""

import asyncio
import os
from collections.abc import Callable

from tfs_proxy.run.logs import ChildOutput


async def taken(write: Callable[[int], None]) -> list[list[str]]:
    """What comes of what ``write`` writes to the child's end."""
    events: list[list[str]] = []
    output = ChildOutput(events.append)
    await asyncio.to_thread(write, output.write_end())
    output.close()
    output.close()
    return events


def test_lines_come_in_order_and_the_last_one_needs_no_end() -> None:
    """A traceback is one event, and any other line its own."""

    def write(descriptor: int) -> None:
        for part in (
            b"a\nb\xc3",
            b"\xa9\n  c\n",
            b"Traceback (most recent call last):\n  x\nE: y\n",
            b"rest",
        ):
            os.write(descriptor, part)

    traceback = ["Traceback (most recent call last):", "  x", "E: y"]
    assert asyncio.run(taken(write)) == [["a"], ["b\u00e9"], ["  c"], traceback, ["rest"]]


def test_a_child_that_would_rather_lose_lines_never_waits() -> None:
    async def scenario() -> int:
        output = ChildOutput(lambda _event: None, drops=True)
        descriptor = output.write_end()
        dropped = 0
        for _ in range(5000):
            try:
                os.write(descriptor, b"x" * 1023 + b"\n")
            except BlockingIOError:
                dropped += 1
        output.close()
        return dropped

    assert asyncio.run(scenario()) > 0
