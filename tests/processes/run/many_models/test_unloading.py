"""Unloads, and the end of the run: requests in flight finish first, then nothing is left."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from support import gates
from support.archives import NEEDS_NGINX, pack
from support.gates import gate
from support.multi_model import MultiModelStack, saying, script_model, serving_many
from support.processes import descendants, wait_until_ended
from support.scraping import scrape

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]
HELD_SECONDS = 0.5
HOLDS = f"""{gates.SCRIPT}


def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept):
    hold(data.decode())
    return "let go", "text/plain"
"""


def files_of(stack: MultiModelStack) -> set[Path]:
    """All paths below the run's folder, sockets and links among them."""
    return set(stack.home.rglob("*"))


def listening_below(stack: MultiModelStack) -> set[str]:
    """The unix sockets of this machine whose paths are in the run's folder."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return {
        path for path in (line.partition(" /")[2] for line in lines) if f"/{path}".startswith(str(stack.home))
    }


def descriptors(stack: MultiModelStack) -> int:
    """How many files the supervisor has open."""
    return len(os.listdir(f"/proc/{stack.process.pid}/fd"))  # noqa: PTH208 - links that go while one looks


def test_an_unload_leaves_nothing(many: MultiModelStack, saved_models: Path, tmp_path: Path) -> None:
    """Neither processes nor files nor sockets are there when the call returns."""
    # What the first model of a run leaves for the next ones is not this one's.
    many.loaded("first", script_model(tmp_path / "a.tar.gz", saying("first")))
    assert many.unload("first").status == 200
    processes, files = set(descendants(many.process.pid)), files_of(many)
    sockets, open_files = listening_below(many), descriptors(many)
    many.loaded("gone", saved_models / "half_plus_two")
    many.loaded("said", script_model(tmp_path / "b.tar.gz", saying("said")))
    assert many.invoke_model("gone", '{"instances": [1.0]}', "application/json").status == 200
    own = set(descendants(many.process.pid)) - processes
    assert own
    assert files_of(many) > files

    assert {many.unload(name).status for name in ("gone", "said")} == {200}

    assert own & set(descendants(many.process.pid)) == set()
    assert files_of(many) - files == set()
    assert listening_below(many) - sockets == set()
    many.wait_until(lambda: descriptors(many) <= open_files, "the supervisor has closed its files")


def test_requests_in_flight_finish_before_an_unload(many: MultiModelStack, tmp_path: Path) -> None:
    """The call returns after them; a request that comes meanwhile is refused, and not lost."""
    many.loaded("busy", script_model(tmp_path / "a.tar.gz", HOLDS))
    with ThreadPoolExecutor(2) as pool, gate(tmp_path / "gate") as shut:
        request = pool.submit(many.invoke_model, "busy", shut.mark())
        shut.wait_for()
        unloading = pool.submit(many.unload, "busy")
        many.wait_until(lambda: many.described("busy").status == 404, "the model is being unloaded")
        many.wait_until(lambda: not list(many.home.glob("*/m/busy.sock")), "its gate is closed")
        refused = many.invoke_model("busy", "x")
        assert (refused.status, refused.json) == (503, {"error": "model busy is unloading"})
        assert wait([unloading], HELD_SECONDS).not_done
        shut.open()
        assert (request.result().status, request.result().body) == (200, b"let go")
        assert unloading.result().status == 200
    assert many.invoke_model("busy", "x").status == 404


def test_nothing_is_measured_of_an_archive_whose_name_another_has(
    many: MultiModelStack, saved_models: Path, tmp_path: Path
) -> None:
    """The other was asked for while requests of the first were in flight, so the name was never free."""
    holds = f"{gates.SCRIPT}\ndef handler(data, context):\n    hold(data.read().decode())\n"
    models = dict.fromkeys(("inner", "other"), saved_models / "half_plus_two")
    many.loaded("name", pack(tmp_path / "a.tar.gz", {"code/inference.py": holds}, models))
    assert many.ask("POST", "/v1/models/name.inner:predict", '{"instances": [1.0]}').status == 200
    many.wait_until(lambda: requests_for_inner(many) == 1, "it is counted")
    with ThreadPoolExecutor(3) as pool, gate(tmp_path / "gate") as shut:
        pool.submit(many.invoke_model, "name", shut.mark())
        shut.wait_for()
        pool.submit(many.unload, "name")
        many.wait_until(lambda: many.described("name").status == 404, "it is being unloaded")
        pool.submit(many.load, "name", saved_models / "half_plus_three")
        many.wait_for_log(f"loading {saved_models / 'half_plus_three'}")
    many.wait_until(lambda: requests_for_inner(many) == 0, "it is forgotten")
    assert many.unload("name").status == 200


def requests_for_inner(stack: MultiModelStack) -> float:
    return scrape(stack).total("tfs_proxy_model_requests_total", model="name.inner")


def test_the_end_of_the_run_waits_for_requests(tmp_path: Path) -> None:
    """SIGTERM: requests in flight to several models finish, /ping and loads are 503, nothing is left."""
    archive = script_model(tmp_path / "a.tar.gz", HOLDS)
    with (
        serving_many() as stack,
        ThreadPoolExecutor(2) as pool,
        gate(tmp_path / "gate") as shut,
    ):
        for name in ("a", "b"):
            stack.loaded(name, archive)
        requests = [pool.submit(stack.invoke_model, name, shut.mark(name)) for name in ("a", "b")]
        shut.wait_for(2)
        everyone = set(descendants(stack.process.pid))
        stack.process.send_signal(signal.SIGTERM)
        stack.wait_for_log("stopping")
        assert wait(requests, HELD_SECONDS).not_done
        shut.open()
        assert [(request.result().status, request.result().body) for request in requests] == [
            (200, b"let go")
        ] * 2
        assert stack.wait() == 0
        wait_until_ended(everyone)
        assert list(stack.home.iterdir()) == []
