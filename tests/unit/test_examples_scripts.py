"""The scripts of code_examples, called directly: no server, no model, no sockets."""

import base64
import io
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import falcon
import pytest
from PIL import Image

from support.loading import load_module
from tfs_proxy import HTTPError

EXAMPLES = Path(__file__).resolve().parents[2] / "code_examples"


def load(example: str) -> ModuleType:
    """The example's inference.py, under a name of its own."""
    return load_module(EXAMPLES / example / "inference.py")


def context(content_type: str | None) -> Any:
    return SimpleNamespace(request_content_type=content_type, accept_header="*/*")


def answer(status: int, body: object) -> Any:
    content = json.dumps(body).encode()
    return SimpleNamespace(status_code=status, content=content, json=lambda: json.loads(content))


def image(format_name: str, size: tuple[int, int] = (8, 8), mode: str = "L", ink: Any = 255) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, ink).save(out, format_name)
    return out.getvalue()


@pytest.fixture(scope="module")
def digits() -> ModuleType:
    return load("digits")


@pytest.fixture(scope="module")
def resnet() -> ModuleType:
    return load("resnet50_jpeg")


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("image/png", image("PNG")),
        ("image/png; charset=binary", image("PNG")),
        ("IMAGE/JPEG", image("JPEG")),
        ("application/x-image", image("PNG")),
        ("application/x-image", image("JPEG")),
        ("image/png", image("PNG", (31, 97))),
        ("image/jpeg", image("JPEG", (64, 64), "RGB", (255, 255, 255))),
        ("image/png", image("PNG", (8, 8), "1", 1)),
    ],
)
def test_digits_turns_any_white_image_into_one_record_of_ones(
    digits: ModuleType, media_type: str, body: bytes
) -> None:
    """Formats, sizes and colour modes all come down to 8x8x1 values from 0 to 1."""
    record = json.loads(digits.input_handler(io.BytesIO(body), context(media_type)))
    assert record == {"instances": [[[[1.0]] * 8] * 8]}


def test_digits_keeps_the_pixels_where_they_are(digits: ModuleType) -> None:
    """An 8x8 image is passed on pixel for pixel, rows first."""
    picture = Image.new("L", (8, 8))
    picture.putpixel((2, 5), 51)
    out = io.BytesIO()
    picture.save(out, "PNG")
    [rows] = json.loads(digits.input_handler(io.BytesIO(out.getvalue()), context("image/png")))["instances"]
    assert rows[5][2][0] == pytest.approx(0.2)
    assert sum(pixel for row in rows for [pixel] in row) == pytest.approx(0.2)


@pytest.mark.parametrize("media_type", ["application/json", "image/gif", "", None])
def test_digits_refuses_other_media_types(digits: ModuleType, media_type: str | None) -> None:
    """What the script does not read is 415, with what it does read."""
    with pytest.raises(HTTPError, match="image/png") as refusal:
        digits.input_handler(io.BytesIO(b"{}"), context(media_type))
    assert refusal.value.status == 415


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("image/png", b""),
        ("image/png", b"no image at all"),
        ("image/png", image("PNG", (64, 64))[:60]),
        ("image/jpeg", image("JPEG", (64, 64))[:300]),
        ("image/jpeg", image("PNG")),
        ("image/png", image("PNG").replace(b"IDAT", b"IDAX")),
        ("application/x-image", image("GIF")),
    ],
)
def test_digits_refuses_what_is_no_image(digits: ModuleType, media_type: str, body: bytes) -> None:
    """Empty, truncated, damaged or mislabelled bytes are the client's mistake."""
    with pytest.raises(HTTPError, match="not a readable") as refusal:
        digits.input_handler(io.BytesIO(body), context(media_type))
    assert refusal.value.status == 400


def test_digits_answers_label_and_confidence(digits: ModuleType) -> None:
    """The likeliest of the ten digits is the answer."""
    probabilities = [0.01] * 7 + [0.93] + [0.0] * 2
    body, media_type = digits.output_handler(answer(200, {"predictions": [probabilities]}), context(None))
    assert json.loads(body) == {"label": 7, "confidence": 0.93}
    assert media_type == "application/json"


def test_resnet_wraps_jpeg_bytes_in_base64(resnet: ModuleType) -> None:
    """The bytes arrive unchanged under the input's name."""
    body = json.loads(resnet.input_handler(io.BytesIO(b"\xff\xd8jpeg"), context("application/x-image")))
    [record] = body["instances"]
    assert base64.b64decode(record["image_bytes"]["b64"]) == b"\xff\xd8jpeg"


def test_resnet_refuses_other_media_types(resnet: ModuleType) -> None:
    """The classic script says 415 with an error that AWS's container knows too."""
    with pytest.raises(falcon.HTTPUnsupportedMediaType):
        resnet.input_handler(io.BytesIO(b"{}"), context("application/json"))


@pytest.mark.parametrize("example", ["digits", "resnet50_jpeg"])
def test_an_error_of_the_model_server_is_passed_on(example: str) -> None:
    """The client reads the model server's own words."""
    body, media_type = load(example).output_handler(answer(400, {"error": "no such input"}), context(None))
    assert json.loads(body) == {"error": "no such input"}
    assert media_type == "application/json"
