"""`serve` where memory, processes, files or disk are short: one sentence, no traceback, and no loop of starts."""

import os
import signal
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from support import gates
from support.archives import NEEDS_NGINX, SAVED_MODEL, pack, stand_in_program, stand_in_words
from support.control_groups import limited
from support.running import messages_of
from support.small_disks import can_mount, on_small_disk
from support.stack import Stack, ended, serving

MEGABYTE = 1024 * 1024


def failed(words: tuple[str, ...], launcher: list[str]) -> tuple[int, str]:
    """Exit status of a start that fails, and all that it said, which has no traceback."""
    status, log = ended(*words, launcher=launcher)
    assert "Traceback" not in log
    return status, log


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (
            "ulimit -n 18",
            "No more than 18 files may be open: allow more (ulimit -Hn, docker run --ulimit nofile=65536)",
        ),
        ("ulimit -f 2", "allow larger ones (ulimit -f, docker run --ulimit fsize=-1)"),
    ],
    ids=["open files", "size of files"],
)
def test_a_limit_that_is_too_low_is_named_with_its_remedy(tmp_path: Path, limit: str, said: str) -> None:
    """Whatever would have needed more: the same sentence ends the run."""
    status, log = failed(stand_in_words(tmp_path), ["sh", "-c", f'{limit} && exec "$@"', "sh"])

    assert status == 2, log
    assert said in messages_of(log)[-1]


@pytest.mark.parametrize("tasks", [4, 6])
def test_too_few_processes_are_named_with_their_remedy(tmp_path: Path, tasks: int) -> None:
    """`docker run --pids-limit`: the supervisor's own thread, or a child, can't start."""
    with limited(tasks=tasks) as launcher:
        status, log = failed(stand_in_words(tmp_path), launcher)

    assert status == 2
    assert f": allow more (pids.max is {tasks}, docker run --pids-limit" in messages_of(log)[-1]


def test_a_model_server_that_gets_no_more_threads_names_their_limit(tmp_path: Path) -> None:
    """Whatever its own words are."""
    words = stand_in_words(tmp_path)
    program = Path(words[-1])
    threads = "[threading.Thread(target=threading.Event().wait, daemon=True).start() for _ in range(9999)]"
    program.write_text(program.read_text().replace("\nmain()\n", f"\n{threads}\n"))
    with limited(tasks=400) as launcher:
        status, log = ended(*words, launcher=launcher)

    assert status == 4
    last = messages_of(log)[-1]
    assert "while loading for want of processes and threads: allow more (pids.max is 400, docker run" in last


def test_a_model_server_that_is_killed_at_the_start_names_the_memory(tmp_path: Path) -> None:
    """Nobody but the kernel does that; it takes children before the supervisor, which has to say so."""
    with (
        gates.gate(tmp_path / "gate") as held,
        closing(Stack(*stand_in_words(tmp_path), env={"STAND_IN_GATE": held.mark()})) as stack,
    ):
        stack.wait_for_log("stand-in model server is up")
        (server,) = stack.children()["model_server"]
        scores = [int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in (stack.process.pid, server)]
        os.kill(server, signal.SIGKILL)
        status, log = stack.wait(), stack.log

    assert scores[1] > scores[0]
    assert status == 4
    last = messages_of(log)[-1]
    assert (
        "model server 0 ended with SIGKILL while loading, most likely for lack of memory: allow more than"
        in last
    )
    assert "MB of memory (the models count as 2 x 1 MB, what always runs as 465 MB" in last


MORE_MEMORY = "allow more than 400 MB of memory (the models count as"
EATER = """
def eat():
    while not Path("{}").exists():
        threading.Event().wait(0.05)
    bytearray(b"1") * 500_000_000

threading.Thread(target=eat, daemon=True).start()
main()
"""
HUNGRY_REQUEST = "def handler(data, context): return str(len(bytearray(b'1') * 500_000_000))\n"
HUNGRY = "taken = bytearray(b'1') * 400_000_000\n\ndef handler(data, context): return 'x'\n"


def test_a_script_that_is_killed_at_the_start_names_the_memory(tmp_path: Path) -> None:
    """Linux kills each worker that imports it, and counts that."""
    with limited(memory_bytes=240 * MEGABYTE) as launcher:
        status, log = failed(stand_in_words(tmp_path, HUNGRY), launcher)

    assert status == 3
    assert "can't be imported for lack of memory: allow more than 240 MB" in messages_of(log)[-1]


@pytest.mark.slow
def test_what_is_killed_while_it_serves_names_the_memory_and_so_does_the_end(tmp_path: Path) -> None:
    """Each line has the limit and what takes it, whoever was killed; the last one ends the run with status 4."""
    words = stand_in_words(tmp_path, HUNGRY_REQUEST)
    eats = tmp_path / "eats"
    program = Path(words[-1])
    program.write_text(program.read_text().replace("\nmain()\n", EATER.format(eats)))
    with (
        limited(memory_bytes=400 * MEGABYTE) as launcher,
        closing(Stack(*words, launcher=launcher)) as stack,
    ):
        stack.wait_ready()
        stack.invoke("{}")
        stack.wait_for_log(f"a process was killed for lack of memory: {MORE_MEMORY}")
        eats.touch()
        status, log = stack.wait(120), stack.log

    said = [line for line in messages_of(log) if "model server 0 ended with SIGKILL" in line]
    assert status == 4
    assert [line for line in said if f" for lack of memory: {MORE_MEMORY}" not in line] == []
    assert "too often (11 starts)" in said[-1] == messages_of(log)[-1]


@NEEDS_NGINX
@pytest.mark.skipif(not can_mount(), reason="no file system can be mounted here")
def test_a_container_whose_disk_is_memory_says_so_and_refuses_what_does_not_fit(tmp_path: Path) -> None:
    """`--read-only --tmpfs /tmp`: told before unpacking; a body without room is 507; /dev/shm is not needed."""
    weights = os.urandom(1024) * 40 * 1024
    files = {"m/1/saved_model.pb": SAVED_MODEL, "m/1/variables/variables.data-00000-of-00001": weights}
    archive = str(pack(tmp_path / "model.tar.gz", files))
    words = (archive, "--model-server", stand_in_program(tmp_path))
    read_only = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"', "sh"]
    # A short name, since sockets have short paths.
    with limited(memory_bytes=380 * MEGABYTE) as group, tempfile.TemporaryDirectory(prefix="tp-") as home:
        launcher = [*group, *on_small_disk(Path(home), 56), *read_only]
        with serving(*words, launcher=launcher, env={"TFS_PROXY_HOME": home}) as stack:
            refused = stack.invoke("1" * (20 * MEGABYTE), "text/csv")
            small = stack.invoke('{"instances": [1.0]}')

    assert f"unpacked into memory, since {home} is a tmpfs: 40 MB of 380, and the loaded model" in stack.log
    assert "Traceback" not in stack.log
    assert refused.status == 507
    assert "TFS_PROXY_HOME" in refused.json["error"]
    assert small.status == 200
