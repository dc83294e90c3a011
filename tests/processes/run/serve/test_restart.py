"""A process of the run dies: the others go on, it comes back, and at some point enough is enough."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

import pytest

from support.archives import NEEDS_NGINX, stand_in_words
from support.running import START_SECONDS
from support.stack import Stack, serving
from support.waiting import wait_until

pytestmark = NEEDS_NGINX
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stand-in model server is."""
    return tmp_path_factory.mktemp("restart")


@pytest.fixture(scope="module")
def stack(folder: Path) -> Iterator[Stack]:
    """A stack that gets well again after each test; the last one ends it."""
    with serving(*stand_in_words(folder), env={"SAGEMAKER_GUNICORN_WORKERS": "2"}) as running:
        yield running


def wait_for_ping(stack: Stack, status: int) -> None:
    """Wait until /ping is answered with this status."""
    stack.wait_until(lambda: stack.ask("GET", "/ping").status == status, f"/ping answers {status}")


def test_the_port_accepts_while_nginx_is_away(stack: Stack) -> None:
    """The supervisor holds the socket: a connection made meanwhile is answered, not refused."""
    os.kill(stack.children()["nginx"][0], signal.SIGKILL)

    assert [stack.ask("GET", "/ping", timeout=10).status in {200, 503} for _ in range(50)] == [True] * 50
    wait_for_ping(stack, 200)


def test_ping_is_503_while_the_model_server_is_away(stack: Stack, folder: Path) -> None:
    """The reason names it; a request waits until it is back, as it is safe to be sent again."""
    program = folder / "tensorflow_model_server"
    away = program.rename(folder / "away")
    os.kill(stack.children()["model_server"][0], signal.SIGKILL)
    wait_for_ping(stack, 503)

    assert "model server" in stack.ask("GET", "/ping").json["error"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(stack.invoke, '{"instances": [1]}')
        assert wait([waiting], 0.3).not_done
        away.rename(program)
        assert waiting.result().status == 200
    wait_for_ping(stack, 200)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/invocations", "/v1/models/half_plus_two:predict"])
def test_one_killed_model_server_of_two_costs_no_request(saved_models: Path, path: str) -> None:
    """The other answers until it has its models again, past the workers too: nginx prefers whoever refuses at once."""
    env = {"SAGEMAKER_TFS_INSTANCE_COUNT": "2", "TFS_PROXY_DOORS": "v1"}
    with serving(str(saved_models / "half_plus_two"), "--model-server", "embedded", env=env) as stack:

        def statuses() -> set[int]:
            found = set()
            while not done.is_set():
                found.add(stack.ask("POST", path, '{"instances": [1]}', JSON, timeout=60).status)
            return found

        done = Event()
        with ThreadPoolExecutor(4) as pool:
            loops = [pool.submit(statuses) for _ in range(4)]
            os.kill(stack.children()["embedded"][0], signal.SIGKILL)
            try:
                wait_for_ping(stack, 503)
                wait_for_ping(stack, 200)
            finally:
                done.set()
            assert [loop.result() for loop in loops] == [{200}] * 4


@pytest.mark.slow
def test_workers_that_hang_are_told_by_ping(tmp_path: Path) -> None:
    """Stopped workers send no heartbeat: within the limit /ping turns 503, and back when they go on."""
    env = {"SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "3"}
    with serving(*stand_in_words(tmp_path), env=env) as stack:
        everyone = stack.children()["gunicorn"]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        wait_for_ping(stack, 503)
        assert "heartbeats" in stack.ask("GET", "/ping").json["error"]
        for pid in everyone:
            os.kill(pid, signal.SIGCONT)
        wait_for_ping(stack, 200)


@pytest.mark.slow
def test_a_process_that_dies_again_and_again_ends_the_run(stack: Stack) -> None:
    """After the cap the exit status is not 0."""

    def kill() -> bool:
        for pid in stack.children().get("model_server", []):
            os.kill(pid, signal.SIGKILL)
        return stack.process.poll() is not None

    wait_until(kill, START_SECONDS, "the run has ended", details=lambda: stack.log)

    assert stack.wait() == 6
    assert "too often" in stack.log
