"""`scripts/audit.py` and `scripts/refresh`, with programs in place of those that would ask the network."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GOOD = {"name": "h11", "version": "0.16.0", "vulns": []}
BAD = {"name": "urllib3", "version": "1.24", "vulns": [{"id": "CVE-1", "fix_versions": ["2.0"]}]}
UNKNOWN = {"name": "falcon", "skip_reason": "Dependency not found on PyPI"}


def program(folder: Path, name: str, text: str) -> None:
    """A shell script on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("packages", "status", "in_release", "says"),
    [
        ([GOOD], 0, 0, "0 known vulnerabilities in 1 packages"),
        ([GOOD, BAD], 1, 1, "urllib3 1.24: CVE-1, fixed in 2.0"),
        ([GOOD, UNKNOWN], 0, 3, "not checked, since there are no advisory data here: 1 packages (falcon)"),
        ([UNKNOWN], 0, 3, "not checked"),
        (None, 0, 3, "not checked, since pip-audit or its service can't be reached: no route"),
    ],
)
def test_what_is_not_checked_is_not_called_safe(
    tmp_path: Path, packages: list[dict[str, Any]] | None, status: int, in_release: int, says: str
) -> None:
    """It is an error only if a release asks."""
    answer = (
        "echo no route >&2; exit 1"
        if packages is None
        else f"echo '{json.dumps({'dependencies': packages})}'"
    )
    program(tmp_path, "pip-audit", answer)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for words, expected in ([], status), (["--release"], in_release):
        command = [sys.executable, str(ROOT / "scripts" / "audit.py"), *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)

        assert (done.returncode, done.stderr) == (expected, "")
        assert says in done.stdout
        assert (UNKNOWN["name"] in done.stdout) == (UNKNOWN in (packages or []))


@pytest.mark.parametrize("reached", [True, False], ids=["a registry", "no registry"])
def test_a_refresh_says_what_changed_and_leaves_the_rest(tmp_path: Path, reached: bool) -> None:
    """Digests that can't be asked for stay, and so does the comment above them."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "container").mkdir()
    shutil.copy(ROOT / "scripts" / "refresh", tmp_path / "scripts")
    (tmp_path / "container" / "base-images.lock").write_text("# A comment.\ndebian:13 sha256:old\n")
    (tmp_path / "requirements.lock").write_text("a==1 \\\n    --hash=x\nb==1\n")
    pulled = "echo debian@sha256:new" if reached else "exit 1"
    program(tmp_path / "bin", "docker", pulled)
    program(tmp_path / "bin", "make", "echo \"$@\" > asked; printf 'a==2 x\nb==1\n' > requirements.lock")
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}

    done = subprocess.run(
        [tmp_path / "scripts" / "refresh"], env=env, capture_output=True, text=True, check=False
    )

    assert done.returncode == (0 if reached else 3)
    assert (tmp_path / "asked").read_text() == "--no-print-directory lock UPGRADE=--upgrade\n"
    said = done.stdout + done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["refresh:", "without", "a==1"],
        ["refresh:", "with", "a==2"],
    ]
    lock = (tmp_path / "container" / "base-images.lock").read_text()
    assert lock == f"# A comment.\ndebian:13 sha256:{'new' if reached else 'old'}\n"
    assert ("sha256:old -> sha256:new" in said) == reached
    assert ("can't be pulled" in said) != reached
