"""The flags of ``pack`` for a model's graph."""

import argparse
from pathlib import Path

import pytest

from tfs_proxy.commands.pack import add_preprocessing_arguments, preprocessing_of
from tfs_proxy.tools.export.preprocessing import ImageInput, Preprocessing, Standardization
from tfs_proxy.values.errors import SettingsError


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
