"""Formats over HTTP: content types in and out, packed bodies, and the statuses of refusals."""

import json
from typing import Any

import numpy as np
import pytest

from support.fake_upstream import Call
from support.records import example
from tfs_proxy.data.formats.npy import write_npy, write_npz
from tfs_proxy.serving.upstream.interface import ModelAnswer
from unit.worker.resources.conftest import Front, error_of


@pytest.mark.parametrize(
    ("body", "kind", "status", "says"),
    [
        (b"x", "application/octet-stream", 415, "script"),
        (b"x", "image/png", 415, "tfs-proxy pack --decode-image HxW"),
        (b"\xff\xd8\xff", "", 400, "There is no Content-Type, which means JSON: send the body's"),
        (b"1,2\n", "", 400, "There is no Content-Type, which means JSON: send the body's"),
        (b"x", "multipart/form-data", 400, "boundary"),
        (b"--x--\r\n", "multipart/form-data; boundary=x", 400, "The body holds no records"),
        (b"no form", "multipart/form-data; boundary=x", 400, "form"),
        (b"x", "image/gif", 415, "image/gif can't be converted for this model"),
        (b"[1.0]", "text/plain", 415, "A browser's fetch sends a string as text/plain"),
        (b"x", "image/tiff", 415, "image/tiff can't be read"),
        (
            b'{"instances": [1.0]}',
            "application/x-www-form-urlencoded",
            415,
            "curl -d sends it by default: add -H 'Content-Type: application/json'.",
        ),
        (
            b"a",
            "text/csv",
            400,
            '"a" can\'t be read: the column takes numbers (input "x" is DT_FLOAT)',
        ),
    ],
)
def test_refusals(front: Front, body: bytes, kind: str, status: int, says: str) -> None:
    """Each is an error in JSON that says what is wrong, and the model server isn't asked to predict."""
    assert says in front.refusal(status, body, **{"Content_Type": kind} if kind else {})
    assert not front.upstream.calls


FORM = "multipart/form-data; boundary=x"


@pytest.mark.parametrize(
    ("body", "kind", "loc"),
    [
        ("nonsense", "json", [0]),
        ('[[1], ["a"]]', "json", [1, "x"]),
        ('{"instances": [1, "a"]} {"x": 1}', "json", [0, "instances"]),
        ('{"x": 1}\n{"x": "a"}', "jsonlines", [1, "x"]),
        ('{"x": 1}\n{"y": 2}', "jsonlines", [1, "y"]),
        ('{"x": 1}\n{}', "jsonlines", [1, "x"]),
        ('{"x": 1}\n{"inputs": "a"}', "jsonlines", [1, 0, "x"]),
        ("x\n1\na\n", "text/csv", [1, "x"]),
        ("1,2\n1\n", "text/csv", [1]),
        (example(x=[b"a"]), "x-tfexample", [0, "x"]),
        (example(y=[1.0]), "x-tfexample", [0, "x"]),
        (write_npy(np.array(["a"])), "x-npy", ["x"]),
        (write_npz({"x": np.ones(1), "y": np.ones(1)}), "x-npz", ["y"]),
        (b'--x\r\nContent-Disposition: form-data; name="x"\r\n\r\na\r\n--x--\r\n', FORM, [0, "x"]),
    ],
)
def test_the_place_of_a_fault(front: Front, body: str | bytes, kind: str, loc: list[int | str]) -> None:
    """Records count from 0, before the input."""
    result = front.post(body, Content_Type=kind if "/" in kind else f"application/{kind}")

    assert (result.status_code, result.json["details"][0]["loc"]) == (400, loc)
    assert error_of(result)


def test_a_fault_of_the_request_has_no_place(front: Any) -> None:
    """Nor has one of the model server, whose answer goes out as it is."""
    attributes = {"X_Amzn_SageMaker_Custom_Attributes": "tfs-method=explain"}
    assert list(front.post("[1]", **attributes).json) == ["error"]
    assert list(front.post("").json) == ["error"]


def _form(*parts: str | tuple[str, bytes], end: bytes = b"--x--\r\n") -> bytes:
    """A form of fields, ``name=value``, and of files with their names and types."""
    written = []
    for part in parts:
        name, data = part.split("=") if isinstance(part, str) else part
        head = f'--x\r\nContent-Disposition: form-data; name="{name}'.encode()
        written += [head, b'"\r\n\r\n' if isinstance(part, str) else b"\r\n\r\n"]
        written += [data.encode() if isinstance(data, str) else data, b"\r\n"]
    return b"".join([*written, end])


def _file(name: str, data: bytes, kind: str = "image/png") -> tuple[str, bytes]:
    return f'{name}"; filename="a"\r\nContent-Type: {kind}', data


def test_the_file_of_a_form_is_the_body(front: Front) -> None:
    """If no part has the name of an input."""
    file = _file("f", write_npy(np.array([1.5])), "application/x-npy")

    for form in (_form(file), _form("note=hello", file)):
        assert front.post(form, Content_Type=FORM).status_code == 200
    assert [call.json for call in front.upstream.calls] == [{"instances": [1.5]}] * 2


@pytest.mark.parametrize(
    ("filename", "data", "dtype", "sent"),
    [
        ("rows.csv", b"1.5\n", "DT_FLOAT", [1.5]),
        ("rows.tsv", b"x\n1.5\n", "DT_FLOAT", [1.5]),
        ("rows.jsonl", b"1.5\n", "DT_FLOAT", [1.5]),
        ("rows.npy", write_npy(np.array([1.5])), "DT_FLOAT", [1.5]),
        ("rows", b"[[1.5]]", "DT_FLOAT", [[1.5]]),
        ("cat.png", b"\x89PNG", "DT_STRING", [{"b64": "iVBORw=="}]),
        ("cat.pdf", b"\x89PNG", "DT_STRING", [{"b64": "iVBORw=="}]),
    ],
)
def test_a_file_without_a_type(front: Front, filename: str, data: bytes, dtype: str, sent: Any) -> None:
    """It has the type of its name's ending, else it is bytes for strings and JSON otherwise."""
    front.takes(x=(dtype, (None,)))

    form = _form(("x", data)).replace(b'name="x', f'name="x"; filename="{filename}"'.encode())

    assert front.post(form, Content_Type=FORM).status_code == 200
    assert [call.json for call in front.upstream.calls] == [{"instances": sent}]


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("application/vnd.ms-excel", b"x\n1.5\n"),
        ("text/tab-separated-values; header=present", b"x\n1.5\n"),
        ("text/json", b"[[1.5]]"),
        ("application/jsonl", b"[1.5]\n"),
    ],
)
def test_other_names_of_what_is_read(front: Front, media_type: str, body: bytes) -> None:
    """A browser on Windows calls CSV Excel's; a workbook is refused with what to do."""
    assert front.post(body, Content_Type=media_type).status_code == 200
    if media_type == "application/vnd.ms-excel":
        workbook = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0"
        assert "save its sheet as CSV" in front.refusal(415, workbook, Content_Type=media_type)


def _takes_pictures(front: Front) -> None:
    front.takes(image=("DT_STRING", (None,)), size=("DT_FLOAT", (None, 1)), flip=("DT_BOOL", (None,)))
    front.says.body = b'{"predictions": [1.0, 2.0]}'


def test_parts_of_a_form_are_records(front: Front) -> None:
    """One of each input's name is a record, the next of each the next one: bytes for strings, else JSON."""
    _takes_pictures(front)
    one = (_file("image", b"\xff\r\n--y"), "size=0.5", "flip=true")
    more = (
        "flip=false",
        _file("size", b" [2e1] ", "application/json"),
        _file("image", b'"c"', "application/json"),
    )

    assert front.post(_form(*one), Content_Type=FORM).status_code == 200
    assert front.post(_form(*one, *more), Content_Type=f"{FORM}; charset=utf-8").status_code == 200
    first, both = (
        {name: array.tolist() for name, array in call.batch.inputs.items()} for call in front.upstream.calls
    )
    assert first == {"image": [b"\xff\r\n--y"], "size": [[0.5]], "flip": [True]}
    assert both == {"image": [b"\xff\r\n--y", b"c"], "size": [[0.5], [20.0]], "flip": [True, False]}


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (_form("image=a", "size=1"), 'Record 1 has no "flip"; the model\'s inputs are flip, image, size.'),
        (_form("image=a", "size=1", "flip=true", "image=b"), 'Record 2 has no "flip", "size"'),
        (_form("image=a", "size=1", "flip=true", "note=b"), 'Record 1 names "note", which is not an input'),
        (_form("image=a", "flip=true", "size=big"), "The part size of record 1 is big, and no JSON value"),
        (_form("image=a", "flip=true", "size="), "The part size of record 1 is , and no JSON value"),
        (_form("image=a", "flip=1", "size=1"), 'Record 1, input "flip": 1 is a number, but DT_BOOL'),
        (
            _form("image=a", "size=1", end=b""),
            "The form can't be read, at part 3: unexpected form structure.",
        ),
        (_form(("image", b"")).replace(b"image", b"\xff"), "The form can't be read, at its beginning: "),
    ],
)
def test_forms_that_are_no_records(front: Front, form: bytes, says: str) -> None:
    """A 400 that names the part, the record or the input."""
    _takes_pictures(front)
    assert says in front.refusal(400, form, Content_Type=FORM)
    assert not front.upstream.calls


def _plus_one(call: Call) -> ModelAnswer:
    """A model server that adds one, refuses 13, and takes rows of one length at a time."""
    body: Any = call.json
    rows = body["instances"] if "instances" in body else body["inputs"]
    if 13 in rows:
        return ModelAnswer(400, b'{"error": "unlucky"}')
    return ModelAnswer(200, json.dumps({"predictions": [row + 1 for row in rows]}).encode())


@pytest.mark.parametrize("content_type", ["application/jsonlines", "application/jsons"])
def test_one_document_of_the_serving_form_in_lines(front: Front, content_type: str) -> None:
    """A lone document of TensorFlow Serving's form goes out as it is, whichever JSON it is called."""
    front.says.body = b'{\n    "predictions": [2.5]\n}'
    result = front.post(b'{"instances": [1.0,  2]}\n', Content_Type=content_type)
    assert front.upstream.calls[0].body.strip() == b'{"instances": [1.0,  2]}'
    assert front.upstream.calls[0].batch is None
    assert result.content == front.says.body


MIXED = b'{"instances": [1.0, 2.0]}\n3.0\n{"inputs": [4.0]}\n'


@pytest.mark.parametrize(
    ("accept", "content_type", "body"),
    [
        (accept, content_type, b'{"predictions":[2.0,3.0]}\n4.0\n{"outputs":[5.0]}\n')
        for accept, content_type in {
            "application/json": "application/jsonlines",
            "application/x-ndjson": "application/x-ndjson",
            "*/*": "application/jsonlines",
        }.items()
    ]
    + [("text/csv", "text/csv", b"2.0\n3.0\n4.0\n5.0\n")],
)
def test_documents_of_the_serving_form_among_records(
    front: Front, accept: str, content_type: str, body: bytes
) -> None:
    """Each document has its line, each record its own, from one call; CSV has the records of all."""
    front.upstream.answer = _plus_one
    result = front.post(MIXED, Content_Type="application/jsonlines", Accept=accept)
    assert (result.headers["content-type"], result.content) == (content_type, body)
    assert len(front.upstream.calls) == 1


def test_the_first_refused_document_is_named(front: Front) -> None:
    front.upstream.answer = _plus_one
    lines = [b'{"instances": [%d.0]}' % number for number in (1, 2, 3, 13, 5, 13)]
    assert (
        front.refusal(400, b"\n".join(lines), Content_Type="application/jsonlines", Accept="text/csv")
        == "Document 4: unlucky"
    )
    lines[2] = b'{"instances": ["a"]}'
    assert front.refusal(400, b"\n".join(lines), Content_Type="application/jsonlines").startswith(
        'Document 3: Record 1, input "x": "a" is a string'
    )


def test_documents_of_different_shapes(front: Front) -> None:
    """One tensor can't hold them; the first that differs is named."""
    body = b'{"instances": [[1.0, 2.0]]}\n[3.0, 4.0]\n{"instances": [[1.0]]}\n'
    says = front.refusal(400, body, Content_Type="application/jsonlines")
    assert says.startswith("Document 3 has a tensor of the shape [1, 1], unlike")


@pytest.mark.parametrize("accept", ["application/x-npy", "application/x-npz"])
def test_zero_bytes_at_the_end_of_a_string(front: Front, accept: str) -> None:
    """Arrays of a fixed width would drop them, so that the answer is a 406 that names another type."""
    front.takes(x=("DT_FLOAT", (None,)), gives="DT_STRING")
    front.says.body = b'{"predictions": ["a\\u0000"]}'
    assert "ask for application/jsonlines" in front.refusal(406, b"[1.0]", Accept=accept)
    assert front.post(b"[1.0]", Accept="application/jsonlines").content == b'"a\\u0000"\n'


@pytest.mark.parametrize(
    "kind", "image/jpeg image/png image/webp application/x-image binary/octet-stream".split()
)
def test_pictures_and_bytes(front: Front, kind: str) -> None:
    """A model that takes bytes gets them whole."""
    front.takes(x=("DT_STRING", (None,)))
    assert front.post(b"RIFF", Content_Type=kind).status_code == 200
    assert [call.json for call in front.upstream.calls] == [{"instances": [{"b64": "UklGRg=="}]}]
    assert "empty" in front.refusal(400, b"", Content_Type=kind)


def test_zero_and_one_as_booleans(front: Front) -> None:
    """A tf.Example has no booleans, so an input that takes them takes 0 and 1, and nothing else."""
    front.takes(x=("DT_BOOL", (None,)))
    kind = "application/x-tfexample"
    assert front.post(example(x=[1]), Content_Type=kind).status_code == 200
    assert "DT_BOOL takes true or false" in front.refusal(400, example(x=[2]), Content_Type=kind)
    assert [call.json for call in front.upstream.calls] == [{"instances": [True]}]


@pytest.mark.parametrize(
    ("declared", "content_type", "body", "came"),
    [
        ((None, 1), "text/csv", b"1,2\n", "[1, 2]"),
        ((None, 3), "text/csv", b"1\n2\n", "[2]"),
        ((None, 1), "application/x-npy", write_npy(np.zeros((2, 3, 4))), "[2, 3, 4]"),
        ((None, 3), "application/json", b'{"x": [1, 2]}', "[1, 2]"),
        ((None, 3), "application/jsonlines", b'{"x": [1, 2]}\n{"x": [3, 4]}\n', "[2, 2]"),
        ((None, 3), "application/jsonlines", b'[1, 2]\n{"instances": [[3, 4]]}\n', "[2, 2]"),
    ],
)
def test_sizes_that_the_signature_fixes(
    front: Front,
    declared: tuple[int | None, ...],
    content_type: str,
    body: bytes,
    came: str,
) -> None:
    """A body that is converted has them, or is refused before the model is asked, in one sentence."""
    front.takes(x=("DT_FLOAT", declared))
    shape = str(list(declared)).replace("None", "?")
    begins = (
        f'The input "x" has shape {came}, expected {shape}. If the model takes more than it declares, send'
    )
    assert front.refusal(400, body, Content_Type=content_type).startswith(begins)
    assert not front.upstream.calls


@pytest.mark.parametrize(
    ("declared", "content_type", "body"),
    [
        ((None, 3), "application/json", b'{"instances": [[1, 2]]}'),
        ((None, 3), "application/json", b'{"inputs": {"x": [[1, 2]]}}'),
        ((None, 3), "application/jsonlines", b'{"instances": [[1, 2]]}\n{"instances": [[3, 4]]}\n'),
        ((1, 3), "text/csv", b"1,2,3\n4,5,6\n"),
        ((None, None), "application/x-npy", write_npy(np.zeros((2, 3, 4)))),
        ((None,), "text/csv", b"1,2,3\n"),
        ((None, None, 1), "application/x-npy", write_npy(np.zeros((2, 3, 1)))),
    ],
)
def test_sizes_that_are_not_held(
    front: Front, declared: tuple[int | None, ...], content_type: str, body: bytes
) -> None:
    """TensorFlow Serving's form, the first dimension, unknown sizes, and a rank without a size behind it."""
    front.takes(x=("DT_FLOAT", declared))
    front.says.body = b'{"predictions": [1.0, 2.0]}'
    assert front.post(body, Content_Type=content_type).status_code == 200
    assert len(front.upstream.calls) == 1


def test_a_header_that_is_told_of_is_named(front: Front) -> None:
    """Where the columns of the only input are too many."""
    front.takes(x=("DT_FLOAT", (None, 2)))
    says = 'The header row names "a", "b", "id": send only the columns of the input.'
    assert says in front.refusal(400, b"id,a,b\n7,1,2\n", Content_Type="text/csv; header=present")
