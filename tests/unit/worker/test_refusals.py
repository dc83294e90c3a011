"""Answers of workers to requests that gunicorn refuses by itself."""

import re

from gunicorn.http import errors

from tfs_proxy.worker.gunicorn_workers.refusals import OUR_FAULT, REFUSALS, refusal


def test_every_parse_error_is_known() -> None:
    """Each of gunicorn's own parse errors has an answer more exact than an internal error."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    ours = {"InvalidResponseHeader", "InvalidResponseHeaderName", "ConfigurationProblem", "NoMoreData"}

    unknown = [
        kind.__name__ for kind in kinds if not set(REFUSALS) & {base.__name__ for base in kind.__mro__}
    ]

    assert set(unknown) <= ours
    assert refusal(KeyError()) is OUR_FAULT


def test_a_refusal_has_the_id_of_its_request() -> None:
    """A new one if the request could not be read so far."""
    known, unknown = (refusal(RuntimeError()).response(request_id) for request_id in ("an-id", None))

    assert b"\r\nX-Request-Id: an-id\r\n" in known
    assert re.search(rb"\r\nX-Request-Id: [0-9a-f]{32}\r\n", unknown)
