"""Scripts that can't be used, in the real `tfs-proxy serve`: how soon it ends, and what it says last."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from support.archives import (
    NEEDS_NGINX,
    pack,
    stand_in_archive,
    stand_in_program,
    stand_in_words,
    without_nginx,
)
from support.gates import gate
from support.running import messages_of
from support.stack import ended, serving

HANDLER = "def handler(data, context): return ''\n"
BEHIND_NGINX = pytest.param("an exception", {}, id="an exception, behind nginx", marks=NEEDS_NGINX)
Ending = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def ending(tmp_path: Path) -> Ending:
    """Runs `serve` on an archive, with a model that never loads, until it ends by itself."""

    def end(archive: Path, **env: str) -> tuple[int, list[str]]:
        with gate(tmp_path / "gate") as held:
            words = (str(archive), "--model-server", stand_in_program(tmp_path))
            status, log = ended(*words, env={"STAND_IN_GATE": held.mark(), **env})
        return status, messages_of(log)

    return end


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("def handler(data, context:\n", "is not valid Python (line 1: '(' was never closed)."),
        ("def inputs_handler(d, c): ...\n", "did you mean input_handler?"),
    ],
)
def test_what_reading_shows_ends_the_start_before_anything_is_started(
    tmp_path: Path, ending: Ending, script: str, words: str
) -> None:
    """Exit status 3 and one sentence at the end, without a model server."""
    status, lines = ending(stand_in_archive(tmp_path / "model.tar.gz", script=script))

    assert status == 3
    assert lines[-1].startswith("tfs-proxy: code/inference.py")
    assert words in lines[-1]
    assert not any("stand-in model server is up" in line for line in lines)


IMPORTED = {
    "a module that is not there": (
        f"import no_such_module_here\n{HANDLER}",
        "No module named 'no_such_module_here'",
    ),
    "an exception": (
        f"{HANDLER}raise ValueError('a bad constant')\n",
        "inference.py:2 in <module>: ValueError: a bad constant",
    ),
    "an interrupt": (f"{HANDLER}raise KeyboardInterrupt\n", "KeyboardInterrupt"),
    "sys.exit": (f"{HANDLER}import sys\nsys.exit('no licence')\n", "SystemExit: no licence"),
    "an exception of init": (f"{HANDLER}def init(context): raise ValueError('a bad start')\n", "a bad start"),
    "handlers that are no functions": ("handler = 'x'\n", "handler is not a function, but str"),
}


@pytest.mark.parametrize(
    ("case", "front"),
    [*(pytest.param(case, without_nginx(), id=case) for case in IMPORTED), BEHIND_NGINX],
)
def test_a_script_that_breaks_when_imported_ends_the_start_while_the_model_loads(
    tmp_path: Path, ending: Ending, case: str, front: Mapping[str, str]
) -> None:
    """The cause is the last line, and stands nowhere else but in one traceback."""
    script, words = IMPORTED[case]

    status, lines = ending(stand_in_archive(tmp_path / "model.tar.gz", script=script), **front)

    assert status == 3
    assert lines[-1].startswith("tfs-proxy: code/inference.py")
    assert words in lines[-1]
    assert sum("gunicorn" in line and "Error" in line for line in lines) == 0
    if "init" not in case:  # each worker's own
        assert sum("Traceback" in line for line in lines) <= 1


def test_a_stage_whose_model_cannot_be_loaded_says_so_last(tmp_path: Path, ending: Ending) -> None:
    """A script that is the model itself ends the start in the same way."""
    script = "def model_fn(model_dir): raise OSError('no model.joblib')\ndef predict_fn(data, model): ...\n"

    status, lines = ending(pack(tmp_path / "stage.tar.gz", {"code/inference.py": script}))

    assert status == 3
    assert lines[-1].startswith("tfs-proxy: code/inference.py: model_fn(")
    assert "no model.joblib" in lines[-1]


@pytest.mark.parametrize("end", ["os._exit(0)", "os._exit(1)", "os.kill(os.getpid(), signal.SIGSEGV)"])
def test_a_script_that_ends_its_worker_ends_the_start(tmp_path: Path, ending: Ending, end: str) -> None:
    """A library that crashes when it is imported is not tried for ever."""
    script = f"import os, signal\n{HANDLER}{end}\n"

    status, lines = ending(stand_in_archive(tmp_path / "model.tar.gz", script=script))

    assert status == 3
    assert lines[-1] == "tfs-proxy: code/inference.py can't be imported: it ends the worker that imports it."


def test_a_script_that_is_imported_well_is_imported_once_in_each_worker(tmp_path: Path) -> None:
    """Nothing is imported only to see whether it can be."""
    imports = tmp_path / "imports"
    script = f"open({str(imports)!r}, 'a').write('x')\n{HANDLER}"
    with serving(*stand_in_words(tmp_path, script)):
        assert imports.read_text() == "x"
