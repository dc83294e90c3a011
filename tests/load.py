"""Clients that keep sending requests, and count what became of each."""

import contextlib
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator

LOOPBACK = "127.0.0.1"
CLIENTS = 8


class Load:
    """``clients`` threads, each on a kept-alive connection, until told to stop.

    A request is sent again only where an idle connection was closed before any byte of an answer. Where
    no connection opens, nobody has accepted the request: that is counted apart, and tried again.
    """

    def __init__(self, port: int, clients: int = CLIENTS, timeout_seconds: float = 60) -> None:
        self.port = port
        self.timeout_seconds = timeout_seconds
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(n,), daemon=True) for n in range(clients)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> Counter[str]:
        """Stop sending; the counts by outcome."""
        self._over.set()
        for thread in self._threads:
            thread.join(self.timeout_seconds + 5)
        assert not any(thread.is_alive() for thread in self._threads)
        return self.counts

    def _send(self, number: int) -> None:
        connection: http.client.HTTPConnection | None = None
        turn = number
        while not self._over.is_set():
            turn += 1
            connection = self._one(connection, float(turn % 1000))
        if connection is not None:
            connection.close()

    def _one(
        self, connection: http.client.HTTPConnection | None, value: float
    ) -> http.client.HTTPConnection | None:
        reused = connection is not None
        if connection is None:
            connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=self.timeout_seconds)
            try:
                connection.connect()
            except OSError:
                self._count("refused")
                time.sleep(0.01)
                return None
        try:
            connection.request(
                "POST",
                "/invocations",
                json.dumps({"instances": [value]}),
                {"Content-Type": "application/json"},
            )
            reply = connection.getresponse()
            body = reply.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            early = isinstance(error, http.client.RemoteDisconnected | ConnectionError)
            if reused and early:
                self._count("resent")
                return self._one(None, value)
            self._fail(f"{'kept' if reused else 'new'} connection: {error!r}")
            return None
        if reply.status == 200 and json.loads(body) == {"predictions": [value / 2 + 2]}:
            self._count("answered")
        else:
            self._fail(f"{reply.status} {body[:200]!r}")
        if reply.will_close:
            self._count("closing")
            connection.close()
            return None
        return connection

    def _count(self, outcome: str) -> None:
        with self._lock:
            self.counts[outcome] += 1

    def _fail(self, how: str) -> None:
        with self._lock:
            self.counts["failed"] += 1
            self.failures.append(how)


@contextlib.contextmanager
def load(port: int, clients: int = CLIENTS) -> Iterator[Load]:
    """A load that ends with the block, whatever happens."""
    sending = Load(port, clients)
    try:
        yield sending
    finally:
        sending.finish()
