"""The limit of an answer: whatever way it takes to have no end, no more than the limit is read of it."""

from itertools import islice

import pytest

from support.endless import ENDLESS, endless_server
from support.running import LOOPBACK
from tfs_proxy.values.errors import AnswerTooLarge
from tfs_proxy.wire.error_status import status_of_error
from tfs_proxy.wire.http_client import ConnectionPool, Patience, Timeouts

MEGABYTE = 1 << 20


@pytest.mark.parametrize("way", ENDLESS)
def test_an_answer_that_never_ends_is_refused_at_the_limit(way: str) -> None:
    """Also if each step alone has a time, as in `requests`; it is a 502."""
    with endless_server(way) as port:
        pool = ConnectionPool(LOOPBACK, port, Timeouts(20), server="It", most_bytes=MEGABYTE)
        with pytest.raises(
            AnswerTooLarge, match=r"It's answer is over 1 MB\. TFS_PROXY_MAX_ANSWER_MB"
        ) as raised:
            pool.request("POST", "/", b"{}", {})
        with pytest.raises(AnswerTooLarge):
            pool.request("POST", "/", b"{}", {}, Patience(5, 5))
    assert status_of_error(raised.value) == 502


def test_a_stream_is_as_long_as_it_likes() -> None:
    """Only what is one part has the limit."""
    with endless_server() as port:
        coming = ConnectionPool(LOOPBACK, port, Timeouts(20), most_bytes=MEGABYTE).stream("/", b"{}", {}, 20)
        assert sum(map(len, islice(coming.parts, 64))) == 4 * MEGABYTE
        coming.close()
    with endless_server("one chunk") as port, pytest.raises(AnswerTooLarge):
        next(
            ConnectionPool(LOOPBACK, port, Timeouts(20), most_bytes=MEGABYTE).stream("/", b"{}", {}, 20).parts
        )
