"""Nothing of a run outlives its supervisor, in whatever state that is killed (Linux)."""

import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from support.archives import (
    NEEDS_NGINX,
    stand_in_archive,
    stand_in_program,
    stand_in_words,
    without_nginx,
)
from support.gates import SCRIPT, Gate, gate
from support.multi_model import MultiModelStack, script_model, serving_many
from support.processes import descendants, is_running
from support.stack import Stack, serving
from support.waiting import wait_until

pytestmark = NEEDS_NGINX
SECONDS = 20.0
OPENED = "there is a copy of the model"
STARTS = f"""{SCRIPT}
import subprocess

subprocess.Popen(["sleep", "600"])
"""
"""A script that has started a process of its own."""

HANDLES = f"""{STARTS}
def handler(data, context):
    hold(data.read().decode())
    return "let go", "text/plain"
"""
HANDLES_AS_MODEL = f"""{STARTS}
def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept):
    hold(data.decode())
    return "let go", "text/plain"
"""
BACKEND = f"""{STARTS}
def prepare_metadata_for_build_wheel(folder, settings=None):
    hold(MARK)


build_wheel = get_requires_for_build_wheel = prepare_metadata_for_build_wheel
"""
IN_TREE = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


class Scene:
    """What a state is made of: a folder, a gate to hold calls at, and threads to make them in."""

    def __init__(self, folder: Path, shut: Gate, held: ExitStack) -> None:
        self.folder, self.shut, self._held, self.enter = folder, shut, held, held.enter_context
        self.pool = ThreadPoolExecutor(1)

    def begun(self, *words: str, **env: str) -> Stack:
        """A run that may not be ready yet."""
        stack = Stack(*words, env=env)
        self._held.callback(stack.kill)
        return stack

    def ready(self, script: str | None = HANDLES, **env: str) -> Stack:
        return self.enter(serving(*stand_in_words(self.folder, script), env=env))

    def many(self) -> MultiModelStack:
        return self.enter(serving_many())

    def call(self, of: Callable[[str], object]) -> None:
        """Make a call that is held."""
        self.pool.submit(of, self.shut.mark())
        self.shut.wait_for()


def starting(scene: Scene) -> Stack:
    stack = scene.begun(*stand_in_words(scene.folder))
    stack.wait_until(stack.children, "it has a child")
    return stack


def unpacking(scene: Scene) -> Stack:
    large = {"m/1/variables/large": bytes(200_000_000)}
    stack = scene.begun(*stand_in_words(scene.folder, None, **large))
    stack.wait_until(lambda: next(stack.home.rglob("large"), None), OPENED)
    return stack


def installing(scene: Scene) -> Stack:
    backend = f"MARK = {scene.shut.mark()!r}\n{BACKEND}"
    files = {"requirements.txt": "./slow\n", "slow/pyproject.toml": IN_TREE, "slow/backend.py": backend}
    more = {f"code/{name}": text for name, text in files.items()}
    stack = scene.begun(*stand_in_words(scene.folder, HANDLES, **more))
    scene.shut.wait_for()
    return stack


def loading_a_model(scene: Scene) -> Stack:
    stack = scene.begun(*stand_in_words(scene.folder), STAND_IN_GATE=scene.shut.mark())

    def is_loading() -> bool:
        with suppress(OSError, HTTPException):
            return b"loading" in stack.ask("GET", "/ping").body
        return False

    stack.wait_until(is_loading, "/ping says that the model is loading")
    return stack


def loading_a_script(scene: Scene) -> Stack:
    stack = scene.begun(*stand_in_words(scene.folder, f"{HANDLES}\nhold({scene.shut.mark()!r})"))
    scene.shut.wait_for()
    return stack


def ready_without_nginx(scene: Scene) -> Stack:
    return scene.ready(**without_nginx())


def under_load(scene: Scene) -> Stack:
    stack = scene.ready()
    scene.call(lambda mark: stack.invoke(mark, "text/plain"))
    return stack


def reloading(scene: Scene) -> Stack:
    folder = scene.folder / "model"
    shutil.unpack_archive(stand_in_archive(scene.folder / "model.tar.gz", HANDLES), folder)
    stack = scene.begun(str(folder), "--reload", "--model-server", stand_in_program(scene.folder))
    stack.wait_ready()
    (folder / "code" / "inference.py").write_text(f"{HANDLES}\nhold({scene.shut.mark()!r})")
    scene.shut.wait_for()
    return stack


def draining(scene: Scene) -> Stack:
    stack = under_load(scene)
    stack.process.send_signal(signal.SIGTERM)
    stack.wait_for_log("stopping")
    return stack


def loading_one_of_many(scene: Scene) -> Stack:
    stack = scene.many()
    scene.call(
        lambda mark: stack.load(
            "m", script_model(scene.folder / "m.tar.gz", f"{HANDLES_AS_MODEL}\nhold({mark!r})")
        )
    )
    return stack


STATES: tuple[Callable[[Scene], Stack], ...] = (
    *(starting, unpacking, installing, loading_a_model, loading_a_script, ready_without_nginx),
    *(under_load, reloading, draining),
)
OF_MANY = [
    pytest.param(state, marks=(pytest.mark.slow, pytest.mark.tensorflow)) for state in (loading_one_of_many,)
]


def survivors(stack: Stack, pids: list[int]) -> list[bytes]:
    """The command lines of those of ``pids`` that run, and of others with the environment of the run."""
    home, found = f"TFS_PROXY_HOME={stack.home}\0".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pid = int(process.name)
            if (pid in pids and is_running(pid)) or home in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes())
    return found


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as held, gate(tmp_path / "gate") as shut:
        yield Scene(tmp_path, shut, held)


@pytest.mark.parametrize("state", [*STATES, *OF_MANY])
def test_nothing_outlives_a_supervisor_that_is_killed(scene: Scene, state: Callable[[Scene], Stack]) -> None:
    """Neither its children nor theirs, what scripts and installers have started among them."""
    stack = state(scene)
    stack.process.send_signal(signal.SIGSTOP)
    pids = list(descendants(stack.process.pid))
    assert pids

    stack.process.kill()

    stack.process.wait()
    wait_until(
        lambda: not survivors(stack, pids),
        SECONDS,
        "nothing of it runs",
        details=lambda: survivors(stack, pids),
    )
    shutil.rmtree(stack.home)  # nobody else does: it holds a copy of the model


@pytest.mark.slow
def test_the_next_run_removes_the_folder_that_such_a_run_leaves(tmp_path: Path, scene: Scene) -> None:
    """It holds a copy of the model; folders of runs that live stay, and those without an owner."""
    stack = scene.ready(None)
    unknown = stack.home / "tfs-proxy-unknown"
    unknown.mkdir()
    (left,) = set(stack.home.iterdir()) - {unknown}
    words = stand_in_words(tmp_path)
    env = {"TFS_PROXY_HOME": str(stack.home)}
    with serving(*words, env=env):
        assert left.exists()
        stack.process.kill()
        stack.process.wait()
    assert {left, unknown} <= set(stack.home.iterdir())

    with serving(*words, env=env):
        assert not left.exists()
    assert list(stack.home.iterdir()) == [unknown]
    unknown.rmdir()
