"""schemathesis judges a real stack by the document that the stack itself gives; `make prove-openapi` sends more."""

import os
from pathlib import Path

import pytest

from support.archives import pack
from support.judges import CLIENTS, judge
from support.multi_model import serving_many
from support.stack import Stack, serving

CASES = int(os.environ.get("SCHEMATHESIS_CASES", "500"))
FEWER_CASES = max(200, CASES // 10)
SEED = os.environ.get("SCHEMATHESIS_SEED", "1")
SECONDS = 1800.0


def judged(stack: Stack, cases: int, *more: str) -> None:
    """Run it against a stack; more words are those of the client."""
    url = f"http://{stack.host}:{stack.port}"
    words: tuple[str | Path, ...] = (CLIENTS / "schemathesis_run.py", url, "--cases", str(cases))
    said = judge("schemathesis").attempt("python", *words, "--seed", SEED, *more, seconds=SECONDS)
    print(said.stdout)
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{cases} cases of " in said.stdout


@pytest.mark.tensorflow
@pytest.mark.parametrize("nginx", ["true", "false"])
def test_every_answer_is_described(saved_models: Path, nginx: str) -> None:
    """No error of the server but 503 and 504, and no status, type or body that the document does not have."""
    env = {"TFS_PROXY_NGINX": nginx, "SAGEMAKER_TFS_VERSION_LABELS": "stable=1"}
    with serving(str(saved_models / "half_plus_two"), env=env) as stack:
        judged(stack, CASES)


@pytest.mark.nginx
@pytest.mark.tensorflow
@pytest.mark.parametrize("by_folder", [False, True])
def test_every_answer_of_an_endpoint_of_many_models(
    saved_models: Path, tmp_path: Path, by_folder: bool
) -> None:
    """Whether a model is there, is loaded once more, or has gone; the control API gives the document."""
    archive = pack(tmp_path / "half.tar.gz", {}, {"half": saved_models / "half_plus_two"})
    with serving_many(*(("--multi-model", str(tmp_path)) if by_folder else ())) as stack:
        stack.loaded("half", archive)
        judged(stack, FEWER_CASES, "--model", "half", str(archive))


DESCRIBED = """
import json
import tfs_proxy

tfs_proxy.describe(
    accepts={"application/json": list[float], "text/plain": str},
    returns={"application/json": dict[str, float], "text/csv": str},
    examples={"text/plain": b"1.0 2.0"},
)


def handler(data, context):
    body = data.read()
    try:
        is_json = context.request_content_type == "application/json"
        numbers = json.loads(body) if is_json else body.decode().split()
        largest = max(float(number) for number in numbers)
    except (ValueError, TypeError) as error:
        raise tfs_proxy.HTTPError(422, str(error))
    if context.accept_header == "text/csv":
        return str(largest), "text/csv"
    return json.dumps({"largest": largest}), "application/json"
"""

TYPED = """
import dataclasses
import typing


@dataclasses.dataclass
class Row:
    x: float
    kind: typing.Literal["a", "b"] = "a"
    tags: dict[str, int] = dataclasses.field(default_factory=dict)


def handler(rows: list[Row], context) -> list[dict[str, float]]:
    return [{"x": row.x} for row in rows]
"""

HALF = """
import tfs_proxy


def input_handler(data, context):
    if context.request_content_type == "text/plain":
        raise tfs_proxy.HTTPError(415, "no text")
    return context.default_input(data)
"""

SCRIPT_MODEL = """
import numpy as np


def model_fn(model_dir):
    return 2


def predict_fn(data, model):
    return np.full(data.shape, model)
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("script", "protocol"),
    [
        pytest.param(DESCRIBED, "v2", id="described"),
        pytest.param(DESCRIBED, "v2-script", id="described, asked in the protocol"),
        pytest.param(TYPED, "v2", id="typed"),
        pytest.param(TYPED, "v2-script", id="typed, asked in the protocol"),
        pytest.param(HALF, "v2", id="half"),
        pytest.param(HALF, "v2-script", id="half, asked in the protocol"),
        pytest.param(SCRIPT_MODEL, "v2-script", id="script model"),
    ],
)
def test_every_answer_of_a_script(saved_models: Path, tmp_path: Path, script: str, protocol: str) -> None:
    """What it has described, what it leaves to the conversion, and what its own statuses are."""
    folders = {} if script is SCRIPT_MODEL else {"half": saved_models / "half_plus_two"}
    archive = pack(tmp_path / "model.tar.gz", {"code/inference.py": script}, folders)
    with serving(
        str(archive), env={"TFS_PROXY_NGINX": "false", "TFS_PROXY_DOORS": f"v1,page,{protocol}"}
    ) as stack:
        judged(stack, FEWER_CASES)
