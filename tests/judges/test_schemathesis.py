"""schemathesis judges a real stack by the document that the stack itself gives; `make prove-openapi` sends more."""

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.judges import CLIENTS, Judge
from support.stack import serving

CASES = int(os.environ.get("SCHEMATHESIS_CASES", "500"))
SEED = os.environ.get("SCHEMATHESIS_SEED", "1")
SECONDS = 1800.0

Judged = Callable[[str, int], subprocess.CompletedProcess[str]]


@pytest.fixture
def judged(judges: Callable[[str], Judge]) -> Judged:
    """Runs it against a server: ``judged(url, cases)``."""

    def run(url: str, cases: int) -> subprocess.CompletedProcess[str]:
        words = (CLIENTS / "schemathesis_run.py", url, "--cases", str(cases), "--seed", SEED)
        return judges("schemathesis").attempt("python", *words, seconds=SECONDS)

    return run


@pytest.mark.tensorflow
@pytest.mark.parametrize("nginx", ["true", "false"])
def test_every_answer_is_described(judged: Judged, saved_models: Path, nginx: str) -> None:
    """No error of the server but 503 and 504, and no status, type or body that the document does not have."""
    env = {"TFS_PROXY_NGINX": nginx, "SAGEMAKER_TFS_VERSION_LABELS": "stable=1"}
    with serving(str(saved_models / "half_plus_two"), env=env) as stack:
        said = judged(f"http://{stack.host}:{stack.port}", CASES)

    print(said.stdout)
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{CASES} cases of " in said.stdout


ANSWER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OPERATION = {"responses": {"200": {"description": "", "content": {"application/json": {"schema": ANSWER}}}}}
DOCUMENT = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {"/n": {"get": OPERATION}}}


@contextmanager
def answering(status: int, content_type: str, body: bytes) -> Iterator[str]:
    """A server that gives `DOCUMENT`, and always the same answer at its path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            described = self.path == "/openapi.json"
            self.send_response(200 if described else status)
            self.send_header("Content-Type", "application/json" if described else content_type)
            self.end_headers()
            self.wfile.write(json.dumps(DOCUMENT).encode() if described else body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "content_type", "body", "described"),
    [
        (200, "application/json", b'{"n": 1}', True),
        (503, "application/json", b"{}", False),
        (500, "application/json", b"{}", False),
        (404, "application/json", b"{}", False),
        (200, "text/plain", b"n", False),
        (200, "application/json", b'{"n": "one"}', False),
        (200, "application/json", b"not JSON", False),
    ],
)
def test_the_judge_notices(
    judged: Judged, status: int, content_type: str, body: bytes, described: bool
) -> None:
    """What its document does not describe is a failure, and so is an error of the server."""
    with answering(status, content_type, body) as url:
        said = judged(url, 20)

    assert ("of 1 operations, 0 failures" in said.stdout) is described, said.stdout + said.stderr
    assert said.returncode == (0 if described else 1)
