"""Large uploads that stall: as many at a time as the disk has room for, and the next is told to come again."""

import json
import select
import shutil
import socket
from contextlib import ExitStack, closing
from http.client import HTTPResponse
from pathlib import Path

from support.archives import NEEDS_NGINX, stand_in_words
from support.stack import Stack, serving

pytestmark = NEEDS_NGINX
HEAD = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
MEGABYTE = 1024 * 1024
ANSWER_SECONDS = 12.0
"""Less than the time that a body gets to arrive."""


def upload(stack: Stack, held: ExitStack, size: int) -> socket.socket:
    """A client that sends the first megabyte of a body, and no more."""
    client = held.enter_context(closing(socket.create_connection((stack.host, stack.port), timeout=40)))
    client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % size + b" " * MEGABYTE)
    return client


def test_a_large_upload_too_many_is_told_to_come_again(tmp_path: Path) -> None:
    """503 with Retry-After and the reason, while two hold the disk; small requests are served."""
    largest_mb = shutil.disk_usage(tmp_path).free // MEGABYTE * 8 // 25  # four fifths hold two and a half
    env = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": f"{largest_mb}", "SAGEMAKER_GUNICORN_WORKERS": "1"}
    with (
        serving(*stand_in_words(tmp_path), env=env) as stack,
        ExitStack() as held,
    ):
        uploads = [upload(stack, held, largest_mb * MEGABYTE) for _ in range(3)]
        # Whichever the server reads last is one too many; the others are answered only at their deadline.
        (answered,), _, _ = select.select(uploads, [], [], ANSWER_SECONDS)
        refused = HTTPResponse(answered)
        refused.begin()
        error = json.loads(refused.read())["error"]
        small = stack.invoke('{"instances": [1.0]}')

    assert (refused.status, refused.getheader("Retry-After")) == (503, "5")
    assert "the disk on which they wait has no room" in error
    assert small.status == 200
