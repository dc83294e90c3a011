"""`make audit` with a pip-audit that finds nothing, finds something, or can't reach its service."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "audit"


@pytest.mark.parametrize(
    ("says", "ends", "status", "shown"),
    [
        ("No known vulnerabilities found", 0, 0, "No known vulnerabilities found"),
        ("Found 2 known vulnerabilities in 1 package", 1, 1, "Found 2 known vulnerabilities"),
        (
            "ConnectionError: no route",
            1,
            0,
            "audit: skipped, since pip-audit or its service can't be reached: Conn",
        ),
    ],
)
def test_an_audit(tmp_path: Path, says: str, ends: int, status: int, shown: str) -> None:
    """Only vulnerabilities fail it; the lock is asked about as it is, without an installer."""
    program = tmp_path / "pip-audit"
    program.write_text(f'#!/bin/sh\necho "$@" >"{tmp_path}/words"\necho "{says}" >&2\nexit {ends}\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    done = subprocess.run([SCRIPT], env=env, capture_output=True, text=True, check=False)

    assert done.returncode == status
    assert shown in done.stdout + done.stderr
    assert (tmp_path / "words").read_text() == "-r requirements.lock --disable-pip\n"
