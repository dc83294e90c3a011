"""Answers of all paths, and the one shape of errors."""

from pathlib import Path

import falcon.testing
import pytest

from tfs_proxy.values import errors
from tfs_proxy.wire.error_status import STATUS
from tfs_proxy.wire.header_names import SERVED_NAME
from tfs_proxy.worker.many_models import ManyModelsApp
from unit.worker.resources.conftest import Front, MakeFront, error_of


def subclasses(kind: type[errors.RequestError]) -> list[type[errors.RequestError]]:
    found = kind.__subclasses__()
    return found + [below for subclass in found for below in subclasses(subclass)]


def test_every_request_error_has_a_status() -> None:
    """No error of a request falls through the table."""
    own = {
        errors.RequestError,
        errors.UpstreamError,
        errors.UpstreamRefused,
        errors.NotReached,
        errors.Draining,
        errors.NameTaken,
        errors.NotJson,
        errors.WrongType,
    }
    ours = {kind for kind in subclasses(errors.RequestError) if kind.__module__ == "tfs_proxy.values.errors"}

    assert ours - own == {kind for kind in STATUS if issubclass(kind, errors.RequestError)}


def test_body_that_ends_early(front: Front) -> None:
    """A body shorter than its Content-Length is the client's mistake; nothing is computed on it."""
    result = front.client.simulate_post("/invocations", body=b"x", extras={"CONTENT_LENGTH": "10"})

    assert result.status_code == 400
    assert "ended after 1 of 10 bytes" in error_of(result)
    assert result.headers["connection"] == "close"


def test_bug_of_ours(make_front: MakeFront, caplog: pytest.LogCaptureFixture) -> None:
    """An unforeseen error is a 500 that tells the client nothing, and the log everything."""
    front = make_front(error=RuntimeError("/secret/path"))

    assert "secret" not in front.refusal(500, '{"instances": [1]}')
    assert "/secret/path" in caplog.text


def test_a_model_among_many_that_has_gone(tmp_path: Path) -> None:
    """nginx has found its gate open a moment before."""
    client = falcon.testing.TestClient(ManyModelsApp(tmp_path, lambda *_: None, lambda _: None))  # type: ignore[arg-type]
    result = client.simulate_post("/invocations", headers={SERVED_NAME: "a"})

    assert (result.status_code, error_of(result)) == (503, "model a is being unloaded")
