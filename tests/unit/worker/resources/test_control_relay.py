"""Requests that an app answers without nginx, or passes on to TF Serving's REST API."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import falcon.testing
import pytest

from support.deployments import deployment
from support.fake_upstream import FakeUpstream
from tfs_proxy.serving.upstream.interface import ModelAnswer
from tfs_proxy.worker.app import create_app

STATUS = b"""{
 "model_version_status": [
  {
   "version": "2",
   "state": "%s",
   "status": {
    "error_code": "OK",
    "error_message": ""
   }
  }
 ]%s
}
"""


@dataclass
class ModelServer:
    """A model server that notes its requests, and answers the same every time."""

    answer: ModelAnswer
    seen: list[tuple[str, str, bytes | None, Mapping[str, str]]] = field(default_factory=list)

    def __call__(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> ModelAnswer:
        self.seen.append((method, path, body, headers))
        return self.answer


def client_of(server: ModelServer | None) -> falcon.testing.TestClient:
    """A client of an app in front of this model server."""
    return falcon.testing.TestClient(create_app(deployment(), FakeUpstream(), pass_on=server))


@pytest.mark.parametrize(("state", "ready"), [(b"AVAILABLE", b"true"), (b"LOADING", b"false")])
def test_the_status_of_a_model_says_whether_it_is_ready(state: bytes, ready: bytes) -> None:
    server = ModelServer(ModelAnswer(200, STATUS % (state, b"")))
    result = client_of(server).simulate_get("/v1/models/m")

    assert result.content == STATUS % (state, b',\n "ready": ' + ready)


@pytest.fixture
def model_server() -> ModelServer:
    """A model server that refuses everything in words of its own."""
    headers = {"Content-Type": "application/json", "Access-Control-Allow-Origin": "*", "Date": "long ago"}
    return ModelServer(ModelAnswer(429, b'{ "error": "full" }', headers))


def test_a_request_is_passed_on_as_it_was_written(model_server: ModelServer) -> None:
    """The path undecoded, headers that matter, and the answer's status, words and headers; a GET has no body."""
    client = client_of(model_server)
    given = {"Content-Type": "text/x", "Origin": "http://a", "Cookie": "secret"}
    client.simulate_get("/V1/models/m")
    client.simulate_post("/v1/models/m:predict")
    result = client.simulate_post("/v1/models/a%2Fb:predict", body=b"{}", headers=given)

    assert [(path, body) for _, path, body, _ in model_server.seen[:2]] == [
        ("/V1/models/m", None),
        ("/v1/models/m:predict", b""),
    ]
    assert model_server.seen[2:] == [
        ("POST", "/v1/models/a%2Fb:predict", b"{}", {"Content-Type": "text/x", "Origin": "http://a"})
    ]
    assert (result.status_code, result.content) == (429, b'{ "error": "full" }')
    assert result.headers["content-type"] == "application/json"
    assert result.headers["access-control-allow-origin"] == "*"
    assert "date" not in result.headers
