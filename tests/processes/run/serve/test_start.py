"""Start-up of the real `tfs-proxy serve`: the port, the reasons, and every way in which it refuses to run."""

import contextlib
import http.client
import socket
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.archives import SAVED_MODEL, has_nginx, pack, stand_in_archive, stand_in_program, without_nginx
from support.gates import Gate, gate
from support.ports import free_range
from support.running import Answer, messages_of
from support.stack import Stack, serving
from tfs_proxy.model.report.first_request import TRY

FRONTS = [
    pytest.param({}, id="nginx", marks=pytest.mark.skipif(not has_nginx(), reason="nginx is not installed")),
    pytest.param(without_nginx(), id="gunicorn"),
]
HANDLER = "def handler(data, context): return ''\n"
ACCEPT_CPU_SECONDS = 0.25 * 4
"""A quarter of a second with a margin of 4, in processor time: other programs may use the machine as well."""


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The stand-in model server."""
    return stand_in_program(tmp_path)


@pytest.fixture
def failing(tmp_path: Path, program: str) -> Iterator["Failing"]:
    """Starts that are expected to end by themselves."""
    starts = Failing(tmp_path, program)
    yield starts
    starts.close()


class Failing:
    """Runs `serve` until it ends; keeps stacks to clean up."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder = folder
        self.program = program
        self.stacks: list[Stack] = []

    def __call__(self, model: str | Path, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        stack = Stack(str(model), "--model-server", self.program, env=env)
        self.stacks.append(stack)
        status = stack.wait()
        assert list(stack.home.iterdir()) == [], "something was left on disk"
        return status, stack.log

    def close(self) -> None:
        for stack in self.stacks:
            stack.close()


@pytest.mark.parametrize("front", FRONTS)
def test_the_port_accepts_at_once_and_says_why_it_is_not_ready(
    tmp_path: Path, program: str, front: Mapping[str, str]
) -> None:
    """Until the model is loaded every request gets a 503 with a reason, then /ping is 200 and empty."""
    with starting(tmp_path, program, front) as (stack, held):
        wait_until_it_accepts(stack)
        assert stack.cpu_seconds < ACCEPT_CPU_SECONDS
        pings = pings_until_loading(stack)
        invocation, other = stack.invoke("{}"), stack.ask("GET", "/nope")

        assert {answer.status for answer in (*pings, invocation, other)} == {503}
        assert set(invocation.json) == {"error"}
        held.open()
        stack.wait_ready()
        ready = stack.ask("GET", "/ping")
        assert (ready.status, ready.body) == (200, b"")
        assert stack.invoke('{"instances": [1]}').status == 200


def test_a_line_names_the_ports_that_are_open_to_the_outside(tmp_path: Path, program: str) -> None:
    """The official binary has no flag to listen on 127.0.0.1; without a script its gRPC port is closed."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")
    with serving(str(archive), "--model-server", program) as stack:
        lines = [line for line in stack.log.splitlines() if "other machines can reach" in line]

    assert len(lines) == 1
    assert "(REST). To close them, publish only the HTTP port" in lines[0]
    assert "--port=0 " in stack.log


@contextlib.contextmanager
def starting(folder: Path, program: str, env: Mapping[str, str]) -> Iterator[tuple[Stack, Gate]]:
    """A stack whose model loads until the gate is open."""
    archive = stand_in_archive(folder / "model.tar.gz")
    with gate(folder / "gate") as held:
        stack = Stack(str(archive), "--model-server", program, env={"STAND_IN_GATE": held.mark(), **env})
        try:
            yield stack, held
        finally:
            stack.close()


def pings_until_loading(stack: Stack) -> list[Answer]:
    """What /ping says, until it says that models are being loaded."""
    pings: list[Answer] = []

    def is_loading() -> bool:
        pings.append(stack.ask("GET", "/ping"))
        return "loading the models" in pings[-1].json["error"]

    stack.wait_until(is_loading, "/ping says that the models are being loaded")
    return pings


def wait_until_it_accepts(stack: Stack) -> None:
    """Wait until the port accepts connections."""

    def accepts() -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection((stack.host, stack.port), timeout=1).close()
            return True
        return False

    stack.wait_until(accepts, "the port accepts connections")


def invoke_on(connection: http.client.HTTPConnection) -> int:
    """The status of one invocation on this connection."""
    connection.request("POST", "/invocations", '{"instances": [1]}', {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    return response.status


@pytest.mark.parametrize("front", FRONTS)
def test_a_request_on_a_kept_connection_reaches_the_workers_once_all_is_ready(
    tmp_path: Path, program: str, front: Mapping[str, str]
) -> None:
    """No connection made during start-up goes on answering 503 afterwards."""
    with starting(tmp_path, program, front) as (stack, held):
        wait_until_it_accepts(stack)
        connection = http.client.HTTPConnection(stack.host, stack.port, timeout=60)
        statuses = [invoke_on(connection)]
        held.open()

        def is_answered() -> bool:
            statuses.append(invoke_on(connection))
            return statuses[-1] == 200

        stack.wait_until(is_answered, "a request on the kept connection is answered")
        connection.close()

        assert set(statuses) == {503, 200}


@pytest.mark.parametrize("front", FRONTS)
def test_connections_opened_with_the_first_200_are_kept(
    tmp_path: Path, program: str, front: Mapping[str, str]
) -> None:
    """Ready means that nothing is reloaded any more, which would close them."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")
    with (
        serving(str(archive), "--model-server", program, env=front) as stack,
        contextlib.ExitStack() as links,
    ):
        kept = [
            links.enter_context(socket.create_connection((stack.host, stack.port), timeout=30))
            for _ in range(8)
        ]
        for _ in range(2):
            for link in kept:
                link.sendall(b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n")
                assert link.recv(4096).startswith(b"HTTP/1.1 200")
            stack.wait_for_log(TRY)  # the last line of a start


def test_a_folder_and_an_archive_inside_a_folder_are_served(tmp_path: Path, program: str) -> None:
    """An unpacked mount and a mounted archive both work; the folder itself is not written to."""
    unpacked, mounted = tmp_path / "unpacked", tmp_path / "mounted"
    (unpacked / "m" / "1").mkdir(parents=True)
    (unpacked / "m" / "1" / "saved_model.pb").write_bytes(SAVED_MODEL)
    mounted.mkdir()
    stand_in_archive(mounted / "model.tar.gz")

    for folder in (unpacked, mounted):
        before = sorted(folder.rglob("*"))
        with serving(str(folder), "--model-server", program) as stack:
            answer = stack.invoke('{"instances": [1]}')
            assert answer.json["predictions"][0]["path"] == "/v1/models/m:predict"
        assert sorted(folder.rglob("*")) == before


def test_two_runs_on_one_machine_do_not_collide(tmp_path: Path, program: str) -> None:
    """Without port variables each takes free loopback ports."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")

    with (
        serving(str(archive), "--model-server", program) as one,
        serving(str(archive), "--model-server", program) as other,
    ):
        assert one.ask("GET", "/ping").status == other.ask("GET", "/ping").status == 200


def test_several_instances_need_no_port_range(tmp_path: Path, program: str) -> None:
    """AWS's container ends with an IndexError here (docs/reference/aws-container.md)."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")

    with serving(str(archive), "--model-server", program, env={"SAGEMAKER_TFS_INSTANCE_COUNT": "2"}) as stack:
        assert len(stack.children()["model_server"]) == 2


def test_ports_of_the_safe_range_are_taken(tmp_path: Path, program: str) -> None:
    """GRPC LOW, REST LOW+1; the front listens on SAGEMAKER_BIND_TO_PORT."""
    archive = stand_in_archive(tmp_path / "model.tar.gz", HANDLER)
    low = free_range(10)

    with serving(
        str(archive), "--model-server", program, env={"SAGEMAKER_SAFE_PORT_RANGE": f"{low}-{low + 9}"}
    ) as stack:
        stack.wait_for_log(f" --port={low} ")
        stack.wait_for_log(f" --rest_api_port={low + 1} ")
        assert stack.port not in range(low, low + 10)


def test_a_member_that_leaves_the_target_is_refused(tmp_path: Path, failing: Failing) -> None:
    """Exit status 2, the member's name, and nothing left on disk."""
    archive = pack(tmp_path / "model.tar.gz", {"m/1/saved_model.pb": SAVED_MODEL, "../evil": b"x"})

    status, log = failing(archive)

    assert status == 2
    assert "../evil" in log
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("name", ["a b", 'say "a"', "x" * 90])
def test_a_home_that_can_not_be_used_is_refused_in_a_sentence(
    tmp_path: Path, program: str, failing: Failing, name: str
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


def test_an_archive_over_the_configured_limits_is_refused(tmp_path: Path, failing: Failing) -> None:
    """Members are counted against TFS_PROXY_MAX_ARCHIVE_MEMBERS."""
    archive = pack(tmp_path / "model.tar.gz", {f"m/1/{number}": b"" for number in range(20)})

    status, log = failing(archive, {"TFS_PROXY_MAX_ARCHIVE_MEMBERS": "10"})

    assert status == 2
    assert "10" in log


def test_what_is_no_archive_is_refused(tmp_path: Path, failing: Failing) -> None:
    """A text file with the right name, a truncated archive, a path that isn't there."""
    text = tmp_path / "text.tar.gz"
    text.write_text("hello")
    truncated = stand_in_archive(tmp_path / "truncated.tar.gz", more="x" * 10_000)
    truncated.write_bytes(truncated.read_bytes()[:-20])

    for path in (text, truncated, tmp_path / "absent.tar.gz"):
        status, log = failing(path)
        assert status == 2
        assert path.name in log


def test_two_models_of_one_name_are_both_named(tmp_path: Path, failing: Failing) -> None:
    """AWS's container serves one of them, whichever the folder order gives."""
    archive = pack(
        tmp_path / "model.tar.gz", {"a/m/1/saved_model.pb": SAVED_MODEL, "b/m/1/saved_model.pb": SAVED_MODEL}
    )

    status, log = failing(archive)

    assert status == 2
    assert "a/m" in log
    assert "b/m" in log


def test_an_archive_without_a_model_says_what_is_expected(tmp_path: Path, failing: Failing) -> None:
    """The error names the layout."""
    archive = pack(tmp_path / "model.tar.gz", {"code/1/saved_model.pb": SAVED_MODEL, "readme.txt": b"x"})

    status, log = failing(archive)

    assert status == 2
    assert "saved_model.pb" in log


def test_an_unusable_setting_stops_start_up_with_one_sentence(tmp_path: Path, failing: Failing) -> None:
    """Variable and value are in it, and no traceback."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")

    status, log = failing(archive, {"SAGEMAKER_TFS_INSTANCE_COUNT": "many"})

    assert status == 2
    assert "SAGEMAKER_TFS_INSTANCE_COUNT=many" in log
    assert "Traceback" not in log


def test_a_label_on_a_version_that_is_not_there_is_refused(tmp_path: Path, failing: Failing) -> None:
    """The versions that are there are listed."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")

    status, log = failing(archive, {"SAGEMAKER_TFS_VERSION_LABELS": "stable=7"})

    assert status == 2
    assert "stable=7" in log


def test_a_default_model_that_is_not_there_is_refused(tmp_path: Path, failing: Failing) -> None:
    """The models that are there are listed."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")

    status, log = failing(archive, {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "other"})

    assert status == 2
    assert "other" in log


def test_a_version_that_cannot_load_ends_start_up_with_the_servers_words(
    tmp_path: Path, failing: Failing
) -> None:
    """The model server reports END with an error: its text, and exit status 4."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")

    status, log = failing(archive, {"STAND_IN_LOAD_ERROR": "Op type not registered 'Foo'"})

    assert status == 4
    assert "model m version 1 can't be loaded: Op type not registered 'Foo'" in log


def test_a_model_server_that_ends_while_loading_is_quoted(tmp_path: Path, failing: Failing) -> None:
    """The official binary ends when a model can't load: its last words become the reason."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")

    status, log = failing(archive, {"STAND_IN_EXIT": "1 servable(s) did not become available"})

    assert status == 4
    assert "Its last output: Failed to start server. Error: 1 servable(s) did not become available" in log


def test_a_model_that_takes_too_long_ends_start_up(tmp_path: Path, failing: Failing) -> None:
    """At the latest after the wait time, with what is missing: at a busy machine the model server itself."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")
    with gate(tmp_path / "gate") as held:
        status, log = failing(archive, {"STAND_IN_GATE": held.mark(), "SAGEMAKER_TFS_WAIT_TIME_SECONDS": "5"})

    assert status == 5
    assert "model m version 1 is LOADING" in log or "the model server does not answer yet" in log


def test_packages_that_take_too_long_are_named(tmp_path: Path, failing: Failing) -> None:
    """The models have been loaded by then; the index does not answer."""
    more = {"code/requirements.txt": "nothing_of_this_name\n"}
    archive = stand_in_archive(tmp_path / "model.tar.gz", script=HANDLER, **more)
    with socket.create_server(("127.0.0.1", 0)) as index:
        silent = f"http://127.0.0.1:{index.getsockname()[1]}/simple"
        env = {"PIP_INDEX_URL": silent, "UV_DEFAULT_INDEX": silent, "SAGEMAKER_TFS_WAIT_TIME_SECONDS": "8"}
        status, log = failing(archive, env)

    assert status == 5
    assert "WAIT_TIME_SECONDS=8: starting: installing packages" in log


def test_requirements_that_cannot_be_installed_stop_start_up(tmp_path: Path, failing: Failing) -> None:
    """With the installer's words and exit status 3."""
    archive = stand_in_archive(
        tmp_path / "model.tar.gz",
        script=HANDLER,
        **{"code/requirements.txt": "./no_such_folder_here\n"},
    )

    status, log = failing(archive)

    assert status == 3
    assert "no_such_folder_here" in log


def test_a_port_that_is_taken_is_named(tmp_path: Path, program: str) -> None:
    """Exit status 2, and the address."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")

    with serving(str(archive), "--model-server", program) as first:
        status, log = _start_on(first.port, archive, program)

    assert status == 2
    assert str(first.port) in log


def _start_on(port: int, archive: Path, program: str) -> tuple[int, str]:
    stack = Stack(str(archive), "--model-server", program, port=port)
    try:
        return stack.wait(), stack.log
    finally:
        stack.close()


def test_the_unpacked_archive_is_gone_at_the_end(tmp_path: Path, program: str) -> None:
    """While it runs it lies in a folder of the run's own."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")

    with serving(str(archive), "--model-server", program) as stack:
        assert list(stack.home.rglob("saved_model.pb"))
        assert stack.stop() == 0
        assert list(stack.home.iterdir()) == []


def test_an_archive_with_unusual_names_is_served(tmp_path: Path, program: str) -> None:
    """Blanks and letters beyond ASCII in folders above the model do no harm."""
    archive = pack(tmp_path / "mödel archive.tar.gz", {"ex port/Sérvo/m/1/saved_model.pb": SAVED_MODEL})

    with tarfile.open(archive) as opened:
        assert opened.getnames()
    with serving(str(archive), "--model-server", program) as stack:
        assert stack.ask("GET", "/ping").status == 200


def test_messages_name_members_and_not_a_folder_that_is_gone(tmp_path: Path, failing: Failing) -> None:
    """The archive was unpacked to a folder of the run's own, which is gone afterwards."""
    archive = pack(
        tmp_path / "model.tar.gz", {"a/m/1/saved_model.pb": SAVED_MODEL, "b/m/1/saved_model.pb": b"x"}
    )

    _, log = failing(archive)

    assert "tfs-proxy-" not in log.replace("tfs-proxy: ", "")


def test_a_script_that_hangs_at_import_does_not_hold_up_the_end(tmp_path: Path, failing: Failing) -> None:
    """With nothing in flight a failed start ends soon."""
    archive = stand_in_archive(tmp_path / "model.tar.gz", script=f"{HANDLER}while True: pass\n")

    status, _ = failing(archive, {"SAGEMAKER_TFS_WAIT_TIME_SECONDS": "2", "TFS_PROXY_STOP_SECONDS": "600"})

    assert status == 5


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit(0)", "BaseException('odd')"])
def test_a_script_that_raises_anything_at_import_is_told(
    tmp_path: Path, failing: Failing, raised: str
) -> None:
    """Exit status 3, and the exception's name."""
    archive = stand_in_archive(tmp_path / "model.tar.gz", script=f"{HANDLER}raise {raised}\n")

    status, log = failing(archive)

    assert status == 3
    assert raised.partition("(")[0] in log


@pytest.mark.skipif(not has_nginx(), reason="nginx is not installed")
def test_a_connection_that_was_told_ready_stays_open(tmp_path: Path, program: str) -> None:
    """The client that saw the first 200 sends its request on the same connection: no reload of nginx cuts it."""
    stack = Stack(str(stand_in_archive(tmp_path / "m.tar.gz")), "--model-server", program)
    try:
        client = first_ready(stack)
        before = invoke_on(client)
        stack.wait_for_log(TRY)  # the last line of a start
        after = invoke_on(client)
        client.close()
    finally:
        stack.close()

    assert (before, after) == (200, 200)


def first_ready(stack: Stack) -> http.client.HTTPConnection:
    """Ping on a kept connection, opened again if it is closed, until the first 200."""
    client = http.client.HTTPConnection(stack.host, stack.port, timeout=60)

    def is_ready() -> bool:
        try:
            client.request("GET", "/ping")
            response = client.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            client.close()
            return False
        return response.status == 200

    stack.wait_until(is_ready, "/ping answers 200")
    return client
