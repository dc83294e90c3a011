"""Starts what tests of `tfs-proxy transform` need: the stand-in for a stack, moto's S3, and the command."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """A run of the command that has ended."""

    status: int
    log: str
    summary: Any


def transform(*words: str, env: Mapping[str, str] | None = None, seconds: float = 240) -> Done:
    """Run `tfs-proxy transform` to its end."""
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        done = subprocess.run(
            [sys.executable, "-m", "tfs_proxy.cli", "transform", *words, "--summary", str(summary)],
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
    """The address of a stand-in for a serving stack."""
    with subprocess.Popen(
        [sys.executable, str(STAND_IN)], stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    ) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.kill()


def release(address: str) -> None:
    """Have a stand-in answer what it holds, and all that comes."""
    urllib.request.urlopen(f"{address}/release", timeout=10).close()


def posts(address: str) -> int:
    """How many requests a stand-in has had."""
    with urllib.request.urlopen(f"{address}/count", timeout=10) as answer:
        return int(answer.read())


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """The address of an S3 in a process of its own."""
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            for line in server.stderr:
                if match := re.search(r"http://127\.0\.0\.1:\d+", line):
                    break
            else:
                raise AssertionError("moto's server ended without an address")
            # It logs each request, and would wait for a reader once the pipe is full.
            threading.Thread(target=server.stderr.read, daemon=True).start()
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
