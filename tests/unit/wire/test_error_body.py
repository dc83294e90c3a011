"""The shape of an error, written and read, and pauses that grow."""

import json

import pytest

from tfs_proxy.values.processes import growing_pause
from tfs_proxy.wire.data_types import data_type_name
from tfs_proxy.wire.error_body import error_body, error_text
from tfs_proxy.wire.protos import POOL


@pytest.mark.parametrize("text", ["plain", 'with "quotes"', "ünïcode \U0001f600", ""])
def test_what_is_written_is_read_again(text: str) -> None:
    """Any text makes an ASCII document with that text under ``error``, beside other fields."""
    body = error_body(text, OriginalStatusCode=500)

    assert body.isascii()
    assert json.loads(body) == {"error": text, "OriginalStatusCode": 500}
    assert error_text(body) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": "two\nlines"}', "two\nlines"),
        (b'{"error": 5}', None),
        (b'["error"]', None),
        (b"<html>", None),
        (b"[" * 100_000, None),
        (b"\xff", None),
    ],
)
def test_only_an_error_is_read_as_one(body: bytes, text: str | None) -> None:
    """TF Serving's raw line ends are read; other documents, and bodies that are not JSON, are no errors."""
    assert error_text(body) == text


def test_names_and_numbers_are_those_of_the_messages() -> None:
    """The schema's enum has the same types, references included."""
    values = POOL.FindEnumTypeByName("tensorflow.DataType").values

    assert {value.number: data_type_name(value.number) for value in values} == {
        value.number: value.name for value in values
    }


def test_an_unknown_type_is_shown_by_its_number() -> None:
    """A newer TensorFlow may have types that are not known here."""
    assert data_type_name(99) == "DT_99"


def test_pauses_double_up_to_the_longest() -> None:
    assert [growing_pause(attempt, 0.25, 10) for attempt in (1, 2, 3, 7)] == [0.25, 0.5, 1.0, 10]
    assert growing_pause(1_000_000, 0.25, 10) == 10
