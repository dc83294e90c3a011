"""What scripts of code_examples refuse, without a server; `processes/code_examples` has what they answer."""

import io
import runpy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from support.building import EXAMPLES
from tfs_proxy import testing
from tfs_proxy.values.signature import TensorSpec
from tfs_proxy.wire.protos import Example

DIGITS = testing.signature(
    {"x": TensorSpec("x", "DT_FLOAT", (None, 8, 8, 1))}, {"y": TensorSpec("y", "DT_FLOAT", (None, 10))}
)
RECORDS = EXAMPLES / "resnet50_tfrecord"
IMAGE_OF = runpy.run_path(str(RECORDS / "inference.py"))["image_of"]
PACKED = runpy.run_path(str(RECORDS / "pack.py"))["example"]


def image(format_name: str, size: tuple[int, int] = (8, 8), mode: str = "L", ink: Any = 255) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, ink).save(out, format_name)
    return out.getvalue()


@pytest.fixture(scope="module")
def digits() -> Iterator[testing.LoadedScript]:
    with testing.load(EXAMPLES / "digits" / "inference.py", signatures=DIGITS) as script:
        yield script


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("image/png; charset=binary", image("PNG", (31, 97))),
        ("IMAGE/JPEG", image("JPEG", (64, 64), "RGB", (255, 255, 255))),
        ("application/x-image", image("PNG", mode="1", ink=1)),
    ],
)
def test_digits_turns_any_white_image_into_one_record_of_ones(
    digits: testing.LoadedScript, media_type: str, body: bytes
) -> None:
    """Formats, sizes and colour modes all come down to 8x8x1 values from 0 to 1."""
    assert digits.post(body, media_type).status == 200
    assert digits.calls[-1].inputs["x"].tolist() == [[[[1.0]] * 8] * 8]


@pytest.mark.parametrize(
    ("media_type", "body", "status"),
    [
        ("application/json", b"{}", 415),
        (None, image("PNG"), 415),
        ("image/png", b"", 400),
        ("image/png", image("PNG", (64, 64))[:60], 400),
        ("image/jpeg", image("PNG"), 400),
        ("image/png", image("PNG").replace(b"IDAT", b"IDAX"), 400),
    ],
)
def test_digits_refuses_what_is_no_image(
    digits: testing.LoadedScript, media_type: str | None, body: bytes, status: int
) -> None:
    """Another type is 415 with those that it reads; empty, cut off, damaged or mislabelled bytes are 400."""
    refused = digits.post(body, media_type)
    assert refused.status == status
    assert ("image/png" if status == 415 else "not a readable") in refused.json["error"]


@given(st.binary(max_size=400), st.dictionaries(st.text(max_size=5), st.binary(max_size=300), max_size=3))
def test_the_image_of_a_tf_example_is_found(image: bytes, others: dict[str, bytes]) -> None:
    """Among other features, whatever it holds."""
    example = Example()
    for name, value in {**others, "image/encoded": image}.items():
        example.features.feature[name].bytes_list.value.append(value)
    assert IMAGE_OF(example.SerializeToString()) == IMAGE_OF(PACKED(image)) == image


@pytest.mark.parametrize("record", [b"", b"no example", b"\x0a\x00"])
def test_other_records_are_refused(record: bytes) -> None:
    """The text names the feature that is missing."""
    with pytest.raises(ValueError, match=r"not a tf\.Example"):
        IMAGE_OF(record)
