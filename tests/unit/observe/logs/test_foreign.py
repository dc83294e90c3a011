"""Lines that programs print, as the entries that they become."""

import pytest

from tfs_proxy.observe.logs.foreign import read_event

TRACEBACK = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "ZeroDivisionError: x"]
NGINX_ERROR = (
    "2026/06/21 10:00:00 [error] 5#5: *3 upstream closed while reading, client: 127.0.0.1, server: , request: "
    '"POST /invocations?token=SECRET HTTP/1.1", upstream: "http://unix:/tmp/x.sock:/", host: "h"'
)


@pytest.mark.parametrize(
    ("process", "line", "level", "message"),
    [
        ("model server 0", "I0621 10:00:00.123456   12 server.cc:77] up", "debug", "server.cc:77] up"),
        ("gunicorn", "I0621 10:00:00.123456   12 server.cc:77] up", "info", "server.cc:77] up"),
        ("model server 0", "2026-06-21 10:00:00.1: W core/x.cc:7] slow", "warning", "core/x.cc:7] slow"),
        ("model server 0", "2026-06-21 10:00:00,123 ERROR can't load m", "error", "can't load m"),
        ("model server 0", "anything else", "info", "anything else"),
        ("nginx", "2026/06/21 10:00:00 [emerg] 5#5: no such file", "critical", "no such file"),
        ("nginx", "2026/06/21 10:00:00 [notice] 5#5: start worker", "debug", "start worker"),
        ("nginx", NGINX_ERROR, "error", "upstream closed while reading"),
        (
            "nginx",
            '2026/06/21 10:00:00 [alert] 5#5: *3 pcre2_match() failed: -47 on "{"a": ["SECRET"]}" using "^x", client: 1',
            "critical",
            "pcre2_match() failed: -47 on (left out)",
        ),
    ],
)
def test_each_program_s_level_is_told(process: str, line: str, level: str, message: str) -> None:
    """How programs start is at debug; of nginx's lines what the client sent is left out, and addresses."""
    entry = read_event([line], process, 7)

    assert (entry.level, entry.message, entry.process, entry.pid) == (level, message, process, 7)


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
    entry = read_event([line], "nginx", 7)

    assert "SECRET" not in str(entry)
    assert entry.level == "info"
    assert entry.message.startswith("client sent invalid header line: (left out)")


def test_a_traceback_is_an_exception_with_its_last_line_as_message() -> None:
    entry = read_event(TRACEBACK, "gunicorn", 7)

    assert (entry.level, entry.message) == ("error", "ZeroDivisionError: x")
    assert entry.exception == "\n".join(TRACEBACK)
