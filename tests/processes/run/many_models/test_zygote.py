"""Models whose gunicorn is forked from the zygote: as if it had been started, and as safe (Linux)."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from support.archives import NEEDS_NGINX
from support.gunicorn_report import OURS, TELLS
from support.multi_model import MultiModelStack, saying, script_model, serving_many
from support.processes import descendants, is_running, wait_until_ended
from support.waiting import wait_until
from support.wheels import write_wheel

pytestmark = NEEDS_NGINX

ZYGOTE = "zygote"
SECONDS = 60.0
LOADS = 20


def told(stack: MultiModelStack, name: str) -> Any:
    answer = stack.invoke_model(name, "x")
    assert answer.status == 200, stack.log
    return answer.json


def load_and_ask(stack: MultiModelStack, name: str, folder: Path, **more: str | bytes) -> Any:
    """Load a model that tells about its process, and ask it."""
    stack.loaded(name, script_model(folder / f"{name}.tar.gz", TELLS, **more))
    return told(stack, name)


def requiring(folder: Path, package: str) -> dict[str, str | bytes]:
    """What an archive has that requires a package, and brings its wheel."""
    wheel = write_wheel(folder, package, "99.0")
    return {
        "code/requirements.txt": f"{package}==99.0\n",
        f"code/wheels/{wheel.name}": wheel.read_bytes(),
    }


def zygotes(stack: MultiModelStack) -> list[int]:
    """The zygote, and nothing that has been forked from it."""
    pids = [pid for words, pids in stack.children().items() if ZYGOTE in words for pid in pids]
    forked = {pid for pid in pids if os.getpgid(pid) != pid}
    socket = next(stack.home.rglob("zygote.sock"), None)
    return [pid for pid in pids if pid not in forked and socket and _listens(pid, socket)]


def _listens(pid: int, socket: Path) -> bool:
    rows = (line.split() for line in Path("/proc/net/unix").read_text().splitlines())
    inodes = {f"socket:[{row[6]}]" for row in rows if row[-1] == str(socket)}
    links = Path(f"/proc/{pid}/fd").iterdir()
    return any(str(link.readlink()) in inodes for link in links)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - links that go while one looks


def zombies(stack: MultiModelStack) -> list[int]:
    return [pid for pid in descendants(stack.process.pid) if not is_running(pid)]


def test_a_forked_process_is_like_one_that_was_started(tmp_path: Path) -> None:
    """Descriptors, signals, session, environment, import path, log: but for what is a model's own."""
    with serving_many() as stack:
        forked = load_and_ask(stack, "forked", tmp_path)
        again = load_and_ask(stack, "again", tmp_path)
        next(stack.home.rglob("zygote.sock")).unlink()
        started = load_and_ask(stack, "started", tmp_path)

        assert [one["own"]["forked"] for one in (forked, again, started)] == [True, True, False]
        assert forked["own"]["random"] != again["own"]["random"]
        assert forked["alike"] == started["alike"]
        assert forked["alike"]["master"]["PPid"] == str(stack.process.pid)
        assert forked["alike"]["leads"]


def test_a_package_of_a_model_wins_over_what_the_zygote_has(many: MultiModelStack, tmp_path: Path) -> None:
    """That model's gunicorn is started anew; a model with another package has ours, and shares the imports."""
    brings = load_and_ask(many, "brings", tmp_path, **requiring(tmp_path, OURS))["own"]
    other = load_and_ask(many, "other", tmp_path, **requiring(tmp_path, "tinyone"))["own"]

    assert (brings["version"], brings["forked"]) == ("99.0", False)
    assert (other["version"], other["forked"]) == (None, True)
    assert {many.unload(name).status for name in ("brings", "other")} == {200}


def test_models_outlive_the_zygote(tmp_path: Path) -> None:
    """Those that it has forked go on, others load meanwhile, and later ones are forked again."""
    with serving_many() as stack:
        before = load_and_ask(stack, "before", tmp_path)["own"]
        (parent,) = zygotes(stack)

        os.kill(parent, signal.SIGKILL)

        load_and_ask(stack, "meanwhile", tmp_path)
        assert told(stack, "before")["own"]["master"] == before["master"]
        stack.wait_for_log("the zygote of workers ended with SIGKILL, starting it again", SECONDS)
        stack.wait_until(lambda: zygotes(stack) not in ([], [parent]), "there is another one", SECONDS)
        assert load_and_ask(stack, "after", tmp_path)["own"]["forked"]
        assert {stack.unload(name).status for name in ("before", "meanwhile", "after")} == {200}


@pytest.mark.slow
def test_models_load_while_the_zygote_hangs(tmp_path: Path) -> None:
    with serving_many() as stack:
        load_and_ask(stack, "before", tmp_path)
        (parent,) = zygotes(stack)

        os.kill(parent, signal.SIGSTOP)

        assert not load_and_ask(stack, "meanwhile", tmp_path)["own"]["forked"]
        assert "the zygote of workers has not answered for 10 s: gunicorn of meanwhile" in stack.log


def test_a_forked_master_that_ends_is_started_again(many: MultiModelStack, tmp_path: Path) -> None:
    """After a pause that grows; its log says how it ended, by a signal or by itself."""
    master = load_and_ask(many, "ends", tmp_path)["own"]["master"]

    os.kill(master, signal.SIGKILL)

    many.wait_for_log("gunicorn of ends ended with SIGKILL, starting it again in 0.05 s", SECONDS)
    # For a moment the killed one's worker still answers, the run's child now.
    orphaned = (master, many.process.pid)

    def answers_anew() -> bool:
        answer = many.invoke_model("ends", "x")
        return answer.status == 200 and answer.json["own"]["master"] not in orphaned

    many.wait_until(answers_anew, "the next master's worker answers", SECONDS)
    second = told(many, "ends")["own"]
    assert second["forked"]
    os.kill(second["master"], signal.SIGTERM)
    many.wait_for_log("gunicorn of ends ended with exit status 0, starting it again in 0.10 s", SECONDS)
    many.wait_until(lambda: many.answers("ends", "x"), "the model answers once more", SECONDS)
    assert many.unload("ends").status == 200
    wait_until_ended([master, second["master"]])


def test_loads_and_unloads_leave_nothing(many: MultiModelStack, tmp_path: Path) -> None:
    """Neither zombies nor descriptors, in the supervisor or in the zygote."""
    archive = script_model(tmp_path / "model.tar.gz", saying("brief"))
    (parent,) = zygotes(many)

    def load_and_unload() -> None:
        many.loaded("brief", archive)
        assert many.invoke_model("brief", "x").status == 200
        assert many.unload("brief").status == 200

    load_and_unload()
    before = [descriptors(pid) for pid in (many.process.pid, parent)]
    for _ in range(LOADS):
        load_and_unload()

    # Connections of requests that have been answered may close a moment later.
    wait_until(
        lambda: [descriptors(pid) for pid in (many.process.pid, parent)] <= before,
        SECONDS,
        "no more descriptors are open than before",
        details=lambda: [descriptors(pid) for pid in (many.process.pid, parent)],
    )
    wait_until(lambda: not zombies(many), SECONDS, "no zombie is left")
    assert zygotes(many) == [parent]
