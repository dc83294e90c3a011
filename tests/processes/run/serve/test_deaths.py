"""Workers are killed: what one had begun is answered 502 once, everything else in full; the contract does it under load."""

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, stand_in_archive, stand_in_program, stand_in_words
from support.processes import is_running, stop
from support.sockets import wait_until_all_read
from support.stack import Stack, serving
from tfs_proxy.observe.begun_requests import under_way

pytestmark = NEEDS_NGINX

SECONDS = 120.0
SCRIPT = """
import os
import signal


def handler(data, context):
    what, place, name = data.read().decode().split()
    with open(place, "a") as begun:
        begun.write(name + "\\n")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return name, "text/plain"
"""


@pytest.fixture(scope="module", params=["gthread", "sync", "gevent"])
def stack(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Two workers of each class behind nginx, and a script that notes what it begins."""
    env = {"SAGEMAKER_GUNICORN_WORKERS": "2", "SAGEMAKER_GUNICORN_WORKER_CLASS": request.param}
    with serving(*stand_in_words(tmp_path_factory.mktemp("stack"), SCRIPT), env=env) as running:
        yield running


def wait_for_rest(stack: Stack) -> None:
    """Wait until no worker has a request in progress: the client has its answer a moment before."""
    stack.wait_until(
        lambda: (
            not any(
                under_way(record) for record in stack.home.glob("*/journal/*") if is_running(int(record.name))
            )
        ),
        "no worker has a request in progress",
    )


def begun(noted: Path) -> list[str]:
    """The requests that scripts have begun, by name, in order."""
    return noted.read_text().split() if noted.exists() else []


def counted(stack: Stack) -> int:
    """How many requests the log says were begun by workers that ended."""
    return sum(int(number) for number in re.findall(r"ended with (\d+) requests? in progress", stack.log))


def test_a_request_that_kills_its_worker_is_sent_to_no_other(stack: Stack, tmp_path: Path) -> None:
    """The client reads 502 and why, the log counts it, and the other worker never saw it."""
    noted = tmp_path / "noted"

    answer = stack.invoke(f"die {noted} killer", "text/plain")

    assert answer.status == 502
    assert "ended before it answered" in answer.json["error"]
    assert begun(noted) == ["killer"]
    stack.wait_until(lambda: counted(stack) == 1, "it is counted")
    assert stack.invoke(f"answer {noted} next", "text/plain").body == b"next"


def test_requests_that_dead_workers_had_not_begun_are_answered(stack: Stack, tmp_path: Path) -> None:
    """They lay unread in kept connections and new ones of stopped workers, which are killed then."""
    noted, before = tmp_path / "noted", counted(stack)
    # One that starts later would answer in the place of the stopped ones.
    stack.wait_until(lambda: len(stack.workers()) == 2, "two workers run")
    with ThreadPoolExecutor(16) as pool:
        warm = [
            pool.submit(stack.invoke, f"answer {noted} warm{number}", "text/plain") for number in range(16)
        ]
        assert {answer.result().status for answer in warm} == {200}
        wait_for_rest(stack)
        stop(stack.workers())
        names = [f"unread{number}" for number in range(16)]
        sent = [pool.submit(stack.invoke, f"answer {noted} {name}", "text/plain") for name in names]
        wait_until_all_read(stack.port, len(sent))  # nginx passes on what it has read
        for pid in stack.workers():
            os.kill(pid, signal.SIGKILL)

        assert [(answer.result().status, answer.result().body.decode()) for answer in sent] == [
            (200, name) for name in names
        ]
    assert Counter(begun(noted)[16:]) == Counter(names)
    assert counted(stack) == before


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/invocations", "/v1/models/m:predict"])
@pytest.mark.parametrize("accept", ["application/json", "application/json;q=1"], ids=["fast", "python"])
def test_a_request_that_kills_model_servers_kills_two_at_most(tmp_path: Path, path: str, accept: str) -> None:
    """Whichever way it takes, and also over connections that were kept; what comes then is answered."""
    archive, deaths = stand_in_archive(tmp_path / "model.tar.gz"), tmp_path / "deaths"
    env = {"STAND_IN_DEATHS": str(deaths)}
    headers = {"Content-Type": "application/json", "Accept": accept}
    with serving(str(archive), "--model-server", stand_in_program(tmp_path), env=env) as stack:
        for number in range(4):
            assert stack.ask("POST", path, f'{{"instances": [{number}]}}', headers).status == 200

        answer = stack.ask("POST", path, '{"instances": ["die"]}', headers, timeout=SECONDS)

        assert answer.status == 503
        assert len(deaths.read_text().splitlines()) == 2
        assert stack.ask("POST", path, '{"instances": [5]}', headers, timeout=SECONDS).status == 200


def test_ping_says_that_no_worker_can_start_until_one_can(tmp_path: Path) -> None:
    """Each ends while it loads the script, as on a machine that has run out of something; no restart is needed."""
    flag = tmp_path / "flag"
    script = f"import os\nif os.path.exists({str(flag)!r}):\n    os._exit(9)\n{ECHO}"
    with serving(*stand_in_words(tmp_path, script)) as stack:
        flag.touch()
        os.kill(stack.workers()[0], signal.SIGKILL)

        stack.wait_until(lambda: stack.ask("GET", "/ping").status == 503, "/ping is 503")
        assert stack.ask("GET", "/ping").json["error"].startswith("workers end before they serve")
        flag.unlink()
        stack.wait_until(lambda: stack.ask("GET", "/ping").status == 200, "/ping is 200 again")
        assert stack.invoke("a", "text/plain").status == 200


ECHO = 'def handler(data, context):\n    return data.read(), "text/plain"\n'
