"""What the flags and files for a model's graph may say."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from tfs_proxy.commands.pack import add_preprocessing_arguments, preprocessing_of
from tfs_proxy.tools.export.preprocessing import (
    ImageInput,
    Standardization,
    read_labels,
    read_standardize,
)
from tfs_proxy.values.errors import SettingsError


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("224", "is not HxW"),
        ("8x-8", "is not HxW"),
        ("8193x8", "at most 8192 pixels"),
        ("8x8:keras", "'keras' is not a mode"),
        ("8x8:mean=a;std=1", "mean=a is not numbers"),
        ("8x8:mean=nan;std=1", "not a finite number"),
        ("8x8:mean=1;std=0", "not above 0"),
        ("8x8:mean=1;std=1,-1,1", "not above 0"),
        ("8x8:mean=1,2;std=1,2,3", "mean has 2 numbers and std 3"),
    ],
)
def test_image_input_refuses_what_has_no_meaning(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        ImageInput.parse(text)

    assert "--decode-image" in str(caught.value)


def test_labels_are_lines(tmp_path: Path) -> None:
    """UTF-8, with or without a mark at its start, either line ending, and a last line that may have none."""
    path = tmp_path / "labels.txt"
    path.write_bytes("\ufeffcat\r\nhot dog \nŻubr".encode())

    assert read_labels(path) == ("cat", "hot dog ", "Żubr")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty: it has one label a line"),
        (b"cat\n\ndog\n", "line 2, is empty"),
        (b"cat\n\xe9t\xe9\n", "is not UTF-8: byte 4"),
    ],
)
def test_labels_refuse_a_broken_file(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes(content)

    with pytest.raises(SettingsError, match=reason):
        read_labels(path)


def test_standardize_has_numbers_for_each_input(tmp_path: Path) -> None:
    path = tmp_path / "scaler.json"
    path.write_text('{"a": {"mean": [1, 2.5], "std": [3, 4]}, "b": {"mean": 0, "std": 1e-3}}')

    assert read_standardize(path) == {
        "a": Standardization((1.0, 2.5), (3.0, 4.0)),
        "b": Standardization((0.0,), (0.001,)),
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not {"),
        ("{}", "is not {"),
        ({"a": {"mean": [1], "std": [1], "var": [1]}}, "a is not {"),
        ({"a": {"mean": [1]}}, "a is not {"),
        ({"a": {"mean": [], "std": []}}, "a, mean is empty"),
        ({"a": {"mean": [1, 2], "std": [1]}}, "mean has 2 numbers and std 1"),
        ({"a": {"mean": [True], "std": [1]}}, "True is not a number"),
        ('{"a": {"mean": [NaN], "std": [1]}}', "nan is not a finite number"),
        ({"a": {"mean": [10**400], "std": [1]}}, "not a finite number"),
        ({"a": {"mean": [1], "std": [0]}}, "a, std has a number that is not above 0"),
    ],
)
def test_standardize_refuses_a_broken_file(tmp_path: Path, content: Any, reason: str) -> None:
    path = tmp_path / "scaler.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))

    with pytest.raises(SettingsError, match=reason) as caught:
        read_standardize(path)

    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--decode-image 8x8 --standardize scaler.json", "exclude each other"),
        ("--top 0", "--top 0"),
        ("--decode-image huge", "--decode-image 'huge'"),
        ("--labels none.txt", "none.txt can't be read"),
    ],
)
def test_flags_that_can_not_be_used_are_refused(words: str, reason: str) -> None:
    parser = argparse.ArgumentParser()
    add_preprocessing_arguments(parser)
    with pytest.raises(SettingsError, match=reason):
        preprocessing_of(parser.parse_args(words.split()))
