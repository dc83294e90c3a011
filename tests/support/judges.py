"""Runs unchanged clients of other projects in environments of their own; `scripts/install-judge` makes them."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "tests" / "judges" / "clients"
RUN_SECONDS = 240.0


@dataclass(frozen=True)
class Judge:
    """One installed environment: its interpreter, its programs, and how to run them."""

    folder: Path

    def program(self, name: str) -> Path:
        return self.folder / "bin" / name

    def run(self, *argv: str | Path, env: Mapping[str, str] | None = None) -> str:
        """What a program prints; fails with all that it has said if it ends with an error."""
        done = self.attempt(*argv, env=env)
        assert done.returncode == 0, f"{argv} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def attempt(
        self, *argv: str | Path, env: Mapping[str, str] | None = None, seconds: float = RUN_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        name, *words = argv
        own = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", **(env or {})}
        return subprocess.run(
            [self.program(str(name)), *words],
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def saw(self, client: str, *words: str | Path) -> dict[str, Any]:
        """What a script of tests/judges/clients saw: the JSON of the last line that it printed."""
        printed = self.run("python", CLIENTS / f"{client}.py", *words)
        seen: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return seen


def judge(name: str) -> Judge:
    """The environment build/judges/NAME; skips the test if it is not there, or is not that of its lock."""
    folder = ROOT / "build" / "judges" / name
    lock = ROOT / "tests" / "judges" / f"{name}.lock"
    installed = folder / ".installed"
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        pytest.skip(f"not installed: scripts/install-judge {name}")
    return Judge(folder)
