"""Which requests get a line in the log, and what it says."""

import pytest
from msgspec.structs import replace

from tfs_proxy.observe.logs.access import RequestLine, is_shown, read_access_line, stages_text
from tfs_proxy.observe.request_counts import FinishedRequest, request_line
from tfs_proxy.observe.request_record import CONVERT, RequestRecord
from tfs_proxy.settings.parsers import access_log


def line(status: int = 200, seconds: float = 0.01, path: str = "/invocations") -> RequestLine:
    return RequestLine(FinishedRequest("POST", status, seconds, path), "x")


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ("off", ()),
        ("errors", ("failed",)),
        ("slow:500", ("failed", "slow")),
        ("sample:0", ("failed",)),
        ("sample:1", ("failed", "slow", "fast")),
        ("all", ("failed", "slow", "fast")),
    ],
)
def test_the_setting_says_which_requests_get_a_line(wanted: str, shown: tuple[str, ...]) -> None:
    """All but ``off`` show those that fail; none shows probes."""
    lines = {"failed": line(404), "slow": line(seconds=0.5), "fast": line()}

    assert tuple(name for name in lines if is_shown(lines[name], access_log(wanted))) == shown
    assert not is_shown(line(503, path="/ping?x"), access_log(wanted))
    assert not is_shown(line(200, path="/metrics"), access_log(wanted))


def read(stages: str, finished: FinishedRequest, refusal: str = "") -> RequestLine:
    """nginx's line of a request, read."""
    read = read_access_line(f'@id-1  {stages} "{refusal}" '.encode() + request_line(finished).rstrip())
    assert read is not None
    return read


def test_nginx_s_line_is_read_with_the_stages_of_the_worker() -> None:
    record = RequestRecord("id-1")
    record.model, record.seconds[CONVERT] = "m", 0.25
    record.reason = 'Row 1; … "is" 100% é'
    finished = FinishedRequest("POST", 400, 0.5, "/invocations")

    assert read(stages_text(record), finished) == RequestLine(
        replace(finished, reason=record.reason), "id-1", "m", {"convert": 0.25}
    )


@pytest.mark.parametrize("said", ["-no%20{secret}", "no%20{secret}-"])
def test_the_message_of_a_grpc_call_is_its_reason(said: str) -> None:
    finished = FinishedRequest("POST", 200, 0.5, "/x", grpc_status="3")

    assert read("-", finished, said).entry("nginx").fields["reason"] == "no …"


@pytest.mark.parametrize(
    ("stages", "asked", "model"),
    [("-", "a", "a"), ("-", "", ""), ("-", "?", ""), ("m;1", "a", "m"), (";1", "a", "a")],
)
def test_a_request_that_no_worker_saw_has_the_model_that_it_asks_for(
    stages: str, asked: str, model: str
) -> None:
    finished = FinishedRequest("POST", 503, 0.5, "/models/a/invoke", model=asked)

    assert read(stages, finished).model == model


@pytest.mark.parametrize("raw", [b"", b"@id-1", b"@x  - 200 0.1 - GET /", b"\xff" * 40])
def test_what_is_no_line_is_left_out(raw: bytes) -> None:
    """Nobody's text becomes an entry by accident."""
    assert read_access_line(raw) is None


def test_a_refusal_of_nginx_stands_before_what_a_worker_said() -> None:
    record = RequestRecord("id-1")
    record.reason = "by the worker"
    finished = FinishedRequest("POST", 504, 0.5, "/invocations")

    assert read(stages_text(record), finished, "no%20answer").request.reason == "no answer"


@pytest.mark.parametrize("stages", ["-", "m;1;2", ";x;x;x;x;x;x;x", "m;" * 50])
def test_a_header_that_no_worker_wrote_is_left_out(stages: str) -> None:
    """The request has its line all the same."""
    finished = FinishedRequest("POST", 200, 0.5, "/invocations")

    shown = read(stages, finished)

    assert (shown.request, shown.seconds) == (finished, {})
