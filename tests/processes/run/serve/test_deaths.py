"""Workers are killed under load: what one had begun is answered 502 once, everything else is answered in full."""

import json
import os
import random
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from support import gates
from support.archives import NEEDS_NGINX, stand_in_archive, stand_in_program, stand_in_words
from support.processes import is_running, stop
from support.sockets import wait_until_all_read
from support.stack import Stack, serving
from support.waiting import wait_until
from tfs_proxy.observe.shared_files import under_way

pytestmark = NEEDS_NGINX

SECONDS = 120.0
MOST_ANSWERS_BETWEEN_KILLS = 60
SCRIPT = f"""{gates.SCRIPT}
import os
import signal


def handler(data, context):
    what, place, name = data.read().decode().split()
    with open(place, "a") as begun:
        begun.write(name + "\\n")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "work":
        time.sleep(0.02)
    if what == "hold":
        hold(name)
    return name, "text/plain"
"""


@pytest.fixture(scope="module", params=["gthread", "sync", "gevent"])
def stack(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Two workers of each class behind nginx, and a script that notes what it begins."""
    env = {"SAGEMAKER_GUNICORN_WORKERS": "2", "SAGEMAKER_GUNICORN_WORKER_CLASS": request.param}
    with serving(*stand_in_words(tmp_path_factory.mktemp("stack"), SCRIPT), env=env) as running:
        yield running


def wait_for_workers(stack: Stack, count: int = 2) -> None:
    """Wait until gunicorn has started so many."""
    stack.wait_until(lambda: len(stack.workers()) >= count, f"{count} workers run")


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


def test_what_other_threads_of_a_killed_worker_had_begun_is_answered_502(tmp_path: Path) -> None:
    """All of it, each once, and counted in one line."""
    env, noted = {"SAGEMAKER_GUNICORN_WORKERS": "1"}, tmp_path / "noted"
    with (
        serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack,
        gates.gate(tmp_path / "gate") as held,
        ThreadPoolExecutor(4) as pool,
    ):
        bodies = [f"hold {noted} {held.mark(str(number))}" for number in range(4)]
        answers = [pool.submit(stack.invoke, body, "text/plain") for body in bodies]
        held.wait_for(4)
        os.kill(stack.workers()[0], signal.SIGKILL)

        assert [answer.result().status for answer in answers] == [502] * 4
        assert len(begun(noted)) == 4
        stack.wait_for_log("ended with 4 requests in progress", SECONDS)


def test_requests_that_dead_workers_had_not_begun_are_answered(stack: Stack, tmp_path: Path) -> None:
    """They lay unread in kept connections and new ones of stopped workers, which are killed then."""
    noted, before = tmp_path / "noted", counted(stack)
    wait_for_workers(stack)  # one that starts later would answer in the place of the stopped ones
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


class Client:
    """Sends requests one after the other on a kept connection; ``answers`` by name, ``lost`` what got none."""

    def __init__(self, stack: Stack, noted: Path, name: str) -> None:
        self.answers: dict[str, int] = {}
        self.lost: list[str] = []
        self._stack, self._noted, self._name = stack, noted, name
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Send no more, and wait for the last answer."""
        self._over.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def _send(self) -> None:
        with closing(HTTPConnection(self._stack.host, self._stack.port, timeout=SECONDS)) as link:
            while not self._over.is_set():
                name = f"{self._name}.{len(self.answers)}"
                try:
                    link.request(
                        "POST", "/invocations", f"work {self._noted} {name}", {"Content-Type": "text/plain"}
                    )
                    answer = link.getresponse()
                    body = answer.read().decode()
                except OSError as error:
                    self.lost.append(f"{name}: {error!r}")
                    return
                self.answers[name] = answer.status
                if answer.status not in {200, 502} or (answer.status == 200 and body != name):
                    self.lost.append(f"{name}: {answer.status} {body}")


def wait_for_answers(clients: list[Client], more: int) -> None:
    """Wait until all clients together have had so many more answers."""

    def answered() -> int:
        return sum(len(client.answers) for client in clients)

    enough = answered() + more
    wait_until(
        lambda: answered() >= enough,
        SECONDS,
        f"{more} more requests are answered",
        details=lambda: [client.lost for client in clients],
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "signals", [(signal.SIGKILL,), (signal.SIGSEGV, signal.SIGKILL)], ids=["kill", "crash"]
)
def test_under_kills_every_request_is_accounted_for(
    tmp_path: Path, signals: tuple[signal.Signals, ...]
) -> None:
    """Sent = answered by one handler + begun and answered 502; nothing is lost, nothing is done twice."""
    env, noted = {"SAGEMAKER_GUNICORN_WORKERS": "2"}, tmp_path / "noted"
    chance = random.Random(1)
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack:
        clients = [Client(stack, noted, f"c{number}") for number in range(8)]
        for turn in range(20):
            wait_for_workers(stack)
            wait_for_answers(clients, chance.randrange(MOST_ANSWERS_BETWEEN_KILLS))
            os.kill(chance.choice(stack.workers()), signals[turn % len(signals)])
        for client in clients:
            client.finish()

        assert [client.lost for client in clients if client.lost] == []
        answers = {name: status for client in clients for name, status in client.answers.items()}
        times = Counter(begun(noted))
        assert [name for name, count in times.items() if count > 1] == []
        assert [name for name, status in answers.items() if status == 200 and not times[name]] == []
        begun_in_vain = sum(status == 502 for status in answers.values())
        assert len(times) <= len(answers)
        assert begun_in_vain > 0
        # A worker that dies between the last byte of an answer and its note of that counts it as well.
        stack.wait_until(lambda: counted(stack) >= begun_in_vain, f"{begun_in_vain} are counted in the log")
        print(
            json.dumps(
                {"sent": len(answers), "begun and answered 502": begun_in_vain, "counted": counted(stack)}
            )
        )


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
