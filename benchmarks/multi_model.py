"""Loads many models into one endpoint: seconds, memory, idle CPU, GET /models, and what an unload gives back.

`make bench-multi-model` runs it. Memory is the anonymous memory of all processes of a run, what they share
counted once (Pss_Anon in smaps_rollup): pages of program files are private or shared by the number of
processes that happen to run, and the kernel drops them if it needs room.
"""

import argparse
import http.client
import itertools
import json
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import stack
from load import TINY

from processes import cpu_seconds, tree

MEGABYTE_KB = 1024
MANY = {"SAGEMAKER_MULTI_MODEL": "true", "TFS_PROXY_MODEL_FOLDERS": "/"}
LONG_SECONDS = 600
IDLE_SECONDS = 10
LISTINGS = 20
LOADS_AT_ONCE = 4


@dataclass(frozen=True)
class Plan:
    """How many models of which archive are loaded."""

    name: str
    count: int
    scripted: bool


class Endpoint:
    """A running multi-model stack, asked over one connection per thread that needs one."""

    def __init__(self, served: stack.Running) -> None:
        self.pid = served.pid
        self._address = served.url.removeprefix("http://")

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The body of the answer, which has to be a 200."""
        with closing(http.client.HTTPConnection(self._address, timeout=LONG_SECONDS)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            read = answer.read()
        if answer.status != 200:
            sys.exit(f"{method} {path}: {answer.status} {read.decode()}")
        return read

    def load(self, name: str, archive: Path) -> None:
        """POST /models."""
        self.ask("POST", "/models", json.dumps({"model_name": name, "url": str(archive)}).encode())

    def invoke(self, name: str) -> None:
        """One request."""
        self.ask("POST", f"/models/{name}/invoke", TINY)

    def unload(self, name: str) -> None:
        """DELETE /models/NAME."""
        self.ask("DELETE", f"/models/{name}")

    def pages(self) -> Iterator[int]:
        """GET /models, page by page: the models on each."""
        query = ""
        while True:
            page = json.loads(self.ask("GET", f"/models{query}"))
            yield len(page["models"])
            if "nextPageToken" not in page:
                return
            query = f"?next_page_token={page['nextPageToken']}"

    def memory(self) -> float:
        """Anonymous memory of the whole process tree in MB."""
        texts = (Path(f"/proc/{process}/smaps_rollup").read_text() for process in tree(self.pid))
        lines = (re.search(r"^Pss_Anon:\s+(\d+)", text, re.MULTILINE) for text in texts)
        return sum(int(line[1]) for line in lines if line) / MEGABYTE_KB

    def idle(self) -> dict[str, float]:
        """Percent of one core that each part takes while nobody asks anything."""
        before = cpu_seconds(self.pid)
        time.sleep(IDLE_SECONDS)
        after = cpu_seconds(self.pid)
        return {part: (spent - before.get(part, 0.0)) * 100 / IDLE_SECONDS for part, spent in after.items()}


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def one_after_the_other(names: list[str], work: Callable[[str], None]) -> list[float]:
    """Seconds that ``work`` takes for each."""
    return [timed(lambda name=name: work(name)) for name in names]  # type: ignore[misc]


def measure(plan: Plan, archive: Path, model_server: str) -> Iterator[str]:
    """The lines of one plan: load all, ask about all, unload all."""
    with stack.serve(None, model_server, MANY) as served:
        endpoint = Endpoint(served)
        warm(endpoint, archive)
        names = [f"m{number}" for number in range(plan.count)]
        before = endpoint.memory()
        loads = one_after_the_other(names, lambda name: endpoint.load(name, archive))
        yield f"{plan.count} loads one after the other: {shown(loads)}"
        one_after_the_other(names, endpoint.invoke)
        loaded = endpoint.memory()
        yield f"memory per model: {(loaded - before) / plan.count:.2f} MB"
        yield listings(endpoint)
        idle = ", ".join(f"{part} {percent:.1f} %" for part, percent in endpoint.idle().items() if percent)
        yield f"idle CPU, of one core: {idle}"
        yield f"unloads one after the other: {shown(one_after_the_other(names, endpoint.unload))}"
        after = endpoint.memory()
        share = (loaded - after) * 100 / (loaded - before)
        yield f"memory before, with, after: {before:.0f}, {loaded:.0f}, {after:.0f} MB ({share:.1f} % given back)"
        with ThreadPoolExecutor(LOADS_AT_ONCE) as pool:
            seconds = timed(lambda: list(pool.map(endpoint.load, names, itertools.repeat(archive))))
        yield f"all again, {LOADS_AT_ONCE} loads at a time: {seconds:.1f} s"


def warm(endpoint: Endpoint, archive: Path) -> None:
    """Load, ask and unload one model: what the first of a run leaves is not that of the others."""
    endpoint.load("warm", archive)
    endpoint.invoke("warm")
    endpoint.unload("warm")


def shown(seconds: list[float]) -> str:
    """The sum, and the median and longest of each."""
    milliseconds = [each * 1000 for each in seconds]
    median = statistics.median(milliseconds)
    return f"{sum(seconds):.1f} s, median {median:.0f} ms, longest {max(milliseconds):.0f} ms"


def listings(endpoint: Endpoint) -> str:
    """How long GET /models takes, for the first page and for all."""
    first = statistics.median(timed(lambda: next(endpoint.pages())) for _ in range(LISTINGS)) * 1000
    pages = list(endpoint.pages())
    whole = statistics.median(timed(lambda: list(endpoint.pages())) for _ in range(LISTINGS)) * 1000
    return f"GET /models: first page {first:.1f} ms; all {sum(pages)} models on {len(pages)} pages {whole:.1f} ms"


def main() -> None:
    """Measure every plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-server", default="embedded")
    parser.add_argument("--plain", type=int, default=300, help="models without a script")
    parser.add_argument("--scripted", type=int, default=40, help="models with a script")
    arguments = parser.parse_args()
    plans = (
        Plan("without a script", arguments.plain, scripted=False),
        Plan("classic script", arguments.scripted, scripted=True),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = stack.only(stack.export_models(folder / "all") / "tiny", folder / "plain")
        scripted = stack.with_script(plain, folder / "scripted")
        shutil.rmtree(folder / "all")
        for plan in plans:
            if plan.count:
                print(f"\n{plan.name}: {plan.count} models", flush=True)
            for line in (
                measure(plan, scripted if plan.scripted else plain, arguments.model_server)
                if plan.count
                else ()
            ):
                print(f"- {line}", flush=True)


if __name__ == "__main__":
    main()
