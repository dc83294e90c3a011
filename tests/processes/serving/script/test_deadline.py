"""Scripts that hang: each call has a deadline, and a worker with calls that hang is replaced."""

import contextlib
import http.client
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from support import gates
from support.archives import (
    NEEDS_NGINX,
    stand_in_words,
    without_nginx,
)
from support.processes import descendants
from support.running import Answer
from support.stack import Stack, ended, serving

CLASSES = [
    pytest.param({}, id="nginx", marks=NEEDS_NGINX),
    *(
        pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": name}, id=name)
        for name in ("gthread", "sync", "gevent")
    ),
]
LONG_SECONDS = 180.0
ONE_WORKER = {"SAGEMAKER_GUNICORN_WORKERS": "1", "TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "1"}
SCRIPT = f"""{gates.SCRIPT}
import asyncio
import os
import threading

import tfs_proxy

def handler(data, context):
    body = data.read().decode()
    if body == "sleep":
        return forever()
    if body == "exit":
        raise SystemExit(5)  # here it exits
    if body == "coroutine":
        return waits()
    if body == "blocked loop":
        return blocks()
    if body in ("stream", "async stream"):
        return tfs_proxy.Response(pieces() if body == "stream" else pieces_async(), "text/plain")
    if body.startswith("/"):
        hold(body)
    return str(os.getpid()), "text/plain"

def forever():
    while True:
        time.sleep(3600)  # here it hangs

async def waits():
    await nested()

async def nested():
    await asyncio.sleep(3600)  # here the coroutine waits

async def blocks():
    time.sleep(3600)  # here the loop is blocked

def pieces():
    yield "first"
    time.sleep(3600)  # here the stream hangs
    yield "never"

async def pieces_async():
    yield "first"
    await asyncio.sleep(3600)  # here the async stream hangs
    yield "never"
"""


def line_of(remark: str, script: str = SCRIPT) -> int:
    """The number of the script's line with this remark."""
    return next(number for number, line in enumerate(script.splitlines(), 1) if remark in line)


def hanging(
    folder: Path, env: Mapping[str, str], script: str = SCRIPT
) -> contextlib.AbstractContextManager[Stack]:
    """A stack that serves the script, one worker unless ``env`` says more."""
    return serving(*stand_in_words(folder, script), env={**ONE_WORKER, **env})


def ping(stack: Stack) -> Answer:
    """What an orchestrator asks."""
    return stack.ask("GET", "/ping", timeout=LONG_SECONDS)


def wait_for_ping(stack: Stack, status: int) -> None:
    """Wait until /ping answers with this status."""
    stack.wait_until(lambda: ping(stack).status == status, f"/ping answers {status}")


def say(stack: Stack, body: str) -> Answer:
    """One request, however long it takes."""
    return stack.ask("POST", "/invocations", body, {"Content-Type": "text/plain"}, timeout=LONG_SECONDS)


def say_at_once(stack: Stack, body: str, count: int) -> list[Answer]:
    """So many requests, all sent before the first answer is read: none waits for a thread of ours."""
    with contextlib.ExitStack() as connections:
        sent = []
        for _ in range(count):
            connection = http.client.HTTPConnection(stack.host, stack.port, timeout=LONG_SECONDS)
            connections.enter_context(contextlib.closing(connection))
            connection.request("POST", "/invocations", body, {"Content-Type": "text/plain"})
            sent.append(connection)
        replies = [connection.getresponse() for connection in sent]
        return [Answer(reply.status, dict(reply.getheaders()), reply.read()) for reply in replies]


def pid(stack: Stack) -> int:
    """Who answers."""
    answer = say(stack, "pid")
    assert answer.status == 200, answer.body
    return int(answer.body)


def only_worker(stack: Stack) -> int:
    """The process of gunicorn that has none below it: ids may begin anew, so the latest is not the highest."""
    (worker,) = [pid for pid in stack.children()["gunicorn"] if not any(descendants(pid))]
    return worker


def wait_until_replaced(stack: Stack, former: int) -> None:
    """Wait for the end of a worker."""
    stack.wait_until(lambda: not Path(f"/proc/{former}").exists(), f"worker {former} has ended")


@NEEDS_NGINX
def test_300_requests_that_hang(tmp_path: Path) -> None:
    """All are answered 504, in time; then new workers answer, and the log names file and line."""
    env = {"SAGEMAKER_GUNICORN_WORKERS": "2", "TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "2.5"}
    with hanging(tmp_path, env) as stack:
        former = set(stack.children()["gunicorn"])
        answers = say_at_once(stack, "sleep", 300)
        stack.wait_for_log("another one serves in its place")
        after = [say(stack, "pid") for _ in range(20)]
        stack.wait_until(
            lambda: len(former & set(stack.children()["gunicorn"])) == 1,
            "only the master is left of gunicorn",
        )
        wait_for_ping(stack, 200)

    assert {answer.status for answer in answers} == {504}
    assert "(TFS_PROXY_REQUEST_TIMEOUT_SECONDS=2.5)" in answers[0].json["error"]
    assert {answer.status for answer in after} == {200}
    assert re.search(rf"calls .* hang at inference\.py:{line_of('here it hangs')} in forever", stack.log)


@pytest.fixture(scope="module", params=CLASSES)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of each kind; the tests that leave a worker which is about to be replaced come last."""
    with hanging(tmp_path_factory.mktemp("shared"), request.param) as stack:
        yield stack
        assert say(stack, "sleep").status == 504
        assert stack.stop() == 0, "a call that hangs holds up the stop"


def test_a_script_that_exits_fails_its_request_alone(shared: Stack) -> None:
    """The worker stays, and the log has the line."""
    former = pid(shared)
    answer = say(shared, "exit")

    assert (answer.status, answer.json) == (500, {"error": "SystemExit: 5"})
    assert pid(shared) == former
    shared.wait_for_log(f"inference.py:{line_of('here it exits')} in handler: SystemExit: 5")


def test_a_coroutine_is_cancelled(shared: Stack) -> None:
    """504, the log names where it waited, and the worker is replaced."""
    former = pid(shared)
    answer = say(shared, "coroutine")
    shared.wait_for_log(f"hangs at inference.py:{line_of('here the coroutine waits')} in nested")
    wait_until_replaced(shared, former)

    assert answer.status == 504
    assert pid(shared) != former


@pytest.mark.parametrize("kind", ["async stream", "stream"])
def test_a_stream_that_hangs_is_broken_off(shared: Stack, kind: str) -> None:
    """What was made goes out, the connection breaks, and the next request is answered."""
    connection = http.client.HTTPConnection(shared.host, shared.port, timeout=LONG_SECONDS)
    with contextlib.closing(connection):
        connection.request("POST", "/invocations", kind)
        response = connection.getresponse()
        with pytest.raises(http.client.IncompleteRead) as broken:
            response.read()
    shared.wait_for_log(f"inference.py:{line_of(f'here the {kind} hangs')} in pieces")
    pid(shared)

    assert (response.status, broken.value.partial) == (200, b"first")


@pytest.mark.slow
def test_the_old_worker_finishes_its_other_requests(tmp_path: Path) -> None:
    """The new worker answers while the old one still works on a request, which is not lost."""
    for timeout_seconds in (6, 12, 24, 48):
        folder = tmp_path / str(timeout_seconds)
        folder.mkdir()
        former, answer = answered_beside_a_hang(folder, timeout_seconds)
        # On a busy machine this request's time may be over as well before a new worker is up: then once more.
        if answer.status != 504:
            break

    assert (answer.status, int(answer.body)) == (200, former)


def answered_beside_a_hang(folder: Path, timeout_seconds: int) -> tuple[int, Answer]:
    """A worker with a call that hangs, and its answer to another one that begins later and ends when it is replaced."""
    env = {
        "TFS_PROXY_REQUEST_TIMEOUT_SECONDS": str(max(timeout_seconds / 2, timeout_seconds - 5)),
        "TFS_PROXY_STOP_SECONDS": "120",
    }
    with hanging(folder, env) as stack, gates.gate(folder / "gate") as gate, ThreadPoolExecutor() as pool:
        former = pid(stack)
        hung = pool.submit(say, stack, "sleep")
        time.sleep(0.7 * timeout_seconds)  # the other request has time left when this one's is over
        busy: Future[Answer] = pool.submit(say, stack, gate.mark())
        gate.wait_for()
        assert hung.result().status == 504
        stack.wait_for_log("another one serves in its place")
        gate.open()
        answer = busy.result()
        wait_until_replaced(stack, former)
        assert pid(stack) != former
    return former, answer


def test_a_call_that_comes_back_too_late(tmp_path: Path) -> None:
    """Its answer is dropped without a word, whichever way the request was read."""
    body = str(tmp_path / "gate" / "odd").encode()
    odd = b"POST /invocations HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
    with (
        hanging(tmp_path, without_nginx()) as stack,
        gates.gate(tmp_path / "gate") as gate,
        ThreadPoolExecutor() as pool,
    ):
        former = pid(stack)
        plain = pool.submit(say, stack, gate.mark())
        answers = stack.raw(odd % (len(body), body), LONG_SECONDS), plain.result()
        gate.open()
        wait_until_replaced(stack, former)
        assert pid(stack) != former

    assert answers[0].startswith(b"HTTP/1.1 504 ")
    assert answers[1].status == 504
    assert "Traceback" not in stack.log
    assert "failed" not in stack.log


def test_a_coroutine_that_blocks_the_loop(tmp_path: Path) -> None:
    """Nothing can cancel it: 504, and the worker is replaced."""
    with hanging(tmp_path, {}) as stack:
        former = pid(stack)
        answer = say(stack, "blocked loop")
        stack.wait_for_log(f"hangs at inference.py:{line_of('here the loop is blocked')} in blocks")
        wait_until_replaced(stack, former)
        assert pid(stack) != former

    assert answer.status == 504


def test_a_sync_worker_has_the_shorter_limit(tmp_path: Path) -> None:
    """Gunicorn's, in the middle of a request: 504, and another worker follows."""
    env = {
        **without_nginx(),
        "SAGEMAKER_GUNICORN_WORKER_CLASS": "sync",
        "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "3",
        "TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "60",
    }
    with hanging(tmp_path, env) as stack:
        former = pid(stack)
        answer = say(stack, "sleep")
        assert (answer.status, "within 3 seconds" in answer.json["error"]) == (504, True)
        assert pid(stack) != former


HANGS_AT_START = """
import time

def init(context):
    time.sleep(3600)  # here init hangs

def handler(data, context):
    return ""
"""


def test_init_that_hangs(tmp_path: Path) -> None:
    """The start ends with 5, and the last words name file and line."""
    env = {**ONE_WORKER, **without_nginx(), "SAGEMAKER_TFS_WAIT_TIME_SECONDS": "15"}
    status, log = ended(*stand_in_words(tmp_path, HANGS_AT_START), env=env)

    assert status == 5
    assert f"inference.py:{line_of('here init hangs', HANGS_AT_START)} in init" in log


SECOND_START_HANGS = """
import os, pathlib, time

def init(context):
    try:
        pathlib.Path(os.environ["MARKS"], "started").touch(exist_ok=False)
    except FileExistsError:
        while not pathlib.Path(os.environ["MARKS"], "open").exists():
            time.sleep(0.1)  # here a new worker hangs

def handler(data, context):
    time.sleep(3600 if data.read() == b"sleep" else 0)
    return str(os.getpid())
"""


@pytest.mark.slow
def test_new_workers_that_do_not_come_up(tmp_path: Path) -> None:
    """/ping says so once the time for a start is over, and 200 again when one comes up."""
    env = {
        **without_nginx(),
        "MARKS": str(tmp_path),
        "SAGEMAKER_TFS_WAIT_TIME_SECONDS": "15",
        "TFS_PROXY_STOP_SECONDS": "1",
    }
    with hanging(tmp_path, env, SECOND_START_HANGS) as stack:
        former = pid(stack)
        assert say(stack, "sleep").status == 504
        wait_for_ping(stack, 503)
        error = ping(stack).json["error"]
        assert pid(stack) == former
        stack.wait_for_log("the script was not loaded within SAGEMAKER_TFS_WAIT_TIME_SECONDS=15")
        (tmp_path / "open").touch()
        wait_until_replaced(stack, former)
        wait_for_ping(stack, 200)

    assert "inference.py:" in error
    assert "no new worker comes up" in error
    assert f"inference.py:{line_of('here a new worker hangs', SECOND_START_HANGS)} in init" in stack.log


@pytest.mark.slow
def test_new_workers_that_hang_as_well(tmp_path: Path) -> None:
    """Where replacing them is of no use /ping is 503, until a request is answered."""
    with hanging(tmp_path, {}) as stack:
        for _ in range(3):
            former = only_worker(stack)
            assert say(stack, "sleep").status == 504
            wait_until_replaced(stack, former)
        wait_for_ping(stack, 503)
        error = ping(stack).json["error"]
        pid(stack)
        wait_for_ping(stack, 200)

    assert "the script hangs in every worker, new ones included" in error
