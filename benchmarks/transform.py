"""Measures batch transform against a server that answers at once, to show that its client is not the limit.

    python benchmarks/transform.py
    python benchmarks/transform.py --resnet

Rows alternate and each cell is the median of its rounds. The server is an echo in a process of its own on the
same machine, so it shares the cores with all rows. With --resnet it is the ResNet-50 of code_examples/ behind
a whole stack, compared with the same model server without a stack, which gets the same images at the same
concurrency as prepared JSON for TF Serving.
"""

import argparse
import base64
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests
import stack

from processes import tree
from tfs_proxy.data.formats.framing import tfrecord_frame

ROOT = Path(__file__).resolve().parents[1]
SERVER = ROOT / "tests" / "support" / "stand_ins" / "invocations.py"
CONCURRENT = 8
LINES = 20_000
POSTS = 2_000
RECORD_BYTES = 100_000
TFRECORD_MB = 512
RESNET = ROOT / "code_examples" / "resnet50_jpeg"
IMAGES = 120


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


def resnet(rounds: int) -> None:
    """Images per second through the whole stack and by its model server alone, and who uses the CPU."""
    for words in (["export.py"], ["photographs.py", str(IMAGES)]):
        subprocess.run([sys.executable, *words], cwd=RESNET, check=True, stdout=subprocess.DEVNULL)
    settings = {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "resnet50", "SAGEMAKER_BATCH": "true"}
    rates, spent = defaultdict[str, list[float]](list), defaultdict[str, list[dict[str, float]]](list)
    with (
        tempfile.TemporaryDirectory() as folder,
        stack.serve(RESNET / "build" / "model.tar.gz", "embedded", settings) as running,
    ):
        images, bodies = Path(folder) / "images", Path(folder) / "bodies"
        write_inputs(images, bodies)
        model_server = f"{stack.rest_url(running.pid)}/v1/models/resnet50:predict"
        at_once = ("--max-concurrent", str(CONCURRENT), "--max-payload-mb", "1")
        for place in range(rounds + 1):
            ways = [
                ("whole", running.url, images, "application/x-image"),
                ("alone", model_server, bodies, "application/json"),
            ]
            for way, url, data, content_type in ways if place % 2 else reversed(ways):
                before = cpu_seconds(running.pid)
                job = transform(url, data, "--content-type", content_type, *at_once)
                if place:  # the first round warms up
                    rates[way].append(job["records_per_second"])
                    spent[way].append(spent_since(before, running.pid))
    print("| what | median of rounds |\n|---|---|")
    whole, alone = statistics.median(rates["whole"]), statistics.median(rates["alone"])
    print(f"| ResNet-50, model server alone, {CONCURRENT} at once | {alone:.1f} images/s |")
    print(f"| ResNet-50, `transform`, {CONCURRENT} at once | {whole:.1f} images/s |")
    pairs = [one / other for one, other in zip(rates["whole"], rates["alone"], strict=True)]
    shown = ", ".join(f"{ratio:.2f}" for ratio in pairs)
    print(f"| ratio | {statistics.median(pairs):.2f} ({shown}) |")
    for way, name in (("alone", "model server"), *(("whole", name) for name in spent["whole"][0])):
        used = statistics.median(each[name] for each in spent[way])
        print(f"| CPU of {name}, {'`transform`' if way == 'whole' else 'alone'} | {used:.1f} ms an image |")


def write_inputs(images: Path, bodies: Path) -> None:
    """The photographs as they are, and as the requests that the script makes of them."""
    images.mkdir()
    bodies.mkdir()
    for photograph in sorted((RESNET / "build" / "photographs").glob("*.jpg"))[:IMAGES]:
        (images / photograph.name).symlink_to(photograph)
        encoded = base64.b64encode(photograph.read_bytes()).decode()
        body = json.dumps({"instances": [{"image_bytes": {"b64": encoded}}]})
        (bodies / photograph.name).write_text(body)


def spent_since(before: dict[str, float], pid: int) -> dict[str, float]:
    """CPU milliseconds for an image since then."""
    return {name: 1000 * (end - before[name]) / IMAGES for name, end in cpu_seconds(pid).items()}


def cpu_seconds(pid: int) -> dict[str, float]:
    """What the processes of a run have used, by kind."""
    used = {"model server": 0.0, "nginx": 0.0, "workers and supervisor": 0.0}
    for each in tree(pid):
        words = Path(f"/proc/{each}/cmdline").read_text()
        kind = (
            "model server"
            if "rest_api_port" in words
            else "nginx"
            if "nginx" in words
            else "workers and supervisor"
        )
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        used[kind] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--resnet", action="store_true")
    parser.add_argument("--json", action="store_true", help="print the driver's CPU ms of each job as JSON")
    arguments = parser.parse_args()
    if arguments.json:
        print(json.dumps(driver_costs()))
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    if arguments.resnet:
        resnet(arguments.rounds)
    else:
        driver(arguments.rounds)


def driver_costs() -> dict[str, float]:
    """CPU ms of the driver, with its start: per record of single lines, and per MB of TFRecord."""
    costs = {}
    with tempfile.TemporaryDirectory() as folder, server(FIXED_ANSWER="0.5") as address:
        lines, records = Path(folder) / "lines", Path(folder) / "records"
        write_records(lines, records)
        single = ("--split-type", "Line", "--strategy", "SingleRecord", "--assemble-with", "Line")
        for name, data, amount, flags in (
            ("transform: single lines, per record", lines, LINES, single),
            ("transform: TFRecord, per MB", records, TFRECORD_MB, ("--split-type", "TFRecord")),
        ):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            transform(address, data, *flags, "--max-concurrent", "4")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            costs[name] = spent * 1000 / amount
    return costs


def write_records(lines: Path, records: Path) -> None:
    """The inputs of both jobs."""
    lines.write_bytes(b"".join(b"%d,1,2,3\n" % number for number in range(LINES)))
    # The stand-in answers by the words in a body, of which random bytes now and then hold one.
    frame = tfrecord_frame(bytes(RECORD_BYTES))
    records.write_bytes(frame * (TFRECORD_MB * 1_000_000 // len(frame)))


def driver(rounds: int) -> None:
    """Requests and bytes per second of the driver, and of a plain loop."""
    posts, sent, megabytes = [], [], []
    with tempfile.TemporaryDirectory() as folder, server(FIXED_ANSWER="0.5") as address:
        lines, records = Path(folder) / "lines", Path(folder) / "records"
        write_records(lines, records)
        single = ("--split-type", "Line", "--strategy", "SingleRecord", "--assemble-with", "Line")
        for _ in range(rounds):
            posts.append(loop_of_posts(address))
            job = transform(address, lines, *single, "--max-concurrent", str(CONCURRENT))
            sent.append(job["requests_per_second"])
            job = transform(address, records, "--split-type", "TFRecord", "--max-concurrent", "4")
            megabytes.append(job["mb_per_second"])
    print("| what | median of rounds |\n|---|---|")
    print(f"| loop of `requests.post`, {CONCURRENT} threads | {statistics.median(posts):.0f} requests/s |")
    print(f"| `transform`, SingleRecord, {CONCURRENT} at once | {statistics.median(sent):.0f} requests/s |")
    print(f"| ratio | {statistics.median(sent) / statistics.median(posts):.1f} |")
    print(
        f"| `transform`, TFRecord, MultiRecord of 6 MB, 4 at once | {statistics.median(megabytes):.0f} MB/s |"
    )


if __name__ == "__main__":
    main()
