"""Every example by the commands of its README, as a reader would type them; the demo; and what is said of bad input."""

import base64
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from support.archives import has_nginx
from support.building import EXAMPLES, ROOT, alone_in
from support.stack import Stack, serving

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

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.timeout(SECONDS)]


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


def test_the_demo_reads_most_held_back_images_rightly() -> None:
    """It serves, says what it waits for, asks with PNG and JPEG, prints each answer, and exits with 0."""
    digits = EXAMPLES / "digits"
    with alone_in(digits):
        for program in ("train.py", "demo.py"):
            done = run(str(digits / program))
            assert done.returncode == 0, done.stdout + done.stderr
    waiting = done.stdout[done.stdout.index("$ tfs-proxy serve") : done.stdout.index("ready after")]
    answers = re.findall(
        r"^POST \S+\.(png|jpg) .* -> \{\"label\": \d, .*\}  (right|WRONG)$", done.stdout, re.MULTILINE
    )
    verdicts = [verdict for _, verdict in answers]

    assert "s: starting: loading the models\n" in waiting
    assert len(answers) >= 10
    assert {suffix for suffix, _ in answers} == {"png", "jpg"}
    assert verdicts.count("right") >= 0.9 * len(verdicts)
    assert f"{verdicts.count('right')} of {len(verdicts)} right" in done.stdout


def served(folder: str, program: str) -> Iterator[Stack]:
    """A stack that serves what the example's README has built; builds it where it was not run."""
    archive = EXAMPLES / folder / "build" / "model.tar.gz"
    with alone_in(EXAMPLES / folder):
        built = None if archive.exists() else run(str(EXAMPLES / folder / program))
    assert built is None or built.returncode == 0, built.stderr
    with serving(str(archive)) as stack:
        yield stack


@pytest.fixture(scope="module")
def vit() -> Iterator[Stack]:
    yield from served("vit_in_graph", "export.py")


@pytest.fixture(scope="module")
def numerals() -> Iterator[Stack]:
    yield from served("labels_in_graph", "train.py")


def as_base64(content: bytes) -> str:
    """What the models' signatures take for a picture."""
    return base64.urlsafe_b64encode(content).decode()


def png(width: int) -> bytes:
    """A black picture of 28 rows."""
    out = io.BytesIO()
    Image.new("L", (width, 28)).save(out, "PNG")
    return out.getvalue()


BAD_STRINGS = [
    pytest.param(as_base64(b"a text, and no picture"), "Unknown image file format", id="text"),
    pytest.param("no base64!", "Invalid character found in base64", id="no base64"),
    pytest.param(7, "DT_STRING takes strings", id="a number"),
]


def error_of(stack: Stack, body: Any) -> str:
    """The text with which JSON is refused as the client's mistake."""
    answer = stack.invoke(json.dumps(body))
    assert answer.status == 400, answer.body
    return str(answer.json["error"])


@pytest.mark.parametrize(("string", "said"), BAD_STRINGS)
def test_the_vision_transformer_says_what_is_no_picture(vit: Stack, string: object, said: str) -> None:
    assert said in error_of(vit, {"instances": [string]})


@pytest.mark.parametrize(
    ("string", "said"),
    [*BAD_STRINGS, pytest.param(as_base64(png(30)), "shape has 784", id="another size")],
)
def test_the_labels_example_says_what_is_no_picture_of_its_size(
    numerals: Stack, string: object, said: str
) -> None:
    """A bad one among good ones fails the request, with the reason."""
    good = as_base64(png(28))
    body = {"instances": [good, string]}

    assert said in error_of(numerals, body)
