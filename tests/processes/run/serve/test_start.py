"""Start-up of the real `tfs-proxy serve`: what it serves, and every way in which it refuses to run."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest

from support.archives import (
    SAVED_MODEL,
    pack,
    stand_in_archive,
    stand_in_program,
    stand_in_words,
)
from support.gates import gate
from support.ports import free_range
from support.running import messages_of
from support.scraping import scrape
from support.stack import Stack, ended, serving
from support.wheels import write_wheel

HANDLER = "def handler(data, context): return ''\n"
SAYS_VERSIONS = """
import falcon, gunicorn, tinyone
def handler(data, context):
    return f"{tinyone.VERSION}, {gunicorn.__version__}, {falcon.__version__}", "text/plain"
"""
ACCEPT_CPU_SECONDS = 0.25 * 4
"""A quarter of a second with a margin of 4, in processor time: other programs may use the machine as well."""


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The stand-in model server."""
    return stand_in_program(tmp_path)


Failing = Callable[..., tuple[int, str]]


@pytest.fixture
def failing(program: str) -> Failing:
    """Runs `serve` until it ends by itself; its exit status and log."""
    return lambda model, env=None, **more: ended(str(model), "--model-server", program, env=env, **more)


def test_the_port_accepts_at_once(tmp_path: Path) -> None:
    """As long as a process takes that has imported little."""
    with gate(tmp_path / "gate") as held:
        stack = Stack(*stand_in_words(tmp_path), env={"STAND_IN_GATE": held.mark()})
        with contextlib.closing(stack):
            stack.wait_until(lambda: accepts(stack), "the port accepts connections")
            assert stack.cpu_seconds < ACCEPT_CPU_SECONDS


HOLDS_THE_TRANSLATOR = """
import sys, time
if "tfs_proxy.worker.translator" in sys.orig_argv:
    time.sleep(600)
"""


def test_a_model_server_that_ends_before_the_translator_listens_ends_the_start(tmp_path: Path) -> None:
    """Models and workers are ready by then."""
    (tmp_path / "sitecustomize.py").write_text(HOLDS_THE_TRANSLATOR)
    env = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}", "TFS_PROXY_GRPC_PORT": "0"}
    with contextlib.closing(Stack(*stand_in_words(tmp_path), env=env)) as stack:
        stack.wait_for_log("all models are available")
        stack.wait_until(lambda: scrape(stack).total("tfs_proxy_workers") == 1, "a worker serves")
        os.kill(stack.children()["model_server"][0], signal.SIGKILL)
        assert stack.wait() != 0
    assert "model server 0 ended with SIGKILL while loading" in stack.log


def accepts(stack: Stack) -> bool:
    """Whether the port accepts connections."""
    with socket.socket() as probe:
        return probe.connect_ex((stack.host, stack.port)) == 0


def test_a_folder_and_an_archive_inside_a_folder_are_served(tmp_path: Path, program: str) -> None:
    """Both at once, each with free loopback ports of its own; the folder itself is not written to."""
    unpacked, mounted = tmp_path / "unpacked", tmp_path / "mounted"
    (unpacked / "m" / "1").mkdir(parents=True)
    (unpacked / "m" / "1" / "saved_model.pb").write_bytes(SAVED_MODEL)
    mounted.mkdir()
    stand_in_archive(mounted / "model.tar.gz")
    before = sorted(tmp_path.rglob("*ed/**/*"))

    with (
        serving(str(unpacked), "--model-server", program) as one,
        serving(str(mounted), "--model-server", program) as other,
    ):
        for stack in (one, other):
            answer = stack.invoke('{"instances": [1]}')
            assert answer.json["predictions"][0]["path"] == "/v1/models/m:predict"
    assert sorted(tmp_path.rglob("*ed/**/*")) == before


def test_an_archive_with_unusual_names_is_served_and_gone_at_the_end(
    tmp_path: Path, program: str, failing: Failing
) -> None:
    """Ports that are open to the outside are told; nobody else can have the port; nothing stays on disk.

    The official binary has no flag to listen on 127.0.0.1; without a script its gRPC port is closed.
    """
    archive = pack(tmp_path / "mödel archive.tar.gz", {"ex port/Sérvo/m/1/saved_model.pb": SAVED_MODEL})
    with serving(str(archive), "--model-server", program) as stack:
        (line,) = [line for line in stack.log.splitlines() if "other machines can reach" in line]
        assert "(REST), without a key. To close them, publish only the HTTP port" in line
        assert "--port=0 " in stack.log
        status, log = failing(archive, port=stack.port)
        assert (status, str(stack.port) in log) == (2, True)
        assert list(stack.home.rglob("saved_model.pb"))
        assert stack.stop() == 0
        assert list(stack.home.iterdir()) == []


def test_ports_of_the_safe_range_are_taken(tmp_path: Path) -> None:
    """GRPC LOW, REST LOW+1, the next model server LOW+2; the front listens on SAGEMAKER_BIND_TO_PORT."""
    low = free_range(10)
    env = {"SAGEMAKER_SAFE_PORT_RANGE": f"{low}-{low + 9}", "SAGEMAKER_TFS_INSTANCE_COUNT": "2"}
    with serving(*stand_in_words(tmp_path, HANDLER), env=env) as stack:
        for port in (low, low + 2):
            stack.wait_for_log(f" --port={port} ")
            stack.wait_for_log(f" --rest_api_port={port + 1} ")
        assert stack.port not in range(low, low + 10)


REFUSED: Mapping[str, tuple[Callable[[Path], Path], Mapping[str, str], tuple[str, ...]]] = {
    "a member that leaves the target": (
        partial(pack, files={"m/1/saved_model.pb": SAVED_MODEL, "../evil": b"x"}),
        {},
        ("../evil",),
    ),
    "not there": (lambda path: path, {}, ("model.tar.gz",)),
    "no model": (
        partial(pack, files={"code/1/saved_model.pb": SAVED_MODEL, "readme.txt": b"x"}),
        {},
        ("saved_model.pb",),
    ),
    "an unusable setting": (
        stand_in_archive,
        {"SAGEMAKER_TFS_INSTANCE_COUNT": "many"},
        ("SAGEMAKER_TFS_INSTANCE_COUNT=many",),
    ),
    "a label on no version": (stand_in_archive, {"SAGEMAKER_TFS_VERSION_LABELS": "stable=7"}, ("stable=7",)),
    "no such default": (stand_in_archive, {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "other"}, ("other",)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_served_is_refused(tmp_path: Path, failing: Failing, case: str) -> None:
    """Exit status 2 and a sentence with what is wrong, no traceback, and no folder that is gone afterwards."""
    make, env, words = REFUSED[case]

    status, log = failing(make(tmp_path / "model.tar.gz"), env)

    assert status == 2
    assert [word for word in words if word not in log] == []
    assert "Traceback" not in log
    assert "tfs-proxy-" not in log.replace("tfs-proxy: ", "")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("name", ["a b", 'say "a"', "it's", "a;b", "{a}", "$a", "a\\b", "a%41", "x" * 90])
def test_a_home_that_can_not_be_used_is_refused_in_a_sentence(
    tmp_path: Path, failing: Failing, name: str
) -> None:
    """No restart loop, no traceback, and nothing is made there."""
    home = tmp_path / name
    status, log = failing(stand_in_archive(tmp_path / "model.tar.gz"), {"TFS_PROXY_HOME": str(home)})

    assert status == 2
    assert messages_of(log)[-1].startswith(f"tfs-proxy: TFS_PROXY_HOME={home} can't be used: ")
    assert "Traceback" not in log
    assert not home.exists()


@pytest.mark.parametrize("folder", ["m\ntfs-proxy: ready", "\r\x1b[2Ktfs-proxy: ready"])
def test_a_folder_s_name_forges_no_line_of_the_log(tmp_path: Path, failing: Failing, folder: str) -> None:
    """A name from the archive is shown escaped."""
    archive = pack(tmp_path / "model.tar.gz", {f"{folder}/1/saved_model.pb": SAVED_MODEL})

    status, log = failing(archive)

    assert status == 2
    assert "\ntfs-proxy: ready" not in log
    assert "\r" not in log
    assert folder.encode("unicode_escape").decode() in log


FAILED: Mapping[str, tuple[dict[str, str], Mapping[str, str], int, str]] = {
    "a version that cannot load": (
        {},
        {"STAND_IN_LOAD_ERROR": "Op type not registered 'Foo'"},
        4,
        "model m version 1 can't be loaded: Op type not registered 'Foo'",
    ),
    "a model server that ends while loading": (
        {},
        {"STAND_IN_EXIT": "1 servable(s) did not become available"},
        4,
        "Its last output: Failed to start server. Error: 1 servable(s) did not become available",
    ),
    "requirements that cannot be installed": (
        {"script": HANDLER, "code/requirements.txt": "./no_such_folder_here\n"},
        {},
        3,
        "no_such_folder_here",
    ),
    # With nothing in flight a failed start ends soon.
    "a script that hangs at import": (
        {"script": f"{HANDLER}while True: pass\n"},
        {"SAGEMAKER_TFS_WAIT_TIME_SECONDS": "2", "TFS_PROXY_STOP_SECONDS": "600"},
        5,
        "WAIT_TIME_SECONDS=2",
    ),
}


@pytest.mark.parametrize("case", FAILED)
def test_what_fails_while_it_starts_is_told(tmp_path: Path, failing: Failing, case: str) -> None:
    """An exit status of its own, and the words of whoever failed."""
    contents, env, expected, words = FAILED[case]

    status, log = failing(stand_in_archive(tmp_path / "model.tar.gz", **contents), env)

    assert status == expected
    assert words in log


def test_a_model_that_takes_too_long_ends_start_up(tmp_path: Path, failing: Failing) -> None:
    """At the latest after the wait time, with what is missing: at a busy machine the model server itself."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")
    with gate(tmp_path / "gate") as held:
        status, log = failing(archive, {"STAND_IN_GATE": held.mark(), "SAGEMAKER_TFS_WAIT_TIME_SECONDS": "3"})

    assert status == 5
    assert "model m version 1 is LOADING" in log or "the model server does not answer yet" in log


@pytest.mark.parametrize(
    ("seconds", "expected", "words"),
    [
        ({"TFS_PROXY_INSTALL_SECONDS": "4"}, 5, "not installed within TFS_PROXY_INSTALL_SECONDS=4"),
        ({"PIP_DEFAULT_TIMEOUT": "9", "UV_HTTP_TIMEOUT": "9"}, 3, "requirements.txt can't be installed"),
    ],
    ids=["its own limit", "the installer's"],
)
def test_an_installation_has_a_limit_of_its_own(
    tmp_path: Path, failing: Failing, seconds: dict[str, str], expected: int, words: str
) -> None:
    """The index does not answer; the time that models have to be loaded does not count for packages."""
    more = {"code/requirements.txt": "nothing_of_this_name\n"}
    archive = stand_in_archive(tmp_path / "model.tar.gz", script=HANDLER, **more)
    with socket.create_server(("127.0.0.1", 0)) as index:
        silent = f"http://127.0.0.1:{index.getsockname()[1]}/simple"
        env = {"PIP_INDEX_URL": silent, "UV_DEFAULT_INDEX": silent, "SAGEMAKER_TFS_WAIT_TIME_SECONDS": "6"}
        once = {"PIP_RETRIES": "0", "UV_HTTP_RETRIES": "0", "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}
        status, log = failing(archive, {**env, **once, **seconds})

    assert status == expected
    assert words in log


def test_the_freeze_of_another_program_does_not_replace_the_workers_server(tmp_path: Path) -> None:
    """gunicorn and falcon of requirements.txt, named there or by a package, are taken out again, by name."""
    wheels = tmp_path / "wheels"
    made = (
        write_wheel(wheels, "gunicorn", "20.1.0"),
        write_wheel(wheels, "falcon", "2.0.0"),
        write_wheel(wheels, "tinyone", "1.2", needs="falcon==2.0.0"),
    )
    more: dict[str, str | bytes] = {f"code/wheels/{wheel.name}": wheel.read_bytes() for wheel in made}
    more["code/requirements.txt"] = "gunicorn==20.1.0\ntinyone\n"
    with serving(*stand_in_words(tmp_path, SAYS_VERSIONS, **more)) as stack:
        said = stack.invoke(b"{}").body.decode()
        log = stack.log

    assert said == f"1.2, {version('gunicorn')}, {version('falcon')}"
    for name, pinned in (("gunicorn", "20.1.0"), ("falcon", "2.0.0")):
        assert f"{name} {pinned} of code/requirements.txt is taken out again for {version(name)}" in log


def test_a_package_that_ends_the_workers_is_named_with_them(tmp_path: Path, failing: Failing) -> None:
    """A package that is not taken out may be the reason, so that the last line names it."""
    wheel = write_wheel(tmp_path / "wheels", "numpy", "0.1")
    more: dict[str, str | bytes] = {
        f"code/wheels/{wheel.name}": wheel.read_bytes(),
        "code/requirements.txt": "numpy==0.1\n",
    }

    status, log = failing(stand_in_archive(tmp_path / "model.tar.gz", HANDLER, **more))

    assert status == 3
    assert messages_of(log)[-1].startswith(
        "tfs-proxy: no worker can start: gunicorn ended with exit status 1. "
        "Packages of code/requirements.txt replace its own: numpy 0.1. Its last output: "
    )
