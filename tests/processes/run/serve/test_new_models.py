"""`serve --reload`: new versions and archives are served once they are ready, and no request fails meanwhile."""

import shutil
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import boto3
import grpc
import pytest

from support import gates
from support.archives import (
    SAVED_MODEL,
    pack,
    stand_in_archive,
    stand_in_program,
)
from support.following import Serve, add_version, answer, answers, script
from support.gates import Gate
from support.grpc_calls import hold, ones, predict
from support.load_generator import load
from support.ports import free_range
from support.scraping import scrape
from support.stack import Stack, ended, serving
from support.transform_command import S3_SETTINGS, s3_server

MODEL_ENDED = "model server 0 ended with exit status 1 while loading"


def versions(stack: Stack, model: str = "m") -> list[int]:
    """The versions that TF Serving's REST API says are there."""
    reply = stack.ask("GET", f"/v1/models/{model}")
    assert reply.status == 200, reply.body
    return sorted(int(each["version"]) for each in reply.json["model_version_status"])


def serves(stack: Stack, *expected: int) -> bool:
    """Whether these are the versions."""
    return versions(stack) == list(expected)


def is_refused(stack: Stack) -> bool:
    """Tell what the metric of a refused change says."""
    ((_, value),) = scrape(stack).values("tfs_proxy_update_refused")
    return value == 1


def wait_for_one_generation(stack: Stack) -> None:
    """Wait until the former processes have ended."""
    stack.wait_until(lambda: len(stack.children()["model_server"]) == 1, "one model server is left")


def test_versions_come_and_go_under_load_and_no_request_fails(serve: Serve, folder: Path) -> None:
    """A second version with a changed script, and the first removed: what is told of the run follows."""
    low = free_range(4)
    stack = serve(folder, "--reload", SAGEMAKER_SAFE_PORT_RANGE=f"{low}-{low + 3}")
    assert answer(stack) == "first"
    with load(stack.port) as sending:
        (folder / "code" / "inference.py").write_text(script("second"))
        add_version(folder, 2)
        stack.wait_until(partial(serves, stack, 1, 2), "both versions are there")
        stack.wait_until(partial(answers, stack, "second"), "the changed script answers")
        wait_for_one_generation(stack)
        shutil.rmtree(folder / "m" / "1")
        stack.wait_until(partial(serves, stack, 2), "the first version has gone")

    assert "m (versions 1, 2) serves, after" in stack.log
    assert stack.ask("GET", "/ping").status == 200
    measured = scrape(stack)
    assert [labels["version"] for labels, _ in measured.values("tfs_proxy_model_state", model="m")] == ["2"]
    assert measured.total("tfs_proxy_model_requests_total", model="m") >= sending.answered()
    assert measured.total("tfs_proxy_workers") == 2
    wait_for_one_generation(stack)


def test_a_file_that_is_a_mount_of_its_own_is_named(tmp_path: Path) -> None:
    """A file mount keeps the old inode, so what `mv` puts in its place outside is never seen."""
    (tmp_path / "mounted here").mkdir()
    outside, inside = tmp_path / "model.tar.gz", tmp_path / "mounted here" / "model.tar.gz"
    stand_in_archive(outside)
    inside.touch()
    mounted = f"mount --bind '{outside}' '{inside}' && exec \"$@\""
    launcher = ["unshare", "--map-root-user", "--mount", "sh", "-c", mounted, "sh"]
    if subprocess.run([*launcher, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may mount nothing")
    words = (str(inside.parent), "--reload", "--model-server", stand_in_program(tmp_path))
    with serving(*words, launcher=launcher) as stack:
        assert f"{inside} is a mount of its own" in stack.log


def has_lines(stack: Stack, text: str, count: int) -> bool:
    """Whether the log has this so many times."""
    return stack.log.count(text) == count


def cut_off(archive: Path) -> Path:
    """The first half of an archive."""
    whole = stand_in_archive(archive, script=script("cut")).read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    return archive


UNUSABLE: dict[str, Callable[[Path], Path]] = {
    "cut short": cut_off,
    "No module named": partial(stand_in_archive, script=script("broken") + "import no_such_module"),
    "needs a SavedModel": partial(pack, files={"code/inference.py": "def handler(data, context): ..."}),
}
"""Archives that can't be served, by what is said of them."""


def test_a_new_archive_is_served_and_one_that_can_not_be_is_reported(serve: Serve, tmp_path: Path) -> None:
    """Cut off, without a model, with a script that fails: once each, and the old one serves; then good ones."""
    archive = stand_in_archive(tmp_path / "model.tar.gz", script=script("first"))
    new = tmp_path / "new.tar.gz"
    stack = serve(archive, "--reload")
    with load(stack.port):
        for number, (reason, make) in enumerate(UNUSABLE.items(), 1):
            make(new).rename(archive)
            reported = partial(has_lines, stack, "the change can't be used: ", number)
            stack.wait_until(reported, f"a change is reported: {reason}")
            assert reason in stack.log
            assert answer(stack) == "first"
            assert is_refused(stack)
        (server,) = stack.children()["model_server"]
        stand_in_archive(new, script=script("second")).rename(archive)
        stack.wait_until(partial(answers, stack, "second"), "the new archive serves")
        assert stack.children()["model_server"] == [server], "it has the same models"
        stand_in_archive(new, script=script("third"), **{"m/2/saved_model.pb": SAVED_MODEL}).rename(archive)
        stack.wait_until(partial(answers, stack, "third"), "the archive with another model serves")
        stack.wait_until(lambda: not is_refused(stack), "the metric says so")

    assert stack.log.count("The models and code loaded before go on serving.") == 3
    wait_for_one_generation(stack)
    stack.wait_until(lambda: not list(stack.home.glob("*/model")), "the first archive is removed")
    stack.wait_until(lambda: not list(stack.home.glob("*/[45]")), "so are those that could not be used")


def test_a_model_server_that_ends_while_it_loads_is_reported(
    serve: Serve, folder: Path, tmp_path: Path
) -> None:
    """The old one serves on; the next version that can be loaded is taken."""
    stack = serve(folder, "--reload")
    program = tmp_path / "tensorflow_model_server"
    good = program.read_text()
    program.write_text("#!/bin/sh\nexit 1\n")
    add_version(folder, 2)
    stack.wait_for_log(MODEL_ENDED)
    assert versions(stack) == [1]
    program.write_text(good)
    add_version(folder, 3)

    stack.wait_until(partial(serves, stack, 1, 2, 3), "all versions are there")


@pytest.mark.parametrize("broken", ["import no_such_module", "while True: pass"])
def test_a_version_is_loaded_once_the_script_that_came_with_it_is_repaired(
    serve: Serve, folder: Path, tmp_path: Path, broken: str
) -> None:
    """It hangs while it is imported, or fails: what came with it is not forgotten."""
    stack = serve(folder, "--reload")
    code = folder / "code" / "inference.py"
    add_version(folder, 2)
    code.write_text(script("broken") + broken)
    stack.wait_for_log("loading it in new" if "while" in broken else "the change can't be used")
    assert (answer(stack), versions(stack)) == ("first", [1])
    code.write_text(script("second"))

    stack.wait_until(partial(serves, stack, 1, 2), "both versions are there")
    stack.wait_until(partial(answers, stack, "second"), "the repaired script answers")


def test_a_version_that_is_being_copied_is_not_taken(serve: Serve, folder: Path, tmp_path: Path) -> None:
    """Nothing is loaded as long as its graph is not there, or still grows; afterwards it is loaded once."""
    stack = serve(folder, "--reload")
    copy = folder / "m" / "2"
    (copy / "variables").mkdir(parents=True)
    (copy / "variables" / "variables.index").touch()
    graph, grown = copy / "saved_model.pb", threading.Event()

    def grow() -> None:
        while not grown.wait(0.2):
            with graph.open("ab") as file:
                file.write(b"\0")

    growing = threading.Thread(target=grow)
    growing.start()
    # Longer than a change has to rest, in writes: the machine may be slow.
    stack.wait_until(lambda: graph.exists() and graph.stat().st_size > 15, "it has grown for 3 seconds")
    assert "changed: loading" not in stack.log
    grown.set()
    growing.join()
    graph.write_bytes(SAVED_MODEL)

    stack.wait_until(partial(serves, stack, 1, 2), "the copied version is there")
    assert stack.log.count("changed: loading") == 1


def test_a_stop_while_a_new_version_loads_ends_both(serve: Serve, folder: Path, tmp_path: Path) -> None:
    """SIGTERM while the new model server loads for ever: the exit status is 0, and no process is left."""
    gate = Gate(tmp_path / "gate")
    gate.open()
    stack = serve(folder, "--reload", STAND_IN_GATE=gate.mark())
    (tmp_path / "gate" / "open").unlink()
    add_version(folder, 2)
    stack.wait_until(lambda: len(stack.children()["model_server"]) == 2, "the new model server runs")
    pids = [pid for of_one_name in stack.children().values() for pid in of_one_name]

    assert stack.stop() == 0

    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_a_change_while_a_load_waits_for_a_former_stack_is_loaded(
    serve: Serve, folder: Path, tmp_path: Path
) -> None:
    """A request keeps the first stack from ending, the load of the third waits for it, and gives way to the fourth."""
    holds = f"{gates.SCRIPT}\ndef handler(data, context):\n    hold(data.read().decode())\n"
    (folder / "code" / "inference.py").write_text(holds)
    stack = serve(folder, "--reload")
    with ThreadPoolExecutor(1) as pool, gates.gate(tmp_path / "gate") as shut:
        pool.submit(stack.invoke, shut.mark(), "text/plain")
        shut.wait_for()
        for version in (2, 3, 4):
            add_version(folder, version)
            stack.wait_until(partial(has_lines, stack, "changed: loading", version - 1), "it is taken up")
            if version == 2:
                stack.wait_until(partial(serves, stack, 1, 2), "the second stack serves")

    stack.wait_until(partial(serves, stack, 1, 2, 3, 4), "all versions are there")


@pytest.mark.slow
@pytest.mark.tensorflow
def test_calls_over_grpc_and_the_fast_path_go_on(serve: Serve, saved_models: Path, tmp_path: Path) -> None:
    """Real model servers: a call that is under way ends at the old one, and JSON is answered all the time."""
    folder = tmp_path / "models"
    shutil.copytree(saved_models / "versions" / "1", folder / "versions" / "1")
    shutil.copytree(saved_models / "gate", folder / "gate")
    gate = Gate(tmp_path / "gate")
    default = {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "versions", "TFS_PROXY_GRPC_PORT": "0"}
    stack = serve(folder, "--reload", official=True, **default)
    with grpc.insecure_channel(stack.grpc) as channel, load(stack.port, clients=2):
        assert predict(channel, ones(1), "versions")["y"].tolist() == [2.5]
        held = threading.Thread(target=hold, args=(channel, gate.mark()))
        held.start()
        gate.wait_for()
        shutil.copytree(saved_models / "versions" / "1", tmp_path / "new")
        (tmp_path / "new").rename(folder / "versions" / "2")
        stack.wait_for_log("versions (versions 1, 2) serve")
        assert predict(channel, ones(1), "versions", version=2)["y"].tolist() == [2.5]
        assert held.is_alive()
        gate.open()
        held.join()


def test_a_new_archive_in_s3_is_downloaded_and_served(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ETag tells it from the old one."""
    with s3_server() as endpoint:
        for name, value in {**S3_SETTINGS, "AWS_ENDPOINT_URL_S3": endpoint}.items():
            monkeypatch.setenv(name, value)
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="models")
        archive = stand_in_archive(tmp_path / "a.tar.gz", script=script("first"))
        s3.upload_file(str(archive), "models", "model.tar.gz")
        stack = serve("s3://models/model.tar.gz", "--reload")
        assert answer(stack) == "first"
        archive = stand_in_archive(tmp_path / "b.tar.gz", script=script("second"))
        s3.upload_file(str(archive), "models", "model.tar.gz")

        stack.wait_until(partial(answers, stack, "second"), "the new archive serves")


REFUSED = {
    "can't be used in multi-model mode": {"SAGEMAKER_MULTI_MODEL": "true"},
    "need 4 ports": {"SAGEMAKER_SAFE_PORT_RANGE": "21000-21002"},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_can_not_be_followed_is_refused(sentence: str) -> None:
    """Exit status 2 and a sentence; the setting does the same as the flag."""
    status, log = ended(env={"TFS_PROXY_RELOAD": "true", **REFUSED[sentence]})
    assert status == 2
    assert "--reload (TFS_PROXY_RELOAD) can't be used" in log.splitlines()[-1]
    assert sentence in log.splitlines()[-1]
