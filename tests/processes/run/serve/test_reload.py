"""`serve --reload`: changed code is loaded in new workers, and no request fails meanwhile."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from support.following import BROKEN, Serve, answer, answers, script
from support.load_generator import load
from support.processes import is_running
from support.scraping import scrape
from support.wheels import write_wheel


def write(path: Path, text: str) -> None:
    """Replace a file in one step, as editors do."""
    new = path.with_name(f"{path.name}.tmp")
    new.write_text(text)
    new.rename(path)


def test_a_broken_script_is_reported_while_the_old_one_serves(serve: Serve, folder: Path) -> None:
    """Once, with file and line; a traceback of the old one shows its own lines, not those of the new file."""
    running = (
        script("first") + '\ndef handler(data, context):\n    raise ValueError("first")  # the old line\n'
    )
    write(folder / "code" / "inference.py", running)
    stack = serve(folder, "--reload")

    write(folder / "code" / "inference.py", (broken := "# another file\n" * 40 + script("second") + BROKEN))
    stack.wait_for_log("put the module into code/). The models and code loaded before go on serving.")
    line = f'File "{folder}/code/inference.py", line {len(broken.splitlines())}'
    assert stack.log.count(line) == 1, stack.log
    assert stack.ask("GET", "/ping").status == 200
    assert stack.ask("POST", "/invocations", "x").status == 500

    stack.wait_for_log('raise ValueError("first")  # the old line')

    def says(word: str) -> bool:
        return stack.invoke("x", "text/plain").body == word.encode()

    for version in ("third", "fifth"):  # of the same size
        write(folder / "code" / "inference.py", script(version))
        stack.wait_until(partial(says, version), f"{version} answers")
    assert "killing it" not in stack.log


def test_a_model_server_that_was_taken_over_is_started_again(serve: Serve, folder: Path) -> None:
    """The stack that has started it has ended by then; the one that serves hears of it."""
    stack = serve(folder, "--reload", workers="1")
    (server,), (worker,) = stack.children()["model_server"], stack.workers()
    write(folder / "code" / "inference.py", script("second"))
    stack.wait_until(lambda: answers(stack, "second"), "the new script answers")
    stack.wait_until(lambda: not is_running(worker), "the former stack has ended")
    (notes,) = stack.home.glob("*/journal/*")
    assert is_running(int(notes.name)), "nothing is kept of workers that have answered all"

    os.kill(server, signal.SIGKILL)
    stack.wait_until(lambda: stack.ask("GET", "/ping").status == 503, "the run is not ready")
    stack.wait_until(lambda: stack.ask("GET", "/ping").status == 200, "it is ready again")

    assert len(set(stack.children()["model_server"]) - {server}) == 1


def test_packages_are_installed_again_only_if_others_are_asked_for(serve: Serve, folder: Path) -> None:
    """Two saves of the script: both import what was installed for the first, whose stack has ended by the second."""
    code = folder / "code"
    write_wheel(code / "wheels", "tinyone", "1.2")
    (code / "requirements.txt").write_text("tinyone\n")
    stack = serve(folder, "--reload", workers="1")
    for version in ("second", "third"):
        write(code / "inference.py", "import tinyone\n" + script(version))
        stack.wait_until(partial(answers, stack, version), f"{version} answers")
        stack.wait_until(lambda: len(stack.workers()) == 1, "the former stack has ended")

    assert stack.log.count("installing requirements.txt") == 1


def test_a_misspelt_handler_is_refused_while_the_old_script_serves(serve: Serve, folder: Path) -> None:
    """What a start would only warn of keeps a change from serving."""
    stack = serve(folder, "--reload", workers="1")

    halves = script("second").replace("def handler", "def output_handler") + "def input_hander(d, c): ...\n"
    write(folder / "code" / "inference.py", halves)
    stack.wait_for_log(
        "which is not called: did you mean input_handler? The models and code loaded before go on"
    )

    assert answer(stack) == "first"


ONLY_ONCE = """
import os
try:
    os.close(os.open({marker!r}, os.O_CREAT | os.O_EXCL))
except FileExistsError:
    # Ends once the first worker could have accepted, if anything let it.
    import time
    time.sleep(1)
    raise RuntimeError("only one worker can load this")
"""


@pytest.mark.slow
def test_new_workers_answer_nothing_before_all_of_them_can(serve: Serve, folder: Path) -> None:
    """The first of two new workers loads the script, the second fails: no answer is the new one's, none is lost."""
    stack = serve(folder, "--reload")
    marker = str(folder.parent / "loaded")
    with load(stack.port):
        write(folder / "code" / "inference.py", script("second") + ONLY_ONCE.format(marker=marker))
        while "go on serving" not in stack.log:
            assert answer(stack) == "first"

    assert "only one worker can load this" in stack.log


def test_a_worker_that_can_not_load_the_script_ends_no_other(serve: Serve, folder: Path) -> None:
    """One of two is killed while the script is broken, and nothing is reloaded: the other serves; then both do."""
    stack = serve(folder)
    stack.wait_until(lambda: scrape(stack).total("tfs_proxy_workers") == 2, "both workers serve")
    (folder / "code" / "inference.py").write_text(script("second") + BROKEN)
    killed, kept = stack.workers()
    os.kill(killed, signal.SIGKILL)
    stack.wait_for_log("No module named 'no_such_module_here'")
    with load(stack.port):
        (folder / "code" / "inference.py").write_text(script("second"))
        stack.wait_until(lambda: scrape(stack).total("tfs_proxy_workers") == 2, "a new worker serves")

    os.kill(kept, signal.SIGKILL)
    stack.wait_until(lambda: kept not in stack.workers(), "the old worker has ended")
    assert answer(stack) == "second"
    assert stack.log.count("Traceback (most recent call last)") == 1


def test_a_stop_during_a_reload_ends_both_kinds_of_workers(serve: Serve, folder: Path) -> None:
    """SIGTERM while new workers hang in the import: the exit status is 0, and no process is left."""
    imported = folder.parent / "imported"
    stack = serve(folder, "--reload", workers="1")
    handler = "def handler(data, context): pass\n"
    write(folder / "code" / "inference.py", f"{handler}open({str(imported)!r}, 'w')\nwhile True: pass\n")
    stack.wait_until(imported.exists, "a new worker imports the script")
    pids = [pid for of_one_name in stack.children().values() for pid in of_one_name]

    assert stack.stop() == 0

    assert [pid for pid in pids if is_running(pid)] == []


def test_modules_beside_the_script_and_links_to_folders_are_followed(serve: Serve, folder: Path) -> None:
    """Kubernetes mounts files as links through a link to a folder, which it exchanges."""
    code = folder / "code"
    for name, text in (("..1", "first"), ("..2", "second")):
        (code / name).mkdir()
        (code / name / "words.py").write_text(f"WORD = {text!r}\n")
    (code / "..data").symlink_to("..1")
    (code / "words.py").symlink_to("..data/words.py")
    (code / "inference.py").write_text("from words import WORD\ndef handler(data, context): return WORD\n")
    stack = serve(folder, "--reload", workers="1")

    (code / "..new").symlink_to("..2")
    (code / "..new").rename(code / "..data")

    stack.wait_until(lambda: answers(stack, "second"), "the other folder's module is used")


def test_a_script_that_is_gone_is_reported_until_it_is_back(serve: Serve, folder: Path) -> None:
    """The loaded one goes on; caches and editors' files are no changes."""
    stack = serve(folder, "--reload", workers="1")
    path = folder / "code" / "inference.py"
    (path.parent / "__pycache__").mkdir(exist_ok=True)
    (path.parent / "__pycache__" / "x.pyc").touch()
    (path.parent / ".inference.py.swp").touch()
    path.unlink()

    stack.wait_for_log("code/inference.py is gone")
    assert answer(stack) == "first"
    path.write_text(script("second"))

    stack.wait_until(lambda: answers(stack, "second"), "the script that is back answers")
    assert "swp" not in stack.log
    assert "pyc" not in stack.log
