"""Results of a script: forms that are answers, and refused ones."""

import pickle

import pytest

import tfs_proxy
from tfs_proxy.serving.script.runner import ScriptReply, ScriptRunner
from tfs_proxy.serving.script.runner import script_reply as read_reply
from tfs_proxy.values.errors import RequestError, ScriptFailure


def script_reply(returned: object, function: str, accept: str | None, status: int) -> ScriptReply:
    return read_reply(returned, function, accept, status, ScriptRunner("inference.py"))


@pytest.mark.parametrize("returned", [["six", "seven"], ["a"], [["a/b", "c/d"]], ["a", 5], ["a", "b", "c"]])
def test_list_that_is_no_pair(returned: list[object]) -> None:
    """A list of values is not taken for a body and its type, and the error says what a list may be."""
    with pytest.raises(ScriptFailure, match=r"handler returned a list that is not \[body, content_type\]"):
        script_reply(returned, "handler", None, 200)


def test_http_error() -> None:
    error = tfs_proxy.HTTPError(422, "too dark")

    assert isinstance(error, RequestError)
    again = pickle.loads(pickle.dumps(error))
    assert (error.status, error.message, str(error)) == (again.status, again.message, "too dark")


def test_content_type_with_a_comma() -> None:
    """Any other type stays as the script wrote it."""
    named = 'multipart/mixed; boundary="a,b"'

    assert script_reply(("x", named), "handler", "*/*", 200).content_type == named
