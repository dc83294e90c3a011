"""Content-Length of JSON that a client asks for, which SageMaker's asynchronous endpoints need."""

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
BODIES = [
    '{"instances": [1.0]}',
    "[1.0]",
    '{"instances": [1.0%s]}' % (",1.0" * 1_200_000),
    '{"instances": ["a"]}',
]
"""A small request to nginx's fast path and to workers, one for an answer of more than 5 MB, and an error."""


def lengths(stack: Stack, path: str = "/invocations") -> list[int]:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    answers = [stack.ask("POST", path, body, headers, LONG_SECONDS) for body in BODIES]
    assert [answer.status == 200 for answer in answers] == [True, True, True, False]
    assert [answer.headers["content-length"] for answer in answers] == [
        str(len(each.body)) for each in answers
    ]
    return [len(answer.body) for answer in answers]


def test_of_one_archive_and_of_many(served: Stack, many: MultiModelStack, saved_models: Path) -> None:
    many.loaded("long", saved_models / "half_plus_two")
    assert lengths(served) == lengths(many, "/models/long/invoke")
    assert many.unload("long").status == 200


def test_of_a_row(saved_models: Path, tmp_path: Path) -> None:
    first = pack(tmp_path / "unchanged.tar.gz", {"code/inference.py": UNCHANGED})
    words = (str(first), str(saved_models / "half_plus_two"), "--model-server", "embedded")
    with closing(Stack(*words, env={"SAGEMAKER_GUNICORN_WORKERS": "1", "TFS_PROXY_NGINX": "true"})) as row:
        row.wait_ready()
        assert lengths(row)[2] > 5_000_000
