"""The client against a server that says what it is told: typed errors, and what is sent again."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import numpy as np
import pytest

from tfs_proxy import Client, ClientError, NotAnswered, RequestRefused, ServerFailed, testing
from unit.conftest import Command

Answer = tuple[int, dict[str, str], bytes]


class Told(BaseHTTPRequestHandler):
    """Answers as ``answers`` say, the last one again and again; keeps requests in ``asked`` and ``bodies``."""

    answers: ClassVar[list[Answer]] = []
    asked: ClassVar[list[dict[str, str]]] = []
    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(dict(self.headers))
        status, headers, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Told.answers, Told.asked, Told.bodies = [], [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Told)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "kind"), [(400, RequestRefused), (500, ServerFailed), (504, ServerFailed)]
)
def test_an_error_has_the_servers_sentence_and_is_not_sent_again(
    url: str, status: int, kind: type[ClientError]
) -> None:
    Told.answers = [(status, {}, b'{"error": "x must be a number"}')]
    with Client(url) as client, pytest.raises(kind, match="x must be a number") as raised:
        client.invoke(b"1", "text/csv")
    assert (raised.value.status, len(Told.asked)) == (status, 1)


@pytest.mark.parametrize("status", [300, 302, 304, 307])
def test_an_answer_that_leads_elsewhere_is_an_error(url: str, status: int) -> None:
    """Nothing is sent to the other address, and the login page is no prediction."""
    Told.answers = [(status, {"Location": "/login\t\x1b[2J"}, b"<html>")]
    with Client(url) as client, pytest.raises(ClientError, match=r"leads to /login \\x1b\[2J$") as raised:
        client.invoke(b"1", "text/csv")
    assert (raised.value.status, len(Told.asked)) == (status, 1)


@pytest.mark.parametrize("status", [429, 503])
def test_a_request_that_was_not_taken_up_is_sent_again_after_retry_after(url: str, status: int) -> None:
    Told.answers = [(status, {"Retry-After": "0"}, b"{}"), (200, {"Content-Type": "text/csv"}, b"2.5")]
    with Client(url) as client:
        assert client.invoke(b"1", "text/csv", custom_attributes="a=b").body == b"2.5"
    assert [asked["X-Amzn-SageMaker-Custom-Attributes"] for asked in Told.asked] == ["a=b", "a=b"]


def test_a_server_that_stays_busy_is_an_error_at_the_end(url: str) -> None:
    Told.answers = [(503, {"Retry-After": "0"}, b'{"error": "starting"}')]
    with Client(url, retries=2) as client, pytest.raises(ServerFailed, match="503: starting"):
        client.invoke(b"1", "text/csv")
    assert len(Told.asked) == 3


def test_nothing_at_the_address_is_not_answered() -> None:
    with (
        Client("http://127.0.0.1:9", retries=0) as client,
        pytest.raises(NotAnswered, match=r"127\.0\.0\.1:9/.*refused\. Is the server started"),
    ):
        client.invoke(b"1", "text/csv")


def test_what_is_not_an_address_is_refused() -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT"):
        Client("ftp://host")


def test_answers_of_scripts_in_json_become_arrays(url: str) -> None:
    Told.answers = [(200, {"Content-Type": "application/json"}, b'{"predictions": [{"a": 1, "b": [2]}]}')]
    with Client(url) as client:
        outputs = client.predict([1.0])
    assert isinstance(outputs, dict)
    assert {name: array.tolist() for name, array in outputs.items()} == {"a": [1], "b": [[2]]}


@pytest.mark.parametrize(
    ("body", "words", "sent", "content_type"),
    [
        ({"x": np.float32(0.1)}, (), b'{"x":0.1}', "application/json"),
        (
            [1, None, float("nan")],
            ("application/vnd.own+json",),
            b"[1,null,null]",
            "application/vnd.own+json",
        ),
        (b"[1]", (), b"[1]", "application/json"),
        (bytearray(b"1"), ("text/csv",), b"1", "text/csv"),
        ("é", ("text/plain",), "é".encode(), "text/plain"),
    ],
)
def test_objects_are_sent_as_json(
    url: str, body: object, words: tuple[str, ...], sent: bytes, content_type: str
) -> None:
    """Bytes and text go as they are."""
    Told.answers = [(200, {}, b"{}")]
    with Client(url) as client:
        client.invoke(body, *words)

    assert (Told.bodies, Told.asked[0]["Content-Type"]) == ([sent], content_type)


def test_what_can_not_be_sent_is_refused_here(url: str) -> None:
    """Before anything is sent."""
    pandas = pytest.importorskip("pandas")
    with Client(url) as client:
        with pytest.raises(TypeError, match="a body of type dict is sent as JSON, and not as text/csv"):
            client.invoke({"x": 1}, "text/csv")
        with pytest.raises(TypeError, match="Type is not JSON serializable: object"):
            client.invoke({"x": object()})
        for values in (["a", None], ["a", 0.5], [b"a", "b"]):
            with pytest.raises(ValueError, match=r"column 'x', row [01] is .*: columns hold numbers or str"):
                client.predict(pandas.DataFrame({"x": pandas.Series(values, dtype=object)}))
    assert Told.asked == []


def test_the_columns_of_a_table_are_inputs_by_name(url: str, tmp_path: Path) -> None:
    """Or, of a model of one input, its values; no digit is lost, and a gap is NaN."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"b": [0.1, None], "a": [1 / 3, 2], "n": [16777217, 2]})
    Told.answers = [(200, {"Content-Type": "application/json"}, b'{"predictions": [1.0, 2.0]}')]
    with Client(url) as client:
        assert dict(client.predict(frame))[""].tolist() == [1.0, 2.0]

    assert Told.asked[0]["Accept"] == "application/x-npz"
    kind = Told.asked[0]["Content-Type"]
    script_path = tmp_path / "inference.py"
    script_path.write_text("def input_handler(data, context): return context.default_input(data)")
    named = {name: testing.TensorSpec(name, "DT_DOUBLE", (None, 1)) for name in "abn"}
    one = {"x": testing.TensorSpec("x", "DT_DOUBLE", (None, 3))}
    calls = []
    for inputs in (named, one):
        with testing.load(script_path, signatures=testing.signature(inputs, one)) as script:
            assert script.post(Told.bodies[0], kind).status == 200
            calls.append(script.calls[0].inputs)
    assert calls[0]["n"].tolist() == [[16777217], [2]]
    np.testing.assert_array_equal(calls[1]["x"], frame.to_numpy())


def test_an_answer_without_arrays_says_its_type(url: str) -> None:
    Told.answers = [(200, {"Content-Type": "image/png"}, b"..")]
    with Client(url) as client, pytest.raises(ClientError, match="image/png"):
        client.predict([1.0])


def test_ask_says_how_to_name_an_unknown_type(url: str, run: Command) -> None:
    assert "give --content-type" in run("ask", url, "pyproject.toml", ends=2).err


def test_ask_counts_what_failed_and_why(url: str, run: Command) -> None:
    Told.answers = [(200, {}, b"1"), (200, {}, b"1"), (400, {}, b'{"error": "no"}')]
    said = run("ask", url, "README.md", "--content-type", "text/csv", "--repeat", "5", ends=1)
    assert said.out.startswith("2 of 5 requests answered")
    assert "3 failed: 400: no" in said.err


ESCAPES = "\x1b]52;c;YQ==\x07 \x9b31m \r\tü"


def test_ask_shows_a_terminal_no_control_characters(url: str, run: Command) -> None:
    """Neither of an answer nor of an error, whose sentence is a script's own."""
    body = f"one {ESCAPES}\ntwo".encode()
    Told.answers = [(200, {}, body), (400, {}, json.dumps({"error": ESCAPES}).encode())]
    words = ["ask", url, "README.md", "--content-type", "text/csv"]
    assert on_a_terminal(words) == b"one \\x1b]52;c;YQ==\\x07 \\x9b31m \r\n        \xc3\xbc\r\ntwo\r\n"
    assert run(*words, ends=1).err == "tfs-proxy: 400: \\x1b]52;c;YQ==\\x07 \\x9b31m ü\n"


def on_a_terminal(words: Sequence[str]) -> bytes:
    """What a command writes if its standard output is a terminal."""
    ours, theirs = pty.openpty()
    program = [sys.executable, "-m", "tfs_proxy.cli", *words]
    subprocess.run(program, stdout=theirs, timeout=60, check=True)
    os.close(theirs)
    return os.read(ours, 1 << 16)
