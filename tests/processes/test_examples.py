"""The examples as a user runs them: built, served by the real command, asked over HTTP."""

import io
import json
import re
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from support.building import EXAMPLES, alone_in
from support.loading import load_module
from support.ports import free_port

RESNET = EXAMPLES / "resnet50_jpeg"
PHOTOGRAPHS = ("china.jpg", "flower.jpg")
BUILD_SECONDS = 600
ANSWER_SECONDS = 60

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(2 * BUILD_SECONDS)]


def run(script: Path) -> subprocess.CompletedProcess[str]:
    """Run one of the examples' programs to its end, whatever its status."""
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )


def build(script: Path) -> Path:
    """Run a training or export program (nothing is done twice); the archive it leaves."""
    with alone_in(script.parent):
        done = run(script)
    assert done.returncode == 0, done.stderr
    return script.parent / "build" / "model.tar.gz"


def load_demo() -> ModuleType:
    """demo.py as a module: the tests start and stop servers as the demo does."""
    return load_module(EXAMPLES / "digits" / "demo.py")


def post(url: str, body: bytes, media_type: str) -> tuple[int, Any]:
    """POST to /invocations; the status and the JSON."""
    request = urllib.request.Request(f"{url}/invocations", body, {"Content-Type": media_type})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=ANSWER_SECONDS) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def serve(archive: Path, log_file: Path) -> Iterator[str]:
    """The address of a server of ``archive``, for as long as the generator lives."""
    demo = load_demo()
    with demo.serving(archive, free_port(), log_file) as url:
        yield url


@pytest.fixture(scope="module")
def digits_archive() -> Path:
    return build(EXAMPLES / "digits" / "train.py")


@pytest.fixture(scope="module")
def resnet_archive() -> Path:
    return build(RESNET / "export.py")


@pytest.fixture(scope="module")
def numpy_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    archive = build(EXAMPLES / "numpy_script" / "export.py")
    yield from serve(archive, tmp_path_factory.mktemp("numpy") / "serve.log")


@pytest.fixture(scope="module")
def streaming_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    archive = build(EXAMPLES / "streaming" / "export.py")
    yield from serve(archive, tmp_path_factory.mktemp("streaming") / "serve.log")


@pytest.fixture(scope="module")
def resnet_url(resnet_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from serve(resnet_archive, tmp_path_factory.mktemp("resnet") / "serve.log")


@pytest.fixture(scope="module")
def demonstrated(digits_archive: Path) -> str:
    """What the demo prints."""
    done = run(digits_archive.parents[1] / "demo.py")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_reads_most_held_back_images_rightly(demonstrated: str) -> None:
    """The demo serves, asks with PNG and JPEG, prints each answer, and exits with 0."""
    answers = re.findall(
        r"^POST \S+\.(png|jpg) .* -> \{\"label\": \d, .*\}  (right|WRONG)$", demonstrated, re.MULTILINE
    )
    assert len(answers) >= 10
    assert {suffix for suffix, _ in answers} == {"png", "jpg"}
    verdicts = [verdict for _, verdict in answers]
    assert verdicts.count("right") >= 0.9 * len(verdicts)
    assert f"{verdicts.count('right')} of {len(verdicts)} right" in demonstrated


def test_the_demo_says_what_it_waits_for(demonstrated: str) -> None:
    """Between the command and `ready` stand the reasons that /ping gives, with the seconds."""
    waiting = demonstrated[demonstrated.index("$ tfs-proxy serve") : demonstrated.index("ready after")]

    assert re.search(r"^ +\d+\.\d s: starting: ", waiting, re.MULTILINE)
    assert "s: starting: loading the models\n" in waiting


@pytest.mark.usefixtures("digits_archive")
def test_the_demo_fails_loudly_where_the_server_dies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A server that can't start makes the demo exit with 1 and show the server's own words."""
    demo = load_demo()
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(b"no archive")
    monkeypatch.setattr(demo, "ARCHIVE", broken)
    monkeypatch.setattr(demo, "SERVER_LOG", tmp_path / "serve.log")
    assert demo.main() == 1
    assert re.search(r"the server ended with status [1-9]\d*\.\nThe last lines", capsys.readouterr().err)


def test_training_twice_costs_nothing(digits_archive: Path) -> None:
    """An archive newer than its sources is left alone."""
    before = digits_archive.stat().st_mtime_ns
    assert "up to date" in run(EXAMPLES / "digits" / "train.py").stdout
    assert digits_archive.stat().st_mtime_ns == before


def test_resnet_answers_as_the_saved_model_does(
    resnet_archive: Path, resnet_url: str, tmp_path: Path
) -> None:
    """Through the script and the model server come the numbers of the SavedModel called directly."""
    import tensorflow as tf

    with tarfile.open(resnet_archive) as archive:
        archive.extractall(tmp_path, filter="data")
    model = tf.saved_model.load(str(tmp_path / "resnet50" / "1"))
    expected = json.loads((RESNET / "build" / "expected.json").read_text())
    for name in PHOTOGRAPHS:
        jpeg = (RESNET / "build" / "images" / name).read_bytes()
        direct = model.signatures["serving_default"](image_bytes=tf.constant([jpeg]))
        status, content = post(resnet_url, jpeg, "application/x-image")
        assert status == 200, content
        [prediction] = content["predictions"]
        assert prediction["classes"] == int(direct["classes"][0]) == expected[name]["class"]
        np.testing.assert_allclose(prediction["probabilities"], direct["probabilities"][0], atol=1e-4)


def test_the_numpy_script_says_an_images_colour(numpy_url: str) -> None:
    """Pixels reach the model as floats, and its outputs the script as arrays."""
    picture = io.BytesIO()
    Image.new("RGB", (300, 200), (255, 128, 0)).save(picture, "PNG")
    expected = {"red": 1.0, "green": 0.502, "blue": 0.0}
    assert post(numpy_url, picture.getvalue(), "image/png") == (200, expected)
    assert post(numpy_url, b"no image", "image/png")[0] == 400


def test_the_streaming_script_answers_each_line(streaming_url: str) -> None:
    """A thousand lines come back in order, in chunks."""
    body = "".join(f"{number}\n" for number in range(1000)).encode()
    request = urllib.request.Request(f"{streaming_url}/invocations", body)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=ANSWER_SECONDS) as response:
        assert response.headers["Transfer-Encoding"] == "chunked"
        assert [float(line) for line in response] == [number / 2 + 2 for number in range(1000)]
    assert post(streaming_url, b"1\nx\n", "text/plain")[0] == 400
