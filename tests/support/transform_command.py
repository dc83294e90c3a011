"""Starts what tests of `tfs-proxy transform` need: the stand-in for a stack, moto's S3, and the command."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.running import LOOPBACK, RunningProcess

PROGRAM = ("-m", "tfs_proxy.cli")
STAND_IN = Path(__file__).parent / "stand_ins" / "invocations.py"
S3_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True)
class Done:
    status: int
    log: str
    summary: Any


def transform(
    *words: str,
    env: Mapping[str, str] | None = None,
    seconds: float = 240,
    program: Sequence[str] = PROGRAM,
) -> Done:
    """Run `tfs-proxy transform` to its end."""
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        command = [sys.executable, *program, "transform", *words, "--summary", str(summary)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={**os.environ, **(env or {})},
        )
        return Done(
            done.returncode, done.stderr, json.loads(summary.read_text()) if summary.exists() else None
        )


@contextlib.contextmanager
def stand_in(env: Mapping[str, str] | None = None) -> Iterator[str]:
    with _started([sys.executable, str(STAND_IN)], r"^\d+$", env) as port:
        yield f"http://{LOOPBACK}:{port}"


def release(address: str) -> None:
    """Have a stand-in answer what it holds, and all that comes."""
    urllib.request.urlopen(f"{address}/release", timeout=10).close()


def posts(address: str) -> int:
    with urllib.request.urlopen(f"{address}/count", timeout=10) as answer:
        return int(answer.read())


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    argv = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", "0"]
    with _started(argv, rf"http://{LOOPBACK}:\d+") as address:
        yield address


@contextlib.contextmanager
def _started(argv: Sequence[str], pattern: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """A server that chooses its port; gives the first words of its log that fit the ``pattern``."""
    server = RunningProcess(argv, port=0, env={**os.environ, **(env or {})})
    try:
        match = server.wait_until(
            lambda: re.search(pattern, server.log, re.MULTILINE), f"the log has {pattern}"
        )
        assert match is not None
        yield match[0]
    finally:
        server.kill()


def outputs(folder: Path) -> dict[str, bytes]:
    """What a run left in its output folder, its own state apart."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".tfs-proxy-transform" not in path.parts
    }
