"""JSONPath, filters, joins and AssembleWith, as DataProcessing has them (docs/reference/sagemaker.md)."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tfs_proxy.transform.batches import MiniBatch
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.jsonpath import JsonPath, Missing
from tfs_proxy.transform.transformer import Unprocessable, processing_of
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.http_messages import HttpResponse

DOCUMENT = {"id": 7, "features": [1, 2, 3, 4, 5], "deep": {"a b": [{"x": 1}, {"x": 2}]}, "z": None}


@pytest.mark.parametrize(
    ("path", "selected"),
    [
        ("$", DOCUMENT),
        ("$.id", 7),
        ("$.features", [1, 2, 3, 4, 5]),
        ("$.features[-1]", 5),
        ("$.features[0,2,-1]", [1, 3, 5]),
        ("$.features[1:4]", [2, 3, 4]),
        ("$.features[2:]", [3, 4, 5]),
        ("$.features[:-1]", [1, 2, 3, 4]),
        ("$.features[*]", [1, 2, 3, 4, 5]),
        ("$['id','z']", {"id": 7, "z": None}),
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


def answer_of(body: bytes, content_type: str = "application/json") -> HttpResponse:
    return HttpResponse(200, body, headers={"Content-Type": content_type})


def batch_of(*lines: bytes) -> MiniBatch:
    body = b"".join(lines)
    ends, size = array("Q"), 0
    for line in lines:
        size += len(line)
        ends.append(size)
    return MiniBatch(1, body, array("Q", [0, *ends[:-1]]), ends)


def test_json_lines_joined() -> None:
    """Under SageMakerOutput, beside members as they came; what is no object is wrapped."""
    processing = processing_of(csv_job(content_type="application/jsonlines", join="Input"))
    own = b'"id": 12345678901234567890.1234567890, "far":1E400,"d":1, "d":"\\u00e4\\/", "n":NaN'
    rows = batch_of(b"{%b}\r\n" % own, b"[1.50]\n", b"{ }\n")
    assert processing.output(rows, answer_of(b'{"p": 0.50}\n{"p": NaN}\n1\n')) == (
        b'{%b,"SageMakerOutput":{"p":0.50}}\n'
        b'{"SageMakerInput":[1.50],"SageMakerOutput":{"p":NaN}}\n{"SageMakerOutput":1}\n' % own
    )
    kept = csv_job(
        content_type="application/jsonlines", join="Input", output_filter="$['far','SageMakerOutput']"
    )
    joined = processing_of(kept).output(batch_of(b"{%b}\n" % own), answer_of(b"2.50"))
    assert joined == b'{"far":1E400,"SageMakerOutput":2.50}\n'


def test_a_document_of_several_lines_is_one_answer() -> None:
    processing = processing_of(csv_job(content_type="application/json", join="Input"))
    answer = answer_of(b'{\n    "predictions": [2.5\n    ]\n}')
    joined = processing.output(batch_of(b'{"instances": [1.0]}\n'), answer)
    assert joined == b'{"instances": [1.0],"SageMakerOutput":{"predictions":[2.5]}}\n'


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b'{\r\n "predictions": [2.5,\n NaN]\n}', b'{ "predictions": [2.5, NaN]}\n'),
        (b'{"a": 1}\n{"a": 2}\n', b'{"a": 1}\n{"a": 2}\n'),
    ],
)
def test_a_json_answer_is_one_line(body: bytes, lines: bytes) -> None:
    """With AssembleWith Line, whoever wrote it; several documents keep their lines, as other types do."""
    processing = processing_of(csv_job(content_type="application/json"))
    assert processing.output(batch_of(b"1\n"), answer_of(body)) == lines
    assert processing.output(batch_of(b"1\n"), answer_of(b"[\n]\n", "text/plain")) == b"[\n]\n"


@pytest.mark.parametrize(
    ("kind", "record", "line"),
    [
        ("text/csv", b'1,"a, b"\n', b'1,"a, b",ERROR\n'),
        ("text/csv", b'1,"2\n', b"ERROR\n"),
        ("application/jsonlines", b'{"id": 1E400}\n', b'{"id": 1E400,"SageMakerOutput":{"error":"no"}}\n'),
    ],
)
def test_a_bad_record_keeps_its_columns(kind: str, record: bytes, line: bytes) -> None:
    """Where records are joined, and this one can be read."""
    job = csv_job(content_type=kind, join="Input")
    assert processing_of(job).substitute(batch_of(record), "no") == line


@pytest.mark.parametrize(
    ("more", "titles", "answer", "header"),
    [
        ({"join": "Input"}, ("y",), b"2.5\n", b'id,"a, b",y\n'),
        ({"join": "Input"}, (), b"2.5,1\n", b'id,"a, b",SageMakerOutput,SageMakerOutput\n'),
        ({"join": "Input", "output_filter": "$[0,-1]"}, ("y",), b"2.5\n", b"id,y\n"),
    ],
)
def test_an_output_begins_with_a_header(
    more: Mapping[str, str], titles: Sequence[str], answer: bytes, header: bytes
) -> None:
    """Where the input has one and columns are kept, before an object's first record alone."""
    processing = processing_of(csv_job(**more), titles)
    batch = batch_of(b"7,1\n")
    batch.csv_header = b'id,"a, b"\n'
    written = processing.output(batch, answer_of(answer, "text/csv"))
    batch.first = 2
    assert written == header + processing.output(batch, answer_of(answer, "text/csv"))


def test_records_that_can_not_be_filtered() -> None:
    lines = processing_of(csv_job(content_type="application/jsonlines", input_filter="$.x"))
    with pytest.raises(Unprocessable, match="no member 'x'"):
        lines.request(batch_of(b'{"y": 1}\n'))
    with pytest.raises(Unprocessable, match="is not JSON"):
        lines.request(batch_of(b"{]\n"))
    rows = processing_of(csv_job(input_filter="$[1]"))
    with pytest.raises(Unprocessable, match="without a closing quote"):
        rows.request(batch_of(b'1,"2\n'))


def test_an_input_filter_leaves_answers_as_they_are() -> None:
    """A filter of the input alone says nothing about answers, which need not be JSON lines as the input is."""
    processing = processing_of(csv_job(content_type="application/jsonlines", input_filter="$.keep"))
    records = batch_of(b'{"keep": [1, 2], "id": 7}\n')
    assert processing.request(records) == b"[1,2]\n"
    assert processing.output(records, answer_of(b'{"predictions": [2.5]}')) == b'{"predictions": [2.5]}\n'


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
    processing = processing_of(job)
    whole = batch_of(b'{"id": "\xc3\xa4", "x": [1]}')
    assert processing.request(whole) == b"[1]"
    assert processing.output(whole, answer_of(b"[2]")) == '{"id":"ä","SageMakerOutput":[2]}'.encode()
