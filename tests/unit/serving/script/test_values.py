"""The model server's answer in output_handler."""

import subprocess
import sys
from datetime import timedelta

import numpy as np
import pytest
import requests

from tfs_proxy.serving.script.handlers import ModelResponse
from tfs_proxy.serving.upstream.interface import ModelAnswer, TensorAnswer
from tfs_proxy.values.signature import PREDICT_METHOD, Signature
from tfs_proxy.wire.protos.predict import Predicted

SIGNATURE = Signature("serving_default", PREDICT_METHOD, {}, {})


def test_tensors_need_no_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a status nor an error makes an answer write it."""
    monkeypatch.setattr("tfs_proxy.serving.upstream.interface.serving_text", None)
    response = ModelResponse(TensorAnswer(Predicted({"y": np.ones(1)}, 1)), lambda: SIGNATURE)

    assert response.outputs["y"].tolist() == [1.0]
    assert (response.status_code, response.ok, response.reason) == (200, True, "OK")
    response.raise_for_status()
    monkeypatch.undo()
    assert response.json() == {"predictions": [1.0]}


def test_what_few_scripts_ask_for() -> None:
    """All that a ``requests.Response`` has, with the values of this answer."""
    answer = ModelAnswer(200, b"a\nb", {"Link": "<http://a/c>; rel=next"}, "http://a/b")
    response = ModelResponse(answer, lambda: SIGNATURE)

    public = {name for name in dir(requests.Response()) if not name.startswith("__")}
    missing = {name for name in public if not hasattr(response, name)}
    assert missing == set()
    assert (response.elapsed, response.history, dict(response.cookies)) == (timedelta(0), [], {})
    assert response.links["next"]["url"] == "http://a/c"
    assert response.apparent_encoding == "ascii"
    assert list(response.iter_lines(decode_unicode=True)) == ["a", "b"]
    assert not response.is_redirect
    assert repr(response) == "<Response [200]>"


def test_errors_are_those_of_requests() -> None:
    """Exceptions have the names that scripts catch."""
    response = ModelResponse(ModelAnswer(503, b"no JSON", {}, "http://a/b"), lambda: SIGNATURE)

    assert not response
    with pytest.raises(
        requests.HTTPError, match=r"503 Server Error: Service Unavailable for url: http://a/b"
    ):
        response.raise_for_status()
    with pytest.raises(requests.JSONDecodeError):
        response.json()
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = response.no_such_thing  # type: ignore[attr-defined]


def test_a_script_may_change_a_response_as_any_of_requests() -> None:
    response = ModelResponse(ModelAnswer(503, b"busy", {}, "http://a/b"), lambda: SIGNATURE)
    response.status_code = 200
    response.reason = "Fine"
    response.headers = {"A": "b"}  # type: ignore[assignment]  # as scripts do
    response.encoding = "no such encoding"

    assert (response.status_code, response.reason, response.ok) == (200, "Fine", True)
    assert dict(response.headers) == {"A": "b"}
    assert response.text == "busy"
    response.raise_for_status()


WITHOUT_REQUESTS = """
import sys
from tfs_proxy.serving.script.handlers import ModelResponse
from tfs_proxy.serving.upstream.interface import ModelAnswer
response = ModelResponse(ModelAnswer(200, b"[1]", {"Content-Type": "application/json"}, ""), None)
assert response.ok and response.status_code == 200 and response.reason == "OK"
response.raise_for_status()
assert response.json() == [1] and response.text == "[1]" and response.content == b"[1]"
assert response.headers["content-type"] == "application/json" and response.encoding == "utf-8"
assert isinstance(response, ModelResponse)
assert "requests" not in sys.modules
import requests
assert isinstance(response, requests.Response)
"""


def test_what_most_scripts_ask_for_needs_no_requests() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_REQUESTS], check=True)


def test_text_is_in_the_encoding_that_a_script_sets() -> None:
    """UTF-8 otherwise; None has requests guess."""
    response = ModelResponse(ModelAnswer(200, "é".encode("latin-1"), {}, ""), lambda: SIGNATURE)

    assert response.text == "\ufffd"
    response.encoding = "latin-1"
    assert response.text == "é"
    response.encoding = None
    assert isinstance(response.text, str)
