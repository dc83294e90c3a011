"""The rows of `serving.py`: each piece of work, our side of it, what it is compared with, and the target."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from load import JSON, TINY, Report, Request, by_grpc, by_wrk
from stack import Alone, Running

from processes import cpu_seconds, spent_since
from tfs_proxy.wire.protos import PredictRequest
from tfs_proxy.wire.protos.tensors import to_bytes

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
QUIET_SECONDS = 15.0
LOOK_SECONDS = 0.2
SLOW_SECONDS = 15
Send = Callable[[int, int], Report]
"""Load at so many connections for so many seconds."""


@dataclass
class Side:
    """One of the two that take turns: the load, the processes that serve it, and the results by round."""

    name: str
    send: Send
    pids: Sequence[int]
    rates: list[float] = field(default_factory=list)
    costs: list[Mapping[str, float]] = field(default_factory=list)
    """CPU milliseconds per request, by part."""
    failed: int = 0
    least_seconds: int = 1
    """Of a round; more if a request takes a second."""

    def measure(self, connections: int, seconds: int) -> None:
        """One round; then wait until requests that wrk gave up no longer use CPU time."""
        seconds = max(seconds, self.least_seconds)
        before = cpu_seconds(*self.pids)
        report = self.send(connections, seconds)
        requests = max(report.rate * seconds, 1.0)
        spent = spent_since(before, *self.pids)
        self.rates.append(report.rate)
        self.costs.append({part: cpu * 1000 / requests for part, cpu in spent.items()})
        self.failed += report.failed
        wait_until_quiet(self.pids)


def wait_until_quiet(pids: Sequence[int]) -> None:
    """Wait until the processes use little CPU time, at most `QUIET_SECONDS`."""
    deadline = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < deadline:
        before = cpu_seconds(*pids)
        time.sleep(LOOK_SECONDS)
        if sum(spent_since(before, *pids).values()) < LOOK_SECONDS / 4:
            return


@dataclass
class Row:
    """A piece of work at a number of connections; ``target`` is the ratio of ours to the other side, if there is one."""

    work: str
    connections: int
    ours: Side
    other: Side
    target: float | None = None

    def measure(self, number: int, seconds: int) -> None:
        """One round of both sides; who begins changes from round to round."""
        for side in (self.ours, self.other) if number % 2 else (self.other, self.ours):
            side.measure(self.connections, seconds)


@dataclass(frozen=True)
class Servers:
    """All that runs: our stack without and with a script, the model servers alone, and the plain proxy."""

    bare: Running
    scripted: Running
    alone: Alone
    waiting: Alone
    plain: Running


@dataclass(frozen=True)
class Bodies:
    """What is posted."""

    photo: bytes
    floats: bytes
    csv: bytes
    csv_as_json: bytes

    @classmethod
    def random(cls) -> "Bodies":
        """The same in every run: 106 KB of bytes, 224x224x3 floats, 1 MB of CSV and the same numbers as JSON."""
        dice = np.random.default_rng(0)
        floats = dice.random((224, 224, 3), np.float32).tobytes()
        lines = [",".join(f"{cell:.5f}" for cell in row) for row in dice.random((1266, 100))]
        as_json = '{"instances": [[' + "],[".join(lines) + "]]}"
        photo = random.Random(0).randbytes(106_000)
        return cls(photo, floats, "\n".join(lines).encode(), as_json.encode())


@dataclass(frozen=True)
class Sides:
    """Makes the sides of the rows."""

    servers: Servers
    folder: Path

    def post(self, name: str, url: str, body: bytes, headers: Mapping[str, str], *pids: int) -> Side:
        """A side that wrk loads."""
        request = Request(url, body, headers)
        return Side(name, lambda count, seconds: by_wrk(request, count, seconds, self.folder), pids)

    def ours(self, server: Running, body: bytes, content_type: str, model: str = "tiny") -> Side:
        """Our stack."""
        headers = {"Content-Type": content_type, ATTRIBUTES: f"tfs-model-name={model}"}
        return self.post("tfs_proxy", f"{server.url}/invocations", body, headers, server.pid)

    def plain(self, body: bytes, content_type: str) -> Side:
        """The plain proxy, and the model server behind it."""
        server, behind = self.servers.plain, self.servers.alone.server
        headers = {"Content-Type": content_type}
        return self.post("plain proxy", f"{server.url}/invocations", body, headers, server.pid, behind.pid)

    def plain_slow(self, body: bytes, content_type: str) -> Side:
        """The same, if it takes a second for a request and 8 of them wait for each other."""
        side = self.plain(body, content_type)
        side.least_seconds = SLOW_SECONDS
        return side

    def alone(self, body: bytes, model: str, server: Alone, name: str = "model server alone") -> Side:
        """A model server without a stack, over REST."""
        return self.post(name, f"{server.models_url}/{model}:predict", body, JSON, server.server.pid)

    def alone_by_grpc(self, photo: bytes) -> Side:
        """The model server over gRPC, called from Python."""
        request = PredictRequest()
        request.model_spec.name = "jpeg"
        request.inputs["image_bytes"].ParseFromString(bytes(to_bytes(np.array([photo], object))))
        message = self.folder / "predict.binpb"
        message.write_bytes(request.SerializeToString())
        alone = self.servers.alone

        def send(count: int, seconds: int) -> Report:
            return by_grpc(alone.grpc_address, message, count, seconds)

        return Side("model server alone, gRPC", send, (alone.server.pid,))


def rows_of(servers: Servers, folder: Path) -> list[Row]:
    """All rows of rates without the one of ResNet-50; targets are ratios to the plain proxy alone."""
    bodies, sides = Bodies.random(), Sides(servers, folder)
    bare, scripted = servers.bare, servers.scripted
    kind = "application/json"
    rows = [
        Row(
            "tiny JSON, no script",
            count,
            sides.ours(bare, TINY, kind),
            sides.alone(TINY, "tiny", servers.alone),
        )
        for count in (1, 8, 64)
    ]
    rows += [
        Row("tiny JSON, classic script", count, sides.ours(scripted, TINY, kind), sides.plain(TINY, kind), 5)
        for count in (8, 64)
    ]
    jpeg, octets = "image/jpeg", "application/octet-stream"
    photo, floats = bodies.photo, bodies.floats
    by_bytes = sides.ours(scripted, photo, "image/x-bytes", "jpeg")
    by_array = sides.ours(scripted, floats, octets, "f224")
    rows += [
        Row(
            "JPEG, classic script with base64",
            8,
            sides.ours(scripted, photo, jpeg, "jpeg"),
            sides.plain(photo, jpeg),
            2.6,
        ),
        Row("JPEG, script returns bytes", 8, by_bytes, sides.alone_by_grpc(photo)),
        Row("224x224x3 floats, script returns the array", 8, by_array, sides.plain_slow(floats, octets), 70),
    ]
    rows += [
        Row(
            "model that waits 0.1 s, classic script",
            count,
            sides.ours(scripted, TINY, kind, "waiting"),
            sides.alone(TINY, "waiting", servers.waiting, "model server alone, 256 REST threads"),
        )
        for count in (64, 256)
    ]
    ready = sides.alone(bodies.csv_as_json, "rows", servers.alone, "model server alone, ready JSON")
    return [
        *rows,
        Row("1 MB of CSV, no script", 8, sides.ours(bare, bodies.csv, "text/csv", "rows"), ready),
    ]
