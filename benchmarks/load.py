"""Sends load: by wrk over HTTP, and by callers in Python processes over gRPC."""

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc

PREDICT = "/tensorflow.serving.PredictionService/Predict"
CALLING_PROCESSES = 2
MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
JSON = {"Content-Type": "application/json"}
TINY = b'{"instances": [1.0, 2.0, 5.0]}'


@dataclass(frozen=True)
class Request:
    """What is posted over HTTP."""

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)


@dataclass(frozen=True)
class Report:
    """Requests per second, latencies in ms, and how many requests failed."""

    rate: float
    p50: float
    p99: float
    failed: int = 0


def by_wrk(request: Request, connections: int, seconds: int, folder: Path) -> Report:
    """Post the same request all the time; ``folder`` takes the files that wrk reads."""
    body, script = folder / "body", folder / "post.lua"
    body.write_bytes(request.body)
    headers = "".join(
        f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}\n" for name, value in request.headers.items()
    )
    script.write_text(f'wrk.method = "POST"\n{headers}wrk.body = io.open("{body}", "rb"):read("*a")\n')
    words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "20s", "--latency"]
    words += ["-s", str(script), request.url]
    return read_wrk(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def read_wrk(printed: str) -> Report:
    """What wrk printed."""
    rate = re.search(r"Requests/sec:\s+([\d.]+)", printed)
    p50, p99 = (_milliseconds(re.search(rf"{part}%\s+([\d.]+)(us|ms|s)", printed)) for part in (50, 99))
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", printed)
    broken = re.search(r"Socket errors: (.*)", printed)
    failed = int(refused[1]) if refused else 0
    failed += sum(map(int, re.findall(r"\d+", broken[1]))) if broken else 0
    return Report(float(rate[1]) if rate else 0.0, p50, p99, failed)


def by_grpc(address: str, message: Path, connections: int, seconds: int, method: str = PREDICT) -> Report:
    """Call from grpcio in a few processes, with ``connections`` threads in all; the message is a file."""
    words = [
        sys.executable,
        __file__,
        address,
        str(message),
        str(connections // CALLING_PROCESSES),
        str(seconds),
        method,
    ]
    callers = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(CALLING_PROCESSES)]
    printed = [caller.communicate()[0] for caller in callers]
    if any(caller.returncode for caller in callers):
        sys.exit(f"the gRPC callers of {address} failed")
    return Report(sum(map(float, printed)), float("nan"), float("nan"))


def _milliseconds(match: re.Match[str] | None) -> float:
    return float(match[1]) * MILLISECONDS[match[2]] if match else float("nan")


def _call(address: str, message: bytes, threads: int, seconds: float, method: str) -> float:
    """Calls per second of so many threads on one channel."""
    counts = [0] * threads
    with grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel:
        ask = channel.unary_unary(method)
        ask(message)
        end = time.monotonic() + seconds

        def call(at: int) -> None:
            while time.monotonic() < end:
                ask(message)
                counts[at] += 1

        callers = [threading.Thread(target=call, args=(at,)) for at in range(threads)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    return sum(counts) / seconds


def main() -> None:
    """Be one of the processes of `by_grpc`: print the calls per second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("message", type=Path)
    parser.add_argument("threads", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("method")
    given = parser.parse_args()
    print(_call(given.address, given.message.read_bytes(), given.threads, given.seconds, given.method))


if __name__ == "__main__":
    main()
