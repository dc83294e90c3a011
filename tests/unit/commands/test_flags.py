"""The flags of ``tune``, and those of ``pack`` for a model's graph."""

import argparse
from pathlib import Path

import pytest

from tfs_proxy.cli import command_parser, main
from tfs_proxy.commands.pack import add_preprocessing_arguments, preprocessing_of
from tfs_proxy.tools.export.preprocessing import ImageInput, Preprocessing, Standardization
from tfs_proxy.values.errors import SettingsError


@pytest.mark.parametrize(("text", "milliseconds"), [("50ms", 50), ("1.5s", 1500), ("0.2ms", 0.2)])
def test_a_time_has_a_unit(text: str, milliseconds: float) -> None:
    parsed = command_parser("tune").parse_args(["model", "--p99", text])
    assert milliseconds in vars(parsed).values()


@pytest.mark.parametrize("text", ["50", "ms", "0s", "-1s", "1m", "nans"])
def test_other_times_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["tune", "model", f"--p99={text}"])
    assert "such as 50ms" in capsys.readouterr().err


@pytest.mark.parametrize("budget", ["0", "-5", "inf", "nan", "x"])
def test_a_budget_is_seconds(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A search has an end."""
    with pytest.raises(SystemExit) as ended:
        main(["tune", "model", "--p99", "50ms", "--budget", budget])

    assert ended.value.code == 2
    assert "is not a number of seconds above 0" in capsys.readouterr().err


def test_a_picture_needs_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["tune", str(tmp_path), "--p99", "50ms", "-o", str(tmp_path / "none" / "a.svg")])

    assert status == 2
    assert "its folder is not there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--stream-port", "8443"], "need each other"),
        (["--stream-certificate", "cert.pem"], "need each other"),
        (["--stream-port", "8443", "--stream-certificate", "none.pem"], "none.pem must have a certificate"),
    ],
)
def test_a_port_of_streams_has_its_certificate(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["endpoint", *words]) == 2
    assert sentence in capsys.readouterr().err


def parsed(*words: str) -> Preprocessing | None:
    parser = argparse.ArgumentParser()
    add_preprocessing_arguments(parser)
    return preprocessing_of(parser.parse_args(words))


def test_flags_are_read(tmp_path: Path) -> None:
    """Files are read and numbers taken, for pictures and for tables."""
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    (tmp_path / "scaler.json").write_text('{"x": {"mean": [1], "std": [2]}}')
    labels, scaler = str(tmp_path / "labels.txt"), str(tmp_path / "scaler.json")

    assert parsed("--decode-image", "8x9:tf", "--labels", labels, "--top", "1", "--softmax") == Preprocessing(
        image=ImageInput.parse("8x9:tf"), labels=("cat", "dog"), top=1, softmax=True
    )
    assert parsed("--standardize", scaler) == Preprocessing(
        standardize={"x": Standardization((1.0,), (2.0,))}
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--decode-image", "8x8", "--standardize", "scaler.json"], "exclude each other"),
        (["--top", "0"], "--top 0"),
        (["--decode-image", "huge"], "--decode-image 'huge'"),
        (["--labels", "none.txt"], "none.txt can't be read"),
    ],
)
def test_flags_that_can_not_be_used_are_refused(words: list[str], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        parsed(*words)
