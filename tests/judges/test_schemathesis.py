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

from support.archives import pack
from support.judges import CLIENTS, Judge
from support.multi_model import serving_many
from support.stack import serving

CASES = int(os.environ.get("SCHEMATHESIS_CASES", "500"))
FEWER_CASES = max(200, CASES // 10)
SEED = os.environ.get("SCHEMATHESIS_SEED", "1")
SECONDS = 1800.0

Judged = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def judged(judges: Callable[[str], Judge]) -> Judged:
    """Runs it against a server: ``judged(url, cases)``; more words are those of the client."""

    def run(url: str, cases: int, *more: str) -> subprocess.CompletedProcess[str]:
        words: tuple[str | Path, ...] = (CLIENTS / "schemathesis_run.py", url, "--cases", str(cases))
        return judges("schemathesis").attempt("python", *words, "--seed", SEED, *more, seconds=SECONDS)

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


@pytest.mark.nginx
@pytest.mark.tensorflow
@pytest.mark.parametrize("by_folder", [False, True])
def test_every_answer_of_an_endpoint_of_many_models(
    judged: Judged, saved_models: Path, tmp_path: Path, by_folder: bool
) -> None:
    """Whether a model is there, is loaded once more, or has gone; the control API gives the document."""
    archive = pack(tmp_path / "half.tar.gz", {}, {"half": saved_models / "half_plus_two"})
    with serving_many(*(("--multi-model", str(tmp_path)) if by_folder else ())) as stack:
        stack.loaded("half", archive)
        said = judged(f"http://{stack.host}:{stack.port}", FEWER_CASES, "--model", "half", str(archive))

    print(said.stdout)
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{FEWER_CASES} cases of " in said.stdout


DESCRIBED = """
import json
import tfs_proxy

tfs_proxy.describe(
    accepts={"application/json": list[float], "text/plain": str},
    returns={"application/json": dict[str, float], "text/csv": str},
    examples={"text/plain": b"1.0 2.0"},
)


def handler(data, context):
    body = data.read()
    try:
        is_json = context.request_content_type == "application/json"
        numbers = json.loads(body) if is_json else body.decode().split()
        largest = max(float(number) for number in numbers)
    except (ValueError, TypeError) as error:
        raise tfs_proxy.HTTPError(422, str(error))
    if context.accept_header == "text/csv":
        return str(largest), "text/csv"
    return json.dumps({"largest": largest}), "application/json"
"""

HALF = """
import tfs_proxy


def input_handler(data, context):
    if context.request_content_type == "text/plain":
        raise tfs_proxy.HTTPError(415, "no text")
    return context.default_input(data)
"""

SCRIPT_MODEL = """
import numpy as np


def model_fn(model_dir):
    return 2


def predict_fn(data, model):
    return np.full(data.shape, model)
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("script", "protocol"),
    [
        pytest.param(DESCRIBED, "v2", id="described"),
        pytest.param(DESCRIBED, "v2-script", id="described, asked in the protocol"),
        pytest.param(HALF, "v2", id="half"),
        pytest.param(HALF, "v2-script", id="half, asked in the protocol"),
        pytest.param(SCRIPT_MODEL, "v2-script", id="script model"),
    ],
)
def test_every_answer_of_a_script(
    judged: Judged, saved_models: Path, tmp_path: Path, script: str, protocol: str
) -> None:
    """What it has described, what it leaves to the conversion, and what its own statuses are."""
    folders = {} if script is SCRIPT_MODEL else {"half": saved_models / "half_plus_two"}
    archive = pack(tmp_path / "model.tar.gz", {"code/inference.py": script}, folders)
    with serving(
        str(archive), env={"TFS_PROXY_NGINX": "false", "TFS_PROXY_DOORS": f"v1,page,{protocol}"}
    ) as stack:
        said = judged(f"http://{stack.host}:{stack.port}", FEWER_CASES)

    print(said.stdout)
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{FEWER_CASES} cases of " in said.stdout


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
