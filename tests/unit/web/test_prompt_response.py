"""The answers of the thread worker: what their heads promise about the connection is kept."""

import socket
from contextlib import closing

import pytest
from gunicorn.config import Config

from tfs_proxy.web.workers.plain_request import plain_request
from tfs_proxy.web.workers.threads.prompt_response import PromptResponse


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("body", [b"body", b""])
def test_the_end_of_a_worker_does_not_change_an_answer_that_is_out(before: bool, body: bytes) -> None:
    """A client that was told to keep its connection may have sent on it already: it is not closed."""
    ending = before
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        request = plain_request(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n", ours)
        assert request is not None
        response = PromptResponse(request, ours, Config(), lambda: ending)
        response.start_response("200 OK", [("Content-Length", str(len(body)))])
        if body:
            response.write(body)
        response.close()
        head = theirs.recv(1000)

        ending = not before

        assert (b"Connection: close" in head) is before
        assert response.should_close() is before
