"""`tfs-proxy conform` as users run it: output, files and exit status; an address is neither started nor stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.ports import free_port
from support.processes import wait_until_ended
from support.toy_container.judged import TESTS
from tfs_proxy.cli import main
from tfs_proxy.tools.conform.checks import ALL


def test_a_sound_container(
    command: str, requests_file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = ["--json", str(tmp_path / "r.json"), "--junit", str(tmp_path / "r.xml")]
    words = ["conform", "--command", command, "--requests", str(requests_file), "--only", "errors,ping"]

    assert main([*words, *files]) == 0

    said = capfd.readouterr().out
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["counts"]["failed"] == 0
    assert all(check["name"] in said for check in document["checks"])
    assert "24 checks: 24 passed, 0 failed, 0 pieces of advice, 0 not run" in said
    assert (tmp_path / "r.xml").read_text().count("<testcase ") == 24


def test_a_must_that_fails(command: str, requests_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = requests_file.with_name("report.json")
    judged = ["conform", "--requests", str(requests_file), "--json", str(report), "--command"]

    assert main([*judged, f"{command} --fault body-limit", "--only", "invocations/body-of-6-mb"]) == 1
    said = capfd.readouterr().out
    assert "FAILED invocations/body-of-6-mb" in said
    assert "Failed: invocations/body-of-6-mb" in said
    document = json.loads(report.read_text())
    (check,) = document["checks"]
    assert document["counts"]["musts failed"] == 1
    assert (check["level"], "an answer to a body" in check["expected"]) == ("must", True)
    assert "mend" in check

    assert main([*judged, f"{command} --fault html-errors", "--only", "errors/not-html"]) == 0
    assert "advice errors/not-html" in capfd.readouterr().out


def test_a_body_that_grows_by_repetition(command: str, tmp_path: Path) -> None:
    file = tmp_path / "requests.json"
    file.write_text(json.dumps({"good": {"content_type": "text/csv", "body": "1.0\n"}}))
    words = ["conform", "--requests", str(file), "--only", "invocations/body-of-6-mb", "--command"]

    assert main([*words, f"{command} --fault body-limit"]) == 1
    assert main([*words, command]) == 0


def test_an_address(url: str, requests_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What needs a start or a stop is listed with the reason, and the container goes on."""
    assert main(["conform", url, "--requests", str(requests_file)]) == 0

    said = capfd.readouterr().out
    lines = {line.split()[1]: line for line in said.splitlines() if line.startswith(("ok ", "- "))}
    for check in ALL:
        if check.group == "start-stop" and check.name != "start-stop/stays-ready":
            assert lines[check.name].startswith("- ")
    assert "with a URL alone nothing is started or stopped" in lines["start-stop/sigterm-exits"]
    assert lines["ping/answers-200"].startswith("ok")
    assert main(["conform", url, "--only", "ping/answers-200"]) == 0


def test_requests_are_found_by_trying(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", url, "--only", "invocations/good-request,errors/json"]) == 0

    said = capfd.readouterr().out
    assert 'good request, found by trying: application/json {"instances": [1.0]}' in said
    assert "bad request, found by trying: application/json" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["conform"], "conform takes one of URL, --image IMAGE and --command COMMAND"),
        (["conform", "ftp://x"], "ftp://x can't be judged"),
        (["conform", "http://x:port"], "http://x:port is not an address"),
        (["conform", "--command", "no-such-program-x"], "no-such-program-x can't be run"),
        (["conform", "--command", "serve {model}"], "has {model}, so --model"),
        (["conform", "--command", "serve 'x"], "--command can't be split into words"),
        (["conform", "http://x", "--only", "pong"], "--only pong is neither"),
        (["conform", "http://x", "--env", "A"], "--env A can't be used"),
        (["conform", "http://x", "--requests", "none.json"], "none.json can't be read"),
        (["conform", "http://x", "--json", "/no/such/r.json"], "/no/such/r.json can't be written"),
        (["conform", "http://x", "--junit", "/"], "/ can't be written"),
        (["conform", "http://x", "--start-timeout", "nan"], "--start-timeout nan must be"),
        (["conform", "http://x", "--start-timeout", "0"], "--start-timeout 0 must be"),
        (["conform", "http://x", "--docker-option=-it"], "--docker-option is for --image alone"),
        (["conform", "--image", ""], "--image is empty"),
        (["conform", "--command", "serve", "--port", "70000"], "--port 70000 is not a port"),
    ],
)
def test_what_can_not_be_run(words: list[str], sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert sentence in capfd.readouterr().err


def test_an_address_where_nothing_listens(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", f"http://127.0.0.1:{free_port()}"]) == 2
    assert "nothing listens" in capfd.readouterr().err


def test_another_program_is_not_judged(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    port = url.rpartition(":")[2]

    assert main(["conform", "--command", "sleep 60", "--port", port]) == 2
    assert f"port {port} is in use by another program" in capfd.readouterr().err


def test_nothing_of_a_command_is_left(tmp_path: Path) -> None:
    """A child with a process group of its own, which ignores SIGTERM, goes with the command."""
    script, pid = tmp_path / "forks.py", tmp_path / "pid"
    script.write_text(
        "import os, pathlib, signal, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setpgid(0, 0)\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "time.sleep(1)\n"
    )
    command = f"{sys.executable} {script} {pid}"

    assert (
        main(["conform", "--command", command, "--port", str(free_port()), "--only", "start-stop/starts"])
        == 1
    )
    wait_until_ended([int(pid.read_text())])


def as_tests(command: str, requests_file: Path, only: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [
        sys.executable, "-m", "pytest", "-p", "tfs_proxy.tools.conform.pytest_plugin", "-rA", "-p", "no:cacheprovider",
        "--conform-command", command, "--conform-requests", str(requests_file), "--conform-only", only,
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_as_tests_of_pytest(command: str, requests_file: Path, tmp_path: Path) -> None:
    """Each check is an item: a must fails its test, advice is an expected failure, the rest is skipped."""
    only = "errors/not-html,ping,start-stop/no-tini"
    done = as_tests(f"{command} --fault html-errors", requests_file, only, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "conform::ping/answers-200" in done.stdout
    assert "conform::errors/not-html - advice" in done.stdout
    assert "8 passed, 1 skipped, 1 xfailed" in done.stdout
    done = as_tests(f"{command} --fault body-limit", requests_file, "invocations/body-of-6-mb", tmp_path)
    assert done.returncode == 1
    assert "expected: an answer to a body of 6291456 bytes" in done.stdout
    assert "judge.py" not in done.stdout
