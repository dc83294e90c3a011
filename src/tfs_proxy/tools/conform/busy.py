"""Keeps every worker of the container busy for a while, and measures what it answers meanwhile."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from msgspec import Struct

from tfs_proxy.tools.conform.raw_http import NoReply, RawConnection, RawReply, RawRequest, ask_once

Address = tuple[str, int]
Measured = TypeVar("Measured")
BETWEEN_SECONDS = 0.1
TIMES = 5
"""Connections and pings each, until one fails. A connection may be lucky once while pings fail already."""

CONNECT_SECONDS = 1.0
"""Limit of a connection: four times the time that is allowed."""
METRICS_SECONDS = 10.0


class BusyPeriod(Struct, frozen=True):
    """Measurements while requests were worked on; a string says why there is no answer.

    ``in_flight`` is how many of the requests still waited for an answer at the end of the measurements.
    """

    connects: tuple[float | str, ...]
    pings: tuple[RawReply | str, ...]
    metrics: RawReply | str
    in_flight: int


def measure_busy(address: Address, load: RawRequest, paths: tuple[str, str], width: int) -> BusyPeriod:
    """Send ``load`` from ``width`` threads again and again; connect, ping and scrape meanwhile.

    ``paths`` are those of ping and of the metrics. It returns when all requests have been answered.
    """
    generator = LoadGenerator(address, load, width)
    with ThreadPoolExecutor(width) as threads:
        for _ in range(width):
            threads.submit(generator.run)
        generator.has_begun.wait(BETWEEN_SECONDS * 10)
        try:
            return _measured(address, paths, generator)
        finally:
            generator.ends = True


class LoadGenerator:
    """The same request again and again, until ``ends``; errors are no business of the load."""

    def __init__(self, address: Address, load: RawRequest, width: int, seconds: float = 60.0) -> None:
        self.ends = False
        self.has_begun = threading.Event()
        self.in_flight = 0
        self._address, self._load, self._width, self._seconds = address, load, width, seconds
        self._lock = threading.Lock()

    def run(self) -> None:
        while not self.ends:
            self._count(1)
            try:
                ask_once(self._address, self._load, self._seconds)
            except NoReply:
                time.sleep(BETWEEN_SECONDS)
            finally:
                self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self.in_flight += change
            if self.in_flight == self._width:
                self.has_begun.set()


def _measured(address: Address, paths: tuple[str, str], generator: LoadGenerator) -> BusyPeriod:
    ping, metrics = (RawRequest(path=path) for path in paths)
    connects: list[float | str] = []
    pings: list[RawReply | str] = []
    while len(connects) < TIMES and not _has_failed(connects):
        time.sleep(BETWEEN_SECONDS)
        connects.append(said(lambda: _connect_seconds(address)))
        if not _has_failed(pings):
            pings.append(said(lambda: ask_once(address, ping, 2.0)))
    scraped = said(lambda: ask_once(address, metrics, METRICS_SECONDS))
    return BusyPeriod(tuple(connects), tuple(pings), scraped, generator.in_flight)


def _has_failed(measured: Sequence[object]) -> bool:
    return any(isinstance(each, str) for each in measured)


def _connect_seconds(address: Address) -> float:
    with RawConnection(address, CONNECT_SECONDS) as connection:
        return connection.connect_seconds


def said(ask: Callable[[], Measured]) -> Measured | str:
    """Returns the value of ``ask``, or a sentence that says why there was no answer."""
    try:
        return ask()
    except NoReply as error:
        return str(error)


def at_once(address: Address, requests: list[RawRequest], seconds: float) -> list[RawReply | str]:
    """Sends all at the same time, each on a connection of its own."""
    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(lambda request: said(lambda: ask_once(address, request, seconds)), requests))
