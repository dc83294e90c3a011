"""Scripts with the richer contract on real models: arrays in and out, over the real stack."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.stack import Stack, serving

pytestmark = pytest.mark.tensorflow

SCRIPT = """
import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np

ready = {}


def init(context):
    ready["y"] = context.predict([1.0], model_name="half_plus_two")["y"].tolist()
    ready["signature"] = sorted(context.signature.inputs)


def handler(data, context):
    return globals()[data.read().decode()](context)


def at_init(context):
    return json.dumps(ready)


def versions(context):
    ask = lambda version: context.predict({"x": np.ones(2)}, model_name="versions", version=version)
    return json.dumps([ask(version)["y"].tolist() for version in (1, "2", None)])


def several(context):
    outputs = context.predict({"a": np.ones((2, 3), np.float32), "b": [5, 1]})
    return json.dumps({name: [str(array.dtype), str(array.tolist())] for name, array in outputs.items()})


def signature(context):
    norm = context.predict({"a": [[3.0, 4.0, 0.0]]}, signature="norm")["norm"]
    return json.dumps([norm.tolist(), sorted(context.models)])


def threads(context):
    with ThreadPoolExecutor(8) as pool:
        ask = lambda x: context.predict([float(x)], model_name="half_plus_two")["y"][0]
        return str([float(y) for y in pool.map(ask, range(20))] == [x / 2 + 2 for x in range(20)])


async def gathered(context):
    ask = lambda x: context.predict_async([float(x)], model_name="half_plus_two")
    return str(sum(float(outputs["y"][0]) for outputs in await asyncio.gather(*map(ask, range(20)))))


def refused(context):
    return str(context.predict({"a": np.ones((2, 3)), "b": [5, 1, 2]}))


def missing(context):
    return str(context.predict([1.0], model_name="nothing"))
"""


@pytest.fixture(scope="module")
def stack(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Three models with a script; multi_io is the default."""
    root = tmp_path_factory.mktemp("script-models")
    for name in ("half_plus_two", "multi_io", "versions"):
        shutil.copytree(saved_models / name, root / name)
    (root / "code").mkdir()
    (root / "code" / "inference.py").write_text(SCRIPT)
    env = {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "multi_io"}
    with serving(str(root), "--model-server", "embedded", env=env) as running:
        yield running


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("at_init", {"y": [2.5], "signature": ["a", "b"]}),
        ("versions", [[2.5, 2.5], [3.5, 3.5], [3.5, 3.5]]),
        (
            "several",
            {
                "sum": ["float32", "[[6.0, 6.0, 6.0], [2.0, 2.0, 2.0]]"],
                "label": ["object", "[b'big', b'small']"],
                "count": ["int32", "[10, 2]"],
            },
        ),
        ("signature", [[5.0], ["half_plus_two", "multi_io", "versions"]]),
        ("threads", "True"),
        ("gathered", "135.0"),
    ],
)
def test_predict(stack: Stack, kind: str, answer: object) -> None:
    """By model, version and signature, from init, from threads, and from async functions."""
    reply = stack.invoke(kind, "text/plain")

    assert reply.status == 200, reply.body
    assert answer in (reply.body.decode(), reply.json if isinstance(answer, (list, dict)) else None)


@pytest.mark.parametrize(("kind", "status"), [("refused", 400), ("missing", 404)])
def test_what_the_model_server_refuses(stack: Stack, kind: str, status: int) -> None:
    """Uncaught it goes out as the model server said it."""
    reply = stack.invoke(kind, "text/plain")

    assert reply.status == status
    assert set(reply.json) == {"error"}
