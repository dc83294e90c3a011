"""Run the commands of the examples' READMEs, or of the documentation, and compare what they print.

    python scripts/run_examples.py [NAME...]          folders of code_examples/
    python scripts/run_examples.py --docs [PAGE...]   pages of docs/, as start/migrate.md

In a block fenced as ```console a line that begins with `$` is a command, run by bash. The lines below it are
what it prints: `...` stands for anything, white space for any or none, decimals may differ by two hundredths,
and JSON without `...` is compared as such. If there are no such lines only the exit status counts, which must
be 0. A console block with a title is not run; the title says why. A block of another kind with a title is a
file of that name, written before the commands below it. `tfs-proxy serve` and `tfs-proxy pipeline` run until
the next one or the end; the next command begins when they are ready. Ports 8080 and 8500 become free ones.

An example's commands run in its folder. All pages share one new folder, which links to the repository's
files, and the page that makes the model is always among those that run.

Exit status: 0 if every command did what is written, else 1.
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
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "code_examples"
DOCS = ROOT / "docs"
MODEL_PAGE = "start/first-script.md"
"""Makes `my_model` and `model.tar.gz`, which the other pages use."""
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]*)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
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
    """A text is wrong about its commands; the message says where."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and the text that it should print."""

    command: str
    printed: str

    @property
    def serves(self) -> bool:
        """Whether the command runs until it is stopped."""
        return SERVER.match(self.command) is not None


@dataclass(frozen=True, slots=True)
class File:
    """A file that a text shows in full."""

    name: str
    text: str


def main(words: Sequence[str]) -> int:
    """Run what is named, or all; the exit status."""
    if "--docs" in words:
        return run_docs([word for word in words if word != "--docs"])
    readmes = sorted(EXAMPLES.glob("*/README.md"))
    return run_all(
        {path.parent.name: (path, path.parent) for path in readmes if path.parent.name in words or not words}
    )


def run_docs(names: Sequence[str]) -> int:
    """Run pages of the documentation in a folder of their own; the exit status."""
    pages = [name for name in page_names() if not names or name in {*names, MODEL_PAGE}]
    with tempfile.TemporaryDirectory(prefix="docs-") as folder:
        for entry in ROOT.iterdir():
            if entry.name not in {".git", "build"}:
                Path(folder, entry.name).symlink_to(entry)
        with_commands = {
            name: (DOCS / name, Path(folder)) for name in pages if list(read_steps((DOCS / name).read_text()))
        }
        return run_all(with_commands)


def page_names() -> list[str]:
    """All pages, in the order of the site's navigation."""
    return re.findall(
        r"'([\w./-]+\.md)'", str(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    )


def run_all(texts: Mapping[str, tuple[Path, Path]]) -> int:
    """Run texts by name, each in its folder; the exit status."""
    failed = []
    for name, (path, folder) in texts.items():
        began = time.monotonic()
        try:
            run(name, path.read_text(), folder)
            print(f"{name}: as written, {time.monotonic() - began:.0f} s\n", flush=True)
        except NotAsWritten as error:
            print(f"{name}: {error}\n", flush=True)
            failed.append(name)
    if failed:
        print(f"not as written: {', '.join(failed)}")
    return 1 if failed else 0


def run(name: str, text: str, folder: Path) -> None:
    """Run a text's commands; raises NotAsWritten at the first that does something else."""
    parts = list(read_parts(text))
    if not any(isinstance(part, Step) for part in parts):
        raise NotAsWritten("it has no commands")
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    with contextlib.ExitStack() as server:
        for part in parts:
            if isinstance(part, File):
                write(part, folder, ports)
            else:
                print(f"{name} $ {part.command}", flush=True)
                compare(part, do(part, folder, ports, server), ports)


def write(file: File, folder: Path, ports: Mapping[str, str]) -> None:
    """Write a file that a text shows."""
    path = folder / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(moved(file.text, ports))


def do(step: Step, folder: Path, ports: Mapping[str, str], server: contextlib.ExitStack) -> str:
    """Run a command, and return what it printed; a server takes the place of the one in ``server``."""
    command = moved(step.command, ports)
    if not step.serves:
        printed = output_of(command, folder)
        print(shortened(printed), flush=True)
        return printed
    server.close()
    if "--port" not in command:
        command += f" --port {ports[PORTS[0]]}"
    return server.enter_context(serving(command, folder)).read_text(errors="replace")


def read_steps(text: str) -> Iterator[Step]:
    """The commands of a text, in order."""
    return (part for part in read_parts(text) if isinstance(part, Step))


def read_parts(text: str) -> Iterator[Step | File]:
    """The commands and files of a text, in order."""
    for language, title, block in BLOCK.findall(text):
        if language == "console" and not title:
            yield from console_steps(block)
        elif language != "console" and title:
            yield File(title, block)


def console_steps(block: str) -> Iterator[Step]:
    """The commands of one console block."""
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
        for holder in sockets:
            holder.bind(("127.0.0.1", 0))
        return [str(holder.getsockname()[1]) for holder in sockets]


def moved(text: str, ports: Mapping[str, str]) -> str:
    """``text`` with the replaced ports."""
    return re.sub("|".join(rf"\b{port}\b" for port in ports), lambda found: ports[found[0]], text)


def environment() -> dict[str, str]:
    """This process's environment without settings; `python` and `tfs-proxy` are those beside this Python."""
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
        raise NotAsWritten(f"`{command}` has no --port to ask whether it is ready")
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
    """Raise NotAsWritten if a command did not print what is written below it."""
    wanted = moved(step.printed, ports)
    if wanted and not matches(wanted, printed):
        raise NotAsWritten(f"`{step.command}` printed\n{printed}\nand not\n{wanted}")


def matches(wanted: str, printed: str) -> bool:
    """Whether a text is the wanted one: JSON as such, else `...` is anything, and white space is alike."""
    if "..." in wanted:
        return text_matches(wanted, printed)
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
    """Whether a text is the wanted one; decimals may differ by TOLERANCE."""
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
