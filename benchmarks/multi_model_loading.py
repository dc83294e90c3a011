"""Compares requests to other models while 16 models load with the same requests without loads.

`make bench-multi-model` runs it. One client with one connection sends requests at a fixed pace all the time,
which leaves most of the machine to the loads; the time of each is from when it was due, so that one that
waits for the one before it counts in full. Rounds with and without loads take turns.
"""

import argparse
import http.client
import itertools
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import stack
from load import TINY
from multi_model import MANY, Endpoint

LOADS = 16
PACE_SECONDS = 0.005
OTHER = "other"


@dataclass
class Latencies:
    """Milliseconds of requests."""

    milliseconds: list[float] = field(default_factory=list)

    def shown(self) -> str:
        """The p50, the p99 and the longest."""
        return (
            f"p50 {self.quantile(50):.1f} ms, p99 {self.quantile(99):.1f} ms, "
            f"longest {max(self.milliseconds):.0f} ms of {len(self.milliseconds)}"
        )

    def quantile(self, percent: int) -> float:
        """The time within which so many percent were answered."""
        return statistics.quantiles(self.milliseconds, n=100)[percent - 1]


def send_until(ended: threading.Event, served: stack.Running, path: str, into: Latencies) -> None:
    """Send requests at the pace until the end."""
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=60)
    due = time.perf_counter()
    while not ended.is_set():
        time.sleep(max(0.0, due - time.perf_counter()))
        connection.request("POST", path, TINY, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
        into.milliseconds.append((time.perf_counter() - due) * 1000)
        due += PACE_SECONDS
    connection.close()


def load_all(endpoint: Endpoint, names: list[str], archive: Path) -> float:
    """Load models at the same time; returns the seconds."""
    began = time.perf_counter()
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(endpoint.load, names, itertools.repeat(archive)))
    return time.perf_counter() - began


def measure(archive: Path, model_server: str, rounds: int) -> str:
    """One line: requests to another model without loads and with them."""
    quiet, busy, seconds = Latencies(), Latencies(), []
    names = [f"m{number}" for number in range(LOADS)]
    with stack.serve(None, model_server, MANY) as served:
        endpoint = Endpoint(served)
        endpoint.load(OTHER, archive)
        for _ in range(rounds):
            with sending(served, busy):
                seconds.append(load_all(endpoint, names, archive))
            for name in names:
                endpoint.unload(name)
            with sending(served, quiet):
                time.sleep(seconds[-1])
    ratio = busy.quantile(99) / quiet.quantile(99)
    return (
        f"{LOADS} loads in {statistics.median(seconds):.1f} s; without: {quiet.shown()}; "
        f"with: {busy.shown()}; ratio of p99 {ratio:.2f}"
    )


class sending:  # noqa: N801 - used as a function is
    """Requests all the time, while this is open."""

    def __init__(self, served: stack.Running, into: Latencies) -> None:
        self._ended = threading.Event()
        path = f"/models/{OTHER}/invoke"
        self._thread = threading.Thread(target=send_until, args=(self._ended, served, path, into))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def main() -> None:
    """Measure models without a script, and with one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-server", default="embedded")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="the lines whose names contain this")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = stack.only(stack.export_models(folder / "all") / "tiny", folder / "plain")
        scripted = stack.with_script(plain, folder / "scripted")
        for kind, archive in (("without a script", plain), ("classic script", scripted)):
            if arguments.only in kind:
                print(f"{kind}: {measure(archive, arguments.model_server, arguments.rounds)}", flush=True)


if __name__ == "__main__":
    main()
