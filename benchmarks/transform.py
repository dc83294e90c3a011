"""Measures the driver of batch transform against a server that answers at once: it must not be the limit.

    python benchmarks/transform.py

Rounds of the rows alternate and each cell is the median of its rounds. The server is an echo in a process
of its own on the same machine, so all rows share the cores with it.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from tfs_proxy.payload.framing import tfrecord_frame

ROOT = Path(__file__).resolve().parents[1]
SERVER = ROOT / "tests" / "stand_ins" / "invocations.py"
CONCURRENT = 8
LINES = 20_000
POSTS = 2_000
RECORD_BYTES = 100_000
TFRECORD_MB = 512


@contextlib.contextmanager
def server(**environment: str) -> Iterator[str]:
    """The address of a server that answers at once."""
    with subprocess.Popen(
        [sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def loop_of_posts(address: str) -> float:
    """Requests per second of `requests.post` from a thread pool."""

    def post(number: int) -> bytes:
        return requests.post(f"{address}/invocations", data=b"%d,1,2,3" % number, timeout=60).content

    began = time.monotonic()
    with ThreadPoolExecutor(CONCURRENT) as pool:
        list(pool.map(post, range(POSTS)))
    return POSTS / (time.monotonic() - began)


def transform(address: str, data: Path, *flags: str) -> dict[str, float]:
    """The summary of one job."""
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        words = ["--input", str(data), "--output", f"{folder}/out", "--endpoint", address, *flags]
        subprocess.run(
            [sys.executable, "-m", "tfs_proxy.cli", "transform", *words, "--summary", str(summary)],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        values: dict[str, float] = json.loads(summary.read_text())
        return values


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    posts, sent, megabytes = [], [], []
    with tempfile.TemporaryDirectory() as folder, server(FIXED_ANSWER="0.5") as address:
        lines, records = Path(folder) / "lines", Path(folder) / "records"
        lines.write_bytes(b"".join(b"%d,1,2,3\n" % number for number in range(LINES)))
        frame = tfrecord_frame(os.urandom(RECORD_BYTES))
        records.write_bytes(frame * (TFRECORD_MB * 1_000_000 // len(frame)))
        single = ("--split-type", "Line", "--strategy", "SingleRecord", "--assemble-with", "Line")
        for _ in range(rounds):
            posts.append(loop_of_posts(address))
            job = transform(address, lines, *single, "--max-concurrent", str(CONCURRENT))
            sent.append(job["requests_per_second"])
            job = transform(address, records, "--split-type", "TFRecord", "--max-concurrent", "4")
            megabytes.append(job["mb_per_second"])
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print("| what | median of rounds |\n|---|---|")
    print(f"| loop of `requests.post`, {CONCURRENT} threads | {statistics.median(posts):.0f} requests/s |")
    print(f"| `transform`, SingleRecord, {CONCURRENT} at once | {statistics.median(sent):.0f} requests/s |")
    print(f"| ratio | {statistics.median(sent) / statistics.median(posts):.1f} |")
    print(
        f"| `transform`, TFRecord, MultiRecord of 6 MB, 4 at once | {statistics.median(megabytes):.0f} MB/s |"
    )


if __name__ == "__main__":
    main()
