"""What is a good request, found out by what the container answers: the first of these that gets 2xx."""

from collections.abc import Callable

from tfs_proxy.conform.raw_http import NoReply, RawReply
from tfs_proxy.conform.requests_file import KnownRequest

JSON, CSV = "application/json", "text/csv"
GOOD_BODIES = (
    (JSON, b'{"instances": [1.0]}'),
    (JSON, b'{"instances": [[1.0]]}'),
    (JSON, b'{"instances": [[1.0, 2.0, 3.0, 4.0]]}'),
    (JSON, b'{"inputs": "hello"}'),
    (JSON, b'{"inputs": [1.0]}'),
    (JSON, b'{"data": [[1.0]]}'),
    (JSON, b'{"text": "hello"}'),
    (JSON, b'{"prompt": "hello", "max_tokens": 1}'),
    (JSON, b"{}"),
    (JSON, b"[[1.0]]"),
    (CSV, b"1.0\n"),
    (CSV, b"1.0,2.0,3.0,4.0\n"),
    ("text/plain", b"hello"),
)
BAD_BODIES = (
    (JSON, b'{"instances": [1.0, '),
    (CSV, b'"never closed,1\n\x00\xff'),
    ("application/x-no-such-type", b"\x00\x01\x02"),
)
MOST_SILENCES = 2
"""A body may be too much for a container; one that leaves more unanswered answers nothing."""
Send = Callable[[KnownRequest], RawReply]


def find_good(send: Send) -> KnownRequest | None:
    """The first body that is answered with 2xx; None if there is none, or the container stops to answer."""
    return _first(GOOD_BODIES, send, good=True)


def find_bad(send: Send) -> KnownRequest | None:
    """The first body that is answered with an error."""
    return _first(BAD_BODIES, send, good=False)


def _first(bodies: tuple[tuple[str, bytes], ...], send: Send, *, good: bool) -> KnownRequest | None:
    silences = 0
    for content_type, body in bodies:
        request = KnownRequest(content_type, body)
        try:
            if send(request).is_good == good:
                return request
        except NoReply:
            silences += 1
            if silences == MOST_SILENCES:
                return None
    return None
