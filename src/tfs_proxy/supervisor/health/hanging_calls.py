"""Calls of the script that hang, as workers report them, and whether replacing workers helps.

gunicorn's master replaces a worker with such calls within about a second, and the container stays in
service. It is unhealthy if every worker is full of hanging calls, if no new worker comes up, or if new
workers hang as well and answer nothing in between.
"""

from collections.abc import Collection

from msgspec import Struct, field

MORE_THAN_WORKERS = 2
"""This many more workers than configured must hang in a row, with no answer in between."""


class _Hanging(Struct):
    """A worker with hanging calls: since when, at which line of the script, and whether no thread is free."""

    since: float
    line: str
    full: bool


class HangingCalls(Struct):
    """``workers`` is the configured number, ``replaced_seconds`` how long a replacement may take."""

    workers: int = 1
    replaced_seconds: float = 300.0
    loading: dict[bytes, str] = field(default_factory=dict)
    _hanging: dict[bytes, _Hanging] = field(default_factory=dict)
    _stuck: dict[bytes, int] = field(default_factory=dict)
    _in_a_row: int = 0

    def hear(self, pid: bytes, message: str, now: float) -> None:
        """Note the message that a worker sent after its pid: see `web.workers`."""
        state, _, line = message.partition(" ")
        if state == "loading":
            self.loading[pid] = line
        elif state == "answered":
            self._in_a_row = 0
        elif state in {"hangs", "full"}:
            known = self._hanging.get(pid)
            if known is None:
                self._in_a_row += 1
            since = now if known is None else known.since
            self._hanging[pid] = _Hanging(since, line, state == "full")
        elif state == "stuck" and line.isdecimal():
            self._stuck[pid] = int(line)

    def forget(self) -> None:
        """The workers are gone."""
        self.loading.clear()
        self._hanging.clear()
        self._stuck.clear()

    def count(self, alive: Collection[bytes]) -> int:
        """How many of the workers ``alive`` have calls that hang."""
        return sum(pid in alive for pid in self._hanging)

    def stuck_threads(self, alive: Collection[bytes]) -> int:
        """How many threads of the workers ``alive`` have a call that hangs."""
        self._stuck = {pid: threads for pid, threads in self._stuck.items() if pid in alive}
        return sum(self._stuck.values())

    def reason(self, alive: Collection[bytes], now: float) -> str | None:
        """Why the script can't answer in the workers ``alive``; None if it can."""
        self._hanging = {pid: worker for pid, worker in self._hanging.items() if pid in alive}
        for pid in alive:
            self.loading.pop(pid, None)
        if not self._hanging:
            return None if self._helps() else "the script hangs in every worker, new ones included"
        *_, last = self._hanging.values()
        if not self._helps():
            return f"the script hangs in every worker, new ones included, at {last.line}"
        if len(self._hanging) < len(alive):
            return None
        if all(worker.full for worker in self._hanging.values()):
            return f"the script hangs in every thread of every worker, at {last.line}"
        if now - max(worker.since for worker in self._hanging.values()) > self.replaced_seconds:
            return f"the script hangs at {last.line}, and no new worker comes up{self._where_it_loads()}"
        return None

    def _helps(self) -> bool:
        return self._in_a_row < self.workers + MORE_THAN_WORKERS

    def _where_it_loads(self) -> str:
        return "".join(f": it loads the script, {line}" for line in (*self.loading.values(),)[-1:])
