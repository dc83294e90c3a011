"""`tfs-proxy tune`: its flags, and what it refuses before anything is started."""

import argparse
import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfs_proxy.cli import main
from tfs_proxy.commands.tune import duration_ms


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """The command sets a handler of SIGTERM and the log: undo both."""
    handler, handlers, level = signal.getsignal(signal.SIGTERM), logging.root.handlers[:], logging.root.level
    yield
    signal.signal(signal.SIGTERM, handler)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.mark.parametrize(("text", "milliseconds"), [("50ms", 50), ("1.5s", 1500), ("0.2ms", 0.2)])
def test_a_time_has_a_unit(text: str, milliseconds: float) -> None:
    """Milliseconds and seconds are told apart by it."""
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["50", "ms", "0s", "-1s", "1m", "nans"])
def test_other_times_are_refused(text: str) -> None:
    """50 might be either."""
    with pytest.raises(argparse.ArgumentTypeError, match="such as 50ms"):
        duration_ms(text)


@pytest.mark.parametrize("budget", ["0", "-5", "inf", "nan", "x"])
def test_a_budget_is_seconds(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A search has an end."""
    with pytest.raises(SystemExit) as ended:
        main(["tune", "model", "--p99", "50ms", "--budget", budget])

    assert ended.value.code == 2
    assert "is not a number of seconds above 0" in capsys.readouterr().err


def test_a_picture_needs_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That is found out before five minutes are spent."""
    status = main(["tune", str(tmp_path), "--p99", "50ms", "-o", str(tmp_path / "none" / "a.svg")])

    assert status == 2
    assert "its folder is not there" in capsys.readouterr().err


def test_a_model_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The archive is opened before any stack starts."""
    assert main(["tune", str(tmp_path / "none.tar.gz"), "--p99", "50ms"]) == 2
    assert "none.tar.gz" in capsys.readouterr().err
