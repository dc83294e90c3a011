"""Every answer carries the id of its request, whatever path the request takes."""

import re
from collections.abc import Iterator

import pytest

from support.archives import NEEDS_NGINX, stand_in_words, without_nginx
from support.stack import Stack, serving

FRONTS = [
    pytest.param({}, id="nginx", marks=NEEDS_NGINX),
    pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": "sync"}, id="sync"),
    pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": "gevent"}, id="gevent"),
]
INSTANCES = b'{"instances": [1.0]}'
INFERENCE_ID, REQUEST_ID = "X-Amzn-SageMaker-Inference-Id", "X-Request-Id"
REQUESTS = {
    "fast path": ("POST", "/invocations", INSTANCES, "application/json", 200),
    "worker": ("GET", "/execution-parameters", None, "", 200),
    "serving API": ("GET", "/v1/models/m", None, "", 200),
    "unsupported": ("POST", "/invocations", b"?", "application/x-unknown", 415),
    "too large": ("POST", "/invocations", b" " * 1_100_000, "application/json", 413),
    "not found": ("GET", "/nothing/here", None, "", 404),
}


@pytest.fixture(scope="module", params=FRONTS)
def stack(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A model without a script, so that nginx has its fast path, and a small body limit."""
    folder = tmp_path_factory.mktemp("stack")
    env = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "1", **request.param}
    with serving(*stand_in_words(folder), env=env) as running:
        yield running


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({INFERENCE_ID: "of-sagemaker", REQUEST_ID: "of-the-client"}, "of-sagemaker"),
        ({REQUEST_ID: "of-the-client"}, "of-the-client"),
        ({INFERENCE_ID: "a b", REQUEST_ID: "<script>"}, "[0-9a-f]{32}"),
        ({}, "[0-9a-f]{32}"),
    ],
    ids=["inference id", "request id", "hostile", "none"],
)
def test_every_answer_has_the_id(stack: Stack, kind: str, headers: dict[str, str], expected: str) -> None:
    """The client's if it is plain, else a new one; refusals, too."""
    method, path, body, content_type, status = REQUESTS[kind]

    answer = stack.ask(method, path, body, {"Content-Type": content_type, **headers})

    assert answer.status == status
    assert re.fullmatch(expected, answer.headers[REQUEST_ID.lower()])


def test_what_is_not_http_gets_an_id(stack: Stack) -> None:
    """A new one, on the refusal of whoever reads it first."""
    answer = stack.raw(b"nonsense\r\n\r\n")

    assert b" 400 " in answer.split(b"\r\n", 1)[0]
    assert len(re.findall(rb"X-Request-Id: [0-9a-f]{32}\r\n", answer)) == 1
