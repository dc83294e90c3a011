"""Measures the adaptive limit: twice the load that a stack carries, with TFS_PROXY_ADAPTIVE_LIMIT and without.

The script waits 10 ms for one of four places, as for a device: 400 requests a second for each worker. The
requests' times are fixed in advance (open loop), and latencies count from these times.
"""

import argparse
import http.client
import itertools
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SCRIPT = """
import threading, time

places = threading.Semaphore(4)

def model_fn(model_dir):
    return None

def predict_fn(data, model):
    with places:
        time.sleep(0.01)
    return data
"""
CONNECTIONS = 128
START_SECONDS = 60.0


@dataclass
class Load:
    """What has come of the requests: statuses, 0 for a broken connection, and seconds of those with 200."""

    codes: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def percentile_ms(self, share: float) -> float:
        """Of the accepted requests."""
        ascending = sorted(self.seconds)
        return 1000 * ascending[min(int(share * len(ascending)), len(ascending) - 1)]


def send(port: int, rate: float, seconds: float, connections: int = CONNECTIONS) -> Load:
    """``rate`` requests a second, whatever becomes of them; with a rate of 0 each waits for the last one."""
    load, numbers, lock = Load(), itertools.count(), threading.Lock()
    began = time.perf_counter() + 0.1

    def client() -> None:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while True:
            due = began + next(numbers) / rate if rate else max(began, time.perf_counter())
            if due > began + seconds:
                return
            time.sleep(max(0.0, due - time.perf_counter()))
            status = _ask(link)
            taken = time.perf_counter() - due
            with lock:
                load.codes[status] += 1
                if status == http.client.OK:
                    load.seconds.append(taken)

    clients = [threading.Thread(target=client) for _ in range(connections)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    return load


def _ask(link: http.client.HTTPConnection) -> int:
    try:
        link.request("POST", "/invocations", b"1,2\n", {"Content-Type": "text/csv"})
        answer = link.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        link.close()
        return 0
    return answer.status


@contextmanager
def stack(folder: Path, workers: int, **env: str) -> Iterator[int]:
    """A stack that is ready; its port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    archive = folder / "model"
    (archive / "code").mkdir(parents=True, exist_ok=True)
    (archive / "code" / "inference.py").write_text(SCRIPT)
    with tarfile.open(folder / "model.tar.gz", "w:gz") as packed:
        packed.add(archive / "code", "code")
    variables = {
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "SAGEMAKER_GUNICORN_WORKERS": str(workers),
        "TFS_PROXY_HOME": str(folder / "home"),
    }
    command = [sys.executable, "-m", "tfs_proxy.cli", "serve", str(folder / "model.tar.gz")]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, env={**os.environ, **variables, **env}, stdout=log, stderr=log)
    try:
        _wait_ready(port, folder / "log")
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait_ready(port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while _ask(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) != http.client.OK:
        if time.monotonic() > deadline:
            sys.exit(f"the stack was not ready within {START_SECONDS:g} seconds: {log.read_text()[-2000:]}")
        time.sleep(0.1)


def row(name: str, rate: float, load: Load) -> str:
    """A row of the table."""
    codes = ", ".join(f"{status or 'broken'}: {count}" for status, count in sorted(load.codes.items()))
    share = 100 * load.codes[http.client.OK] / load.codes.total()
    times = f"{load.percentile_ms(0.5):.1f} | {load.percentile_ms(0.99):.1f}"
    return f"| {name} | {rate:.0f} | {share:.0f} % | {times} | {codes} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="100ms", help="the adaptive limit")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tp-") as home:
        folder = Path(home)
        print("| limit | req/s sent | accepted | p50 ms | p99 ms | answers |")
        print("|---|---|---|---|---|---|")
        with stack(folder, arguments.workers) as port:
            carried = (
                send(port, 0, arguments.seconds, connections=16).codes[http.client.OK] / arguments.seconds
            )
            print(row("none", 2 * carried, send(port, 2 * carried, arguments.seconds)))
        with stack(folder, arguments.workers, TFS_PROXY_ADAPTIVE_LIMIT=arguments.target) as port:
            send(port, 2 * carried, arguments.seconds)  # until the limit is found
            print(row(arguments.target, 2 * carried, send(port, 2 * carried, arguments.seconds)))
            print(row(arguments.target, carried / 2, send(port, carried / 2, arguments.seconds)))


if __name__ == "__main__":
    main()
