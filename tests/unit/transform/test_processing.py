"""JSONPath, filters, joins and AssembleWith, as DataProcessing has them (docs/reference/sagemaker.md)."""

from array import array
from typing import Any

import pytest

from tfs_proxy.transform.batches import MiniBatch
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.jsonpath import JsonPath, Missing
from tfs_proxy.transform.transformer import DataProcessing, Unprocessable
from tfs_proxy.values.errors import SettingsError

DOCUMENT = {"id": 7, "features": [1, 2, 3, 4, 5], "deep": {"a b": [{"x": 1}, {"x": 2}]}, "z": None}


@pytest.mark.parametrize(
    ("path", "selected"),
    [
        ("$", DOCUMENT),
        ("$.id", 7),
        ("$.features", [1, 2, 3, 4, 5]),
        ("$.features[0]", 1),
        ("$.features[-1]", 5),
        ("$.features[0,2,-1]", [1, 3, 5]),
        ("$.features[1:4]", [2, 3, 4]),
        ("$.features[2:]", [3, 4, 5]),
        ("$.features[:-1]", [1, 2, 3, 4]),
        ("$.features[*]", [1, 2, 3, 4, 5]),
        ("$['id','z']", {"id": 7, "z": None}),
        ("$['id']", 7),
        ("$.deep['a b'][*].x", [1, 2]),
        ("$.deep.*", [[{"x": 1}, {"x": 2}]]),
        ('$["id"]', 7),
    ],
)
def test_paths(path: str, selected: Any) -> None:
    """Every processing of the subset."""
    assert JsonPath(path)(DOCUMENT) == selected


@pytest.mark.parametrize(
    "path", ["$.nothing", "$.features[9]", "$.id[0]", "$['id','no']", "$.id.*", "$.id[1:]"]
)
def test_nothing_there(path: str) -> None:
    """A document without the path is an error of that record."""
    with pytest.raises(Missing):
        JsonPath(path)(DOCUMENT)


def csv_job(**fields: Any) -> Job:
    return Job(
        **{
            "input": "i",
            "output": "o",
            "content_type": "text/csv",
            "split_type": "Line",
            "assemble_with": "Line",
        }
        | fields
    )


def batch_of(*lines: bytes) -> MiniBatch:
    body = b"".join(lines)
    ends, size = array("Q"), 0
    for line in lines:
        size += len(line)
        ends.append(size)
    return MiniBatch(1, body, array("Q", [0, *ends[:-1]]), ends)


def test_json_lines_joined() -> None:
    """Under SageMakerOutput; what is no object is wrapped."""
    processing = DataProcessing(csv_job(content_type="application/jsonlines", join="Input"))
    rows = batch_of(b'{"id": 1, "n": 12345678901234567890}\n', b"[1]\n")
    assert processing.output(rows, b'{"p": 0.5}\n{"p": 0.25}\n') == (
        b'{"id":1,"n":12345678901234567890,"SageMakerOutput":{"p":0.5}}\n'
        b'{"SageMakerInput":[1],"SageMakerOutput":{"p":0.25}}\n'
    )


def test_a_document_of_several_lines_is_one_answer() -> None:
    processing = DataProcessing(csv_job(content_type="application/json", join="Input"))
    joined = processing.output(batch_of(b'{"instances": [1.0]}\n'), b'{\n    "predictions": [2.5\n    ]\n}')
    assert joined == b'{"instances":[1.0],"SageMakerOutput":{"predictions":[2.5]}}\n'


def test_records_that_can_not_be_filtered() -> None:
    lines = DataProcessing(csv_job(content_type="application/jsonlines", input_filter="$.x"))
    with pytest.raises(Unprocessable, match="no member 'x'"):
        lines.request(batch_of(b'{"y": 1}\n'))
    with pytest.raises(Unprocessable, match="is not JSON"):
        lines.request(batch_of(b"{]\n"))
    rows = DataProcessing(csv_job(input_filter="$[1]"))
    with pytest.raises(Unprocessable, match="without a closing quote"):
        rows.request(batch_of(b'1,"2\n'))


def test_an_input_filter_leaves_answers_as_they_are() -> None:
    """A filter of the input alone says nothing about answers, which need not be JSON lines as the input is."""
    processing = DataProcessing(csv_job(content_type="application/jsonlines", input_filter="$.keep"))
    records = batch_of(b'{"keep": [1, 2], "id": 7}\n')
    assert processing.request(records) == b"[1,2]\n"
    assert processing.output(records, b'{\n "predictions": [2.5]\n}') == b'{\n "predictions": [2.5]\n}\n'


@pytest.mark.parametrize(
    "path", ["id", "$.", "$..id", "$[", "$[]", "$[1:2:3]", "$['a'", "$[a]", "$.id id", "$['a',]"]
)
def test_no_paths(path: str) -> None:
    """Anything else is refused before the job begins."""
    with pytest.raises(SettingsError, match="can't be used"):
        JsonPath(path)


def test_a_json_document() -> None:
    """A whole object is one document."""
    job = Job(
        input="i", output="o", content_type="application/json", join="Input",
        input_filter="$.x", output_filter="$['id','SageMakerOutput']",
    )  # fmt: skip
    processing = DataProcessing(job)
    whole = batch_of(b'{"id": "\xc3\xa4", "x": [1]}')
    assert processing.request(whole) == b"[1]"
    assert processing.output(whole, b"[2]") == '{"id":"ä","SageMakerOutput":[2]}'.encode()
