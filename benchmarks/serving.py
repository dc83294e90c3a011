"""Measures the whole stack on this machine: start-up, requests per second, latency and memory.

``make bench`` runs it. Runs of the rows alternate and each cell is the median of its rounds, because a
shared machine is noisy; the rows are to be read as ratios to the first. It needs wrk on PATH.
"""

import argparse
import json
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONNECTIONS = (1, 8, 64)
BODY = '{"instances": [1.0, 2.0, 5.0]}'
SCRIPT = """
import json


def input_handler(data, context):
    return data.read().decode("utf-8")


def output_handler(response, context):
    if response.status_code != 200:
        raise ValueError(response.content.decode("utf-8"))
    return response.content, context.accept_header
"""


@dataclass
class Row:
    """One way to reach the model: requests per second and latencies by number of connections."""

    name: str
    url: str
    rates: dict[int, list[float]] = field(default_factory=dict)
    latencies: dict[int, list[tuple[float, float]]] = field(default_factory=dict)


def export_model(folder: Path) -> None:
    """half_plus_two as a SavedModel, in a process of its own."""
    code = (
        "import sys, tensorflow as tf\n"
        "class M(tf.Module):\n"
        "    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name='x')])\n"
        "    def f(self, x): return {'y': 0.5 * x + 2.0}\n"
        "m = M(); tf.saved_model.save(m, sys.argv[1], signatures=m.f)\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(folder / "half_plus_two" / "1")], check=True, capture_output=True
    )


def free_port() -> int:
    """A loopback port that nothing listens on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])


@contextmanager
def serve(model: Path, model_server: str) -> Iterator[tuple[int, int, float]]:
    """A running stack: its port, its pid and the seconds it took to a 200 from /ping."""
    port, began = free_port(), time.monotonic()
    command = [sys.executable, "-m", "tfs_proxy.cli", "serve", str(model), "--host", "127.0.0.1"]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--model-server", model_server],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not answers(f"http://127.0.0.1:{port}/ping"):
            if process.poll() is not None:
                sys.exit(f"the server ended with {process.returncode}")
            time.sleep(0.005)
        yield port, process.pid, time.monotonic() - began
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def answers(url: str) -> bool:
    """Whether a GET is answered with 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def descendants(pid: int) -> Iterator[int]:
    """All processes below ``pid``."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from descendants(int(child))


def memory(pid: int) -> dict[str, list[float]]:
    """Proportional set size in MB of every process of the run, by name."""
    sizes: dict[str, list[float]] = {}
    for each in (pid, *descendants(pid)):
        words = Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        names = (
            "nginx",
            "gunicorn",
            "tfs_proxy.embedded",
            "tensorflow_model_server",
            "watchdog",
            "tfs_proxy.cli",
        )
        name = next((known for known in names if known in words), words[:20])
        pss = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{each}/smaps_rollup").read_text(), re.MULTILINE)
        sizes.setdefault(name, []).append(int(pss[1]) / 1024 if pss else 0.0)
    return sizes


def rest_port(pid: int) -> int:
    """The REST port of the model server, from its command line."""
    for each in descendants(pid):
        match = re.search(rb"--rest_api_port=(\d+)", Path(f"/proc/{each}/cmdline").read_bytes())
        if match:
            return int(match[1])
    sys.exit("no model server found")


def load(url: str, connections: int, seconds: float, script: Path) -> tuple[float, float, float]:
    """Requests per second, p50 and p99 in ms, by wrk."""
    words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--latency", "-s", str(script), url]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        print(said, file=sys.stderr)
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1])  # type: ignore[index]
    p50, p99 = (milliseconds(re.search(rf"{part}%\s+([\d.]+)(us|ms|s)", said)) for part in (50, 99))
    return rate, p50, p99


def milliseconds(match: "re.Match[str] | None") -> float:
    """A duration in the notation of wrk, as ms."""
    return float(match[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[match[2]] if match else float("nan")


def measure(rows: list[Row], rounds: int, seconds: float, script: Path) -> None:
    """Fill the rows, taking turns."""
    for number in range(rounds):
        for connections in CONNECTIONS:
            for row in rows:
                rate, p50, p99 = load(row.url, connections, seconds, script)
                row.rates.setdefault(connections, []).append(rate)
                row.latencies.setdefault(connections, []).append((p50, p99))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)


def report(rows: list[Row]) -> None:
    """The table, in Markdown."""
    head = " | ".join(f"{count} conn: req/s (ratio), p50/p99 ms" for count in CONNECTIONS)
    print(f"| tiny JSON predict | {head} |\n|---|{'---|' * len(CONNECTIONS)}")
    for row in rows:
        cells = []
        for count in CONNECTIONS:
            rate, base = statistics.median(row.rates[count]), statistics.median(rows[0].rates[count])
            p50 = statistics.median(pair[0] for pair in row.latencies[count])
            p99 = statistics.median(pair[1] for pair in row.latencies[count])
            cells.append(f"{rate:.0f} ({rate / base:.2f}), {p50:.2f}/{p99:.2f}")
        print(f"| {row.name} | {' | '.join(cells)} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--model-server", default="auto")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed: apt-get install wrk")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bare, scripted = folder / "bare", folder / "scripted"
        export_model(bare)
        shutil.copytree(bare, scripted)
        (scripted / "code").mkdir()
        (scripted / "code" / "inference.py").write_text(SCRIPT)
        lua = folder / "post.lua"
        lua.write_text(
            'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
            f"wrk.body = {json.dumps(BODY)}\n"
        )
        with serve(bare, arguments.model_server) as one, serve(scripted, arguments.model_server) as two:
            model = f"http://127.0.0.1:{rest_port(one[1])}/v1/models/half_plus_two:predict"
            rows = [
                Row("straight to the model server", model),
                Row("no script", f"http://127.0.0.1:{one[0]}/invocations"),
                Row("classic script", f"http://127.0.0.1:{two[0]}/invocations"),
            ]
            measure(rows, arguments.rounds, arguments.seconds, lua)
            print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
            report(rows)
            print(f"\nstart to 200 on /ping: {one[2]:.2f} s without, {two[2]:.2f} s with a script\n")
            print("memory after the load, PSS in MB, with the script:")
            for process, sizes in memory(two[1]).items():
                print(f"- {process}: {', '.join(f'{size:.0f}' for size in sizes)}")


if __name__ == "__main__":
    main()
