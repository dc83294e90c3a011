"""What clients see while something inside is killed under load, and what becomes of processes that have ended."""

from pathlib import Path

import pytest

from support.archives import pack
from support.containers import Container, container, mounted
from support.load_generator import CLIENTS, Load, load
from support.waiting import wait_until

WITHIN_SECONDS = 120.0
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
def test_a_killed_process_costs_no_request_but_those_in_it(archive: Path, victim: str, which: int) -> None:
    """kill -9 under load: it is started again, and what is safe to send again is.

    A request that is in a worker running a script is not: the script may have had its effect. Nor is
    one whose answer has begun.
    """
    with container(*mounted(archive), host_network=True) as running, load(running.port) as sending:
        wait_for_answers(sending)
        killed = running.pids(victim)[which]
        running.kill_inside(killed)
        running.wait_until(lambda: killed not in running.processes(), f"{killed} has ended")
        running.wait_ready(WITHIN_SECONDS)
        wait_for_answers(sending, CLIENTS + 1)
        counts = sending.finish()
        no_zombie_stays(running)

    in_a_script = victim == "gunicorn" and archive.parent.name.startswith("scripted")
    lost = CLIENTS if in_a_script or victim == "nginx: worker" else 0
    assert counts["failed"] <= lost, sending.failures
    assert counts["resent"] <= 2 * CLIENTS


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
