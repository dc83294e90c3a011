"""Starts containers from the project's images for tests, looks into them and takes them away."""

import contextlib
import json
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support.running import LOOPBACK, Running

EMBEDDED = "tfs-proxy:embedded"


def docker(*words: str, seconds: float = 120, check: bool = True) -> str:
    """Run one docker command; what it printed."""
    done = subprocess.run(["docker", *words], capture_output=True, timeout=seconds, check=False)
    if check and done.returncode:
        raise AssertionError(f"docker {' '.join(words)}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode(errors="replace").strip()


def why_not() -> str | None:
    """Why no container can be started here; None if one can."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    if subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode:
        return "no docker engine answers"
    if not docker("images", "-q", EMBEDDED):
        return f"there is no image {EMBEDDED}: make image-embedded builds it"
    return None


class Container(Running):
    """A container; ``port`` is where it is reached on the loopback address."""

    pause_seconds = 0.1

    def __init__(
        self,
        *options: str,
        command: tuple[str, ...] = ("serve",),
        image: str = EMBEDDED,
        env: Mapping[str, str] | None = None,
        inside: int = 8080,
    ) -> None:
        self.name = f"tfs-proxy-test-{uuid.uuid4().hex[:8]}"
        variables = [word for name, value in (env or {}).items() for word in ("-e", f"{name}={value}")]
        network = [] if "--network" in options else ["-p", f"{LOOPBACK}::{inside}"]
        self.began = time.monotonic()
        docker("run", "-d", "--name", self.name, *network, *variables, *options, image, *command)
        if network:
            shown = docker("port", self.name, str(inside), check=False)
            self.port = int(shown.rpartition(":")[2] or 0)

    @property
    def log(self) -> str:
        """What it has printed."""
        done = subprocess.run(["docker", "logs", self.name], capture_output=True, timeout=30, check=True)
        return (done.stdout + done.stderr).decode(errors="replace")

    @property
    def state(self) -> Any:
        """Docker's own view: Running, ExitCode, OOMKilled."""
        return json.loads(docker("inspect", "--format", "{{json .State}}", self.name))

    def how_it_ended(self) -> str | None:
        """Its exit status in words, or None as long as it runs."""
        state = self.state
        return None if state["Running"] else f"ended with {state['ExitCode']}"

    def run(self, *words: str, check: bool = True) -> str:
        """Run a program inside; what it printed."""
        return docker("exec", self.name, *words, check=check)

    def processes(self) -> dict[int, tuple[str, str]]:
        """Process id inside -> (state letter, command line); a zombie's command line is its name."""
        script = (
            "import os,json\n"
            "listed={}\n"
            "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
            " try:\n"
            "  head,_,tail=open(f'/proc/{pid}/stat').read().rpartition(')')\n"
            "  words=open(f'/proc/{pid}/cmdline').read().replace(chr(0),' ') or head.partition('(')[2]\n"
            "  listed[pid]=(tail.split()[0],words.strip())\n"
            " except OSError: pass\n"
            "print(json.dumps(listed))"
        )
        listed = json.loads(self.run("python3", "-IS", "-c", script))
        return {int(pid): (state, words) for pid, (state, words) in listed.items()}

    def wait(self, seconds: float = 60) -> int:
        """Wait for its end; its exit status."""
        return int(docker("wait", self.name, seconds=seconds))

    def close(self) -> None:
        """Leave nothing behind."""
        docker("rm", "-f", "-v", self.name, check=False)


@contextlib.contextmanager
def container(*options: str, ready: bool = True, **more: Any) -> Iterator[Container]:
    """A container, ready unless ``ready`` is false, taken away at the end."""
    started = Container(*options, **more)
    try:
        if ready:
            started.wait_ready()
        yield started
    finally:
        started.close()


def mounted(archive: Path) -> tuple[str, str]:
    """The option that puts an archive where SageMaker's users expect it."""
    return "-v", f"{archive}:/opt/ml/model/model.tar.gz:ro"
