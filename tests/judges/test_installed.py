"""The environments of the judges: each runs, and has its own version of what it judges with."""

import re
from pathlib import Path

import pytest

from support.judges import CLIENTS, judge

NAMES = ("kserve", "mlserver", "schemathesis", "tritonclient")
LOCKS = sorted(CLIENTS.parent.glob("*.lock"))


@pytest.mark.parametrize("name", NAMES)
def test_a_judge_imports_what_it_is_named_after(name: str) -> None:
    (pinned,) = re.findall(rf"^{name}==(\S+)", (CLIENTS.parent / f"{name}.lock").read_text(), re.MULTILINE)

    code = f"import {name}; from importlib.metadata import version; print(version('{name}'))"

    assert judge(name).run("python", "-c", code).strip() == pinned


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_names_no_host(lock: Path) -> None:
    """A lock pins versions by hashes, and leaves it to the machine where packages come from."""
    text = lock.read_text()

    assert "://" not in text
    assert "--index-url" not in text
    assert len(re.findall(r"^\S+==", text, re.MULTILINE)) > 0
    assert "--hash=sha256:" in text
