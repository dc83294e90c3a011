"""TF Serving's REST API through a worker: requests to the model server, and their answers."""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import falcon.testing
import pytest

from support.deployments import deployment
from support.fake_upstream import FakeUpstream
from tfs_proxy.serving.upstream.interface import ModelAnswer
from tfs_proxy.worker.app import create_app

LIMIT_BYTES = 1000


@dataclass
class ModelServer:
    """A model server that notes its requests, and answers the same every time."""

    answer: ModelAnswer
    seen: list[tuple[str, str, bytes | None, Mapping[str, str]]] = field(default_factory=list)

    def __call__(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> ModelAnswer:
        self.seen.append((method, path, body, headers))
        return self.answer


@pytest.fixture
def model_server() -> ModelServer:
    """A model server that refuses everything in words of its own."""
    headers = {"Content-Type": "application/json", "Access-Control-Allow-Origin": "*", "Date": "long ago"}
    return ModelServer(ModelAnswer(429, b'{ "error": "full" }', headers))


@pytest.fixture
def client(model_server: ModelServer) -> falcon.testing.TestClient:
    """A client of an app that publishes it."""
    return client_of(model_server)


def client_of(
    pass_on: Callable[[str, str, bytes | None, Mapping[str, str]], ModelAnswer] | None,
) -> falcon.testing.TestClient:
    """A client of an app without a script."""
    app = create_app(deployment(), FakeUpstream(), ping=lambda: (200, b""), pass_on=pass_on)
    return falcon.testing.TestClient(app)


def test_a_request_is_passed_on_as_it_was_written(
    client: falcon.testing.TestClient, model_server: ModelServer
) -> None:
    """The path undecoded, headers that matter, and the answer's status, words and headers."""
    result = client.simulate_post(
        "/v1/models/a%2Fb:predict",
        body=b"{}",
        headers={"Content-Type": "text/x", "Origin": "http://a", "Cookie": "secret"},
    )

    assert model_server.seen == [
        ("POST", "/v1/models/a%2Fb:predict", b"{}", {"Content-Type": "text/x", "Origin": "http://a"})
    ]
    assert (result.status_code, result.content) == (429, b'{ "error": "full" }')
    assert result.headers["content-type"] == "application/json"
    assert result.headers["access-control-allow-origin"] == "*"
    assert "date" not in result.headers


def test_a_packed_body_is_unpacked_within_the_limit(
    client: falcon.testing.TestClient, model_server: ModelServer
) -> None:
    """The model server gets it plain; one that is too large it does not get at all."""
    packed = {"Content-Encoding": "gzip"}

    client.simulate_post("/v1/models/m:predict", body=gzip.compress(b"{}"), headers=packed)
    large = client.simulate_post("/v1/models/m:predict", body=gzip.compress(b" " * 9999), headers=packed)

    assert [(body, "Content-Encoding" in headers) for _, _, body, headers in model_server.seen] == [
        (b"{}", False)
    ]
    assert large.status_code == 413


def test_a_get_has_no_body_and_an_empty_post_an_empty_one(
    client: falcon.testing.TestClient, model_server: ModelServer
) -> None:
    client.simulate_get("/v1/models/m")
    client.simulate_post("/V1/models/m:predict")

    assert [(path, body) for _, path, body, _ in model_server.seen] == [
        ("/v1/models/m", None),
        ("/V1/models/m:predict", b""),
    ]
