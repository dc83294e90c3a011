"""A model whose signatures have no shapes, as AWS's sample half_plus_three: every format, with batching and without.

Its predict is y = x / 2 + 3 for an x of any shape; regress and classify take tf.Examples, which the
signatures declare as DT_FLOAT.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.records import example, record
from support.stack import Stack, serving
from tfs_proxy.data.formats.framing import recordio_frame, tfrecord_frame
from tfs_proxy.data.formats.npy import write_npy

pytestmark = pytest.mark.tensorflow

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
JSON, CSV, LINES = "application/json", "text/csv", "application/jsonlines"
REGRESS = "tfs-method=regress,tfs-signature-name=tensorflow/serving/regress"
BATCHING = {"SAGEMAKER_TFS_ENABLE_BATCHING": "true", "SAGEMAKER_TFS_MAX_BATCH_SIZE": "50000"}
CLASSIFY = "tfs-method=classify,tfs-signature-name=classify_x_to_y"


@pytest.fixture(scope="module", params=[{}, BATCHING], ids=["alone", "batching"])
def stack(request: pytest.FixtureRequest, saved_models: Path) -> Iterator[Stack]:
    with serving(str(saved_models / "half_plus_three"), env=request.param) as running:
        yield running


def _invoke(
    stack: Stack, body: bytes | str, content_type: str, attributes: str = "", accept: str = JSON
) -> bytes:
    headers = {"Content-Type": content_type, "Accept": accept, ATTRIBUTES: attributes}
    answer = stack.ask("POST", "/invocations", body, headers)
    assert answer.status == 200, answer.body
    return answer.body


def _record(name: str, *values: float) -> bytes:
    return recordio_frame(record(**{name: {"values": values}}))


def _records(*examples: bytes) -> bytes:
    return b"".join(map(tfrecord_frame, examples))


THREE, HALVES = [1.0, 2.0, 5.0], [3.5, 4.0, 5.5]

PREDICTS = [
    pytest.param(JSON, '{"instances": [1.0, 2.0, 5.0]}', HALVES, id="rows-of-scalars"),
    pytest.param(JSON, "[1.0, 2.0, 5.0]", [HALVES], id="one-list"),
    pytest.param(CSV, "1.0\n2.0\n5.0\n", HALVES, id="csv-column"),
    pytest.param(CSV, "1.0,2.0,5.0", [HALVES], id="csv-row"),
    pytest.param(CSV, "1.0\n2.0\n" * 20_000, [3.5, 4.0] * 20_000, id="csv-large"),
    pytest.param("application/x-npy", write_npy(np.array(THREE)), HALVES, id="npy-vector"),
    pytest.param(
        "application/x-tfrecord", _records(example(x=[1.0]), example(x=[2.0])), [3.5, 4.0], id="tfrecord"
    ),
    pytest.param(
        "application/x-recordio-protobuf", _record("x", 1) + _record("x", 2), [3.5, 4.0], id="recordio"
    ),
]


@pytest.mark.parametrize(("content_type", "body", "predictions"), PREDICTS)
def test_predict(stack: Stack, content_type: str, body: bytes | str, predictions: Any) -> None:
    """A record is what the body shows: one value a row is a scalar, several are a list."""
    assert json.loads(_invoke(stack, body, content_type)) == {"predictions": predictions}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        pytest.param(JSON, '{"examples": [{"x": 1.0}, {"x": 2.0}]}', id="examples"),
        pytest.param(JSON, '[{"x": 1.0}, {"x": 2.0}]', id="list-of-objects"),
        pytest.param(LINES, '{"x": 1.0}\n{"x": [2.0]}\n', id="jsonlines"),
        pytest.param("application/x-tfrecord", _records(example(x=[1.0]), example(x=[2.0])), id="tfrecord"),
        pytest.param("application/x-recordio-protobuf", _record("x", 1) + _record("x", 2), id="recordio"),
    ],
)
def test_regress_and_classify(stack: Stack, content_type: str, body: bytes | str) -> None:
    """Features by name reach the graph as serialized tf.Examples, although the signature says DT_FLOAT."""
    assert json.loads(_invoke(stack, body, content_type, REGRESS)) == {"results": [3.5, 4.0]}
    classes = {"results": [[["", 3.5]], [["", 4.0]]]}
    assert json.loads(_invoke(stack, body, content_type, CLASSIFY)) == classes
