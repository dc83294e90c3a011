"""Content-Length of answers in JSON that a client asks for, which SageMaker's asynchronous endpoints need."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, pack
from support.multi_model import LONG_SECONDS, MultiModelStack
from support.stack import Stack

pytestmark = [NEEDS_NGINX, pytest.mark.slow]

UNCHANGED = """
def model_fn(model_dir):
    return None

def transform_fn(model, data, content_type, accept):
    return data, content_type
"""
BODIES = {
    "small": '{"instances": [1.0]}',
    "converted": "[1.0]",
    "5 MB": json.dumps({"instances": [1.0] * 1_200_000}, separators=(",", ":")),
    "error": '{"instances": ["a"]}',
}


@pytest.fixture(scope="module")
def row(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    first = pack(tmp_path_factory.mktemp("row") / "unchanged.tar.gz", {"code/inference.py": UNCHANGED})
    words = (str(first), str(saved_models / "half_plus_two"), "--model-server", "embedded")
    with closing(Stack(*words, env={"SAGEMAKER_GUNICORN_WORKERS": "1", "TFS_PROXY_NGINX": "true"})) as stack:
        stack.wait_ready()
        yield stack


@pytest.fixture(scope="module")
def one_of_many(many: MultiModelStack, saved_models: Path) -> Iterator[MultiModelStack]:
    many.loaded("long", saved_models / "half_plus_two")
    yield many
    assert many.unload("long").status == 200


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    ("kind", "path"),
    [("served", "/invocations"), ("one_of_many", "/models/long/invoke"), ("row", "/invocations")],
)
def test_json_that_is_asked_for_has_its_length(
    kind: str, path: str, body: str, request: pytest.FixtureRequest
) -> None:
    """From nginx's fast path and from workers, of one archive, of many and of a row."""
    stack: Stack = request.getfixturevalue(kind)
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    answer = stack.ask("POST", path, BODIES[body], headers, LONG_SECONDS)

    assert (answer.status == 200) is (body != "error"), answer.body[:200]
    assert answer.headers["content-length"] == str(len(answer.body))
    assert len(answer.body) > 5_000_000 or body != "5 MB"
