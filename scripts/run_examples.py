"""Run the commands of the examples' READMEs, or of the documentation, and compare what they print.

    python scripts/run_examples.py [NAME...]          folders of code_examples/
    python scripts/run_examples.py --docs [PAGE...]   pages of docs/, as start/migrate.md

In a block fenced as ```console a line that begins with `$` is a command, run by bash. The lines below it are
what it prints: `...` stands for anything, white space for any or none, decimals may differ by two hundredths,
and JSON without `...` is compared as such. If there are no such lines only the exit status counts, which must
be 0. A console block with a title is not run; the title says why. A block of another kind with a title is a
file of that name, written before the commands below it. `tfs-proxy serve` and `endpoint` run
until the next one or the end; the next command begins when they are ready. Ports 8080, 8500 and 8090 become
free ones.

An example's commands run in its folder. All pages share one new folder, which links to the repository's
files, and the page that makes the model is always among those that run.

Exit status: 0 if every command did what is written, else 1.
"""

import contextlib
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
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from printed_answers import matches

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES, DOCS = ROOT / "code_examples", ROOT / "docs"
MODEL_PAGE = "how-to/first-script.md"
"""Makes `my_model` and `model.tar.gz`, which the other pages use."""
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]*)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PORTS = ("8080", "8500", "8090")
SERVER = re.compile(r"(?:[A-Z_]+=\S* )*tfs-proxy (serve|endpoint)\b")
BASH = shutil.which("bash") or "bash"
COMMAND_SECONDS, READY_SECONDS, STOP_SECONDS = 600.0, 120.0, 40.0
SHOWN_CHARACTERS = 800


class NotAsWritten(Exception):
    """A text is wrong about its commands; the message says where."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and the text that it should print."""

    command: str
    printed: str

    @property
    def served(self) -> str | None:
        """The sub-command that runs until it is stopped, if it is one."""
        match = SERVER.match(self.command)
        return match[1] if match else None

    @property
    def serves(self) -> bool:
        """Whether the command runs until it is stopped."""
        return self.served is not None


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
    """All pages as the navigation has them, but for the one that makes the model, which is the second."""
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    home, *pages = re.findall(r"'([\w./-]+\.md)'", str(nav))
    return [home, MODEL_PAGE, *(page for page in pages if page != MODEL_PAGE)]


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
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    with contextlib.ExitStack() as server:
        for part in read_parts(text):
            if isinstance(part, File):
                write(part, folder, ports)
            else:
                print(f"{name} $ {part.command}", flush=True)
                printed, wanted = do(part, folder, ports, server), moved(part.printed, ports)
                if wanted and not matches(wanted, printed):
                    raise NotAsWritten(f"`{part.command}` printed\n{printed}\nand not\n{wanted}")


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
        print(printed[:SHOWN_CHARACTERS], flush=True)
        return printed
    server.close()
    port = ports["8090" if step.served == "endpoint" else "8080"]
    if "--port" not in command:
        command += f" --port {port}"
    return server.enter_context(serving(command, folder, port)).read_text(errors="replace")


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
    """This process's environment without settings; `python` and `tfs-proxy` are those of this Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SAGEMAKER_", "TFS_"))}
    programs = Path(sys.executable).parent
    return {**kept, "PATH": f"{programs}:{kept.get('PATH', '')}", "no_proxy": "localhost,127.0.0.1"}


def output_of(command: str, folder: Path) -> str:
    """Run a command to its end; returns its standard output.

    Raises NotAsWritten if it fails, or has not ended after `COMMAND_SECONDS`: what it has started ends, too.
    """
    words = [BASH, "-o", "pipefail", "-c", command]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, cwd=folder, env=environment(), stdout=pipe, stderr=pipe, text=True, process_group=0
    ) as running:
        try:
            printed, complaints = running.communicate(timeout=COMMAND_SECONDS)
        except BaseException as error:
            os.killpg(running.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise NotAsWritten(f"`{command}` did not end within {COMMAND_SECONDS:g} s") from None
            raise
    if running.returncode:
        raise NotAsWritten(f"`{command}` ended with {running.returncode}:\n{printed}{complaints}")
    return printed


@contextlib.contextmanager
def serving(command: str, folder: Path, port: str) -> Iterator[Path]:
    """Run a server while the block runs; gives its log once it is ready."""
    with tempfile.NamedTemporaryFile(prefix="example-", suffix=".log") as log:
        started = [BASH, "-c", f"exec env {command}"]
        server = subprocess.Popen(
            started, cwd=folder, env=environment(), stdout=log, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not pings(port):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise NotAsWritten(f"`{command}` did not become ready:\n{Path(log.name).read_text()}")
                time.sleep(0.1)
            yield Path(log.name)
        finally:
            stop(server)


def pings(port: str) -> bool:
    """Whether /ping answers 200."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError), opener.open(f"http://127.0.0.1:{port}/ping", timeout=5):
        return True
    return False


def stop(server: "subprocess.Popen[bytes]") -> None:
    """Ask the server to stop, and wait until it has."""
    server.terminate()
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
