"""Run the commands in the examples' READMEs, and compare their output with what the READMEs show.

    python scripts/run_examples.py [NAME...]

In a block fenced as ```console a line that begins with `$` is a command, which bash runs in the example's
folder. The lines below it are its expected output: `...` matches anything, white space any white space or
none, decimals may differ by two hundredths, and JSON is compared as JSON. A command without such lines must
only exit with status 0. `tfs-proxy serve` and `tfs-proxy pipeline` run until the README ends; the next
command begins when they are ready. Ports 8080 and 8500 are replaced by free ones. Blocks of other kinds are
not run.

Exit status: 0 if every example did what its README says, else 1.
"""

import contextlib
import http.client
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "code_examples"
PORTS = ("8080", "8500")
SERVER = re.compile(r"(?:[A-Z_]+=\S* )*tfs-proxy (?:serve|pipeline)\b")
NUMBER = r"(?<![\d.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\d.])"
DECIMAL = re.compile(r"-?\d+\.\d+(?:[eE][-+]?\d+)?")
TOLERANCE = 0.02
BASH = shutil.which("bash") or "bash"
COMMAND_SECONDS = 600.0
READY_SECONDS = 120.0
STOP_SECONDS = 40.0
SHOWN_LINES, SHOWN_COLUMNS = 12, 200


class NotAsWritten(Exception):
    """An example does not do what its README says; the text names the difference."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a README, and its expected output."""

    command: str
    printed: str

    @property
    def serves(self) -> bool:
        """Whether the command runs until it is stopped."""
        return SERVER.match(self.command) is not None


def main(names: Sequence[str]) -> int:
    """Run the named examples, or all; returns the exit status."""
    failed = []
    for readme in sorted(EXAMPLES.glob("*/README.md")):
        if not names or readme.parent.name in names:
            began = time.monotonic()
            try:
                run(readme)
                print(f"{readme.parent.name}: as written, {time.monotonic() - began:.0f} s\n", flush=True)
            except NotAsWritten as error:
                print(f"{readme.parent.name}: {error}\n", flush=True)
                failed.append(readme.parent.name)
    if failed:
        print(f"not as written: {', '.join(failed)}")
    return 1 if failed else 0


def run(readme: Path) -> None:
    """Run a README's commands. Raises NotAsWritten for the first with another result."""
    steps = list(read_steps(readme.read_text()))
    if not steps:
        raise NotAsWritten("its README has no commands")
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    with contextlib.ExitStack() as servers:
        for step in steps:
            print(f"{readme.parent.name} $ {step.command}", flush=True)
            command = moved(step.command, ports)
            if step.serves:
                log = servers.enter_context(serving(command, readme.parent))
                printed = log.read_text(errors="replace")
            else:
                printed = output_of(command, readme.parent)
                print(shortened(printed), flush=True)
            compare(step, printed, ports)


def read_steps(text: str) -> Iterator[Step]:
    """The commands of a README, in order."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield Step(re.sub(r" {2,}", " ", command.strip()), printed.strip("\n"))


def shortened(text: str) -> str:
    """The first lines of a long text, each cut to a limit."""
    lines = [
        line if len(line) <= SHOWN_COLUMNS else f"{line[:SHOWN_COLUMNS]}..." for line in text.splitlines()
    ]
    return "\n".join([*lines[:SHOWN_LINES], *(["..."] if len(lines) > SHOWN_LINES else [])])


def free_ports(count: int) -> list[str]:
    """Different loopback ports on which nothing listens now."""
    with contextlib.ExitStack() as holders:
        sockets = [holders.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in sockets]


def moved(text: str, ports: Mapping[str, str]) -> str:
    """``text`` with the replaced ports."""
    return re.sub("|".join(rf"\b{port}\b" for port in ports), lambda found: ports[found[0]], text)


def environment() -> dict[str, str]:
    """This environment without settings of tfs-proxy, and with its `python` and `tfs-proxy` first on PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SAGEMAKER_", "TFS_"))}
    programs = Path(sys.executable).parent
    return {**kept, "PATH": f"{programs}:{kept.get('PATH', '')}", "no_proxy": "localhost,127.0.0.1"}


def output_of(command: str, folder: Path) -> str:
    """Run a command to its end; returns its standard output."""
    done = subprocess.run(
        [BASH, "-o", "pipefail", "-c", command],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if done.returncode:
        raise NotAsWritten(f"`{command}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def serving(command: str, folder: Path) -> Iterator[Path]:
    """Run a server while the block runs; gives its log once it is ready."""
    with tempfile.NamedTemporaryFile(prefix="example-", suffix=".log") as log:
        server = subprocess.Popen(
            [BASH, "-c", f"exec env {command}"],
            cwd=folder,
            env=environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until_ready(server, command, Path(log.name))
            yield Path(log.name)
        finally:
            stop(server)


def wait_until_ready(server: "subprocess.Popen[bytes]", command: str, log: Path) -> None:
    """Wait for 200 on /ping, at the port that the command names."""
    named = re.search(r"--port[ =](\d+)", command)
    if named is None:
        raise NotAsWritten(f"`{command}` does not say --port, so this script can't tell when it is ready")
    deadline = time.monotonic() + READY_SECONDS
    while not pings(int(named[1])):
        if server.poll() is not None or time.monotonic() > deadline:
            raise NotAsWritten(f"`{command}` did not become ready:\n{log.read_text(errors='replace')}")
        time.sleep(0.1)


def pings(port: int) -> bool:
    """Whether /ping answers 200."""
    try:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/ping")
            return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False


def stop(server: "subprocess.Popen[bytes]") -> None:
    """Ask the server to stop, and wait until it has."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def compare(step: Step, printed: str, ports: Mapping[str, str]) -> None:
    """Raise NotAsWritten if a command printed something else than the README says."""
    wanted = moved(step.printed, ports)
    if wanted and not matches(wanted, printed):
        raise NotAsWritten(f"`{step.command}` printed\n{printed}\nand not\n{wanted}")


def matches(wanted: str, printed: str) -> bool:
    """Whether a text is as expected: JSON by value; else `...` matches anything, and white space is equal."""
    try:
        return same(json.loads(wanted), json.loads(printed))
    except ValueError:
        return text_matches(wanted, printed)


def same(wanted: Any, answered: Any) -> bool:
    """Whether two JSON values are equal, numbers within TOLERANCE."""
    if isinstance(wanted, float) and isinstance(answered, (int, float)):
        return math.isclose(wanted, answered, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(wanted, dict) and isinstance(answered, dict):
        return wanted.keys() == answered.keys() and all(same(wanted[key], answered[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(answered, list):
        return len(wanted) == len(answered) and all(map(same, wanted, answered))
    return bool(wanted == answered)


def text_matches(wanted: str, printed: str) -> bool:
    """Whether a text is as expected, except that decimals may differ by TOLERANCE."""
    numbers: list[float] = []
    pattern = ""
    for part in re.split(rf"(\.\.\.|{DECIMAL.pattern})", wanted.strip()):
        if part == "...":
            pattern += ".*"
        elif DECIMAL.fullmatch(part):
            numbers.append(float(part))
            pattern += f"({NUMBER})"
        else:
            pattern += r"\s*".join(re.escape(word) for word in re.split(r"\s+", part))
    found = re.fullmatch(pattern, printed.strip(), re.DOTALL)
    return found is not None and all(
        math.isclose(number, float(each), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for number, each in zip(numbers, found.groups(), strict=True)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
