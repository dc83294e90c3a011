"""Models whose inputs have no dimension that counts records, and those that take lists of one, in every format."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.records import example, record
from support.stack import Stack, serving
from support.transform_command import outputs, transform
from tfs_proxy.data.formats.framing import recordio_frame
from tfs_proxy.data.formats.npy import write_npy

pytestmark = pytest.mark.tensorflow

JSON, CSV, LINES, NPY = "application/json", "text/csv", "application/jsonlines", "application/x-npy"
OCTETS, TEXT = "application/octet-stream", "text/plain"
SIX, TRIPLE = {"predictions": [10.0]}, {"predictions": [{"y": [2.0, 4.0, 6.0], "total": 6.0}]}


def _record(*values: float) -> bytes:
    return recordio_frame(record(values={"values": values}))


def _ask(stack: Stack, signature: str, content_type: str, body: bytes | str, accept: str = JSON) -> Any:
    attributes = f"tfs-model-name=bare,tfs-signature-name={signature}"
    return stack.invoke(body, content_type, Accept=accept, X_Amzn_SageMaker_Custom_Attributes=attributes)


@pytest.mark.parametrize(
    ("signature", "content_type", "body", "answer"),
    [
        ("serving_default", JSON, "5.0", SIX),
        ("serving_default", JSON, '{"x": 5.0}', SIX),
        ("serving_default", CSV, "5\n", SIX),
        ("serving_default", NPY, write_npy(np.array(5, np.float32)), SIX),
        ("serving_default", "application/x-tfexample", example(x=[5.0]), SIX),
        ("three", JSON, "[1, 2, 3]", TRIPLE),
        ("three", JSON, '{"x": [1, 2, 3]}', TRIPLE),
        ("three", CSV, "1,2,3\n", TRIPLE),
        ("three", NPY, write_npy(np.array([[1.0, 2.0, 3.0]])), TRIPLE),
        ("three", "application/x-recordio-protobuf", _record(1, 2, 3), TRIPLE),
        ("word", JSON, '"ab"', {"predictions": ["AB"]}),
        ("word", OCTETS, b"ab", {"predictions": ["AB"]}),
        ("word", TEXT, "ab\r\n", {"predictions": ["AB"]}),
        ("word", JSON, '{"inputs": "ab"}', {"outputs": "AB"}),
        ("fixed", CSV, "1,2\n3,4\n", {"predictions": [[2.0, 4.0], [6.0, 8.0]]}),
        ("fixed", CSV, "1,2\n", {"predictions": [[2.0, 4.0]]}),
        ("one_each", JSON, '[{"x": 26}, {"x": 1}]', {"predictions": [[52.0], [2.0]]}),
        ("one_each", LINES, '{"x": 26}\n{"x": [1]}\n', {"predictions": [[52.0], [2.0]]}),
        ("one_each", JSON, '{"instances": [{"x": 26}, {"x": 1}]}', {"predictions": [[52.0], [2.0]]}),
        ("one_each", JSON, '{"inputs": {"x": [26, 1]}}', {"outputs": [[52.0], [2.0]]}),
    ],
)
def test_shapes_that_a_person_writes(
    served: Stack, signature: str, content_type: str, body: bytes | str, answer: Any
) -> None:
    """A record becomes what the signature declares, and its outputs are one record."""
    asked = _ask(served, signature, content_type, body)
    assert (asked.status, asked.json) == (200, answer)


def test_one_record_in_each_format(served: Stack) -> None:
    """What has no axis of records is one line, one row and one element."""
    assert _ask(served, "serving_default", CSV, "5\n", CSV).body == b"10.0\n"
    assert _ask(served, "three", CSV, "1,2,3\n", CSV).body == b"6.0,2.0,4.0,6.0\n"
    assert _ask(served, "three", JSON, "[1,2,3]", LINES).json == TRIPLE["predictions"][0]
    assert np.load(io.BytesIO(_ask(served, "serving_default", JSON, "5.0", NPY).body)).tolist() == [10.0]


@pytest.mark.parametrize(
    ("signature", "content_type", "body", "says"),
    [
        ("serving_default", LINES, "5\n6\n", 'since its input "x" has shape []; the body has 2 records'),
        ("three", CSV, "1,2,3\n4,5,6\n", "takes one record a request"),
        ("three", JSON, "[1, 2]", 'The input "x" has shape [2], expected [3].'),
        ("three", JSON, '{"instances": ["a"]}', '"a" is a string'),
        ("three", LINES, '{"inputs": [1, 2, 3]}\n' * 2, "the body has 2 documents"),
        ("three", "application/x-recordio-protobuf", _record(1, 2, 3) * 2, "takes one record a request"),
    ],
)
def test_refused(served: Stack, signature: str, content_type: str, body: bytes | str, says: str) -> None:
    """Several records, and values of another size or type, are the client's mistakes."""
    refused = _ask(served, signature, content_type, body)
    assert (refused.status, says in refused.json["error"]) == (400, True), refused.json


@pytest.mark.slow
def test_transform_sends_one_record_a_request(saved_models: Path, tmp_path: Path) -> None:
    """Whatever the strategy of the job is."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("1\n2\n3\n")
    done = transform(
        *("--model", str(saved_models / "bare"), "--model-server", "embedded", "--strategy", "MultiRecord"),
        *("--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--split-type", "Line"),
        *("--content-type", CSV, "--accept", CSV),
    )
    assert (done.status, done.summary["requests"]) == (0, 3), done.log
    assert outputs(tmp_path / "out")["a.csv.out"] == b"2.0\n4.0\n6.0\n"


def test_execution_parameters(saved_models: Path) -> None:
    """Batch jobs on SageMaker are told, too."""
    with serving(str(saved_models / "bare"), "--model-server", "embedded") as stack:
        assert stack.ask("GET", "/execution-parameters").json["BatchStrategy"] == "SINGLE_RECORD"
