"""Measures the cost of the stack apart from the model server: seconds to start, memory, idle CPU, ResNet-50.

`serving.py` prints these after its rates, each with its target.
"""

import compileall
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import embedded_load
from load import TINY, Request, by_wrk
from report import Figure
from rows import Row, Servers, Side
from stack import SCRIPT, Running, serve, server_alone

from processes import MODEL_SERVER, cpu_seconds, megabytes_beside, spent_since

REQUESTS = 10_000
IDLE_SECONDS = 20
SETTLE_SECONDS = 3
MEGABYTES_BARE, MEGABYTES_SCRIPTED = 120, 140
IDLE_PERCENT = 0.5


def with_script(model: Path, folder: Path) -> Path:
    """A model folder of one model and the classic script."""
    shutil.copytree(model, folder / model.name)
    (folder / "code").mkdir()
    (folder / "code" / "inference.py").write_text(SCRIPT)
    return folder


def compile_package() -> None:
    """Compile what has changed, as it is in an image: else each start would compile it again."""
    (package,) = subprocess.check_output(
        [sys.executable, "-c", "import tfs_proxy; print(*tfs_proxy.__path__)"], text=True
    ).splitlines()
    compileall.compile_dir(package, quiet=1)


def start(tiny: Path, choice: str, rounds: int) -> Iterator[Figure]:
    """Until /ping says 200, tiny model and script, and of the model server alone on the same model, in turns."""
    compile_package()
    ours, alone = [], []
    for _ in range(rounds):
        with serve(tiny, choice) as stack:
            ours.append(stack)
        with server_alone(tiny, ["tiny"], choice) as one:
            alone.append(one.server)
    pairs = list(zip(ours, alone, strict=True))
    more = statistics.median(own.start_seconds - other.start_seconds for own, other in pairs)
    cpu = statistics.median(own.start_cpu_seconds - other.start_cpu_seconds for own, other in pairs)
    took = statistics.median(each.start_seconds for each in alone)
    spent = statistics.median(each.start_cpu_seconds for each in alone)
    yield Figure(
        "start to the first 200 of `/ping`",
        f"{took + more:.2f} s (the model server alone {took:.2f})",
    )
    yield Figure(
        "CPU time of the start",
        f"{spent + cpu:.2f} s (the model server alone {spent:.2f})",
    )


def own_megabytes(stack: Running) -> float:
    """Memory of a stack without its model server, which may be Python, too, or not."""
    return megabytes_beside(MODEL_SERVER, stack.pid)


def send_requests(stack: Running, folder: Path) -> None:
    """At least `REQUESTS` tiny requests."""
    sent = 0.0
    while sent < REQUESTS:
        sent += max(by_wrk(Request(f"{stack.url}/invocations", TINY), 64, 2, folder).rate * 2, 1.0)


def memory(name: str, model: Path, choice: str, most: int, folder: Path) -> Iterator[Figure]:
    """Memory apart from the model server once it serves, and after `REQUESTS` requests; then what it does if idle."""
    with serve(model, choice) as stack:
        time.sleep(SETTLE_SECONDS)
        fresh = own_megabytes(stack)
        yield Figure(
            f"memory apart from the model server, {name}", f"{fresh:.0f} MB", f"{most} MB", fresh <= most
        )
        send_requests(stack, folder)
        used = own_megabytes(stack)
        yield Figure(f"the same after {REQUESTS:,} requests", f"{used:.0f} MB", f"{most} MB", used <= most)
        time.sleep(SETTLE_SECONDS)
        before = cpu_seconds(stack.pid)
        time.sleep(IDLE_SECONDS)
        spent = spent_since(before, stack.pid)
    server = spent.pop(MODEL_SERVER, 0.0) * 100 / IDLE_SECONDS
    percent = sum(spent.values()) * 100 / IDLE_SECONDS
    yield Figure(
        f"CPU of the idle stack, {name}, in % of a core",
        f"{percent:.2f} (and the model server {server:.2f})",
        f"{IDLE_PERCENT}",
        percent <= IDLE_PERCENT,
    )


def ping_under_load(servers: Servers, folder: Path, pings: int = 40) -> Figure:
    """The slowest of some calls of /ping while 256 connections wait for the model that waits."""
    url = servers.scripted.url
    headers = {
        "Content-Type": "application/json",
        "X-Amzn-SageMaker-Custom-Attributes": "tfs-model-name=waiting",
    }
    request = Request(f"{url}/invocations", TINY, headers)
    loading = threading.Thread(target=by_wrk, args=(request, 256, 5, folder))
    loading.start()
    time.sleep(1)
    slowest = 0.0
    for _ in range(pings):
        began = time.monotonic()
        urllib.request.urlopen(f"{url}/ping", timeout=10).close()
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.05)
    loading.join()
    return Figure("slowest `/ping` under 256 waiting requests", f"{slowest * 1000:.0f} ms")


@contextmanager
def resnet(choice: str, folder: Path) -> Iterator[Row]:
    """ResNet-50 on JPEG files through the classic script with the settings of a batch job."""
    cache = embedded_load.build()
    photo = (cache / "image.jpg").read_bytes()
    encoded = b64encode(photo).decode()
    document = f'{{"instances": [{{"b64": "{encoded}"}}]}}'.encode()
    batch = {"SAGEMAKER_BATCH": "true", "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "resnet"}
    with tempfile.TemporaryDirectory() as name:
        model = with_script(cache / "resnet", Path(name) / "model")
        flags = ("--tensorflow_intra_op_parallelism=1",)
        with serve(model, choice, batch) as stack, server_alone(cache, ["resnet"], choice, flags) as alone:
            ours = Request(f"{stack.url}/invocations", photo, {"Content-Type": "image/jpeg"})
            other = Request(f"{alone.models_url}/resnet:predict", document)
            yield Row(
                "ResNet-50 on JPEG, classic script, batch settings",
                8,
                Side("tfs_proxy", lambda count, seconds: by_wrk(ours, count, seconds, folder), (stack.pid,)),
                Side(
                    "model server alone, one thread a call",
                    lambda count, seconds: by_wrk(other, count, seconds, folder),
                    (alone.server.pid,),
                ),
            )
