"""The watch over a script's calls, and the answer of /ping about workers whose calls hang."""

import re
import threading

import pytest

from support.clock import Clock
from tfs_proxy.serving.script.deadline import (
    NOWHERE,
    Abandoned,
    DeadlineWatch,
    Lane,
    place_of,
)

FOLDER = __file__.rpartition("/")[0]


class Held:
    """A call in a thread of its own that waits until it is let go, and its outcome."""

    def __init__(self, watch: DeadlineWatch, *, streaming: bool = False) -> None:
        self._begun, self._go_on = threading.Event(), threading.Event()
        self.outcome: object = None
        self.late: list[tuple[str, bool]] = []
        self._thread = threading.Thread(target=self._run, args=(watch, streaming))
        self._thread.start()
        assert self._begun.wait(60)

    def _run(self, watch: DeadlineWatch, streaming: bool) -> None:
        watch.serve(self)
        try:
            with watch.call(streaming=streaming):
                self._begun.set()
                self._go_on.wait(60)
            self.outcome = "answered"
        except Exception as error:  # noqa: BLE001 - whatever comes is looked at
            self.outcome = error

    def answer_late(self, text: str, *, streaming: bool) -> None:
        self.late.append((text, streaming))

    def let_go(self) -> object:
        self._go_on.set()
        self._thread.join(60)
        return self.outcome


def watched(clock: Clock) -> DeadlineWatch:
    """A watch of ten seconds."""
    return DeadlineWatch(10.0, FOLDER, clock)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_thread_over_its_deadline_is_abandoned(streaming: bool, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    watch = watched(clock)
    held = Held(watch, streaming=streaming)

    clock.now = 10.0
    watch.look()
    watch.look()

    [(text, broke_off)] = held.late
    assert (str(watch.timeout()), broke_off) == (text, streaming)
    assert (watch.hangs, watch.hanging) == (True, 1)
    assert re.search(r"hangs at test_deadline\.py:\d+ in _run, which waits in .*threading", caplog.text)
    assert isinstance(held.let_go(), Abandoned)
    assert (watch.hangs, watch.hanging, watch.answered) == (True, 0, False)


def test_a_call_within_a_call_has_no_deadline_of_its_own() -> None:
    """The first piece of a stream counts to the head of the answer."""
    clock = Clock()
    watch = watched(clock)

    with watch.call():
        outer = watch.current()
        with watch.call(streaming=True):
            assert watch.current() is outer
        assert watch.current() is outer
    assert watch.current() is None


def test_where_a_thread_is_that_has_ended() -> None:
    assert place_of(Lane(2**40).frames(), FOLDER) == NOWHERE
