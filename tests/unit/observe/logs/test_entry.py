"""Entries of the log as text and as JSON."""

import json

import pytest

from tfs_proxy.observe.logs.entry import MOST_CHARACTERS, LogEntry, as_json, as_text

TIME = 1_782_000_000.0426


def test_json_has_everything_that_is_known_on_one_line() -> None:
    """An object: time in UTC, level, process, request, model, message, exception and the event's fields."""
    entry = LogEntry(
        "two\nlines",
        "error",
        "worker",
        7,
        TIME,
        "id-1",
        "m",
        "Traceback\n  x",
        {"status": 500, "left_out": None},
    )

    text = as_json(entry)

    assert "\n" not in text
    assert json.loads(text) == {
        "time": "2026-06-21T00:00:00.042Z",
        "level": "error",
        "process": "worker",
        "pid": 7,
        "request_id": "id-1",
        "model": "m",
        "message": "two\nlines",
        "exception": "Traceback\n  x",
        "status": 500,
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"),
        (b"x", "b'x'"),
        ([1], "[1]"),
        ("\udcff", r"\udcff"),
        ({"a": {1}}, {"a": "{1}"}),
        (True, True),
    ],
)
def test_any_value_of_a_field_is_valid_json(value: object, shown: object) -> None:
    """A script may log anything."""
    assert json.loads(as_json(LogEntry("x", fields={"value": value})))["value"] == shown


def test_fields_of_a_script_replace_nothing() -> None:
    """A field called ``level`` stands apart from the level."""
    shown = json.loads(as_json(LogEntry("x", "info", fields={"level": "mine"})))

    assert (shown["level"], shown["fields"]) == ("info", {"level": "mine"})


def test_text_is_one_entry_whatever_is_in_it() -> None:
    """Further lines are indented, and control characters escaped, so that nothing looks like another entry."""
    entry = LogEntry(
        "a\nb\r\x1b[2K", "warning", "worker", 7, TIME, "id-1", exception="c\nd", fields={"ms": 1.5}
    )

    assert as_text(entry).split("\n") == [
        "2026-06-21T00:00:00.042Z WARNING worker[7]: [id-1] a",
        "  b\\r\\x1b[2K ms=1.5",
        "  c",
        "  d",
    ]


def test_a_terminal_gets_colours_and_the_same_words() -> None:
    """Nothing but escapes is added."""
    entry = LogEntry("a", "error", time=TIME)

    shown = as_text(entry, coloured=True)

    assert "\x1b[31mERROR" in shown
    assert shown.replace("\x1b[31m", "").replace("\x1b[2m", "").replace("\x1b[0m", "") == as_text(entry)


@pytest.mark.parametrize("write", [as_text, as_json])
def test_an_entry_without_end_is_cut(write: object) -> None:
    """A message of megabytes is no entry that anybody reads."""
    shown = write(LogEntry("x" * (MOST_CHARACTERS + 5)))  # type: ignore[operator]

    assert "(5 more characters)" in shown
    assert len(shown) < MOST_CHARACTERS + 300
