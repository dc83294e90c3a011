"""What a script may return, and what is refused."""

import pickle

import pytest

import tfs_proxy
from tfs_proxy.errors import RequestError, ScriptFailure
from tfs_proxy.script.runner import ScriptReply, ScriptRunner, encoded
from tfs_proxy.script.runner import script_reply as read_reply


def script_reply(returned: object, function: str, accept: str | None, status: int) -> ScriptReply:
    return read_reply(returned, function, accept, status, ScriptRunner("inference.py"))


@pytest.mark.parametrize("body", ["né", "né".encode(), bytearray("né".encode()), memoryview("né".encode())])
def test_bodies(body: object) -> None:
    """Text goes out as UTF-8, bytes as they are."""
    assert script_reply((body, "text/plain"), "handler", None, 200) == ScriptReply(
        "né".encode(), "text/plain"
    )


def test_list_of_two() -> None:
    """A list unpacks into two as well as a tuple does."""
    for kind in ("text/plain", "Text/CSV; charset=utf-8", "*/*", None, "*/*;q=1, b"):
        assert script_reply(["x", kind], "handler", "*/*;q=1, b", 200).body == b"x"


@pytest.mark.parametrize(
    "returned", [["six", "seven"], [], ["a"], [["a/b", "c/d"]], ["a", 5], ["a", "b", "c"]]
)
def test_list_that_is_no_pair(returned: list[object]) -> None:
    """A list of values is not taken for a body and its type, and the error says what a list may be."""
    with pytest.raises(ScriptFailure, match=r"handler returned a list that is not \[body, content_type\]"):
        script_reply(returned, "handler", None, 200)


@pytest.mark.parametrize("returned", ["x", ("x", None), ("x", "")])
@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "application/json"),
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/*, text/csv;q=0.5", "text/csv"),
        ("Image/PNG", "image/png"),
        ("not a type", "application/json"),
    ],
)
def test_default_type(returned: object, accept: str | None, content_type: str) -> None:
    """Without a type from the script the answer's is the first that Accept names, else JSON."""
    assert script_reply(returned, "handler", accept, 200).content_type == content_type


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "application/json"),
        ("application/jsonlines, application/json", "application/jsonlines"),
        ("text/csv", "text/csv"),
    ],
)
def test_accept_handed_back(accept: str, content_type: str) -> None:
    """A script that returns context.accept_header as its type gets the first type that it names."""
    assert script_reply(("x", accept), "output_handler", accept, 200).content_type == content_type


def test_content_type_with_a_comma() -> None:
    """Any other type stays as the script wrote it."""
    named = 'multipart/mixed; boundary="a,b"'

    assert script_reply(("x", named), "handler", "*/*", 200).content_type == named


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "output_handler returned None: it must return"),
        ({"a": 1}, "returned a value of type dict"),
        ((None, "text/csv"), "returned None"),
        (("a", "b", "c"), "returned 3 values"),
        ((), "returned 0 values"),
        (("a", b"text/csv"), "type bytes as content type"),
        (("a", "text/csv\r\nX: y"), "not printable ASCII"),
        (("\ud800", "text/csv"), "UTF-8 can't encode"),
    ],
)
def test_unusable(returned: object, message: str) -> None:
    """What is no answer is refused with a sentence that names what came."""
    with pytest.raises(ScriptFailure, match=message):
        script_reply(returned, "output_handler", None, 200)


def test_request_that_is_no_body() -> None:
    """The model server's request is str or bytes."""
    with pytest.raises(ScriptFailure, match="input_handler returned a value of type dict: it must"):
        encoded({}, "input_handler", "it must")


def test_http_error() -> None:
    """HTTPError is public, carries status and message, and survives pickling."""
    error = tfs_proxy.HTTPError(422, "too dark")

    assert isinstance(error, RequestError)
    again = pickle.loads(pickle.dumps(error))
    assert (error.status, error.message, str(error)) == (again.status, again.message, "too dark")


@pytest.mark.parametrize("status", [200, 302, 399, 600])
def test_http_error_that_is_none(status: int) -> None:
    """A status that is no error's is refused where it is written."""
    with pytest.raises(ValueError, match="from 400 to 599"):
        tfs_proxy.HTTPError(status, "x")
