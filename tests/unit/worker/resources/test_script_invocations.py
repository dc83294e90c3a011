"""POST /invocations with an inference.py: AWS's contract, and its extensions."""

import logging

import pytest

from unit.worker.resources.conftest import MakeFront

PASS_ON = """
def input_handler(data, context):
    return data.read()
"""


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ("data.read().decode()", "ab\ncd\n"),
        ("data.read(2).decode() + '|' + data.read(1).decode('unicode_escape').strip()", "ab|"),
        ("b'|'.join(data.readlines()).decode()", "ab\n|cd\n"),
        ("b'|'.join(data).decode()", "ab\n|cd\n"),
        ("(data.read(), data.read())[1].decode()", ""),
        ("str(__import__('json').load(__import__('io').BytesIO(b'1')))", "1"),
    ],
)
def test_data_is_a_stream(make_front: MakeFront, reading: str, expected: str) -> None:
    """The body reads like a stream, once."""
    front = make_front(f"def handler(data, context): return {reading}, 'text/plain'")

    assert front.post("ab\ncd\n").text == expected


FORM = """
import json

def handler(data, context):
    form = {name: [[p.filename, p.content_type, p.text] for p in parts] for name, parts in context.form.items()}
    assert context.form is context.form
    return json.dumps([form, data.read().decode()]), "application/json"
"""


def test_a_form_is_parsed_for_a_script_that_asks(make_front: MakeFront) -> None:
    """``context.form`` has parts by name, and nothing of another body; ``data`` is what was sent."""
    front, kind = make_front(FORM), {"Content_Type": "multipart/form-data; boundary=x"}
    head = '--x\r\nContent-Disposition: form-data; name="a"'
    form = f'{head}\r\n\r\n1\r\n{head}; filename="b.csv"\r\nContent-Type: text/csv\r\n\r\n2\r\n--x--\r\n'

    assert front.post(form, **kind).json == [
        {"a": [[None, "text/plain", "1"], ["b.csv", "text/csv", "2"]]},
        form,
    ]
    assert front.post("{}").json == [{}, "{}"]
    assert front.refusal(400, form[:20], **kind)[:40] == "The form can't be read, at its beginning"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            "return json.loads(response.content)['predictions']",
            "no {} (then {} failed: KeyError: 'predictions')",
        ),
        ("yield response.json()['predictions']", "no {} (then {} failed: KeyError: 'predictions')"),
        ("return response.json().get('predictions')", "no {} (then {} returned None: it must return"),
        (
            "raise ValueError(f'refused: {response.text}')",
            'ValueError: refused: {{"error": "no \\"rows\\" é"}}',
        ),
        ("raise ValueError(response.json())", "ValueError: {{'error': 'no \"rows\" é'}}"),
        ("raise ValueError(response.json()['error'] + '!')", "ValueError: no {}!"),
    ],
)
def test_words_of_the_model_server_come_first(
    make_front: MakeFront, caplog: pytest.LogCaptureFixture, body: str, text: str
) -> None:
    """A script that fails over the model server's error does not hide its words, nor say them twice."""
    front = make_front(
        f"{PASS_ON}import json\ndef output_handler(response, context):\n    {body}\n",
        status=400,
        body='{"error": "no \\"rows\\" é"}'.encode(),
    )

    assert front.refusal(400, "x").startswith(text.format('"rows" é', "output_handler"))
    assert "(the model server had answered 400: no …)" in caplog.text


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        ("ValueError('Error: 415, no such type')", "ValueError: Error: 415, no such type"),
        ("ValueError()", "ValueError"),
        ("KeyError('x')", "KeyError: 'x'"),
        ('ValueError(\'{"error": "no\\nimage"}\')', "no\nimage"),
        ("ValueError('{\"error\": 7}')", 'ValueError: {"error": 7}'),
        ('ValueError(\'sent: {"error": "no image"}\')', 'ValueError: sent: {"error": "no image"}'),
        ("Faulty()", "Faulty"),
        ("SystemExit(3)", "SystemExit: 3"),
        ("MemoryError", "MemoryError"),
        ("__import__('asyncio').CancelledError", "CancelledError"),
        ("ValueError('é\\ud800')", "ValueError: é\\ud800"),
    ],
)
def test_what_a_script_raises(
    make_front: MakeFront,
    caplog: pytest.LogCaptureFixture,
    raised: str,
    text: str,
) -> None:
    """Any exception is a 500 with its type and text, and the script's own line is in the log."""
    front = make_front(
        "class Faulty(Exception):\n    def __str__(self): raise RuntimeError\n"
        f"def deeper():\n    raise {raised}\n"
        "def handler(data, context):\n    deeper()\n"
    )

    with caplog.at_level(logging.ERROR):
        assert front.refusal(500, "x") == text
    assert "inference.py:4 in deeper: " in caplog.text
    assert "script/call.py" not in caplog.text


def test_a_decorated_handler_may_get_more_arguments(make_front: MakeFront) -> None:
    """The decorator's own arguments count, not those of the function inside."""
    front = make_front(
        "import functools\n"
        "def with_answer(function):\n"
        "    @functools.wraps(function)\n"
        "    def call(*given): return function(*given, 'x')\n"
        "    return call\n"
        "@with_answer\n"
        "def handler(data, context, answer): return answer\n"
    )

    assert front.post("y").text == "x"


@pytest.mark.parametrize(
    ("raised", "status", "text"),
    [
        ("tfs_proxy.HTTPError(400, 'no image')", 400, "no image"),
        ("falcon.HTTPUnsupportedMediaType(description='JPEG only')", 415, "JPEG only"),
        ("falcon.HTTPBadRequest(title='Bad', description='row 3')", 400, "row 3"),
        ("falcon.HTTPError(falcon.HTTP_422)", 422, "422 Unprocessable Entity"),
    ],
)
def test_errors_with_a_status(make_front: MakeFront, raised: str, status: int, text: str) -> None:
    """Our HTTPError and falcon's say a status of their own, in the shape of every error."""
    front = make_front(
        f"import falcon, tfs_proxy\ndef input_handler(data, context): raise {raised}\n"
        "def output_handler(response, context): return ''"
    )

    assert front.refusal(status, "x") == text


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("(None, 'text/csv')", "returned None"),
        ("('a', 'b', 'c')", "returned 3 values"),
        ("()", "returned 0 values"),
        ("('a', b'text/csv')", "type bytes as content type"),
        ("('a', 'text/csv\\r\\nX: y')", "not printable ASCII"),
        ("('\\ud800', 'text/csv')", "UTF-8 can't encode"),
    ],
)
def test_unusable_answer(
    make_front: MakeFront,
    caplog: pytest.LogCaptureFixture,
    returned: str,
    message: str,
) -> None:
    """What a script returned in place of an answer is a 500, and in the log."""
    assert message in make_front(f"def handler(data, context): return {returned}").refusal(500, "x")
    assert "inference.py: handler returned" in caplog.text


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            "{'instances': [1]}",
            "'instances' is not an input of signature serving_default (x): return TensorFlow",
        ),
        ("None", "input_handler returned None: it must return the model server's request as str or bytes"),
        ("3.5", "a value of type float: it must return"),
        ("{'x': ['a']}", "input_handler: input 'x' is strings, but DT_FLOAT takes numbers"),
    ],
)
def test_unusable_request(
    make_front: MakeFront,
    caplog: pytest.LogCaptureFixture,
    returned: str,
    message: str,
) -> None:
    """The error names the input_handler's result; the model server is not asked."""
    front = make_front(
        f"def input_handler(data, context): return {returned}\n"
        "def output_handler(response, context): return ''"
    )

    assert message in front.refusal(500, "x")
    assert "inference.py: input_handler" in caplog.text
    assert front.upstream.calls == []


@pytest.mark.parametrize("returned", ["data", "io.BytesIO(data.read())", "io.StringIO(data.read().decode())"])
def test_a_file_is_the_request(make_front: MakeFront, returned: str) -> None:
    """An input_handler may return the body itself, or another file, as in AWS's container."""
    front = make_front(
        "import io\n"
        f"def input_handler(data, context): return {returned}\n"
        "def output_handler(response, context): return response.content, 'application/json'\n"
    )

    assert front.post('{"instances": [1]}').status_code == 200
    assert front.upstream.calls[0].body == b'{"instances": [1]}'


def test_handler_wins(make_front: MakeFront) -> None:
    front = make_front(
        PASS_ON
        + "def output_handler(response, context): return 'theirs'\n"
        + "def handler(data, context): return 'mine', 'text/plain'"
    )

    result = front.post("x")

    assert (result.text, result.headers["content-type"]) == ("mine", "text/plain")
    assert front.upstream.calls == []


def test_falcon_status(make_front: MakeFront) -> None:
    """Falcon's HTTPStatus goes out as the script made it."""
    front = make_front(
        "import falcon\n"
        "def handler(data, context): raise falcon.HTTPStatus(202, headers={'X-Job': '7'}, text='later')"
    )

    result = front.post("x")

    assert (result.status_code, result.text, result.headers["x-job"]) == (202, "later", "7")
