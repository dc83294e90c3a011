"""Proves batch transform on Ray: three nodes on this machine, two of which die, and a Ctrl-C.

    python benchmarks/transform_ray.py [--write]

Large objects come first: when a quarter of one is written, the actor that writes it is killed, which Ray
starts again. When a quarter of the small ones is done, a whole node is cut off with all that it runs. When
half of them is done, the run gets a Ctrl-C, and the same command continues it. Then each output is compared
with its input, record by record, and nothing may be left but outputs and journals. With --write the table goes
into docs/how-to/batch-transform.md.
"""

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from processes import kilobytes, tree

ROOT = Path(__file__).resolve().parents[1]
CLUSTER = ROOT / "tests" / "support" / "stand_ins" / "ray_cluster.py"
PAGE = ROOT / "docs" / "how-to" / "batch-transform.md"
BEGIN, END = "<!-- Ray's table: written by make prove-ray WRITE=1 -->", "<!-- end of Ray's table -->"
NODES, RECORD_BYTES, SMALL_RECORDS = 3, 100, 20
ACTOR = "ray::Node"
ENVIRONMENT = {
    **os.environ,
    "SAGEMAKER_GUNICORN_WORKERS": "1",
    # Else Ray ends workers where the machine's memory is nearly full, whoever uses it.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "300",
}
SCRIPT = """
import os

def model_fn(model_dir):
    return open(f"{folder}/{{os.getpid()}}", "a")

def transform_fn(seen, data, content_type, accept):
    seen.write(",".join(data.split(",", 2)[:2]) + "\\n")
    seen.flush()
    return data.upper(), "text/csv"
"""
"""Notes the first record of each request, by which the table tells what was sent more than once."""


class Proof:
    """The job's folders, and what its processes were seen to take."""

    def __init__(self, folder: Path, cluster: "subprocess.Popen[str]") -> None:
        self.data, self.out, self.requests = folder / "in", folder / "out", folder / "requests"
        self._model, self._folder, self._cluster = folder / "model", folder, cluster
        assert cluster.stdout is not None
        self._address = cluster.stdout.readline().strip()
        self.peaks = Counter[str]()

    def write_inputs(self, small: int, large: int, large_mb: int) -> None:
        """The model, which answers each record in capitals, and objects of records that tell their place."""
        for folder in (self.data / "small", self.requests, self._model / "code"):
            folder.mkdir(parents=True)
        (self._model / "code" / "inference.py").write_text(SCRIPT.format(folder=self.requests))
        sizes = {f"large-{number}": large_mb * 1_000_000 // RECORD_BYTES for number in range(large)}
        sizes |= {f"small/{number:05}": SMALL_RECORDS for number in range(small)}
        for name, records in sizes.items():
            with (self.data / name).open("w") as file:
                for record in range(records):
                    file.write(f"{name},{record:09},".ljust(RECORD_BYTES - 1, "x") + "\n")

    def begin(self) -> "subprocess.Popen[bytes]":
        """Start the command."""
        words = ["--model", self._model, "--input", self.data, "--output", self.out, "--engine", "ray"]
        words += ["--content-type", "text/csv", "--accept", "text/csv"]
        words += ["--split-type", "Line", "--assemble-with", "Line"]
        words += ["--max-payload-mb", "1", "--max-concurrent", "4", "--summary", self._folder / "summary"]
        return subprocess.Popen(
            [sys.executable, "-m", "tfs_proxy.cli", "transform", *map(str, words)],
            env={**ENVIRONMENT, "RAY_ADDRESS": self._address},
            stderr=(self._folder / "log").open("ab"),
        )

    def end(self, run: "subprocess.Popen[bytes]", status: int) -> float:
        """Wait for the command; returns its CPU seconds."""
        _, ended, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(ended)
        if run.returncode != status:
            sys.exit(f"status {run.returncode}, not {status}:\n{self.log}")
        return usage.ru_utime + usage.ru_stime

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    @property
    def summary(self) -> dict[str, dict[str, int]]:
        values: dict[str, dict[str, int]] = json.loads((self._folder / "summary").read_text())
        return values

    def small_done(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return sum(1 for _ in (self.out / "small").iterdir())
        return 0

    def actors(self) -> Iterator[int]:
        """The processes of Ray that transform."""
        for pid in tree(self._cluster.pid):
            with contextlib.suppress(OSError):
                if (Path("/proc") / str(pid) / "cmdline").read_text().startswith(ACTOR):
                    yield pid

    def actor_that_wrote(self, size: int) -> int | None:
        """An actor with an unfinished output of at least ``size`` bytes."""
        for pid in self.actors():
            for descriptor in (Path("/proc") / str(pid) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if "growing-" in str(descriptor.readlink()) and descriptor.stat().st_size >= size:
                        return pid
        return None

    def cut_off(self, node: int) -> None:
        assert self._cluster.stdin is not None
        assert self._cluster.stdout is not None
        self._cluster.stdin.write(f"kill {node}\n")
        self._cluster.stdin.flush()
        self._cluster.stdout.readline()

    def watch(self, run: "subprocess.Popen[bytes]") -> None:
        """Note the most memory that command and actors, and all below an actor, have had, in MB."""
        while run.returncode is None:
            self._note("command", run.pid)
            for actor in self.actors():
                self._note("actor", actor)
            time.sleep(1)

    def _note(self, part: str, pid: int) -> None:
        with contextlib.suppress(OSError):
            peak = kilobytes("VmHWM", (Path("/proc") / str(pid) / "status").read_text())
            self.peaks[part] = max(self.peaks[part], peak // 1024)

    def sent(self) -> Counter[str]:
        """How often each request was sent, by its first record."""
        return Counter(line for file in self.requests.iterdir() for line in file.read_text().splitlines())

    def compare(self) -> tuple[int, int]:
        """The number of objects and records, all of which have the answers of their input, in order."""
        objects = records = 0
        for path in sorted(path for path in self.data.rglob("*") if path.is_file()):
            output = self.out / f"{path.relative_to(self.data)}.out"
            with path.open("rb") as given, output.open("rb") as made:
                while piece := given.read(1 << 20):
                    if made.read(1 << 20) != piece.upper():
                        sys.exit(f"{output} has other records than {path}")
                    records += piece.count(b"\n")
                if made.read(1):
                    sys.exit(f"{output} has more records than {path}")
            objects += 1
        return objects, records

    def left_over(self) -> list[str]:
        """What is in the output beside outputs and journals."""
        files = [str(path.relative_to(self.out)) for path in self.out.rglob("*") if path.is_file()]
        return [name for name in files if not re.search(r"^[^.].*\.out$|/finished-[^/]*$", name)]


def until(what: str, proof: Proof, run: "subprocess.Popen[bytes]", is_true: Callable[[], object]) -> None:
    """Wait until something is so, while the command runs."""
    while not is_true():
        if run.poll() is not None:
            sys.exit(f"the run ended with {run.returncode} before {what}:\n{proof.log}")
        time.sleep(0.2)


def begun_again(sent: Counter[str]) -> int:
    """Objects whose first request was sent more than once."""
    return sum(count > 1 for first, count in sent.items() if first.endswith(",000000000"))


def prove(proof: Proof, small: int, large_bytes: int) -> Iterator[tuple[str, str]]:
    """Run the job with its losses; gives the rows of the table."""
    began, load = time.monotonic(), os.getloadavg()[0]
    run = proof.begin()
    threading.Thread(target=proof.watch, args=(run,), daemon=True).start()
    until("a quarter of a large object", proof, run, lambda: proof.actor_that_wrote(large_bytes // 4))
    killed = proof.actor_that_wrote(large_bytes // 4)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    until("a quarter of the small objects", proof, run, lambda: proof.small_done() >= small // 4)
    proof.cut_off(1)
    until("half of the small objects", proof, run, lambda: proof.small_done() >= small // 2)
    interrupted = time.monotonic()
    run.send_signal(signal.SIGINT)
    cpu = proof.end(run, 130)
    stopping, again = time.monotonic() - interrupted, begun_again(proof.sent())
    if left := proof.left_over():
        sys.exit(f"the interrupted run left {left}")
    run = proof.begin()
    threading.Thread(target=proof.watch, args=(run,), daemon=True).start()
    cpu += proof.end(run, 0)
    seconds, sent = time.monotonic() - began, proof.sent()
    objects, records = proof.compare()
    if left := proof.left_over():
        sys.exit(f"the run left {left}")
    done = proof.summary["objects"]
    yield "objects, each with its records once and in order", f"{objects:,}"
    yield "records", f"{records:,}"
    yield "objects begun anew because an actor was killed or a node cut off", f"{again}"
    yield "unfinished objects that the second command began anew", f"{begun_again(sent) - again}"
    yield (
        "requests sent in all, and how many of these were repetitions",
        f"{sent.total():,}, {sent.total() - len(sent):,}",
    )
    yield (
        "objects that the second command found done, and that it did",
        f"{done['already_done']:,}, {done['done']:,}",
    )
    yield "unfinished outputs that are left", "0"
    yield (
        "time of both commands together, and from Ctrl-C to the end of the first",
        f"{seconds:.0f} s, {stopping:.1f} s",
    )
    yield "CPU time of both commands, without that of the nodes", f"{cpu:.1f} s"
    peaks = f"{proof.peaks['command']} MB, {proof.peaks['actor']} MB"
    yield "peak memory of the command, and of a node's actor", peaks
    yield "load of the machine before and at the end", f"{load:.1f}, {os.getloadavg()[0]:.1f}"


def main() -> None:
    """Prove it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--small", type=int, default=10_000, help="small objects, of 20 records (%(default)s)"
    )
    parser.add_argument("--large", type=int, default=3, help="large objects (%(default)s)")
    parser.add_argument("--large-mb", type=int, default=256, help="MB of each of them (%(default)s)")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, str(CLUSTER), str(NODES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        ) as cluster,
    ):
        proof = Proof(Path(folder), cluster)
        proof.write_inputs(options.small, options.large, options.large_mb)
        rows = list(prove(proof, options.small, options.large_mb * 1_000_000))
    head = (
        f"Measured on {dt.datetime.now(tz=dt.UTC):%Y-%m-%d}: {NODES} nodes of Ray on one machine "
        f"({platform.machine()}, {os.cpu_count()} cores, shared with other work), {options.small:,} objects of "
        f"{SMALL_RECORDS} records and {options.large} of {options.large_mb} MB."
    )
    lines = [
        head,
        "",
        "| | measured |\n|---|--:|",
        *(f"| {name} | {value} |" for name, value in rows),
    ]
    print(text := "\n".join(lines))
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
