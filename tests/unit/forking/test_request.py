"""The request for a forked process survives its journey over the socket."""

import os

import pytest

from tfs_proxy.forking.request import ForkRequest


def test_what_is_sent_arrives() -> None:
    """An environment may hold bytes that are not UTF-8."""
    name, value = os.fsdecode(b"NAME\xff"), os.fsdecode(b"\xfe=\n\0".rstrip(b"\0"))
    request = ForkRequest(("python", "-m", "módulo"), {name: value, "EMPTY": ""}, (1, 7, 9), 3)

    assert ForkRequest.from_bytes(request.to_bytes()) == request


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"argv": 1}', b"\xff"])
def test_what_is_not_a_request_is_refused(text: bytes) -> None:
    """The warm parent lets go of such a connection."""
    with pytest.raises(ValueError):
        ForkRequest.from_bytes(text)
