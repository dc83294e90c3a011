"""The TFRecord example's script reads tf.Examples without tensorflow."""

import base64
import io
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Path(__file__).resolve().parents[2] / "code_examples" / "resnet50_tfrecord"
SCRIPT = runpy.run_path(str(FOLDER / "inference.py"))
PACK = runpy.run_path(str(FOLDER / "pack.py"))


@given(st.binary(max_size=400), st.dictionaries(st.text(max_size=5), st.binary(max_size=300), max_size=3))
def test_the_image_is_found(image: bytes, others: dict[str, bytes]) -> None:
    """Among other features, whatever it holds."""
    from tfs_proxy.wire.protos import Example

    example = Example()
    for name, value in {**others, "image/encoded": image}.items():
        example.features.feature[name].bytes_list.value.append(value)
    assert SCRIPT["image_of"](example.SerializeToString()) == image
    assert SCRIPT["image_of"](PACK["example"](image)) == image


def test_a_request_and_its_answer() -> None:
    """Base64 to the model, and its answer on one line."""
    request = json.loads(SCRIPT["input_handler"](io.BytesIO(PACK["example"](b"jpeg")), None))
    assert base64.b64decode(request["instances"][0]["image_bytes"]["b64"]) == b"jpeg"

    class Response:
        content = b'{\n "predictions": [\n  1 ]\n}'

    answer: Any = SCRIPT["output_handler"](Response(), None)
    assert answer == ('{"predictions":[1]}', "application/jsonlines")


@pytest.mark.parametrize("record", [b"", b"no example", b"\x0a\x00"])
def test_other_records_are_refused(record: bytes) -> None:
    """The text names the feature that is missing."""
    with pytest.raises(ValueError, match=r"not a tf\.Example"):
        SCRIPT["image_of"](record)
