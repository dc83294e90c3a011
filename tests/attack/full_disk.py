"""Fills the disk of a run, kills its workers, and asks for answers all the same; then frees it again."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from attack.findings import Finding
from support.archives import stand_in_archive, stand_in_program
from support.running import Answer
from support.small_disks import on_small_disk
from support.stack import Stack

DISK_MB = 16
SMALL, LARGE = b"small", bytes(3_000_000)
ASKED = 10
SCRIPT = 'def handler(data, context):\n    return str(len(data.read())), "text/plain"\n'


def attack(folder: Path) -> Iterator[Finding]:
    """Small and large requests while nothing can be written, and once there is room again."""
    home = folder / "home"
    home.mkdir(parents=True)
    archive, program = stand_in_archive(folder / "model.tar.gz", script=SCRIPT), stand_in_program(folder)
    env = {"TFS_PROXY_HOME": str(home), "SAGEMAKER_GUNICORN_WORKERS": "2"}
    stack = Stack(str(archive), "--model-server", program, env=env, launcher=on_small_disk(home, DISK_MB))
    try:
        stack.wait_ready()
        with full(Path(f"/proc/{stack.process.pid}/root{home}")):
            former = stack.workers()
            for pid in former:
                os.kill(pid, signal.SIGKILL)
            stack.wait_until(lambda: set(stack.workers()) - set(former), "new workers start")
            yield _asked(stack, "a full disk, workers killed", ping=503)
        stack.wait_until(lambda: stack.ask("GET", "/ping").status == 200, "there is room again")
        yield _asked(stack, "the same, with room again")
    finally:
        stack.close()


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    filling = disk / "filling"
    descriptor = os.open(filling, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):  # the disk is full
        while True:
            os.write(descriptor, bytes(4096))
    os.close(descriptor)
    try:
        yield
    finally:
        filling.unlink()


def _asked(stack: Stack, blow: str, ping: int = 200) -> Finding:
    answers = [stack.invoke(body, "text/plain") for _ in range(ASKED) for body in (SMALL, LARGE)]
    answered = sum(answer.body in {b"5", b"3000000"} for answer in answers)
    pings = sum(stack.ask("GET", "/ping").status == ping for _ in range(ASKED))
    note = f"{answered} of {len(answers)} requests and {pings} of {ASKED} pings said {ping}"
    bad = [answer for answer in answers if answer.status != 200 and not _is_error(answer)]
    return Finding(blow, "nginx", len(answers) + ASKED, answered + pings - len(bad), note)


def _is_error(answer: Answer) -> bool:
    with contextlib.suppress(ValueError):
        return list(json.loads(answer.body)) == ["error"]
    return False
