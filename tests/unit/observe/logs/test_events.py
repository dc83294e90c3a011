"""Lines that programs print, as events, and as the entries that they become."""

import pytest

from tfs_proxy.observe.logs.foreign import EventLines, ForeignEvent, read_event

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "a.py", line 1, in f',
    "    1/0",
    "ZeroDivisionError: x",
]


NGINX_ERROR = (
    "2026/06/21 10:00:00 [error] 5#5: *3 upstream closed while reading, client: 127.0.0.1, server: , request: "
    '"POST /invocations?token=SECRET HTTP/1.1", upstream: "http://unix:/tmp/x.sock:/", host: "h"'
)


def events(lines: list[str], *, indented_goes_on: bool) -> list[list[str]]:
    """All events of lines, the last one too."""
    gathering = EventLines(indented_goes_on=indented_goes_on)
    return [event for line in lines for event in gathering.add(line)] + list(gathering.rest())


@pytest.mark.parametrize("indented_goes_on", [False, True])
def test_a_traceback_is_one_event(indented_goes_on: bool) -> None:
    assert events(["before", *TRACEBACK, "after"], indented_goes_on=indented_goes_on) == [
        ["before"],
        TRACEBACK,
        ["after"],
    ]


def test_an_indented_line_goes_on_where_a_program_has_it_so() -> None:
    assert events(["a", " b", "c"], indented_goes_on=True) == [["a", " b"], ["c"]]
    assert events(["a", " b", "c"], indented_goes_on=False) == [["a"], [" b"], ["c"]]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            "I0621 10:00:00.123456   12 server.cc:77] up",
            ForeignEvent("up", "info", fields={"source": "server.cc:77"}),
        ),
        (
            "2026-06-21 10:00:00.1: W tensorflow/core/x.cc:7] slow",
            ForeignEvent("slow", "warning", fields={"source": "tensorflow/core/x.cc:7"}),
        ),
        ("2026-06-21 10:00:00,123 ERROR can't load m", ForeignEvent("can't load m", "error")),
        ("anything else", ForeignEvent("anything else")),
        ("2026/06/21 10:00:00 [emerg] 5#5: no such file", ForeignEvent("no such file", "critical", 5)),
        (
            NGINX_ERROR,
            ForeignEvent(
                "upstream closed while reading",
                "error",
                5,
                fields={"method": "POST", "path": "/invocations"},
                connection=3,
            ),
        ),
        (
            '2026/06/21 10:00:00 [info] 5#5: *3 client sent invalid header line: "x: SECRET" while reading, client: 1',
            ForeignEvent(
                "client sent invalid header line: (left out) while reading", "info", 5, connection=3
            ),
        ),
    ],
)
def test_each_program_s_form_is_read(line: str, event: ForeignEvent) -> None:
    """Level and message; of nginx's lines what the client sent is left out, and internal addresses."""
    assert read_event([line]) == event


@pytest.mark.parametrize(
    "header",
    [
        'my_token: "SECRET"',
        'a_b: "c" SECRET',
        "a_b: c, client: SECRET",
        'a_b: "c, client: 1" SECRET',
        'a_b: "SECRET',
    ],
)
def test_quotes_and_commas_of_a_client_do_not_end_what_is_left_out(header: str) -> None:
    """nginx quotes a header as it came."""
    line = (
        f'2026/06/21 10:00:00 [info] 5#5: *3 client sent invalid header line: "{header}" while reading client '
        'request headers, client: 127.0.0.1, server: , request: "GET /, client: SECRET HTTP/1.1", host: "SECRET"'
    )

    assert "SECRET" not in str(read_event([line]))
    assert read_event([line]).message.startswith("client sent invalid header line: (left out)")


def test_a_traceback_is_an_exception_with_its_last_line_as_message() -> None:
    event = read_event(TRACEBACK)

    assert (event.level, event.message) == ("error", "ZeroDivisionError: x")
    assert event.exception == "\n".join(TRACEBACK)


def test_a_body_that_a_pattern_fails_on_is_left_out() -> None:
    """nginx would quote all of it."""
    line = '2026/06/21 10:00:00 [alert] 5#5: *3 pcre2_match() failed: -47 on "{"a": ["SECRET"]}" using "^x", client: 1'

    assert read_event([line]).message == "pcre2_match() failed: -47 on (left out)"
