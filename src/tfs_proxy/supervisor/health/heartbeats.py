"""What workers and gunicorn's master say of themselves in datagrams, for `Readiness`."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Collection
from pathlib import Path

from tfs_proxy.deployment import BootFailure
from tfs_proxy.supervisor.health.hanging_calls import HangingCalls

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.01
STARTS_IN_VAIN = 3
"""So often each worker may begin to load without that any worker serves."""


class Heartbeats(asyncio.DatagramProtocol):
    """Workers send their pid; a beat is fresh for ``limit_seconds``.

    ``booted`` is set by the first beat.

    A worker that begins to load the application sends its pid with a ``+``: ``loading`` has them all, and
    ``starts`` counts them. One that can't load it sends a `BootFailure`: ``failure`` is the latest.

    A message after the pid is its adaptive limit, for ``limit``, or for `HangingCalls`.
    """

    def __init__(
        self,
        limit_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        hanging_calls: HangingCalls | None = None,
    ) -> None:
        self.limit_seconds = limit_seconds
        self.hanging_calls = hanging_calls or HangingCalls()
        self._clock = clock
        self._beats: dict[bytes, float] = {}
        self._limits: dict[bytes, int] = {}
        self.booted = asyncio.Event()
        self.failure: BootFailure | None = None
        self.loading: set[bytes] = set()
        self.starts = 0
        self._starts_in_vain = 0
        self._transport: asyncio.DatagramTransport | None = None

    async def listen(self, path: Path) -> None:
        """Receive beats on a unix datagram socket at ``path`` from now on."""
        beats = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        beats.setblocking(False)
        beats.bind(str(path))
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=beats)

    def close(self) -> None:
        """Receive no more; idempotent."""
        if self._transport is not None:
            self._transport.close()

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Note a worker's message."""
        del addr
        if data.startswith(b"+"):
            self.loading.add(data)
            self.starts += 1
            self._starts_in_vain += 1
            return
        if data.startswith(b"{"):
            self._note_failure(data)
            return
        pid, _, message = data.partition(b" ")
        kind, _, value = message.partition(b" ")
        if kind == b"limit" and value.isdigit():
            self._limits[pid] = int(value)
        elif message:
            self.hanging_calls.hear(pid, message.decode(errors="replace"), self._clock())
        else:
            self._beats[data] = self._clock()
            self._starts_in_vain = 0
            self.booted.set()

    def _note_failure(self, data: bytes) -> None:
        try:
            self.failure = BootFailure.from_json(data)
        except ValueError:  # a script can write to the socket, too
            log.warning("a message from a worker can't be read")

    async def until_alive(self, *, every_worker: bool) -> None:
        """Return once a worker beats, or as many as there should be."""
        await self.booted.wait()
        while len(self.alive) < (self.wanted if every_worker else 1):  # noqa: ASYNC110 - workers come and go
            await asyncio.sleep(LOOK_SECONDS)

    def forget(self) -> None:
        """Drop all beats: their workers are gone."""
        self._beats.clear()
        self._limits.clear()
        self.hanging_calls.forget()
        self.booted.clear()

    def forget_loading(self) -> None:
        """Other workers are about to load the application: forget how earlier ones did."""
        self.loading.clear()
        self.failure = None

    def fresh(self) -> bool:
        """Whether any worker is booted and beats."""
        now = self._clock()
        self._beats = {pid: beat for pid, beat in self._beats.items() if now - beat <= self.limit_seconds}
        return bool(self._beats)

    def lost(self) -> str | None:
        """Why no worker answers, as a phrase; None if one does, or is about to.

        A killed worker counts as long as its last beat is fresh: another one takes its place.
        """
        if self._starts_in_vain > STARTS_IN_VAIN * max(self.wanted, 1):
            return "workers end before they serve: the log says why"
        return "no worker sends heartbeats" if self.missed() else None

    def missed(self) -> bool:
        """Whether no worker beats."""
        return not self.fresh()

    @property
    def alive(self) -> Collection[bytes]:
        """The pids of workers whose last beat is fresh."""
        return self._beats.keys() if self.fresh() else ()

    @property
    def wanted(self) -> int:
        """How many workers there should be."""
        return self.hanging_calls.workers

    @property
    def limit(self) -> int | None:
        """How many inferences the workers ``alive`` may answer at once; None if nothing limits them."""
        alive = self.alive
        self._limits = {pid: limit for pid, limit in self._limits.items() if pid in alive}
        return sum(self._limits.values()) if self._limits else None

    def hanging(self) -> str | None:
        """Why the workers that live can't answer for the script; None if they can."""
        return self.hanging_calls.reason(self._beats, self._clock())
