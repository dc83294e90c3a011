"""What clients see while something inside is killed or the container is stopped, under load."""

import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from support import gates
from support.archives import pack
from support.containers import Container, container, docker, mounted
from support.load_generator import CLIENTS, Load, load
from support.running import LOOPBACK
from support.waiting import wait_until

WITHIN_SECONDS = 120.0
HELD = f"""{gates.SCRIPT}
def handler(data, context):
    hold(data.read().decode())
    return "done", "text/plain"
"""
LITTER = """
import subprocess

def handler(data, context):
    subprocess.run(["sh", "-c", "setsid sh -c 'sleep 0.2' & exit 0"], check=True)
    return "done", "text/plain"
"""


@pytest.fixture(params=["plain", "scripted"])
def archive(request: pytest.FixtureRequest) -> Path:
    """With nginx's short way to the model server, and through the workers."""
    found: Path = request.getfixturevalue(request.param)
    return found


def recovered(running: Container, sending: Load) -> None:
    """All is well again: /ping says so, and answers keep coming."""
    running.wait_ready(WITHIN_SECONDS)
    wait_for_answers(sending, CLIENTS + 1)


def wait_for_answers(sending: Load, more: int = 10 * CLIENTS) -> None:
    enough = sending.counts["answered"] + more
    wait_until(
        lambda: sending.counts["answered"] >= enough,
        WITHIN_SECONDS,
        f"{more} more requests are answered",
        details=lambda: sending.counts,
    )


@pytest.mark.parametrize(
    ("victim", "which"),
    [
        ("nginx: worker", 0),
        ("nginx: master", 0),
        ("gunicorn", -1),
        ("gunicorn", 0),
        ("tfs_proxy.embedded", 0),
    ],
    ids=["nginx's worker", "nginx", "a worker", "gunicorn", "the model server"],
)
def test_a_killed_process_costs_no_request_but_those_in_it(
    archive: Path, victim: str, which: int, noted: Callable[[str], None]
) -> None:
    """kill -9 under load: it is started again, and what is safe to send again is.

    A request that is in a worker running a script is not: the script may have had its effect. Nor is
    one whose answer has begun.
    """
    with container(*mounted(archive), host_network=True) as running, load(running.port) as sending:
        wait_for_answers(sending)
        killed = running.pids(victim)[which]
        running.kill_inside(killed)
        running.wait_until(lambda: killed not in running.processes(), f"{killed} has ended")
        recovered(running, sending)
        counts = sending.finish()
        no_zombie_stays(running)

    noted(f"{victim} {which} killed, {archive.parent.name}: {dict(counts)} {Counter(sending.failures)}")
    in_a_script = victim == "gunicorn" and archive.parent.name.startswith("scripted")
    lost = CLIENTS if in_a_script or victim == "nginx: worker" else 0
    assert counts["failed"] <= lost, sending.failures
    assert counts["resent"] <= 2 * CLIENTS


def test_stopping_under_load_fails_no_accepted_request(archive: Path, noted: Callable[[str], None]) -> None:
    """`docker stop`: what was accepted is answered, exit status 0, well before SIGKILL."""
    with container(*mounted(archive), host_network=True) as running, load(running.port) as sending:
        wait_for_answers(sending)
        began = time.monotonic()
        docker("stop", "-t", "30", running.name)
        seconds = time.monotonic() - began
        counts = sending.finish()
        status = running.state["ExitCode"]

    noted(f"docker stop took {seconds:.2f} s, {archive.parent.name}: {dict(counts)}")
    assert counts["failed"] == 0, sending.failures
    assert counts["answered"] > 0
    assert status == 0  # SIGKILL would make it 137


def refuses(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((LOOPBACK, port)) != 0


def test_a_request_in_flight_is_answered_while_stopping_and_its_connection_closed(
    saved_models: Path, tmp_path: Path
) -> None:
    """The answer says `Connection: close`: the client need not find out by a broken connection."""
    files: dict[str, str | bytes] = {"code/inference.py": HELD}
    archive = pack(tmp_path / "model.tar.gz", files, {"half_plus_two": saved_models / "half_plus_two"})
    with (
        gates.gate(tmp_path / "gate") as held,
        container("-v", f"{tmp_path / 'gate'}:/gate", *mounted(archive), host_network=True) as running,
    ):
        connection = http.client.HTTPConnection(LOOPBACK, running.port, timeout=30)
        held.open()
        connection.request("POST", "/invocations", b"/gate/first")
        assert connection.getresponse().read() == b"done"
        held.shut()
        connection.request("POST", "/invocations", b"/gate/second")
        held.wait_for(2)
        stopping = threading.Thread(target=docker, args=("stop", "-t", "30", running.name))
        stopping.start()
        # Before nginx is told to end, an answer that it passes on keeps its connection.
        running.wait_until(lambda: refuses(running.port), "nginx takes no new connection", WITHIN_SECONDS)
        held.open()
        reply = connection.getresponse()
        body = reply.read()
        stopping.join()

        assert (reply.status, body) == (200, b"done")
        assert reply.getheader("Connection") == "close"
        assert running.state["ExitCode"] == 0


def test_processes_that_a_script_leaves_behind_are_collected(saved_models: Path, tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"code/inference.py": LITTER}
    archive = pack(tmp_path / "model.tar.gz", files, {"half_plus_two": saved_models / "half_plus_two"})
    with container(*mounted(archive)) as running:
        # A zombie may be collected before anybody looks: then once more.
        running.wait_until(lambda: leaves_a_zombie(running), "a script leaves a zombie", WITHIN_SECONDS)
        no_zombie_stays(running)


def no_zombie_stays(running: Container) -> None:
    """Every process inside that has ended is collected soon: even a health check is a zombie for a moment."""
    running.wait_until(lambda: not has_zombies(running), "no zombie is left", WITHIN_SECONDS)


def leaves_a_zombie(running: Container) -> bool:
    """Whether a process that the script has left is a zombie after one more request."""
    assert running.invoke(b"").status == 200
    return has_zombies(running)


def has_zombies(running: Container) -> bool:
    """Whether a process inside has ended and is not collected."""
    return any(state == "Z" for state, _ in running.processes().values())
