"""Measures the whole stack beside the model server alone and the baseline proxy, in alternating runs.

``make bench`` runs it. A shared machine is noisy: each cell is the median of its rounds, and only the ratios
are meaningful. It needs wrk on PATH, prints the tables in Markdown and draws serving.svg.
"""

import argparse
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import footprint
import gunicorn
import numpy as np
from stack import Running, baseline, export_models, memory, rest_url, serve, with_script

import tfs_proxy

HERE = Path(__file__).parent
TINY = b'{"instances": [1.0, 2.0, 5.0]}'
MODEL = "X-Amzn-SageMaker-Custom-Attributes"
WAIT_SECONDS = 0.1


@dataclass
class Row:
    """One implementation of one piece of work: the requests to send, and their results."""

    work: str
    way: str
    url: str
    body: bytes
    headers: dict[str, str]
    connections: Sequence[int]
    measured: dict[int, list[tuple[float, float, float]]] = field(default_factory=dict)

    def median(self, connections: int) -> tuple[float, float, float]:
        """Requests per second, p50 and p99 in ms."""
        columns = zip(*self.measured[connections], strict=True)
        rate, p50, p99 = (statistics.median(column) for column in columns)
        return rate, p50, p99


def rows_of(bare: Running, scripted: Running, plain: Running) -> list[list[Row]]:
    """The rows by work; the first of each group is what the others are compared with."""
    model = rest_url(bare.pid)
    photo = random.Random(0).randbytes(106_000)
    floats = np.random.default_rng(0).random((224, 224, 3), np.float32).tobytes()
    table = "\n".join(
        ",".join(f"{x:.5f}" for x in row) for row in np.random.default_rng(0).random((1266, 100))
    )
    send = {"Content-Type": "application/json"}
    jpeg, octets, raw = (
        {"Content-Type": f"{kind}"} for kind in ("image/jpeg", "application/octet-stream", "image/x-bytes")
    )
    to = lambda name: {MODEL: f"tfs-model-name={name}"}  # noqa: E731
    ours, through, beside = (f"{server.url}/invocations" for server in (bare, scripted, plain))
    many = (1, 8, 64)
    waiting = (64, 256)
    return [
        [
            Row("tiny JSON", "model server alone", f"{model}/v1/models/tiny:predict", TINY, send, many),
            Row("tiny JSON", "no script", ours, TINY, send, many),
        ],
        [
            Row("tiny JSON, classic script", "baseline proxy", beside, TINY, send, many),
            Row("tiny JSON, classic script", "this project", through, TINY, send, many),
        ],
        [
            Row("JPEG", "baseline proxy, base64", beside, photo, jpeg, (8,)),
            Row("JPEG", "classic script, base64", through, photo, {**jpeg, **to("jpeg")}, (8,)),
            Row("JPEG", "script returns bytes", through, photo, {**raw, **to("jpeg")}, (8,)),
        ],
        [
            Row("224x224x3 floats", "baseline proxy, json.dumps(tolist())", beside, floats, octets, (8,)),
            Row(
                "224x224x3 floats",
                "script returns the array",
                through,
                floats,
                {**octets, **to("f224")},
                (8,),
            ),
        ],
        [
            Row(
                "1 MB CSV",
                "no script",
                ours,
                table.encode(),
                {"Content-Type": "text/csv", **to("rows")},
                (8,),
            )
        ],
        [
            Row("model that waits 0.1 s", "connections / 0.1 s", "", TINY, send, waiting),
            Row(
                "model that waits 0.1 s", "classic script", through, TINY, {**send, **to("waiting")}, waiting
            ),
        ],
    ]


def load(row: Row, connections: int, seconds: int, folder: Path) -> tuple[float, float, float]:
    """Requests per second, p50 and p99 in ms, by wrk."""
    if not row.url:
        return connections / WAIT_SECONDS, WAIT_SECONDS * 1000, WAIT_SECONDS * 1000
    body, script = folder / "body", folder / "post.lua"
    body.write_bytes(row.body)
    headers = "".join(
        f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}\n" for name, value in row.headers.items()
    )
    script.write_text(f'wrk.method = "POST"\n{headers}wrk.body = io.open("{body}", "rb"):read("*a")\n')
    words = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}s",
        "--timeout",
        "20s",
        "--latency",
        "-s",
        str(script),
        row.url,
    ]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        print(row.work, row.way, connections, said, file=sys.stderr)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    p50, p99 = (milliseconds(re.search(rf"{part}%\s+([\d.]+)(us|ms|s)", said)) for part in (50, 99))
    return float(rate[1]) if rate else 0.0, p50, p99


def rate_at(
    folder: Path, url: str, body: bytes, headers: dict[str, str], connections: int, seconds: int
) -> float:
    """Requests per second at ``url``."""
    return load(Row("", "", url, body, headers, ()), connections, seconds, folder)[0]


def milliseconds(match: "re.Match[str] | None") -> float:
    """A duration in the notation of wrk, as ms."""
    return float(match[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[match[2]] if match else float("nan")


def measure(groups: list[list[Row]], rounds: int, seconds: int, folder: Path) -> None:
    """Fill the rows; within a group they take turns."""
    for number in range(rounds):
        for group in groups:
            for connections in group[0].connections:
                for row in group:
                    row.measured.setdefault(connections, []).append(load(row, connections, seconds, folder))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)


def table(groups: list[list[Row]]) -> str:
    """All rows in Markdown, with the ratio to the first of their group."""
    lines = [
        "| work | way | connections | req/s | ratio | p50 ms | p99 ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for group in groups:
        for connections in group[0].connections:
            base = group[0].median(connections)[0]
            for row in group:
                rate, p50, p99 = row.median(connections)
                lines.append(
                    f"| {row.work} | {row.way} | {connections} | {rate:.0f} | {rate / base:.2f} | {p50:.2f} | {p99:.2f} |"
                )
    return "\n".join(lines)


def graph(groups: list[list[Row]]) -> str:
    """Bars at 8 connections, each group to its own scale, as SVG."""
    shown = [group for group in groups if len(group) > 1 and 8 in group[0].connections]
    parts, y = [], 10
    for group in shown:
        most = max(row.median(8)[0] for row in group)
        parts.append(f'<text x="10" y="{y + 14}" font-weight="bold">{group[0].work}, 8 connections</text>')
        y += 22
        for row in group:
            rate = row.median(8)[0]
            color = "#b0b8c4" if row is group[0] else "#2f7d4f"
            parts.append(f'<text x="10" y="{y + 14}">{row.way}</text>')
            parts.append(
                f'<rect x="280" y="{y + 2}" width="{max(rate / most * 340, 1):.0f}" height="15" fill="{color}"/>'
            )
            parts.append(f'<text x="{290 + rate / most * 340:.0f}" y="{y + 14}">{rate:,.0f} req/s</text>')
            y += 22
        y += 10
    style = 'font-family="sans-serif" font-size="12"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{y}" {style}>{"".join(parts)}</svg>\n'
    )


def slowest_ping(url: str, pings: int = 40) -> float:
    """The longest of some calls of /ping, in ms."""
    slowest = 0.0
    for _ in range(pings):
        began = time.monotonic()
        urllib.request.urlopen(f"{url}/ping", timeout=10).close()
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.05)
    return slowest * 1000


def ping_under_load(row: Row, url: str, folder: Path) -> float:
    """The slowest /ping in ms while 256 connections wait for the model that waits."""
    words = [sys.executable, __file__, "--only-load", json.dumps([row.url, row.headers, row.body.decode()])]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=folder) as loading:
        time.sleep(1)
        slowest = slowest_ping(url)
        loading.wait()
    return slowest


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--model-server", default="auto")
    parser.add_argument("--only-load", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed: apt-get install wrk")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.only_load:
            url, headers, body = json.loads(arguments.only_load)
            load(Row("", "", url, body.encode(), headers, ()), 256, 4, folder)
            return
        bare = export_models(folder / "bare")
        scripted = with_script(bare, folder / "scripted")
        with (
            serve(bare, arguments.model_server) as one,
            serve(scripted, arguments.model_server) as two,
            baseline(rest_url(one.pid)) as plain,
        ):
            groups = rows_of(one, two, plain)
            measure(groups, arguments.rounds, arguments.seconds, folder)
            ping = ping_under_load(groups[-1][1], two.url, folder)
            versions = f"Python {platform.python_version()}, gunicorn {gunicorn.__version__}, tfs_proxy {tfs_proxy.__version__}"
            print(f"{platform.machine()}, {os.cpu_count()} cores, {versions}\n")
            print(table(groups))
            print(f"\nSlowest /ping under 256 connections to the model that waits: {ping:.0f} ms.")
            print(
                f"Start to 200 on /ping: {one.start_seconds:.2f} s without, {two.start_seconds:.2f} s with a script."
            )
            sizes = "; ".join(
                f"{key} {', '.join(f'{size:.0f}' for size in each)}" for key, each in memory(two.pid).items()
            )
            print(f"Memory after it all, with the script, PSS in MB: {sizes}.")
            (HERE / "serving.svg").write_text(graph(groups))
        rate = partial(rate_at, folder)
        for line in footprint.lines(rate, bare, arguments.model_server, arguments.seconds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
