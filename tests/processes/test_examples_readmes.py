"""Every example by the commands of its README, as a reader would type them; and what it says of bad input."""

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from PIL import Image

from support.archives import has_nginx
from support.building import EXAMPLES, ROOT, alone_in
from support.predict_messages import request_bytes
from support.stack import Stack, serving
from tfs_proxy.wire.protos.predict import model_spec

NEEDS_NGINX = pytest.mark.skipif(
    not has_nginx(), reason="nginx publishes gRPC, and finds the model that is asked for"
)
OF_NGINX = ("_GRPC_", "_MULTI_MODEL", "serve --multi-model")
READMES = [
    pytest.param(
        readme,
        id=readme.parent.name,
        marks=[NEEDS_NGINX] if any(text in readme.read_text() for text in OF_NGINX) else [],
    )
    for readme in sorted(EXAMPLES.glob("*/README.md"))
]
SECONDS = 900
PREDICT = "/tensorflow.serving.PredictionService/Predict"

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(SECONDS)]


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run a Python program to its end; batch jobs take fewer photographs than a reader's."""
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PHOTOGRAPHS": "100"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.parametrize("readme", READMES)
def test_an_example_does_what_its_readme_says(readme: Path) -> None:
    """Each command ends well, and prints what stands below it."""
    name = readme.parent.name
    with alone_in(readme.parent):
        done = run(str(ROOT / "scripts" / "run_examples.py"), name)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name}: as written" in done.stdout


def served(folder: str, program: str, **env: str) -> Iterator[Stack]:
    """A stack that serves what the example's README has built; builds it where it was not run."""
    archive = EXAMPLES / folder / "build" / "model.tar.gz"
    with alone_in(EXAMPLES / folder):
        built = None if archive.exists() else run(str(EXAMPLES / folder / program))
    assert built is None or built.returncode == 0, built.stderr
    with serving(str(archive), env=env) as stack:
        yield stack


@pytest.fixture(scope="module")
def vit() -> Iterator[Stack]:
    yield from served("vit_in_graph", "export.py", TFS_PROXY_GRPC_PORT="0" if has_nginx() else "off")


@pytest.fixture(scope="module")
def numerals() -> Iterator[Stack]:
    yield from served("labels_in_graph", "train.py")


def as_base64(content: bytes) -> str:
    """What the models' signatures take for a picture."""
    return base64.urlsafe_b64encode(content).decode()


def png(width: int, height: int) -> bytes:
    """A black picture."""
    out = io.BytesIO()
    Image.new("L", (width, height)).save(out, "PNG")
    return out.getvalue()


BAD_STRINGS = [
    pytest.param(as_base64(b"a text, and no picture"), "Unknown image file format", id="text"),
    pytest.param("no base64!", "Invalid character found in base64", id="no base64"),
    pytest.param(7, "DT_STRING takes strings", id="a number"),
]


def error_of(stack: Stack, path: str, body: Any) -> str:
    """The text with which JSON is refused as the client's mistake."""
    answer = stack.ask("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    assert answer.status == 400, answer.body
    return str(answer.json["error"])


@pytest.mark.parametrize(("string", "said"), BAD_STRINGS)
@pytest.mark.parametrize(
    "path", ["/invocations", "/v1/models/vit:predict", "/v1/models/vit/versions/1:predict"]
)
def test_the_vision_transformer_says_what_is_no_picture(
    vit: Stack, path: str, string: object, said: str
) -> None:
    """The same words at SageMaker's door and at TF Serving's."""
    assert said in error_of(vit, path, {"instances": [string]})


def test_a_file_instead_of_json_is_refused(vit: Stack) -> None:
    """The model wants base64, which a JPEG file is not; and no text is a record of it either."""
    for content_type in ("image/jpeg", "application/json", "text/csv"):
        answer = vit.invoke(b"\xff\xd8\xff\xe0 a file", content_type)
        assert answer.status == 400
        assert answer.json["error"]


@NEEDS_NGINX
def test_a_grpc_client_hears_the_same(vit: Stack) -> None:
    """INVALID_ARGUMENT, with the model server's words."""
    bad = np.array([as_base64(b"a text, and no picture").encode()], object)
    message = request_bytes(model_spec("vit"), {"string_input": bad})
    with grpc.insecure_channel(vit.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(PREDICT)(message, timeout=30)
    refused: Any = caught.value

    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Unknown image file format" in refused.details()


@pytest.mark.parametrize(
    ("string", "said"),
    [*BAD_STRINGS, pytest.param(as_base64(png(30, 28)), "shape has 784", id="another size")],
)
def test_the_labels_example_says_what_is_no_picture_of_its_size(
    numerals: Stack, string: object, said: str
) -> None:
    """A bad one among good ones fails the request, with the reason."""
    good = as_base64(png(28, 28))
    body = {"instances": [good, string]}

    assert said in error_of(numerals, "/invocations", body)
    assert said in error_of(numerals, "/v1/models/numerals:predict", body)
