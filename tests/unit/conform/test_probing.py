"""A good and a bad request, found out by what the container answers."""

from tfs_proxy.conform.judging import BAD_BODIES, GOOD_BODIES, find_bad, find_good
from tfs_proxy.conform.raw_http import NoReply, RawReply
from tfs_proxy.conform.requests_file import KnownRequest


def answer(status: int) -> RawReply:
    return RawReply(status, (), b"", 0.0)


def test_the_first_that_is_answered_with_2xx() -> None:
    """What the container takes decides."""

    def takes_inputs(request: KnownRequest) -> RawReply:
        return answer(200 if b'"inputs"' in request.body else 400)

    assert find_good(takes_inputs) == KnownRequest("application/json", b'{"inputs": "hello"}')
    assert find_bad(takes_inputs) == KnownRequest(*BAD_BODIES[0])


def test_one_that_takes_all_has_no_bad_request() -> None:
    """And one that takes nothing no good one."""
    assert find_bad(lambda _: answer(200)) is None
    assert find_good(lambda _: answer(500)) is None


def test_a_container_that_hangs_up_on_one_body_is_asked_on() -> None:
    """One that answers nothing is not asked for ever."""
    asked: list[KnownRequest] = []

    def hangs_up(request: KnownRequest) -> RawReply:
        asked.append(request)
        if request.content_type == "application/json":
            raise NoReply("closed")
        return answer(415)

    assert find_bad(hangs_up) == KnownRequest(*BAD_BODIES[1])
    asked.clear()
    assert find_good(hangs_up) is None
    assert len(asked) == 2 < len(GOOD_BODIES)
