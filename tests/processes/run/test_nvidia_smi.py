"""The driver's program: what it prints is read, and a driver that does not answer is told and costs no start."""

from pathlib import Path

import pytest

from support.nvidia_smi import A10G, NO_DRIVER, listing
from tfs_proxy.run.gpus import count_gpus, nvidia_smi


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH, without a program."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(programs: Path, printed: str, exit_status: int) -> None:
    """A driver's program that prints this, after its arguments."""
    program = programs / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho \"asked: $*\"\necho '{printed}'\nexit {exit_status}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("printed", "exit_status", "count"),
    [(listing([A10G] * 3), 0, 3), (listing([A10G] * 3), 14, 3), (NO_DRIVER.replace("'", ""), 9, 0)],
    ids=["all", "one of them is corrupt", "no driver"],
)
def test_what_the_driver_prints_is_read(
    programs: Path, caplog: pytest.LogCaptureFixture, printed: str, exit_status: int, count: int
) -> None:
    """With the arguments that were asked for; without a GPU models are served, too, and the log has the status."""
    install(programs, printed, exit_status)

    assert count_gpus() == count
    assert ("nvidia-smi ended with status 9" in caplog.text) == (count == 0)
    assert exit_status or nvidia_smi("-L").startswith("asked: -L\n")


@pytest.mark.usefixtures("programs")
def test_without_a_driver_there_is_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    """Most machines have none."""
    assert count_gpus() == 0
    assert not caplog.records
